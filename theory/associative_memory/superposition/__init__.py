"""Superposition: interference and capacity of Hebbian memories with random embeddings (slides;
Cabannes et al. 2024).
"""

from __future__ import annotations

from theory.associative_memory.superposition import moments, recall, zipf
from theory.associative_memory.superposition.parameters import Parameters
from theory.associative_memory.superposition.recall import gaussian, sphere
from theory.catalogue import catalogue

__all__ = ["Parameters", "equations", "flows", "gaussian", "sections", "sphere"]

# No dynamics: the memory is given.
flows, sections, equations = catalogue(
    {
        "Superposition: interference": [moments],
        "Superposition: recall and capacity": [recall],
        "Superposition: Zipf frequencies": [zipf],
    }
)
