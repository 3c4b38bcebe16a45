"""Which learners the theory of gradients as memories describes."""

from theory import scope
from theory.scope import Scope

MEMORY = Scope("the flow of the margin", "uniform keys and orthonormal embeddings, zero start")
SCOPES = {"flow": MEMORY}
applies = scope.applies(SCOPES)
