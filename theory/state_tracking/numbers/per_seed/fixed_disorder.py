"""Numerical fixed-disorder theory: groups of training rows, vectorised over seeds."""

import numpy as np
from scipy.special import ndtr

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
    """

    def __init__(self, p: Parameters, start: Start, given: Realisation) -> None:
        self.p, self.attention = p, Attention(p)
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

    def _spread(self, T: np.ndarray) -> np.ndarray:
        """Variance of logits per variance of M, by group, shape (B, 1 or s, i a, 1)."""
        left = self.left * self.scale * T[:, None, :, None]
        return left.reshape(*left.shape[:2], -1, 1)

    def _probabilities(self, z: np.ndarray, C: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Mean probabilities: softmax of the mean logits with a second-order correction for their
        variance.
        """
        plain = _softmax(z)
        square = np.einsum("bsrr->bsr", C)[:, :, None]
        return _softmax(z + spread / 2 * (square - 2 * plain @ C))

    def rates(self) -> list[np.ndarray]:
        """Change of the state per step of plain descent, with coupled weight decay."""
        p, slopes = self.p, self.gradients()
        return [-p.eta * (g + p.weight_decay * w) for g, w in zip(slopes, self.state, strict=True)]

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        p = self.p
        W_Q, W_K, M = self.state
        B, N, d, _ = M.shape
        at, own, T = self._attention()
        _, deviation, C = self._moments()
        weights, spread = self._weights(at, own), self._spread(T)
        prob = self._probabilities(weights @ M, C, spread)
        share = self.given.share.reshape(B, N, -1, 1)
        error = (prob.reshape(B, N, p.L, d, N) - self.teachers[:, :, None]).reshape(prob.shape)
        # Response to logits, summed over groups with the variance of their logits.
        left = self.left.reshape(B, N, -1, 1)
        heavy = left * prob
        by_step = T[:, None, :, None, None]
        noisy = (heavy.reshape(B, N, p.L, d, N) * by_step).reshape(prob.shape)
        response = -noisy.swapaxes(2, 3) @ prob
        response[:, :, np.arange(N), np.arange(N)] += noisy.sum(2)
        by_scatter = deviation @ response / d
        if self.absent is not None:
            by_scatter[self.absent] = 0
        d_M = weights.swapaxes(2, 3) @ (share * error) + by_scatter
        # Force on attention: from the groups' mean logits, and from the loss due to their variance.
        force = self._force(error, M)
        square = np.einsum("bsrr->bsr", C)[:, :, None]
        cost = np.einsum("bsgr,bsgr->bsg", heavy, square - prob @ C)
        by_place = at * cost.reshape(B, N, p.L, d).sum((1, 3))[..., None]
        force += by_place * (1 - np.eye(p.L))
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
        p, y = self.p, self.teachers
        M = self.state[2]
        B, N, d, _ = M.shape
        at, own, T = self._attention()
        mean, _, C = self._moments()
        spread = self._spread(T)
        z = self._weights(at, own) @ M
        square = np.einsum("bsrr->bsr", C)[:, :, None]
        prob = _softmax(z)
        highest = z.max(3)
        normaliser = np.log(np.exp(z - highest[..., None]).sum(3)) + highest
        cost = ((square - prob @ C) * prob).sum(3)
        target = np.tile(y, (1, 1, p.L, 1))
        share = self.given.share.reshape(B, N, -1)
        right = (z * target).sum(3)

        def over_rows(x: np.ndarray) -> np.ndarray:
            """Mean over the rows of a step, shape (B, L)."""
            return p.L * (share * x).reshape(B, N, p.L, d).sum((1, 3))

        def variance(is_it: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
            first = over_rows((is_it * z).sum(3)) / count
            second = over_rows((is_it * (z**2 + spread * square)).sum(3)) / count
            return first, second - first**2

        right_mean, right_variance = variance(target, 1)
        other_mean, other_variance = variance(1 - target, N - 1)
        overlap = (y * M).sum((1, 2, 3))
        all_teachers = (y.sum(2) * M.sum(2)).sum((1, 2))
        first = self._right(own, T, mean, C)
        found = summary(
            p,
            own=own,
            R=overlap / (d * N),
            S=(all_teachers - overlap) / max(d * (d - 1) * N, 1),
            right=right_mean,
            right_variance=right_variance,
            other=other_mean,
            other_variance=other_variance,
            loss_=over_rows(normaliser - right + spread[..., 0] * cost / 2),
            steps=first.mean((2, 3)),
        )
        return found | self._rolled(first)

    def _rolled(self, first: np.ndarray) -> dict[str, np.ndarray]:
        """Effect on rollout accuracy of the accuracies by seed, step, state and action; zero to
        second order.
        """
        return {}

    def _right(self, own: np.ndarray, T: np.ndarray, mean: np.ndarray, C: np.ndarray) -> np.ndarray:
        """Probability that the correct logit is the largest on new sequences, per seed, step, state
        and action.
        """
        M, y = self.state[2], self.teachers
        nodes, weight = gauss_hermite(NOISE)
        square = np.einsum("bsrr->bsr", C)
        out = np.empty(own.shape + y.shape[1:3])
        for b, i in np.ndindex(own.shape):
            z = own[b, i] * M[b] + (1 - own[b, i]) * mean[b][:, None]
            noise = np.sqrt(T[b, i] * square[b])[:, None] + 1e-9
            right, scale = (z * y[b]).sum(2), (noise * y[b]).sum(2)
            first = np.zeros_like(right)
            for x, w in zip(nodes, weight, strict=True):
                ahead = ((right + scale * x)[..., None] - z) / noise
                first += w * np.where(y[b] > 0, 1, ndtr(ahead)).prod(2)
            out[b, i] = first
        return out


def _softmax(z: np.ndarray) -> np.ndarray:
    """Softmax over the last axis. One common shift suffices, as logits of all groups have similar
    size. The sum over the short axis is a matrix product, which is faster.
    """
    e = np.exp(z - z.max())
    e /= (e @ np.ones(e.shape[3]))[..., None]
    return e
