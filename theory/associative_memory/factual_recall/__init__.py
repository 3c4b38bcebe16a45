"""Factual recall by linear attention, with a loss plateau at which the subject is ignored (slides;
Nichani et al. 2024).
"""

from theory.associative_memory.factual_recall import dynamics, timescales
from theory.associative_memory.factual_recall.dynamics import PARTS, flow
from theory.associative_memory.factual_recall.numbers import closed_form, time_of_share
from theory.associative_memory.factual_recall.onset import emergence_times, onset
from theory.associative_memory.factual_recall.parameters import Parameters, applies
from theory.associative_memory.factual_recall.predict import predict
from theory.catalogue import catalogue

__all__ = [
    "PARTS",
    "Parameters",
    "applies",
    "closed_form",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "sections",
    "time_of_share",
]

flows, sections, equations = catalogue(
    {
        "Factual recall: exact reduction": [dynamics.losses],
        "Factual recall: flow": [dynamics, flow],
        "Factual recall: hitting times": [timescales],
    },
    flow,
)
