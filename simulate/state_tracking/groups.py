"""Training rows sorted by current state and step."""

from dataclasses import dataclass
from typing import Self

import numpy as np

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
    def of(cls, data: list[Sequences], N: int) -> Self:
        """Group sequences. Needed only once, as current states are fixed under teacher forcing."""
        actions, targets, bounds = [], [], []
        for d in data:
            n, L = d.actions.shape
            key = (d.states[:, :-1] * L + np.arange(L)).ravel()
            # Short integers are sorted by radix, in the same order.
            order = np.argsort(key.astype(np.min_scalar_type(N * L)), kind="stable")
            actions.append(d.actions[order // L].astype(np.uint16))
            targets.append(d.states[:, 1:].ravel()[order].astype(np.uint16))
            bounds.append(np.searchsorted(key[order], np.arange(N * L + 1)))
        return cls(np.stack(actions), np.stack(targets), np.stack(bounds), N)
