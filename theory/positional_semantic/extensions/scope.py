"""Which students the theory of the extensions describes."""

from theory.positional_semantic.scope import FREE, HOW, TO_MINIMUM
from theory.scope import Limit, Scope, only

OPEN = Limit("correlation", "between -1 and 1, exclusively", lambda p, runs: abs(p.correlation) < 1)
LAYER = (only("tied", True), OPEN)
DIVIDED = Limit(
    "start",
    "mixed where columns are heads (from another start both may end with both overlaps)",
    lambda p, runs: not p.heads or p.start == "mixed",
)
EXTENDED = Scope(
    "state evolution with extensions",
    "minima from informed starts: correlated tokens, values of full or low rank, two columns of Q "
    "or two heads",
    (*LAYER, only("start", "positional", "semantic", "mixed"), *TO_MINIMUM, DIVIDED),
    FREE,
    remedy="untied keys: numbers.general.System",
)
CROSSING = Scope(
    "alpha_c with extensions",
    "the crossing of the two minima of a layer of rank one",
    (*LAYER, only("rank", 1)),
    (*HOW, "polish", "start"),
    remedy="two columns of Q have one minimum with both overlaps, and two heads one that divides them",
)
