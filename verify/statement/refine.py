"""Classes of entries found from gradients alone: one class per weight, split until stable.

For a given teacher the partition is exact, whatever the statement's symmetry: with it descent of
all weights is descent of as many numbers.
"""

from collections.abc import Mapping

import numpy as np
import torch

from simulate.statement import Student
from theory.statement.arrays import Data, lifted
from theory.statement.tree import Weight

APART = 1e-9  # of the largest gradient: rounding of sums over at most 50,000 inputs, with a margin
ROUNDS = 50  # each splits a class at least, or is the last

Classes = dict[Weight, np.ndarray]


def refine(student: Student, data: Data, begun: Mapping[Weight, np.ndarray], seed: int) -> Classes:
    """Split classes by gradients at random values until none is split any more.

    Parameters
    ----------
    student : Student
    data : Data
        All inputs, as `Student.taken` makes them.
    begun : mapping of Weight to array
        Number of every entry's class to begin with; -1 for one that is zero.
    seed : int
        Of the values.

    Returns
    -------
    dict of Weight to array
        Numbers of classes, -1 for entries that stay zero.
    """
    rng, classes = np.random.default_rng(seed), dict(begun)
    apart = APART * largest(student, data, seed)
    for _ in range(ROUNDS):
        weights = {
            w: torch.tensor(lifted(numbers, rng.normal(size=numbers.max(initial=-1) + 1)))
            for w, numbers in classes.items()
        }
        slopes = {w: s.numpy() for w, s in student.gradients(weights, data)[1].items()}
        refined = {w: _split(classes[w], s, apart) for w, s in slopes.items()}
        if all((refined[w].max() == classes[w].max()) for w in refined):
            return refined
        classes = refined
    return classes


def largest(student: Student, data: Data, seed: int) -> float:
    """Size of gradients, also where equal entries have none: at random values of all entries."""
    rng, of = np.random.default_rng(seed), student.stated.weights
    weights = {w: torch.tensor(rng.normal(size=data.shape(w.sorts))) for w in of}
    sizes = student.gradients(weights, data)[1].values()
    return max(float(s.abs().max()) for s in sizes) or 1.0


def _split(own: np.ndarray, slope: np.ndarray, apart: float) -> np.ndarray:
    """Classes whose entries have the same gradient."""
    numbers, count = np.full(own.shape, -1), 0
    for k in range(-1, own.max(initial=-1) + 1):
        members = (own == k) & (
            (k >= 0) | (np.abs(slope) > apart)
        )  # zero entries that nothing moves stay
        order = np.sort(slope[members])
        steps = np.flatnonzero(np.diff(order) > apart)
        numbers[members] = count + np.searchsorted(order[steps] + apart / 2, slope[members])
        count += len(steps) + bool(members.any())
    return numbers


def pieces(classes: Classes, finer: Classes) -> dict[Weight, int]:
    """Into how many pieces classes are split by others."""
    return {
        w: len(np.unique(np.stack([numbers.ravel(), finer[w].ravel()], 1), axis=0))
        for w, numbers in classes.items()
    }
