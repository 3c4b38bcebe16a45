"""Which students the online theory describes."""

from theory import Scope, only, scope

RUN = ("steps", "eval_every")
STEP = ("eta",)  # enters with the number of sentences of a step
ANY = Scope(
    "the online theory", "one-pass descent of one tied layer of rank one", (), RUN, (*STEP, "norm")
)
FREE = Scope(
    "the flow of (q, m, theta)",
    "one-pass descent of free weights",
    (only("norm", "free"),),
    RUN,
    STEP,
)
HELD = Scope(
    "the flow at a given norm", "one-pass descent on a sphere", (only("norm", "held"),), RUN, STEP
)
SCOPES = {"online": ANY, "free": FREE, "held": HELD}
applies = scope.applies(SCOPES)
