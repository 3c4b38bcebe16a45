"""Hebbian and trained memories between random embeddings."""

from simulate.associative_memory.superposition.memories import (
    hebbian,
    recall,
    scores,
    unit_vectors,
    zipf_error,
)
from simulate.associative_memory.superposition.trained import capacity, train_linear, train_mlp
from theory.associative_memory.superposition import Parameters

__all__ = [
    "Parameters",
    "capacity",
    "hebbian",
    "recall",
    "scores",
    "train_linear",
    "train_mlp",
    "unit_vectors",
    "zipf_error",
]
