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
WHOLE = 1e-4  # counts up to 255, from shares in single precision, are whole to 2e-5


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

    BY_SEED: tuple[str, ...] = (
        *("counts", "given", "keep", "left", "share", "target", "teachers"),
    )

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        self.p, self.attention, self.accuracies = p, Attention(p), accuracies
        self.teachers = given.one_hot()  # (B, s, a, r), as M below
        self.target = np.ascontiguousarray(given.teachers.swapaxes(1, 2))
        M = np.ascontiguousarray(given.M.transpose(0, 3, 1, 2), dtype=float)
        self.state = [start.W_Q.astype(float), start.W_K.astype(float), M]
        self.see(given, p.n_train)

    def see(self, given: Realisation, sequences: int) -> None:
        """From now on take the loss over these counts of so many sequences."""
        from theory.state_tracking.numbers.per_seed import kernels  # compiled, when it is needed

        self.given, self.share, rows = given, given.share.astype(float), sequences * self.p.L
        B, N, L, d = given.share.shape
        self.keep, self.unit = np.ones((B, N, d)), 1.0
        self.counts = np.empty((B, N, 0, 0, 0), np.uint8)
        if given.pairs is not None:
            pairs = np.ascontiguousarray(given.pairs.transpose(0, 1, 3, 5, 2, 4))
            pairs = pairs.reshape(B, N, L, d, L * d)
            # Actions that never occur beside a state have no gradient there: Adam divides by its
            # size.
            self.keep[:] = pairs.max((2, 4)) > 0
            self.counts, (counts, apart) = pairs, kernels.whole(pairs, float(rows))
            if apart < WHOLE:  # in bytes they stay in the cache, and are exact
                self.counts, self.unit = counts, 1 / rows
                self.share = np.rint(self.share * rows) / rows
        # Factor 1 - 1/n of the variance that remains about the known mean of a group of n rows.
        many = given.share * rows
        within = np.where(many > 0, 1 - 1 / np.maximum(many, 1), 0)
        self.left = given.share * (1.0 if given.pairs is None else within)

    def _attention(self) -> tuple[np.ndarray, ...]:
        """Attention, its diagonal (weight on correct actions), and the sum of squares of the other
        entries.
        """
        at = self.attention.forward(*self.state[:2])
        own = np.einsum("bii->bi", at)
        return at, own, (at**2).sum(2) - own**2

    def _weights(self, at: np.ndarray) -> np.ndarray:
        """Mean weights (B, s, i a, b) of the actions in every group."""
        from theory.state_tracking.numbers.per_seed import kernels

        return np.stack([kernels.weights(*each[:4]) for each in self._each(at)]).swapaxes(2, 3)

    def rates(self) -> list[np.ndarray]:
        """Change of the state per step of plain descent, with coupled weight decay."""
        p, slopes = self.p, self.gradients()
        if p.weight_decay:
            slopes = [g + p.weight_decay * w for g, w in zip(slopes, self.state, strict=True)]
        for g in slopes:
            g *= -p.eta
        return slopes

    def _each(self, at: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Arguments of the kernels for every student: attention, counts, M and teachers."""
        M, unit = np.ascontiguousarray(self.state[2]), [self.unit] * len(at)
        return zip(at, self.counts, unit, self.share, self.left, M, self.target, strict=True)

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        from theory.state_tracking.numbers.per_seed import kernels

        W_Q, W_K, M = self.state
        at = self.attention.forward(W_Q, W_K)
        force, d_M = np.empty_like(at), np.empty(M.shape)
        for b, each in enumerate(self._each(at)):
            force[b] = kernels.gradients(*each, self.keep[b], d_M[b])
        d_q, d_k = self.attention.backward(W_Q, W_K, at, force)
        return [d_q, d_k, d_M]

    def _force(self, at: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Derivatives (B, i, j) of the loss of the groups' mean logits with respect to
        attention.
        """
        from theory.state_tracking.numbers.per_seed import kernels

        every = zip(self._each(at), self.state[2] @ error.swapaxes(2, 3), strict=True)
        return np.stack([kernels.force(*each[1:4], met) for each, met in every])

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        from theory.state_tracking.numbers.per_seed import kernels

        p, M = self.p, self.state[2]
        N, d = M.shape[1:3]
        at, own, _ = self._attention()
        every = list(self._each(at))
        sums, entries = zip(*(kernels.observed(*each) for each in every), strict=True)
        right, right_square, total, square, loss_ = p.L * np.stack(sums, 1)
        other = (total - right) / (N - 1)
        overlap, all_teachers = np.array(entries).T
        answers = (
            self._answers(every) if self.accuracies else {"steps": np.full(at.shape[:2], np.nan)}
        )
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
            steps=answers["steps"],
        )
        return found | answers

    def _answers(self, every: list[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
        """Accuracies by seed and step, and of rollouts where they are known: logits of new
        sequences are taken as Gaussian about their means for state, step and action.
        """
        from theory.state_tracking.numbers.per_seed import accuracy_kernels

        rule = gauss_hermite(NOISE)
        first = np.stack([accuracy_kernels.accuracies(x[0], *x[5:], *rule) for x in every])
        return {"steps": first.mean((2, 3)), **self._rolled(first)}

    def _rolled(self, first: np.ndarray) -> dict[str, np.ndarray]:
        """Effect on rollout accuracy of the accuracies by seed, step, state and action; zero to
        second order.
        """
        return {}
