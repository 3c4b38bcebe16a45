"""Numerical fixed-disorder theory to fourth order in the scatter within groups: gradients of the
loss of `theory.state_tracking.fourth_order`.
"""

import numpy as np
from scipy.special import softmax

from theory.state_tracking.numbers.per_seed.covariances import Covariances
from theory.state_tracking.numbers.per_seed.fixed_disorder import FixedDisorder
from theory.state_tracking.numbers.per_seed.realisation import Realisation


class FourthOrder(FixedDisorder):
    """As `FixedDisorder`, with the third and fourth cumulants of logits within groups.

    Adam divides by the size of a gradient, so that what is small in the gradient of keys and
    queries counts where it passes through zero.

    Attributes
    ----------
    covariances : Covariances, optional
        What the seeds' training sets have beyond the expected covariances.
    """

    BY_SEED = (*FixedDisorder.BY_SEED, "cumulants", "rows", "covariances")
    covariances: Covariances | None = None

    def see(self, given: Realisation, sequences: int) -> None:
        """Evaluate the loss on these pair counts, of so many sequences, from now on."""
        super().see(given, sequences)
        B, N, L, d = given.share.shape
        n = np.maximum(given.share * sequences * self.p.L, 1)
        if given.pairs is None:
            n = np.full_like(n, np.inf)
        # Cumulants of a row about the known mean of its group's n rows.
        orders = (1 - 1 / n, (1 - 1 / n) * (1 - 2 / n), (1 - 1 / n) ** 4 + (1 - 1 / n) / n**3)
        self.cumulants = np.stack([x.reshape(B, N, L * d, 1) for x in orders], 1)
        self.rows = given.share.reshape(B, N, L * d, 1).astype(float)

    def _rolled(self, first: np.ndarray) -> dict[str, np.ndarray]:
        """Rollout accuracy as a chain over the states of each student: an error at a state recurs
        whenever a rollout returns to it.
        """
        N = self.p.N
        mass = np.full((len(first), N), 1 / N)
        for t in range(self.p.L):
            right, mean = first[:, t], first[:, t].mean((1, 2))
            back = (1 - mean) / (N - 1) * (1 - mass.sum(1)) / N
            led = np.einsum("bs,bsa,bsar->br", mass, right, self.teachers)
            mass = led / self.p.d_g + back[:, None]
        return {"rollout_accuracy": mass.sum(1)}

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss by the state."""
        p, d = self.p, self.p.d_g
        W_Q, W_K, M = self.state
        B, N = M.shape[:2]
        pi, on_right, T = self._attention()
        x = M - M.mean(2, keepdims=True)
        C = x.swapaxes(2, 3) @ x / d
        weights = self._weights(pi)
        P = softmax(weights @ M, -1)
        T3, T4 = ((pi**k).sum(2) - on_right**k for k in (3, 4))

        def by_group(of_step: np.ndarray) -> np.ndarray:
            return np.repeat(of_step, d, axis=1)[:, None, :, None]

        two, three, four = self.cumulants.swapaxes(0, 1)
        pair = two * by_group(T)
        coefficient = (pair / 2, three * by_group(T3) / 6, four * by_group(T4) / 24)
        mixed = pair**2 / 8 - 3 * coefficient[2]
        powers = [x**k for k in range(1, 5)]
        m, s2, s3, s4 = (P @ y.swapaxes(2, 3) for y in powers)
        # Derivatives of the third and fourth cumulant by mean powers, over actions.
        one = np.ones_like(m)
        third = (6 * m**2 - 3 * s2, -3 * m, one, 0 * one)
        fourth = (24 * m * (s2 - m**2) - 4 * s3, 12 * m**2 - 6 * s2, -4 * m, one)
        slopes = [
            (coefficient[1] * u + coefficient[2] * v) / d
            for u, v in zip(third, fourth, strict=True)
        ]
        k3 = (s3 - 3 * s2 * m + 2 * m**3).mean(3)
        k4 = (s4 - 4 * s3 * m - 3 * s2**2 + 12 * s2 * m**2 - 6 * m**4).mean(3)
        # Pairs of actions, by the covariance of entries alone.
        square = np.einsum("bsrr->bsr", C)[:, :, None]
        h = P @ C
        v = (P * h).sum(3, keepdims=True)
        s = square - 2 * h + v
        k2 = (P * s).sum(3, keepdims=True)
        other = C**2
        alike = (P @ other * P).sum(3, keepdims=True) - 2 * (P * h**2).sum(3, keepdims=True) + v**2
        q = (P * s**2).sum(3, keepdims=True) - k2**2 - 2 * alike
        by_q = s**2 - 4 * (P * (s - 2 * h)) @ C + 4 * (2 * k2 - 2 * v) * h
        by_q += -2 * k2 * square - 4 * P @ other + 4 * h**2
        by_P = coefficient[0] * (square - 2 * h) + mixed * by_q
        by_P += sum(u @ y for u, y in zip(slopes, powers, strict=True))
        beyond = None
        if self.covariances is not None:
            beyond = self.covariances.slopes(pi, P, self.rows, M)
            by_P += beyond[0]
        error = P * (1 + by_P - (P * by_P).sum(3, keepdims=True))
        error = (error.reshape(B, N, p.L, d, N) - self.teachers[:, :, None]).reshape(P.shape)
        # Entries of M: in the mean logits, and in what scatters about them.
        rows = self.rows
        w2, w4 = rows * coefficient[0], rows * mixed

        def outer(left: np.ndarray) -> np.ndarray:
            return left.swapaxes(2, 3) @ P

        diagonal = (w2 * P + 2 * w4 * P * (s - k2)).sum(2)
        by_C = outer((4 * w4 * (k2 - v) - w2) * P) - 4 * C * outer(w4 * P)
        crossed = outer(2 * w4 * P * (2 * h - s))
        by_C += crossed + crossed.swapaxes(2, 3)
        by_C[:, :, np.arange(N), np.arange(N)] += diagonal
        by_x = 2 / d * x @ by_C
        by_x += outer(rows * slopes[0])
        for k in (1, 2, 3):
            by_x += (k + 1) * powers[k - 1] * outer(rows * slopes[k])
        by_x -= by_x.mean(2, keepdims=True)
        if beyond is not None:
            by_x += beyond[1]
        d_M = weights.swapaxes(2, 3) @ (rows * error) + self.keep[..., None] * by_x
        # Attention: in the mean logits, and in the scatter.
        force = self._force(pi, error)

        def by_step(found: np.ndarray) -> np.ndarray:
            return (rows[..., 0] * found).reshape(B, N, p.L, d).sum((1, 3))[..., None]

        two, three, four, pair, k2, q = (y[..., 0] for y in (two, three, four, pair, k2, q))
        found = 2 * pi * by_step(two * (k2 / 2 + pair * q / 4))
        found += 3 * pi**2 * by_step(three * k3 / 6)
        found += 4 * pi**3 * by_step(four * (k4 / 24 - q / 8))
        force += found * (1 - np.eye(p.L))
        if beyond is not None:
            force += beyond[2]
        d_q, d_k = self.attention.backward(W_Q, W_K, pi, force)
        return [d_q, d_k, d_M]
