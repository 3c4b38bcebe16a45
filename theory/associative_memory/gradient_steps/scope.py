"""Which learners the theory of three gradient steps describes."""

from theory import Limit, Scope, scope

LINEAR = Limit("first_step", "at most 1 (softmax still linear)", lambda p, runs: p.first_step <= 1)
STEPS = Scope(
    "the population gradients",
    "one step each, the first of them small",
    (LINEAR,),
    ("samples", "second_gain", "third_gain"),
)
SCOPES = {"steps": STEPS}
applies = scope.applies(SCOPES)
