"""Training rows sorted by current state and step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from theory.compiled import njit
from theory.state_tracking.task import Sequences


@dataclass(frozen=True)
class Groups:
    """Training rows (sequence, step) of B students, sorted by current state, then step.

    Attributes
    ----------
    actions : ndarray, shape (B, n L, L)
        All actions of the row's sequence.
    targets : ndarray, shape (B, n L)
        Next states.
    bounds : ndarray, shape (B, N L + 1)
        Rows ``bounds[s L + t]`` up to ``bounds[s L + t + 1]`` have state s and step t.
    N : int
        Number of states.
    """

    actions: np.ndarray
    targets: np.ndarray
    bounds: np.ndarray
    N: int

    @classmethod
    def of(cls, data: list[Sequences], N: int, chosen: Sequence[np.ndarray] | None = None) -> Self:
        """Group all sequences, or those ``chosen`` by number; once for the same ones, as
        current states are fixed under teacher forcing.
        """
        if chosen is None:
            chosen = [np.arange(len(d.actions)) for d in data]
        n, L, B = len(chosen[0]), data[0].actions.shape[1], len(data)
        actions = np.empty((B, n * L, L), np.uint16)
        targets = np.empty((B, n * L), np.uint16)
        bounds = np.zeros((B, N * L + 1), np.int64)
        for b, d in enumerate(data):
            _sort(chosen[b], d.actions, d.states, actions[b], targets[b], bounds[b])
        return cls(actions, targets, bounds, N)


@njit(cache=True, nogil=True)
def _sort(chosen, actions, states, rows, targets, bounds):
    """Count the rows of every group, then write each row to the next place of its own."""
    L = actions.shape[1]
    for i in chosen:
        for t in range(L):
            bounds[states[i, t] * L + t + 1] += 1
    for k in range(1, len(bounds)):
        bounds[k] += bounds[k - 1]
    free = bounds.copy()
    for i in chosen:
        for t in range(L):
            group = states[i, t] * L + t
            k = free[group]
            free[group], targets[k] = k + 1, states[i, t + 1]
            for j in range(L):
                rows[k, j] = actions[i, j]
