"""Which students the theories of state tracking describe."""

from __future__ import annotations

from dataclasses import replace

from theory import scope
from theory.scope import FULL_BATCH, Limit, Scope, configuration, only

MEASURED = ("n_test", "epochs", "eval_every")  # run length and measurement
WEIGHTS = Limit(
    "fix_embedding",
    "True (embeddings held at unity)",
    lambda p, runs: p.fix_embedding,
    lambda p, runs: p.fix_embedding,
    ("d_model",),
)
DESCENT = (only("optimizer", "sgd"), FULL_BATCH, only("weight_decay", 0.0), WEIGHTS)
DRAWN = Limit(
    "permutations",
    "drawn, iid or distinct",
    lambda p, runs: "given_permutations" not in configuration(runs),
    lambda p, runs: "given by the user",
)
GRADIENT = "full-batch gradient descent on the weights themselves"
ARCHITECTURE = Scope(
    "the attention constant and the variance of the logits",
    "attention with embeddings held at unity",
    (WEIGHTS,),
    ("eta", "n_train", "data_draw", "batch_size", "weight_decay", "optimizer", *MEASURED),
)
FLOW = Scope(
    "the flow (15)", f"{GRADIENT}, teachers drawn", (*DESCENT, DRAWN), ("data_draw", *MEASURED)
)


def flow_of(permutations: str) -> Scope:
    """Scope of the flow (15) for one way of drawing teachers; for a given overlap, of any
    teachers.
    """
    if permutations == "tau":
        return replace(FLOW, limits=DESCENT)
    kind = only("permutations", permutations, words=f"{permutations} as the flow's teachers")
    return replace(FLOW, limits=(*FLOW.limits, kind))


COLUMNS = Scope("the theory of one start", f"{GRADIENT}, teachers drawn", FLOW.limits, FLOW.free)
REALISATION = Scope("the theory of one realisation", GRADIENT, DESCENT, MEASURED, ("data_draw",))
SCOPES = {"flow": FLOW, "cavity": COLUMNS, "dressed": COLUMNS, "fixed_disorder": REALISATION}
applies = scope.applies(SCOPES)
