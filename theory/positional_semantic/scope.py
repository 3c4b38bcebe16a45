"""Which students the theory of the positional-semantic model describes."""

from theory import Limit, Scope, only, scope

# Heads need two columns, which the first limit refuses.
TIED = (
    *(only("rank", 1), only("tied", True), only("value", False), only("correlation", 0.0)),
    only("value_rank", 0),
)
# Steps of Adam have the size eta in every weight, whatever the slope. At d = 100 no student of 24
# leaves its well at eta = 0.1, one of 8 does at 0.15, and three of 8 at 1.
LARGEST_ADAM = 0.1
STAYS = Limit(
    "eta",
    f"at most {LARGEST_ADAM:g} with Adam, whose longer steps leave the initial well,",
    lambda p, runs: p.optimizer != "adam" or p.eta <= LARGEST_ADAM,
    lambda p, runs: f"{p.eta:g}",
    ("optimizer",),
)
TO_MINIMUM = (only("polish", True), STAYS)  # descent that ends in the minimum of its initial well
FREE = ("d", "teacher", "steps", "n_test")
HOW = (*FREE, "optimizer", "eta")  # the path to the minimum
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
    (*TIED, only("start", "positional", "semantic"), *TO_MINIMUM),
    FREE,
    remedy=ELSEWHERE,
)
SCOPES = {"minimum": MINIMUM, "descent": DESCENT, "linear": LINEAR}
applies = scope.applies(SCOPES)
