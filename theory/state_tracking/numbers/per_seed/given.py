"""What is known of students before they are trained: teachers, initial M, and what their training
sets count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from theory import memory
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.parameters import Parameters


def pairs_memory(p: Parameters) -> float:
    """Bytes of one seed's pairs, and of what its groups are at a step of the theory."""
    return 8 * p.N * p.L * p.d_g * (p.L * p.d_g + 8 * p.N)


@dataclass(frozen=True)
class Given:
    """Teachers, initial M and counted pairs of actions; arrays over seeds.

    Attributes
    ----------
    teachers : ndarray, shape (B, d_g, N)
        State that an action leads to from a state.
    M : ndarray, shape (B, d_g, N, N)
        ``M[a, r, s]`` at time 0, from state s to state r.
    share : ndarray, shape (B, N, L, d_g)
        Share of the training rows (sequence, step) that are at a state and a step, by right action.
    pairs : ndarray, shape (B, N, L, L, d_g, d_g), optional
        The same with a second place and the action that stands there; what an infinite training set
        has, if left out.
    """

    teachers: np.ndarray
    M: np.ndarray
    share: np.ndarray
    pairs: np.ndarray | None = None

    @classmethod
    def counted(
        cls, teachers: np.ndarray, M: np.ndarray, actions: np.ndarray, states: np.ndarray
    ) -> Self:
        """Of one student, from its training set: actions ``(n, L)`` and states ``(n, L+1)``, from
        0.
        """
        (n, L), (d_g, N) = actions.shape, teachers.shape
        pairs = np.empty((N, L, L, d_g, d_g), np.float32)
        for i in range(L):
            group = (states[:, i] * d_g + actions[:, i]) * d_g
            for j in range(L):
                counts = np.bincount(group + actions[:, j], minlength=N * d_g**2)
                pairs[:, i, j] = counts.reshape(N, d_g, d_g) / (n * L)
        share = np.einsum("siiaa->sia", pairs).astype(float)
        return cls(teachers[None], M[None], share[None], pairs[None])

    @classmethod
    def drawn(cls, p: Parameters, start: Start, rng: np.random.Generator) -> Self:
        """Teachers, entries of M and training sets from their laws.

        M has the overlaps, the sum and the variances of a start; else it is random. Teachers are
        independent, also where students' are drawn to be distinct.

        Raises
        ------
        ParameterError
            If the pairs would not fit into memory.
        """
        memory.require(pairs_memory, p, "counts of pairs of actions")
        return cls.joined([cls._drawn(p, start, k, rng) for k in range(len(start.R))])

    @classmethod
    def _drawn(cls, p: Parameters, start: Start, k: int, rng: np.random.Generator) -> Self:
        teachers = rng.permuted(np.tile(np.arange(p.N), (p.d_g, 1)), axis=1)
        actions = rng.integers(p.d_g, size=(p.n_train, p.L))
        states = np.empty((p.n_train, p.L + 1), int)
        states[:, 0] = rng.integers(p.N, size=p.n_train)
        for t in range(p.L):
            states[:, t + 1] = teachers[actions[:, t], states[:, t]]
        return cls.counted(teachers, matched(teachers, start, k, rng), actions, states)

    @classmethod
    def joined(cls, members: list[Self]) -> Self:
        """One stack of several."""
        pairs = [m.pairs for m in members if m.pairs is not None]
        return cls(
            np.concatenate([m.teachers for m in members]),
            np.concatenate([m.M for m in members]),
            np.concatenate([m.share for m in members]),
            np.concatenate(pairs) if pairs else None,
        )

    def without_pairs(self) -> Self:
        """The same with the pairs of an infinite training set."""
        return replace(self, pairs=None)

    def redrawn(self, start: Start, rng: np.random.Generator) -> Self:
        """The same with other matrices M of the same overlaps, sum and variances."""
        found = [matched(x, start, k, rng) for k, x in enumerate(self.teachers)]
        return replace(self, M=np.stack(found))

    def one_hot(self) -> np.ndarray:
        """Teachers as matrices, ``(B, N, d_g, N)`` over current state, action, next state."""
        return (self.teachers.swapaxes(1, 2)[..., None] == np.arange(self.M.shape[2])).astype(float)


def matched(teachers: np.ndarray, start: Start, k: int, rng: np.random.Generator) -> np.ndarray:
    """Random M ``(d_g, N, N)`` with R, S, zeta and the variances of entries of seed k of a
    start.
    """
    d_g, N = teachers.shape
    own = (teachers[:, None, :] == np.arange(N)[:, None]).astype(float)
    M = rng.uniform(-1, 1, own.shape)
    for which, variance in (
        (own == 1, start.variance_right[k]),
        (own == 0, start.variance_wrong[k]),
    ):
        M[which] *= np.sqrt(variance / M[which].var())
    others = own.sum(0) - own
    along = np.stack([own.ravel(), others.ravel(), np.ones(own.size)])
    size = np.array([d_g * N, d_g * (d_g - 1) * N, d_g * N])
    want = np.array([start.R[k], start.S[k], start.zeta[k]]) * size
    lift = np.linalg.lstsq(along @ along.T, want - along @ M.ravel(), rcond=None)[0]
    return M + (lift @ along).reshape(M.shape)
