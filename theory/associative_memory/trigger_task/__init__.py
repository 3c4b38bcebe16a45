"""The trigger-token (in-context bigram) task and its induction head (slides; Bietti et al.
2023).
"""

from __future__ import annotations

from theory.associative_memory.trigger_task import memories
from theory.associative_memory.trigger_task.parameters import Parameters
from theory.equation import Equation
from theory.flow import Flow

__all__ = ["Parameters", "equations", "flows", "sections"]


def flows() -> dict[str, Flow]:
    """No solved dynamics."""
    return {}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {"Trigger task: sequences, memories, probes": [*memories.equations().values()]}


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
