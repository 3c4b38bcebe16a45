"""Factual recall by softmax attention over the tokens; derived from a statement
(`theory.statement`).
"""

from theory.associative_memory.softmax_recall import emergence
from theory.associative_memory.softmax_recall.numbers import NUMBERS, applies, emergence_time
from theory.associative_memory.softmax_recall.statement import stated
from theory.statement.model import served

__all__ = [
    "Parameters",
    "applies",
    "derived",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "predict",
    "sections",
    "stated",
]

Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = served(
    stated, {"Factual recall by softmax attention: emergence": [emergence]}, NUMBERS
)
