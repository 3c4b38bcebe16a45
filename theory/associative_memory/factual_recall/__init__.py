"""Factual recall by linear attention, with its plateau of ignoring the subject (slides; Nichani et
al. 2024).
"""

from __future__ import annotations

from theory.associative_memory.factual_recall import dynamics, onset, reduction, timescales
from theory.associative_memory.factual_recall.dynamics import PARTS, descend, flow
from theory.associative_memory.factual_recall.parameters import Parameters
from theory.associative_memory.factual_recall.predict import predict
from theory.associative_memory.factual_recall.timescales import closed_form, time_of_share
from theory.equation import Equation
from theory.flow import Flow

__all__ = [
    "PARTS",
    "Parameters",
    "closed_form",
    "descend",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "sections",
    "time_of_share",
]


def flows() -> dict[str, Flow]:
    """The system's ODEs by name."""
    return {f.name: f for f in (flow(),)}


def sections() -> dict[str, list[Equation]]:
    """All equations, grouped as a write-up would."""
    return {
        "Factual recall: exact reduction": [*reduction.equations().values()],
        "Factual recall: flow": [*dynamics.equations().values(), *flow().equations().values()],
        "Factual recall: hitting times": [*timescales.equations().values()],
    }


def equations() -> dict[str, Equation]:
    """All equations by name."""
    return {e.name: e for section in sections().values() for e in section}
