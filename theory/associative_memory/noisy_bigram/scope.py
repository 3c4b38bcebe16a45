"""Which learners the theory of noisy bigrams describes."""

from theory import Scope, scope

ONE_STEP = Scope(
    "recovery from samples",
    "one gradient step from n samples",
    (),
    ("draws", "eta", "batch_size", "steps", "eval_every"),
)
SCOPES = {"one step": ONE_STEP}
applies = scope.applies(SCOPES)
