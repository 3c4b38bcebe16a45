"""Words whose last state alone is asked for: what a network can say that does not see the order of
the actions.

Two products of the same actions in another order differ by a product of commutators, a b against
b a. A long word may therefore end, with equal probabilities, in every state of one orbit of the
commutator subgroup [G, G]: without order, accuracy is at best 1 / size of the orbit, and loss at
least ln(size). That is 1 / |[G, G]| for a group that acts on itself: 1/3 for S_3, 1/4 for A_4, 1/8
for SL(2, 3).

A logit that is a sum over actions, as the solvable student's, says less. Where the actions are all
of a group, the last state is uniform whatever one action and the first state are, so that the
gradient of M vanishes at M = 0 under every attention. The loss is convex in M: chance, 1 / N, is
the best. With the states between written out, each is one action away from the one before, and the
same student learns every group.
"""

import math
from typing import Annotated, Any

import numpy as np
import xarray as xr
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import rel_entr, xlogy

from theory.arguments import array, checked
from theory.parameters import ParameterError
from theory.state_tracking import groups
from theory.values import Allowed

MOST = 2**27  # probabilities that are held at once: 1 GB


def permutations_of(teachers: str | np.ndarray) -> np.ndarray:
    """Permutations ``(d_g, N)`` of a group's name, or those that are given.

    Raises
    ------
    ParameterError
        For what names no group, for rows that are no permutations, and for too many.
    """
    if isinstance(teachers, str):
        if not groups.is_group(teachers):
            raise ParameterError(f"teachers = {teachers!r}: must be {groups.WORDS}")
        fits(*groups.sizes(teachers))
        return groups.table(teachers)
    perms = array("teachers", teachers)
    if perms.ndim != 2 or not (np.sort(perms, axis=1) == np.arange(perms.shape[1])).all():
        raise ParameterError("teachers: every row must be a permutation of 0..N-1")
    fits(*perms.shape)
    return perms.astype(np.int64)


def fits(d_g: int, N: int) -> None:
    """Raise an error for more permutations than can be multiplied with each other at once."""
    if d_g**2 * N > MOST:
        raise ParameterError(f"teachers: {d_g} permutations of {N} states are too many")


def commutator_orbits(teachers: str | np.ndarray) -> np.ndarray:
    """Number of the orbit of every state under the commutator subgroup, shape ``(N,)``: the finest
    partition of the states on which the teachers act and commute.

    Parameters
    ----------
    teachers : str or ndarray, shape (d_g, N)
        A group by its name, or permutations, which need not be all of a group.

    Raises
    ------
    ParameterError
        For what names no group, for rows that are no permutations, and for too many.
    """
    perms = permutations_of(teachers)
    states = np.arange(perms.shape[1])
    products = perms[:, perms]  # a(b(s)) by a, b, s
    one, other, before = products.ravel(), products.swapaxes(0, 1).ravel(), -1
    while True:
        pairs = coo_array((np.ones(one.size), (one, other)), shape=(states.size,) * 2)
        count, orbit = connected_components(pairs, directed=False)
        if count == before:
            return orbit
        first = np.unique(orbit, return_index=True)[1][orbit]  # of the same orbit
        one = np.concatenate([first, perms[:, first].ravel()])
        other, before = np.concatenate([states, perms.ravel()]), count


@checked
def without_order(teachers: Any, L: Annotated[int, Allowed(low=0, high=10**6)]) -> xr.Dataset:
    """Best accuracy and least loss, in nats, of the last state of a word from its first state and
    the number of times that each action occurs in it.

    Parameters
    ----------
    teachers : str or ndarray, shape (d_g, N)
        A group by its name, or permutations, which need not be all of a group. Actions and first
        states are uniform.
    L : int
        Largest length of the words.

    Returns
    -------
    Dataset
        ``accuracy`` and ``loss`` over ``length`` 0 to L, exact, and ``accuracy_plateau`` and
        ``loss_plateau``, their limits for long words.

    Raises
    ------
    ParameterError
        As `commutator_orbits`, and for words with too many combinations of actions.
    """
    perms = permutations_of(teachers)
    d_g, N = perms.shape
    starts = 1 if isinstance(teachers, str) else N  # all first states of a group are alike
    if math.comb(L + d_g - 1, L) * d_g * N * starts > MOST:
        raise ParameterError(f"L = {L}: must be smaller for {d_g} actions on {N} states")
    back, each = np.argsort(perms, axis=1), np.eye(d_g, dtype=np.int64)
    counts, shares = np.zeros((1, d_g), dtype=np.int64), np.eye(N)[None, :, :starts]
    accuracy, loss = [1.0], [0.0]
    for _ in range(L):
        longer = (counts[:, None] + each).reshape(-1, d_g)
        counts, which = np.unique(longer, axis=0, return_inverse=True)
        after = shares[:, back].reshape(len(longer), N, starts) / d_g
        shares = np.zeros((len(counts), N, starts))
        np.add.at(shares, which.ravel(), after)
        accuracy.append(shares.max(1).sum() / starts)
        loss.append(0.0 - rel_entr(shares, shares.sum(1, keepdims=True)).sum() / starts)
    sizes = np.bincount(commutator_orbits(perms))
    return xr.Dataset(
        {
            "accuracy": ("length", accuracy),
            "loss": ("length", loss),
            "accuracy_plateau": len(sizes) / N,
            "loss_plateau": xlogy(sizes, sizes).sum() / N,
        },
        {"length": range(L + 1)},
    )
