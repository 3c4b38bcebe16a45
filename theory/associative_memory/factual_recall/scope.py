"""Which students the theory of factual recall describes."""

from theory import Scope, scope

# The weights of noise tokens do not change, and batches only add noise.
RECALL = Scope(
    "the flow of factual recall",
    "linear attention on balanced facts",
    (),
    ("noise_tokens", "batch_size", "steps", "eval_every"),
)
SCOPES = {"flow": RECALL}
applies = scope.applies(SCOPES)
