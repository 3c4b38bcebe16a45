"""Retrieval of a value by its key, by a softmax head and by a linear one; derived from a statement
(`theory.statement`).
"""

from theory.associative_memory.retrieval import emergence
from theory.associative_memory.retrieval.numbers import TIMES, applies, emergence_time
from theory.associative_memory.retrieval.statement import stated
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
    stated, {"Retrieval by a softmax head: emergence": [emergence]}, TIMES
)
