"""Numbers of the dressed theory and of the column statistics, from a seed's own start: one curve
per seed.

Array code for the index forms of `dressed` and `columns`; the elementary functions are compiled
from those equations. One step per epoch, as descent takes it: the steps' size shows in emergence
times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import xarray as xr
from scipy.special import ndtr

from theory.parameters import ParameterError
from theory.state_tracking import columns, dressed, logits, loss, variance
from theory.state_tracking.definitions import pi
from theory.state_tracking.logits import pi_i
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.rollout import gaussian_accuracy, rollout
from theory.state_tracking.symbols import N, R, S, d_g, g, m, z_k, zeta

NODES, SHARES, NOISE = (
    10,
    5,
    5,
)  # quadrature nodes in v_0, epsilon and xi: more change no time by 1e-4
FINE = 65  # points between which distributions of entries are interpolated


@dataclass(frozen=True)
class Start:
    """Where seeds start; arrays over seeds.

    Attributes
    ----------
    W_Q, W_K : ndarray, shape (B, d_h)
        Keys and queries.
    R, S, zeta : ndarray, shape (B,)
        Overlaps, and the conserved mean of the logit sum.
    variance_right, variance_wrong : ndarray, shape (B,)
        Variance of the teachers' entries of M, and of the others.
    """

    W_Q: np.ndarray
    W_K: np.ndarray
    R: np.ndarray
    S: np.ndarray
    zeta: np.ndarray
    variance_right: np.ndarray
    variance_wrong: np.ndarray

    @classmethod
    def measured(cls, runs: xr.Dataset) -> Self:
        """Starts of the seeds of an ensemble."""
        at = runs.isel(alpha=0).transpose("seed", ...)
        S = np.nan_to_num(at.S.values)  # with a single action there is none
        return cls(
            at.W_Q_start.values,
            at.W_K_start.values,
            at.R.values,
            S,
            at.zeta.values,
            at.M_variance_correct.values,
            at.M_variance_other.values,
        )

    @classmethod
    def drawn(cls, p: Parameters, seeds: int, rng: np.random.Generator) -> Self:
        """Starts from the distribution of the ensemble: independent uniform weights.

        R, S and zeta are sums of many entries of M, jointly Gaussian; the variances of entries are
        at their mean.
        """
        var = p.initial_variance
        bound = np.sqrt(3 * var)
        W_Q, W_K = rng.uniform(-bound, bound, (2, seeds, p.d_h))
        mean = rng.normal(scale=np.sqrt(var / p.d_g), size=seeds)
        rest = np.sqrt(var * (1 - 1 / p.N) / (p.N * p.d_g))
        R = mean / p.N + rng.normal(scale=rest, size=seeds)
        S = mean / p.N + rng.normal(scale=rest / np.sqrt(max(p.d_g - 1, 1)), size=seeds)
        return cls(W_Q, W_K, R, S, mean, np.full(seeds, var), np.full(seeds, var))


class Attention:
    """Attention matrices (B, L, L) of keys and queries (B, d_h), and the way back."""

    def __init__(self, p: Parameters) -> None:
        steps = np.arange(p.L)
        angle = (steps[None, :] - steps[:, None] - p.L)[..., None] * p.frequencies
        self.tables = np.stack([np.cos(angle), np.sin(angle)]).reshape(2, p.L**2, -1) / np.sqrt(
            p.d_h
        )
        self.L = p.L

    def forward(self, W_Q: np.ndarray, W_K: np.ndarray) -> np.ndarray:
        """Softmax of the rotary logits."""
        q1, q2, k1, k2 = W_Q[:, 0::2], W_Q[:, 1::2], W_K[:, 0::2], W_K[:, 1::2]
        l = (q1 * k1 + q2 * k2) @ self.tables[0].T + (q2 * k1 - q1 * k2) @ self.tables[1].T
        l = l.reshape(-1, self.L, self.L)
        weight = np.exp(l - l.max(2, keepdims=True))
        return weight / weight.sum(2, keepdims=True)

    def backward(
        self, W_Q: np.ndarray, W_K: np.ndarray, at: np.ndarray, force: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradients by W_Q and W_K from those by the attention entries."""
        d_l = (at * (force - (at * force).sum(2, keepdims=True))).reshape(len(at), -1)
        even, odd = d_l @ self.tables[0], d_l @ self.tables[1]
        q1, q2, k1, k2 = W_Q[:, 0::2], W_Q[:, 1::2], W_K[:, 0::2], W_K[:, 1::2]
        d_q = np.stack([even * k1 - odd * k2, even * k2 + odd * k1], 2)
        d_k = np.stack([even * q1 + odd * q2, even * q2 - odd * q1], 2)
        return d_q.reshape(W_Q.shape), d_k.reshape(W_K.shape)


@cache
def _forms() -> dict[str, Callable]:
    """Elementary functions of the theory, compiled from its equations."""
    d, k, one = dressed.equations(), columns.equations(), logits.equations()
    return {
        "spread": d["spread"].lambdify(variance.participation, d_g),
        "curvature": d["curvature"].lambdify(g, N),
        "cost": d["noise_cost"].lambdify(g, N),
        "by_margin": d["dloss_dpi_margin"].lambdify(g, dressed.v, R, S, N, d_g),
        "by_noise": d["dloss_dpi_noise"].lambdify(
            dressed.h, pi[dressed.i, dressed.j], dressed.V, d_g
        ),
        "logit": one["logit_correct_position"].lambdify(pi_i, R, S, d_g),
        "other": one["logit_other"].lambdify(z_k, zeta, N),
        "margin": loss.equations()["margin"].lambdify(z_k, zeta, N),
        "g": loss.equations()["g"].lambdify(m, N),
        "loss": loss.equations()["loss_of_margin"].lambdify(m, N),
        "weight": k["own_weight"].lambdify(pi_i, d_g),
        "entry_variance": k["entry_variance"].lambdify(
            columns.V_k, columns.V_w, R, columns.mean_w, N
        ),
        "noise_right": k["noise_right"].lambdify(
            pi_i, columns.T, columns.V_all, columns.V_k, R, S, d_g
        ),
        "noise_wrong": k["noise_wrong"].lambdify(
            pi_i, columns.T, columns.V_all, columns.V_w, R, S, N, d_g
        ),
        "right": k["column_right"].lambdify(columns.b_i, columns.v_k, S),
        "wrong": k["column_wrong"].lambdify(columns.b_i, columns.v_w, S, zeta, N),
        "share": k["share_variance"].lambdify(d_g, N, columns.n_train, dressed.L),
    }


class Dressed:
    """Mean-field logits with noise: state W_Q, W_K, R, S and V_M per seed.

    Parameters
    ----------
    p : Parameters
        Sizes and learning rate.
    start : Start
        Where the seeds start.
    annealed : bool
        Price the noise at ln <Z> instead of <ln Z>.
    pull : ndarray, shape (B, L, L), optional
        Constant force on the attention entries of every position: what one training set adds to the
        mean one.
    """

    def __init__(
        self, p: Parameters, start: Start, annealed: bool = False, pull: np.ndarray | float = 0.0
    ) -> None:
        self.p, self.annealed, self.attention, self.pull = p, annealed, Attention(p), pull
        pooled = (start.variance_right + (p.N - 1) * start.variance_wrong) / p.N
        self.state = [
            x.astype(float).copy() for x in (start.W_Q, start.W_K, start.R, start.S, pooled)
        ]
        self.zeta = start.zeta[:, None]

    def _means(self) -> tuple[np.ndarray, ...]:
        """Attention, its diagonal, spread of the noise, right logit and margin: per seed and
        position.
        """
        W_Q, W_K, R, S, _ = self.state
        at = self.attention.forward(W_Q, W_K)
        own = np.einsum("bii->bi", at)
        correct = _forms()["logit"](own, R[:, None], S[:, None], self.p.d_g)
        spread = _forms()["spread"]((at**2).sum(2), self.p.d_g)
        return at, own, spread, correct, _forms()["margin"](correct, self.zeta, self.p.N)

    def rates(self) -> list[np.ndarray]:
        """Change of the state per epoch."""
        p, f = self.p, _forms()
        W_Q, W_K, R, S, V = self.state
        at, own, spread, _, margin = self._means()
        wrong = f["g"](margin, p.N)
        if self.annealed:
            force = at * V[:, None, None] * (1 - 1 / p.d_g)
            on = -wrong * p.N / (p.N - 1) * (1 - 1 / p.d_g) * (R - S)[:, None]
        else:
            force, on = _force(p, at, wrong, V, R, S)
        d_q, d_k = self.attention.backward(
            W_Q, W_K, at, (force + self.pull + on[..., None] * np.eye(p.L)) / p.L
        )
        q = f["curvature"](wrong, p.N)
        by_alpha = [
            p.eta * (wrong * f["weight"](own, p.d_g)).mean(1),
            p.eta * (wrong * (1 - own)).mean(1) / p.d_g,
            -2 * p.eta * (q * spread).mean(1) * V,
        ]
        return [-p.eta * d_q, -p.eta * d_k, *(x / (p.d_g * p.N) for x in by_alpha)]

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies, per seed."""
        p, f = self.p, _forms()
        _, _, R, S, V = self.state
        _, own, spread, correct, margin = self._means()
        noise = spread * V[:, None]
        other = f["other"](correct, self.zeta, p.N)
        cost = 1.0 if self.annealed else f["cost"](f["g"](margin, p.N), p.N)
        steps = gaussian_accuracy(margin, np.sqrt(noise), np.sqrt(noise), p.N)
        return _summary(
            p,
            own,
            R,
            S,
            correct,
            noise,
            other,
            noise,
            f["loss"](margin, p.N) + noise * cost / 2,
            steps,
        )


def _force(
    p: Parameters, at: np.ndarray, wrong: np.ndarray, V: np.ndarray, R: np.ndarray, S: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the dressed loss of a position by all attention entries, and the part on the
    right one only.
    """
    f = _forms()
    noise = f["spread"]((at**2).sum(2), p.d_g) * V[:, None]
    everywhere = f["by_noise"](f["cost"](wrong, p.N)[..., None], at, V[:, None, None], p.d_g)
    return everywhere, f["by_margin"](wrong, noise, R[:, None], S[:, None], p.N, p.d_g)


def _summary(
    p: Parameters,
    own: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
    right: np.ndarray,
    right_variance: np.ndarray,
    other: np.ndarray,
    other_variance: np.ndarray,
    loss_: np.ndarray,
    steps: np.ndarray,
) -> dict[str, np.ndarray]:
    """Observables from means and variances per (seed, position): variances over rows include the
    spread of means.
    """
    return {
        "A": own.mean(1),
        "R": R.copy(),
        "S": S.copy(),
        "logit_correct": right.mean(1),
        "logit_other": other.mean(1),
        "variance_correct": right_variance.mean(1) + right.var(1),
        "variance_other": other_variance.mean(1) + other.var(1),
        "loss": loss_.mean(1),
        "accuracy": steps.mean(1),
        "rollout_accuracy": rollout(steps, p.N)[..., -1],
    }


class Columns:
    """Entries of M by initial value and share of the training set; state W_Q, W_K, v_k, v_w, S per
    seed.

    Parameters
    ----------
    p : Parameters
        Sizes, learning rate and ``n_train``.
    start : Start
        Where the seeds start.
    finite_data : bool
        Let columns differ in their share of the training set; otherwise it is infinite.
    """

    def __init__(self, p: Parameters, start: Start, finite_data: bool = True) -> None:
        self.p, self.attention, self.zeta = p, Attention(p), start.zeta[:, None]
        self.v_0, weight = np.polynomial.legendre.leggauss(NODES)
        self.of_v = weight / 2
        e, weight = np.polynomial.hermite_e.hermegauss(SHARES if finite_data else 1)
        self.of_share = weight / weight.sum()
        self.e, self.share = (
            e,
            np.maximum(1 + e * np.sqrt(_forms()["share"](p.d_g, p.N, p.n_train, p.L)), 0),
        )
        self.xi, weight = np.polynomial.hermite_e.hermegauss(NOISE)
        self.of_xi = weight / weight.sum()
        spread = np.ones((1, len(e), 1)) * self.v_0
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
        """Average over initial values and shares, the last two axes."""
        return (f @ self.of_v) @ self.of_share

    def _logits(self) -> dict[str, Any]:
        """Attention, mean logits ``(B, L, share, v_0)`` and noise variances ``(B, L)``."""
        p, f = self.p, _forms()
        W_Q, W_K, v_k, v_w, S = self.state
        at = self.attention.forward(W_Q, W_K)
        own = np.einsum("bii->bi", at)
        elsewhere = (at**2).sum(2) - own**2
        R, mean = self._mean(v_k), self._mean(v_w)
        V_k, V_w = self._mean(v_k**2) - R**2, self._mean(v_w**2) - mean**2
        V_all = f["entry_variance"](V_k, V_w, R, mean, p.N)[:, None]
        weight = f["weight"](own, p.d_g)
        b, rest = weight[..., None, None], S[:, None, None, None]
        return {
            "at": at,
            "own": own,
            "elsewhere": elsewhere,
            "weight": weight,
            "R": R,
            "V_w": V_w,
            "mean": mean,
            "u_k": f["noise_right"](
                own, elsewhere, V_all, V_k[:, None], R[:, None], S[:, None], p.d_g
            ),
            "u_w": f["noise_wrong"](
                own, elsewhere, V_all, V_w[:, None], R[:, None], S[:, None], p.N, p.d_g
            ),
            "z_k": f["right"](b, v_k[:, None], rest),
            "z_w": f["wrong"](b, v_w[:, None], rest, self.zeta[..., None, None], p.N),
        }

    def rates(self) -> list[np.ndarray]:
        """Change of the state per epoch."""
        p, f = self.p, _forms()
        W_Q, W_K, v_k, v_w, S = self.state
        x = self._logits()
        e_w = np.exp(x["z_w"] + x["u_w"][..., None, None] / 2)
        others = (p.N - 1) * (e_w @ self.of_v)[..., None]  # of columns of the same share
        e_k = np.exp(x["z_k"])[..., None] * np.exp(
            np.sqrt(x["u_k"])[..., None, None, None] * self.xi
        )
        inverse = 1 / (e_k + others[..., None])
        p_k = (e_k * inverse) @ self.of_xi
        p_w = e_w * ((inverse @ self.of_xi) @ self.of_v)[..., None]
        wrong = 1 - self._mean(p_k)
        gain = self.share[:, None] * x["weight"][..., None, None]
        rest = f["spread"](x["elsewhere"] + x["own"] ** 2, p.d_g) - x["weight"] ** 2
        stir = (rest * f["curvature"](wrong, p.N)).mean(1)[:, None, None]
        by_alpha = [
            (gain * (1 - p_k)).mean(1) - stir * (v_k - x["R"][:, None, None]),
            -(gain * p_w).mean(1) - stir * (v_w - x["mean"][:, None, None]),
            (wrong * (1 - x["own"])).mean(1) / p.d_g,
        ]
        force, on = _force(p, x["at"], wrong, x["V_w"], x["R"], S)
        d_q, d_k = self.attention.backward(
            W_Q, W_K, x["at"], (force + on[..., None] * np.eye(p.L)) / p.L
        )
        return [-p.eta * d_q, -p.eta * d_k, *(p.eta * r / (p.d_g * p.N) for r in by_alpha)]

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies, per seed."""
        p, x = self.p, self._logits()
        right, other = self._mean(x["z_k"]), self._mean(x["z_w"])
        right_variance = self._mean(x["z_k"] ** 2) - right**2 + x["u_k"]
        other_variance = self._mean(x["z_w"] ** 2) - other**2 + x["u_w"]
        others = (p.N - 1) * (np.exp(x["z_w"] + x["u_w"][..., None, None] / 2) @ self.of_v)[
            ..., None, None
        ]
        noisy = x["z_k"][..., None] + np.sqrt(x["u_k"])[..., None, None, None] * self.xi
        loss_ = self._mean((np.log(np.exp(noisy) + others) - noisy) @ self.of_xi)
        return _summary(
            p,
            x["own"],
            x["R"],
            self.state[4],
            right,
            right_variance,
            other,
            other_variance,
            loss_,
            self._accuracy(x),
        )

    def _accuracy(self, found: dict[str, Any]) -> np.ndarray:
        """Probability that the right logit is the largest, per seed and position.

        The N - 1 wrong logits are independent draws of a column's wrong entries and noise. Their
        distribution function has corners once the noise is gone, and a column is learned at a sharp
        time: logits, smooth in v_0 and epsilon, are interpolated to many of both.
        """
        from scipy.interpolate import (
            BarycentricInterpolator,
        )  # here, as few of those who import the model need it

        fine = np.linspace(-1, 1, FINE)
        middle = (fine[1:] + fine[:-1]) / 2
        between = BarycentricInterpolator(self.v_0, np.eye(len(self.v_0)))
        z_w, z_k = found["z_w"] @ between(fine).T, found["z_k"] @ between(middle).T
        of_share = self.of_share
        if len(self.e) > 1:
            shares = np.linspace(-3, 3, 13)  # the trapezoidal rule on a Gaussian
            of_share = np.exp(-(shares**2) / 2) / np.exp(-(shares**2) / 2).sum()
            to_shares = BarycentricInterpolator(self.e, np.eye(len(self.e)))(shares)
            z_w, z_k = (np.einsum("se,blem->blsm", to_shares, z) for z in (z_w, z_k))
        noise, weight = np.polynomial.hermite_e.hermegauss(7)
        weight = weight / weight.sum()
        out = np.zeros(z_k.shape[:3])
        for at in np.ndindex(out.shape):
            s_k, s_w = np.sqrt(found["u_k"][at[:2]]), np.sqrt(found["u_w"][at[:2]])
            edge = 5 * max(s_k, s_w)
            grid = np.linspace(
                min(z_k[at][0], z_w[at][0]) - edge, max(z_k[at][-1], z_w[at][-1]) + edge, 2 * FINE
            )
            # Entries uniform between neighbours, noise Gaussian: the integral of Phi is x Phi +
            # phi.
            x = (grid[:, None] - z_w[at]) / max(s_w, 1e-9)
            integral = max(s_w, 1e-9) * (x * ndtr(x) + np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi))
            below = np.maximum((-np.diff(integral) / np.diff(z_w[at])).mean(1), 0)
            out[at] = (
                np.interp(z_k[at][:, None] + s_k * noise, grid, below ** (self.p.N - 1)) @ weight
            ).mean()
        return out @ of_share


def solve(system: Dressed | Columns, epochs: Any) -> xr.Dataset:
    """Run a system, once, to the last of the given epochs; observables over ``(seed, alpha)`` at
    each of them.

    Raises
    ------
    ParameterError
        Unless the epochs are whole, increasing and not negative.
    """
    epochs = np.asarray(epochs)
    if (
        epochs.ndim != 1
        or not epochs.size
        or (epochs != epochs.astype(int)).any()
        or epochs[0] < 0
        or (np.diff(epochs) <= 0).any()
    ):
        raise ParameterError(f"epochs = {epochs}: must be whole numbers >= 0, increasing")
    found = []
    for epoch in range(int(epochs[-1]) + 1):
        if epoch in epochs:
            found.append(system.observe())
        if epoch < epochs[-1]:
            system.state = [x + rate for x, rate in zip(system.state, system.rates(), strict=True)]
    data = {name: (("seed", "alpha"), np.stack([f[name] for f in found], 1)) for name in found[0]}
    return xr.Dataset(data, coords={"alpha": system.p.alpha(epochs), "epoch": ("alpha", epochs)})


def half_times(system: Dressed | Columns, epochs: int) -> np.ndarray:
    """Time of A = 1/2 per seed, in alpha; NaN where it is not reached within the given epochs."""
    found = []
    for _ in range(epochs + 1):
        W_Q, W_K = system.state[:2]
        found.append(np.einsum("bii->b", system.attention.forward(W_Q, W_K)) / system.p.L)
        if len(found) > 1 and (found[-1] > 0.5).all():
            break
        system.state = [x + rate for x, rate in zip(system.state, system.rates(), strict=True)]
    A = np.array(found)
    after = (A >= 0.5).argmax(0)
    before, k = np.maximum(after - 1, 0), np.arange(A.shape[1])
    share = (0.5 - A[before, k]) / np.where(after > 0, A[after, k] - A[before, k], 1)
    return np.where(
        (A >= 0.5).any(0), system.p.alpha(before + np.where(after > 0, share, 0)), np.nan
    )


def data_scatter(
    p: Parameters, start: Start, draws: int, rng: np.random.Generator, alpha: float
) -> np.ndarray:
    """Relative standard deviation of the time of A = 1/2 over draws of the training set alone, per
    seed.

    A training set of n sequences adds a constant Gaussian force to every attention entry, of the
    variance ``force_noise``; its effect on the time is found by running the dressed theory
    ``draws`` times.

    Parameters
    ----------
    p : Parameters
        With ``n_train``.
    start : Start
        Seeds.
    draws : int
        Training sets per seed.
    rng : Generator
        For the forces.
    alpha : float
        When to give up.
    """
    many = Start(*(np.repeat(x, draws, axis=0) for x in vars(start).values()))
    size = dressed.equations()["force_noise"].evaluate(
        {"V_M": p.initial_variance, "N": p.N, "n_train": p.n_train}
    )
    pull = rng.normal(scale=np.sqrt(size), size=(len(many.R), p.L, p.L))
    times = half_times(Dressed(p, many, pull=pull), p.run_to(alpha).epochs).reshape(-1, draws)
    return times.std(1, ddof=1) / times.mean(1)
