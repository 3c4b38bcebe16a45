"""Key and query in two matrices: from saddle to saddle."""

from __future__ import annotations

from linear_attention.theory import task
from linear_attention.theory.parameters import Parameters
from linear_attention.theory.separate import dynamics, heads
from theory.equation import Equation
from theory.flow import Flow

__all__ = ["Parameters", "dynamics", "equations", "flows", "heads", "sections"]


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Task": [*task.equations().values()],
        "Separate key and query": [*dynamics.equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {x.name: x for section in sections().values() for x in section}


def flows() -> dict[str, Flow]:
    """One aligned head."""
    return {x.name: x for x in (dynamics.flow(),)}
