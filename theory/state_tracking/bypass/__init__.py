"""State tracking with a bypass, one step from the solvable student towards standard transformers:
logits also have a table of the state alone; derived from a statement (`theory.statement`).
"""

from theory.state_tracking.bypass import stages
from theory.state_tracking.bypass.numbers import TIMES, applies, emergence_time, guess_time
from theory.state_tracking.bypass.statement import stated
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
    "guess_time",
    "onset",
    "predict",
    "sections",
    "stated",
]

Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = served(
    stated, {"State tracking with a bypass: stages": [stages]}, TIMES
)
