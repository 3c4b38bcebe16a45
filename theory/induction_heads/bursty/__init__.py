"""Induction heads on a burst of right pairs (Musat et al., Sec. 7.2): what bursts do to the context
length; derived from a statement (`theory.statement`).
"""

from theory.induction_heads.bursty import emergence, mixture
from theory.induction_heads.bursty.contexts import random_time, spread_time
from theory.induction_heads.bursty.numbers import NUMBERS, applies, effective_length, emergence_time
from theory.induction_heads.bursty.statement import stated
from theory.statement.model import served

__all__ = [
    "Parameters",
    "applies",
    "derived",
    "effective_length",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "random_time",
    "sections",
    "spread_time",
    "stated",
]

Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = served(
    stated,
    {"Burst of right pairs: emergence": [emergence], "Bursts of random size": [mixture]},
    NUMBERS,
)
