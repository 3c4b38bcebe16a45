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

    BY_SEED: tuple[str, ...] = ("given", "keep", "left", "others", "share", "teachers")

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        self.p, self.attention, self.accuracies = p, Attention(p), accuracies
        self.teachers = given.one_hot()  # (B, s, a, r), as M below
        self.others = self.teachers.sum(2)
        M = np.ascontiguousarray(given.M.transpose(0, 3, 1, 2), dtype=float)
        self.state = [start.W_Q.astype(float), start.W_K.astype(float), M]
        self.see(given, p.n_train)

    def see(self, given: Realisation, sequences: int) -> None:
        """Evaluate the loss on these pair counts, of so many sequences, from now on."""
        self.given, self.share = given, given.share.astype(float)
        rows = given.share * sequences * self.p.L
        # Factor 1 - 1/n of the variance that remains about the known mean of a group of n rows.
        within = np.where(rows > 0, 1 - 1 / np.maximum(rows, 1), 0)
        self.left = given.share * (1.0 if given.pairs is None else within)
        # Actions that never occur beside a state have no gradient there: Adam divides by its size.
        B, N, _, d = given.share.shape
        self.keep = np.ones((B, N, d))
        if given.pairs is not None:
            self.keep[:] = given.pairs.reshape(B, N, -1, d).max(2) > 0

    def _attention(self) -> tuple[np.ndarray, ...]:
        """Attention, its diagonal (weight on correct actions), and the sum of squares of the other
        entries.
        """
        pi = self.attention.forward(*self.state[:2])
        on_right = np.einsum("bii->bi", pi)
        return pi, on_right, (pi**2).sum(2) - on_right**2

    def _weights(self, at: np.ndarray) -> np.ndarray:
        """Mean weights (B, s, i a, b) of the actions in every group."""
        from theory.state_tracking.numbers.per_seed import kernels  # compiled, when it is needed

        return np.stack([kernels.weights(*each[:3]) for each in self._each(at)])

    def rates(self) -> list[np.ndarray]:
        """Change of the state per step of plain descent, with coupled weight decay."""
        p, slopes = self.p, self.gradients()
        if p.weight_decay:
            slopes = [g + p.weight_decay * w for g, w in zip(slopes, self.state, strict=True)]
        return [-p.eta * g for g in slopes]

    def _each(self, at: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Arguments of the kernels for every student: attention, counts, M and teachers."""
        pairs, M = self.given.pairs, np.ascontiguousarray(self.state[2])
        for b, (share, left) in enumerate(zip(self.share, self.left, strict=True)):
            counts = np.empty((len(share), 0, 0, 0, 0), np.float32) if pairs is None else pairs[b]
            target = np.ascontiguousarray(self.given.teachers[b].T)
            yield at[b], counts, share, left, M[b], target

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        from theory.state_tracking.numbers.per_seed import kernels

        W_Q, W_K, _ = self.state
        pi = self.attention.forward(W_Q, W_K)
        every = zip(self._each(pi), self.keep, strict=True)
        slopes = [kernels.gradients(*each, keep) for each, keep in every]
        d_M, force = (np.stack(x) for x in zip(*slopes, strict=True))
        d_q, d_k = self.attention.backward(W_Q, W_K, pi, force)
        return [d_q, d_k, d_M]

    def _force(self, at: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Derivatives (B, i, j) of the loss of the groups' mean logits with respect to
        attention.
        """
        from theory.state_tracking.numbers.per_seed import kernels

        every = zip(self._each(at), error @ self.state[2].swapaxes(2, 3), strict=True)
        return np.stack([kernels.force(*each[1:3], met) for each, met in every])

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        from theory.state_tracking.numbers.per_seed import accuracy_kernels, kernels

        p, M = self.p, self.state[2]
        N, d = M.shape[1:3]
        pi, on_right, _ = self._attention()
        every = list(self._each(pi))
        sums = p.L * np.array([kernels.observed(*each) for each in every])
        right, right_square, total, square, loss_ = sums.swapaxes(0, 1)
        other = (total - right) / (N - 1)
        overlap = np.einsum("bsar,bsar->b", self.teachers, M)
        all_teachers = np.einsum("bsr,bsr->b", self.others, M.sum(2))
        first = np.full((len(M), p.L, N, d), np.nan)
        if self.accuracies:
            rule = gauss_hermite(NOISE)
            for b, each in enumerate(every):
                first[b] = accuracy_kernels.accuracies(each[0], *each[4:], *rule)
        observed = summary(
            p,
            own=on_right,
            R=overlap / (d * N),
            S=(all_teachers - overlap) / max(d * (d - 1) * N, 1),
            right=right,
            right_variance=right_square - right**2,
            other=other,
            other_variance=(square - right_square) / (N - 1) - other**2,
            loss_=loss_,
            steps=first.mean((2, 3)),
        )
        return observed | self._rolled(first)

    def _rolled(self, first: np.ndarray) -> dict[str, np.ndarray]:
        """Effect on rollout accuracy of the accuracies by seed, step, state and action; zero to
        second order.
        """
        return {}
