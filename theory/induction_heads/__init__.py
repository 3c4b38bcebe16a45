"""Induction heads in the disentangled two-layer transformer (Musat et al., arXiv:2511.01033)."""

from __future__ import annotations

from theory.equation import Equation
from theory.flow import Flow
from theory.induction_heads import (
    attention,
    definitions,
    drop,
    dynamics,
    emergence,
    expansions,
    onset,
    query,
    structure,
)
from theory.induction_heads.all_weights import law, loss, plateau, scores
from theory.induction_heads.dynamics import flow
from theory.induction_heads.parameters import Parameters
from theory.induction_heads.predict import all_weights_times, predict, times

__all__ = [
    "Parameters",
    "all_weights_times",
    "drop",
    "emergence",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "query",
    "sections",
    "structure",
    "times",
]


def flows() -> dict[str, Flow]:
    """The model's ODE systems by name."""
    return {f.name: f for f in (flow(), plateau.flow())}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Definitions": [*definitions.equations().values()],
        "Which weights can leave zero": [*structure.equations().values()],
        "Attention and loss for any queried pair": [*attention.equations().values()],
        "Three parameters: loss, gradient, invariant": [*dynamics.equations().values()],
        "Flow": [*flow().equations().values()],
        "Emergence times": [*expansions.equations().values()],
        "Drop of the loss": [*drop.equations().values()],
        "Uniform query": [*query.equations().values()],
        "All weights": [*scores.equations().values(), *loss.equations().values()],
        "All weights: plateau and law": [*plateau.equations().values(), *law.equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
