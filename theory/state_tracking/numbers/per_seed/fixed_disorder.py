"""Numerical fixed-disorder theory: groups of training rows, vectorised over seeds."""

from collections.abc import Iterator

import numpy as np

from theory.special import gauss_hermite
from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.observables import summary
from theory.state_tracking.numbers.per_seed.realisation import Realisation
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.parameters import Parameters

# Nodes of the integral over the noise of the correct logit: with more nodes no accuracy changes by
# 1e-3.
NOISE = 5


class FixedDisorder:
    """Fixed-disorder theory for groups of rows with the same state, step and correct action. State
    per seed: W_Q, W_K and M.

    Parameters
    ----------
    p : Parameters
        Sizes and learning rate.
    start : Start
        Initial keys and queries of the seeds.
    given : Realisation
        Teachers, initial M and training sets of the seeds.
    accuracies : bool
        Compute accuracies; otherwise they are NaN.
    """

    BY_SEED: tuple[str, ...] = ("absent", "given", "left", "scale", "teachers")

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        self.p, self.attention, self.accuracies = p, Attention(p), accuracies
        self.teachers = given.one_hot()  # (B, s, a, r), as M below
        M = np.ascontiguousarray(given.M.transpose(0, 3, 1, 2), dtype=float)
        self.state = [start.W_Q.astype(float), start.W_K.astype(float), M]
        self.see(given, p.n_train)

    def see(self, given: Realisation, sequences: int) -> None:
        """From now on take the loss over these counts of so many sequences."""
        self.given = given
        rows = given.share * sequences * self.p.L
        # Factor 1 - 1/n of the variance that remains about the known mean of a group of n rows.
        within = np.where(rows > 0, 1 - 1 / np.maximum(rows, 1), 0)
        self.left = given.share * (1.0 if given.pairs is None else within)
        self.scale = 1 / np.where(given.share > 0, given.share, np.inf)
        # Actions that never occur beside a state have no gradient there: Adam divides by its size.
        self.absent = None
        if given.pairs is not None:
            B, N, _, d = given.share.shape
            most = given.pairs.reshape(B, N, -1, d).max(2)
            self.absent = np.broadcast_to(most[..., None] == 0, self.state[2].shape)

    def _attention(self) -> tuple[np.ndarray, ...]:
        """Attention, its diagonal (weight on correct actions), and the sum of squares of the other
        entries.
        """
        at = self.attention.forward(*self.state[:2])
        own = np.einsum("bii->bi", at)
        return at, own, (at**2).sum(2) - own**2

    def _weights(self, at: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Mean weights (B, s, i a, b) of the actions in every group."""
        d, pairs = self.p.d_g, self.given.pairs
        B, N, L = self.given.share.shape[:3]
        if pairs is None:
            weights = (1 - own)[..., None, None] / d + own[..., None, None] * np.eye(d)
            return np.broadcast_to(weights.reshape(B, 1, L * d, d), (B, N, L * d, d))
        row = at.astype(pairs.dtype)[:, None, :, None]
        weights = np.matmul(row, pairs.reshape(B, N, L, L, d * d)).astype(float)
        return (weights.reshape(B, N, L, d, d) * self.scale[..., None]).reshape(B, N, L * d, d)

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean (B, s, r), deviations (B, s, a, r) and covariance (B, s, r, q) of the entries of M
        over actions.
        """
        M = self.state[2]
        mean = M.mean(2)
        deviation = M - mean[:, :, None]
        return mean, deviation, deviation.swapaxes(2, 3) @ deviation / self.p.d_g

    def rates(self) -> list[np.ndarray]:
        """Change of the state per step of plain descent, with coupled weight decay."""
        p, slopes = self.p, self.gradients()
        return [-p.eta * (g + p.weight_decay * w) for g, w in zip(slopes, self.state, strict=True)]

    def _each(self) -> Iterator[tuple[np.ndarray, ...]]:
        """What the kernels take of every student: attention, counts, M and teachers."""
        pairs = self.given.pairs
        at, M = self.attention.forward(*self.state[:2]), np.ascontiguousarray(self.state[2])
        for b, (share, left) in enumerate(zip(self.given.share, self.left, strict=True)):
            counts = np.empty((len(share), 0, 0, 0, 0), np.float32) if pairs is None else pairs[b]
            target = np.ascontiguousarray(self.given.teachers[b].T)
            yield at[b], counts, share.astype(float), np.ascontiguousarray(left), M[b], target

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        from theory.state_tracking.numbers.per_seed import kernels  # compiled, when it is needed

        never = np.zeros(self.state[2].shape[1:3], bool)
        absent = [never] * len(self.state[2]) if self.absent is None else self.absent[..., 0]
        found = [
            kernels.gradients(*each, np.ascontiguousarray(gone))
            for each, gone in zip(self._each(), absent, strict=True)
        ]
        d_M, force = (np.stack(x) for x in zip(*found, strict=True))
        W_Q, W_K, _ = self.state
        at = self.attention.forward(W_Q, W_K)
        d_q, d_k = self.attention.backward(W_Q, W_K, at, force)
        return [d_q, d_k, d_M]

    def _force(self, error: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Derivatives (B, i, j) of the loss of the groups' mean logits with respect to
        attention.
        """
        share, pairs = self.given.share, self.given.pairs
        B, N, L, d = share.shape
        if pairs is None:
            heavy = share[..., None] * error.reshape(B, N, L, d, N)
            own = np.einsum("bsiar,bsar->bi", heavy, M)
            other = np.einsum("bsir,bsr->bi", heavy.sum(3), M.mean(2))
            return np.where(np.eye(L) > 0, own[..., None], other[..., None])
        met = (error @ M.swapaxes(2, 3)).reshape(B, N, L, 1, d * d).astype(np.float32)
        force = pairs.reshape(B, N, L, L, d * d) @ met.swapaxes(3, 4)
        return force[..., 0].sum(1, dtype=float)

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        from theory.state_tracking.numbers.per_seed import kernels

        p, y, M = self.p, self.teachers, self.state[2]
        N, d = M.shape[1:3]
        every = list(self._each())
        own = np.einsum("bii->bi", np.array([at for at, *_ in every]))
        sums = p.L * np.array([kernels.observed(*each) for each in every])
        right, right_square, total, square, loss_ = sums.swapaxes(0, 1)
        other = (total - right) / (N - 1)
        overlap = (y * M).sum((1, 2, 3))
        all_teachers = (y.sum(2) * M.sum(2)).sum((1, 2))
        first = np.full((len(M), p.L, N, d), np.nan)
        if self.accuracies:
            rule = gauss_hermite(NOISE)
            for b, (at, _, _, _, own_M, target) in enumerate(every):
                first[b] = kernels.accuracies(at, own_M, target, *rule)
        found = summary(
            p,
            own=own,
            R=overlap / (d * N),
            S=(all_teachers - overlap) / max(d * (d - 1) * N, 1),
            right=right,
            right_variance=right_square - right**2,
            other=other,
            other_variance=(square - right_square) / (N - 1) - other**2,
            loss_=loss_,
            steps=first.mean((2, 3)),
        )
        return found | self._rolled(first)

    def _rolled(self, first: np.ndarray) -> dict[str, np.ndarray]:
        """Effect on rollout accuracy of the accuracies by seed, step, state and action; zero to
        second order.
        """
        return {}


def _softmax(z: np.ndarray) -> np.ndarray:
    """Softmax over the last axis. One common shift suffices, as logits of all groups have similar
    size. The sum over the short axis is a matrix product, which is faster.
    """
    e = np.exp(z - z.max())
    e /= (e @ np.ones(e.shape[3]))[..., None]
    return e
