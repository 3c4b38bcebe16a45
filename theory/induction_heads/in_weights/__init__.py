"""In-context against in-weights learning (Musat et al., Sec. 8; Nguyen and Reddy,
arXiv:2412.00104): which of the two solves the task first, and how weight decay removes it again;
derived from a statement.
"""

from theory.induction_heads.in_weights import emergence, transience
from theory.induction_heads.in_weights.numbers import (
    NUMBERS,
    applies,
    critical_items,
    emergence_time,
    head_share,
    lost_below,
    lost_time,
    solved_time,
)
from theory.induction_heads.in_weights.statement import stated
from theory.statement.model import served

__all__ = [
    "Parameters",
    "applies",
    "critical_items",
    "derived",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "head_share",
    "lost_below",
    "lost_time",
    "onset",
    "predict",
    "sections",
    "solved_time",
    "stated",
]

Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = served(
    stated,
    {
        "In-context against in-weights learning: the race": [emergence],
        "In-context against in-weights learning: weight decay": [transience],
    },
    NUMBERS,
)
