"""Superposition: interference and capacity of Hebbian memories with random embeddings (slides;
Cabannes et al. 2024).
"""

from theory import sweep
from theory.associative_memory.superposition import moments, numbers, recall, zipf
from theory.associative_memory.superposition.parameters import RECALL, Parameters, applies
from theory.catalogue import catalogue
from theory.scope import guard

__all__ = ["Parameters", "applies", "equations", "flows", "gaussian", "sections", "sphere"]


@guard(RECALL)
@sweep.over_fields
def gaussian(p: Parameters) -> float:
    """Recall accuracy with Gaussian scores (`recall_gaussian`), one output per key."""
    return numbers.gaussian(p.N, p.d)


@guard(RECALL)
@sweep.over_fields
def sphere(p: Parameters) -> float:
    """Recall accuracy with sphere tails (`recall_sphere`), one output per key."""
    return numbers.sphere(p.N, p.d)


# No dynamics: the memory matrix is given.
flows, sections, equations = catalogue(
    {
        "Superposition: interference": [moments],
        "Superposition: recall and capacity": [recall],
        "Superposition: Zipf frequencies": [zipf],
    }
)
