"""Which students the theory of k hops describes."""

from theory import Scope, scope

# Each function states whether it describes direct training, the curriculum or the mixture.
KERNEL_LEARNERS = Scope(
    "the flow of the overlaps",
    "kernel learners that start with equal overlaps",
    (),
    ("curriculum", "eta", "batch_size", "steps", "eval_every"),
)
SCOPES = {"flow": KERNEL_LEARNERS}
applies = scope.applies(SCOPES)
