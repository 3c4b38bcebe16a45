"""Which students the theory of the positional-semantic model describes."""

from theory import Scope, only, scope

HOW = ("d", "teacher", "optimizer", "eta", "steps", "n_test")  # the path to the minimum
# Heads need two columns, which the first limit refuses.
TIED = (
    *(only("rank", 1), only("tied", True), only("value", False), only("correlation", 0.0)),
    only("value_rank", 0),
)
ELSEWHERE = "App. E.3 is theory.positional_semantic.extensions"
MINIMUM = Scope(
    "state evolution",
    "minima of one tied layer of rank one on independent tokens",
    TIED,
    (*HOW, "polish", "start"),
    remedy=ELSEWHERE,
)
LINEAR = Scope(
    "the linear baseline",
    "the linear layer on independent tokens",
    (only("correlation", 0.0), only("value_rank", 0)),
    (*HOW, "polish", "start", "rank", "tied", "value", "heads"),
)
DESCENT = Scope(
    "state evolution",
    "minima of one tied layer of rank one, from an informed start",
    (*TIED, only("start", "positional", "semantic"), only("polish", True)),
    HOW,
    remedy=ELSEWHERE,
)
SCOPES = {"minimum": MINIMUM, "descent": DESCENT, "linear": LINEAR}
applies = scope.applies(SCOPES)
