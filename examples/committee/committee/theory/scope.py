"""Which students the theory of the committee describes."""

from theory import Limit, Scope, scope

LARGE = Limit(
    "N", "at least 50 (of order 1/N is left out)", lambda p, runs: p.N >= 50, lambda p, runs: p.N
)
COMMITTEE = Scope(
    "the flow of four overlaps",
    "one pass over fresh examples in many dimensions, from a start that is alike for all units",
    (LARGE,),
    ("steps", "eval_every"),
)
applies = scope.applies({"flow": COMMITTEE})
