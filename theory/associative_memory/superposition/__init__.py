"""Superposition: interference and capacity of Hebbian memories with random embeddings (slides;
Cabannes et al. 2024).
"""

from __future__ import annotations

from theory import sweep
from theory.associative_memory.superposition import moments, numbers, recall, zipf
from theory.associative_memory.superposition.parameters import Parameters
from theory.catalogue import catalogue
from theory.parameters import ParameterError

__all__ = ["Parameters", "equations", "flows", "gaussian", "sections", "sphere"]


def _injective(p: Parameters) -> Parameters:
    """Refuse outputs that share keys, for which the recall formulas do not hold.

    Raises
    ------
    ParameterError
        If there are fewer outputs than keys.
    """
    if p.outputs != p.N:
        raise ParameterError(
            f"M = {p.M}: must be none here; recall is known for one output per key"
        )
    return p


@sweep.over_fields
def gaussian(p: Parameters) -> float:
    """Recall accuracy with Gaussian scores (`recall_gaussian`), one output per key."""
    return numbers.gaussian(_injective(p).N, p.d)


@sweep.over_fields
def sphere(p: Parameters) -> float:
    """Recall accuracy with sphere tails (`recall_sphere`), one output per key."""
    return numbers.sphere(_injective(p).N, p.d)


# No dynamics: the memory is given.
flows, sections, equations = catalogue(
    {
        "Superposition: interference": [moments],
        "Superposition: recall and capacity": [recall],
        "Superposition: Zipf frequencies": [zipf],
    }
)
