"""Which memories the recall formulas describe."""

from theory import Limit, Scope, scope

INJECTIVE = Limit(
    "M", "none or N (one output per key)", lambda p, runs: p.outputs == p.N, reads=("N",)
)
RECALL = Scope("recall accuracy", "memories with one output per key", (INJECTIVE,), ("draws",))
SCOPES = {"recall": RECALL}
applies = scope.applies(SCOPES)
