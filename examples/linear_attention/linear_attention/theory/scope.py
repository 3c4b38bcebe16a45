"""Which students the theory of linear attention describes."""

from theory import scope
from theory.scope import Limit, Scope, only

RUN = ("H", "R", "student", "eta", "batch_size", "steps", "eval_every", "attention")
ALIGNED = Limit(
    "begin",
    "aligned where key and query are separate",
    lambda p, runs: p.attention == "merged" or p.begin == "aligned",
    lambda p, runs: repr(p.begin),
    ("attention",),
)
WHITE = Limit(
    "spectrum",
    "white, as in '1,1,1'",
    lambda p, runs: set(p.eigenvalues) == {1},
    lambda p, runs: repr(p.spectrum),
)
STARTS = "merged heads from a small start, separate ones from an aligned start"
ANY = "theory.heads.drops follows any start"
DROPS = Scope("the time of each drop", STARTS, (ALIGNED,), RUN, remedy=ANY)
ONE = only("attention", "separate"), only("begin", "aligned")
ONE_HEAD = Scope("the flow of one aligned head", "heads that start along one direction", ONE, RUN)
FREE = ("begin", *RUN)
WHITE_DATA = Scope("the logistic drop", "merged key and query on white data", (WHITE,), FREE)
MERGED = Scope("the flow of one effective head", "merged key and query", (), FREE)
SCOPES = {"drops": DROPS, "merged": MERGED, "separate": ONE_HEAD}
applies = scope.applies(SCOPES)
