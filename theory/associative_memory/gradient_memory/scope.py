"""Which learners the theory of gradients as memories describes."""

from theory import Scope, scope

MEMORY = Scope("the flow of the margin", "uniform keys and orthonormal embeddings, zero start")
SCOPES = {"flow": MEMORY}
applies = scope.applies(SCOPES)
