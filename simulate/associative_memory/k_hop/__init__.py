"""Kernel learners of k-fold composition, with and without curriculum; attention that jumps along
pointers.
"""

from simulate.associative_memory.k_hop import pointers
from simulate.associative_memory.k_hop.learner import (
    SYSTEM,
    Learner,
    answer,
    apply,
    draw_permutations,
)
from theory.associative_memory.k_hop import Parameters, Pointers

__all__ = [
    "Learner",
    "Parameters",
    "Pointers",
    "answer",
    "apply",
    "draw_permutations",
    "train",
    "train_pointers",
]

train = SYSTEM.train
train_pointers = pointers.SYSTEM.train
