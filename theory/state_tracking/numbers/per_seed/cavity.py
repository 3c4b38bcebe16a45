"""Numerical cavity equations: entries of M as functions of their initial value,
from a seed's initial weights.
"""

from dataclasses import dataclass

import numpy as np

from theory.special import gauss_hermite, gauss_legendre
from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.observables import forces, forms, summary
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.parameters import Parameters

# Quadrature nodes in v_0, epsilon and xi: with more nodes no time changes by 1e-4.
NODES, SHARES, NOISE = 10, 5, 5


FINE = 65  # points of the interpolation of distributions of entries


@dataclass(frozen=True)
class Logits:
    """Means and variances of the logits of B seeds at L positions; columns are labelled by share
    and v_0.

    Attributes
    ----------
    at : ndarray, shape (B, L, L)
        Attention matrix.
    own : ndarray, shape (B, L)
        Its diagonal, ``pi_i``.
    elsewhere : ndarray, shape (B, L)
        Sum of squared off-diagonal entries per row, ``T``.
    weight : ndarray, shape (B, L)
        ``own_weight``.
    R, mean_w, V_w : ndarray, shape (B,)
        Means of correct and wrong entries; variance of the wrong ones.
    u_k, u_w : ndarray, shape (B, L)
        ``noise_right`` and ``noise_wrong``.
    z_k, z_w : ndarray, shape (B, L, share, v_0)
        ``column_right`` and ``column_wrong``.
    """

    at: np.ndarray
    own: np.ndarray
    elsewhere: np.ndarray
    weight: np.ndarray
    R: np.ndarray
    mean_w: np.ndarray
    V_w: np.ndarray
    u_k: np.ndarray
    u_w: np.ndarray
    z_k: np.ndarray
    z_w: np.ndarray


class Cavity:
    """Cavity equations of entries of M, by initial value and share of the training set. State per
    seed: W_Q, W_K, v_k, v_w, S.

    Parameters
    ----------
    p : Parameters
        Sizes, learning rate and ``n_train``.
    start : Start
        Initial values of the seeds.
    finite_data : bool
        Let columns differ in their share of a finite training set; otherwise the training set is
        infinite.
    accuracies : bool
        Compute accuracies, which take most of the time of an evaluation; otherwise they are NaN.
    """

    BY_SEED = ("zeta",)

    def __init__(
        self, p: Parameters, start: Start, finite_data: bool = True, accuracies: bool = True
    ) -> None:
        self.p, self.attention, self.zeta = p, Attention(p), start.zeta[:, None]
        self.accuracies = accuracies
        self.v_0, weight = gauss_legendre(NODES, -1)
        self.of_v = weight / 2
        self.e, self.of_share = gauss_hermite(SHARES if finite_data else 1)
        self.share = 1 + self.e * np.sqrt(forms()["share"](p.d_g, p.N, p.n_train, p.L))
        self.share = np.maximum(self.share, 0)
        self.xi, self.of_xi = gauss_hermite(NOISE)
        # For accuracies, values at edges and middles of cells, and at equally spaced shares.
        fine = np.linspace(-1, 1, FINE)
        self.to_cells = [_between(self.v_0, x) for x in (fine, (fine[1:] + fine[:-1]) / 2)]
        shares = np.linspace(-3, 3, 13) if finite_data else self.e
        self.to_shares = _between(self.e, shares)
        of_share = np.exp(-(shares**2) / 2)  # the trapezoidal rule on a Gaussian
        self.of_fine_share = of_share / of_share.sum()
        spread = np.ones((1, len(self.e), 1)) * self.v_0
        centre = [start.R, (start.zeta - start.R) / (p.N - 1)]
        v_k, v_w = (
            np.sqrt(3 * var)[:, None, None] * spread + x[:, None, None]
            for var, x in zip((start.variance_right, start.variance_wrong), centre, strict=True)
        )
        self.state = [
            start.W_Q.astype(float),
            start.W_K.astype(float),
            v_k,
            v_w,
            start.S.astype(float),
        ]

    def _mean(self, f: np.ndarray) -> np.ndarray:
        """Average over shares and initial values (the last two axes)."""
        return (f @ self.of_v) @ self.of_share

    def _logits(self) -> Logits:
        """Logits in the current state."""
        p, f = self.p, forms()
        W_Q, W_K, v_k, v_w, S = self.state
        pi = self.attention.forward(W_Q, W_K)
        on_right = np.einsum("bii->bi", pi)
        elsewhere = (pi**2).sum(2) - on_right**2
        R, mean = self._mean(v_k), self._mean(v_w)
        V_k, V_w = self._mean(v_k**2) - R**2, self._mean(v_w**2) - mean**2
        V_all = f["entry_variance"](V_k, V_w, R, mean, p.N)[:, None]
        weight = f["weight"](on_right, p.d_g)
        b, other = weight[..., None, None], S[:, None, None, None]
        return Logits(
            at=pi,
            own=on_right,
            elsewhere=elsewhere,
            weight=weight,
            R=R,
            V_w=V_w,
            mean_w=mean,
            u_k=f["noise_right"](
                on_right, elsewhere, V_all, V_k[:, None], R[:, None], S[:, None], p.d_g
            ),
            u_w=f["noise_wrong"](
                on_right, elsewhere, V_all, V_w[:, None], R[:, None], S[:, None], p.N, p.d_g
            ),
            z_k=f["right"](b, v_k[:, None], other),
            z_w=f["wrong"](b, v_w[:, None], other, self.zeta[..., None, None], p.N),
        )

    def rates(self) -> list[np.ndarray]:
        """Change of the state per epoch."""
        p, f = self.p, forms()
        W_Q, W_K, v_k, v_w, S = self.state
        x = self._logits()
        e_w = np.exp(x.z_w + x.u_w[..., None, None] / 2)
        others = (p.N - 1) * (e_w @ self.of_v)[..., None]  # average over columns of the same share
        e_k = np.exp(x.z_k)[..., None] * np.exp(np.sqrt(x.u_k)[..., None, None, None] * self.xi)
        inverse = 1 / (e_k + others[..., None])
        p_k = (e_k * inverse) @ self.of_xi
        p_w = e_w * ((inverse @ self.of_xi) @ self.of_v)[..., None]
        wrong = 1 - self._mean(p_k)
        gain = self.share[:, None] * x.weight[..., None, None]
        variance = f["spread"](x.elsewhere + x.own**2, p.d_g) - x.weight**2
        stir = (variance * f["curvature"](wrong, p.N)).mean(1)[:, None, None]
        by_alpha = [
            (gain * (1 - p_k)).mean(1) - stir * (v_k - x.R[:, None, None]),
            -(gain * p_w).mean(1) - stir * (v_w - x.mean_w[:, None, None]),
            (wrong * (1 - x.own)).mean(1) / p.d_g,
        ]
        force, on = forces(p, x.at, wrong, x.V_w, x.R, S)
        d_q, d_k = self.attention.backward(
            W_Q, W_K, x.at, (force + on[..., None] * np.eye(p.L)) / p.L
        )
        return [-p.eta * d_q, -p.eta * d_k, *(p.eta * r / (p.d_g * p.N) for r in by_alpha)]

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        p, x = self.p, self._logits()
        right, other = self._mean(x.z_k), self._mean(x.z_w)
        right_variance = self._mean(x.z_k**2) - right**2 + x.u_k
        other_variance = self._mean(x.z_w**2) - other**2 + x.u_w
        others = (p.N - 1) * (np.exp(x.z_w + x.u_w[..., None, None] / 2) @ self.of_v)[
            ..., None, None
        ]
        noisy = x.z_k[..., None] + np.sqrt(x.u_k)[..., None, None, None] * self.xi
        loss_ = self._mean((np.log(np.exp(noisy) + others) - noisy) @ self.of_xi)
        return summary(
            p,
            own=x.own,
            R=x.R,
            S=self.state[4],
            right=right,
            right_variance=right_variance,
            other=other,
            other_variance=other_variance,
            loss_=loss_,
            steps=self._accuracy(x) if self.accuracies else np.full(x.own.shape, np.nan),
        )

    def _accuracy(self, found: Logits) -> np.ndarray:
        """Probability that the correct logit is the largest, per seed and position.

        The N - 1 wrong logits are independent draws of a column's wrong entries plus noise. Their
        distribution function has kinks once the noise has vanished, and each column is learned at a
        sharp time; therefore the logits, smooth in v_0 and epsilon, are interpolated to many values
        of both.
        """
        from theory.state_tracking.numbers.per_seed import (
            accuracy_kernels,
        )  # compiled, when it is needed

        z_k, z_w = (self.to_shares @ z for z in (found.z_k, found.z_w))
        columns = zip(z_k, z_w, found.u_k, found.u_w, strict=True)
        settings = (*self.to_cells, self.of_v, self.p.N - 1, 2 * FINE, *gauss_hermite(7))
        each = np.array(
            [accuracy_kernels.column_accuracies(*column, *settings) for column in columns]
        )
        return each @ self.of_fine_share


def _between(nodes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Matrix from the values of a polynomial at nodes to those at points."""
    basis, degree = np.polynomial.legendre.legvander, len(nodes) - 1
    return basis(points, degree) @ np.linalg.inv(basis(nodes, degree))
