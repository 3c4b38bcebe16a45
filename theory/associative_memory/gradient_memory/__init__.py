"""Gradients as memories: the lemma, one step, and descent to the end (slides; Bietti et al.
2023).
"""

from __future__ import annotations

import numpy as np

from theory import sweep
from theory.associative_memory.gradient_memory import descent, lemma
from theory.associative_memory.gradient_memory.descent import flow
from theory.associative_memory.gradient_memory.parameters import Parameters
from theory.equation import Equation
from theory.flow import Flow

__all__ = ["Parameters", "equations", "flow", "flows", "margin", "sections"]


@sweep.over_fields
def margin(p: Parameters, t: np.ndarray | float) -> np.ndarray:
    """Margin of `margin_flow` at times ``t = eta * steps``."""
    return descent.margin(p.N, p.K, t)


def flows() -> dict[str, Flow]:
    """The system's ODEs by name."""
    return {f.name: f for f in (flow(),)}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Gradients as memories": [*lemma.equations().values()],
        "One gradient step, and descent to the end": [
            *descent.equations().values(),
            *flow().equations().values(),
        ],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
