"""Which students the online theory describes."""

from __future__ import annotations

from theory import scope
from theory.scope import Scope, only

RUN = ("d", "steps", "eval_every", "batch")
ANY = Scope("the online theory", "one-pass descent of one tied layer of rank one", (), (*RUN, "norm"))
FREE = Scope(
    "the flow of (q, m, theta)", "one-pass descent of free weights", (only("norm", "free"),), RUN
)
HELD = Scope(
    "the flow at a given norm",
    "one-pass descent on a sphere",
    (only("norm", "held"),),
    RUN,
)
SCOPES = {"online": ANY, "free": FREE, "held": HELD}
applies = scope.applies(SCOPES)
