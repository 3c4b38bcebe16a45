"""Cavity equations for single columns of M, in place of Gaussian logits (as in
dynamical mean-field theory: one column in the self-consistent environment of the
others).

Given the attention, the columns (action, state) of M for different states learn
independently; columns of the same state act on each other as noise. One column in a
self-consistent environment therefore represents all. Its correct entry v_k and wrong
entries v_w are followed as functions of their initial value v_0, which is uniform, and
of the column's share 1 + epsilon of the training set. `integrate` integrates these
equations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import sympy as sp

from theory import Chapter, Equations, array, delta_sum, symbol, written_as
from theory.state_tracking.attention import Attention
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.mean_field import pi_i
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.symbols import (
    A,
    L,
    N,
    R,
    S,
    alpha,
    c,
    d_g,
    eta,
    i,
    n_train,
    ref,
    zeta,
)
from theory.state_tracking.rollout import rollout
from theory.state_tracking.single_students import dressed
from theory.state_tracking.single_students.dressed import forces, forms, summary
from theory.state_tracking.single_students.realisation import Start
from theory.symbols.special import gauss_hermite, gauss_legendre

BEYOND = "beyond the paper: cavity equations"
CAVITY = "other columns of the state act as independent Gaussian noise"
SELF_AVERAGING = "sums over the wrong entries self-average"

v_k = symbol("v_k", means="right entry of a column of M", real=True)
v_w = symbol("v_w", r"v_{\bar k}", "wrong entry of a column of M", real=True)
epsilon = symbol(
    "share",
    r"\varepsilon",
    "relative excess of the column's share of the training set",
    real=True,
)
V_k = symbol("V_k", means="variance of right entries", positive=True)
V_w = symbol("V_w", r"V_{\bar k}", "variance of wrong entries", positive=True)
V_all = symbol(
    "V_all",
    r"\bar V",
    "variance of an entry of another column, right or wrong there",
    positive=True,
)
b_i = symbol(
    "b_i", means="weight of the column in the logits it is right for", positive=True
)
T = symbol(
    "T_i",
    r"T_{i}",
    "sum of squared attention on all but the right action",
    nonnegative=True,
)
z_v = symbol("z_v", r"z_{i,k}", "mean right logit, given the column's entry", real=True)
z_w = symbol(
    "z_w", r"z_{i,\bar k}", "mean wrong logit, given the column's entry", real=True
)
u_k = symbol(
    "u_k", means="variance of the right logit from other columns", positive=True
)
u_w = symbol(
    "u_w", r"u_{\bar k}", "variance of a wrong logit from other columns", positive=True
)
xi = symbol("xi", r"\xi", "standard Gaussian", real=True)
W = symbol("W_i", means="mean of exp(wrong logit)", positive=True)
p_k = symbol("p_k", means="probability of the right state", positive=True)
p_w = symbol("p_w", r"p_{\bar k}", "probability of a wrong state", positive=True)
mean_w = symbol(
    "mean_w", r"\langle v_{\bar k}\rangle", "mean of wrong entries", real=True
)
of_shares = symbol(
    "share_variance",
    r"\langle\varepsilon^{2}\rangle",
    "variance of shares of the training set",
    positive=True,
)
beta = array("column_weight", r"b", "weight of the column, by position")
right_mass = array("p_k", means="probability of the right state, by position")
wrong_mass = array("p_w", r"p_{\bar k}", "probability of a wrong state, by position")
left = array(
    "g", means="probability left to wrong states, by position", nonnegative=True
)


chapter = Chapter(lambda place: ref(f"{BEYOND}, {place}"), status="exact")
CLOSED = ("closure", CAVITY)
delta = sp.KroneckerDelta


@chapter.derives(b_i, "weight of the own column")
def own_weight() -> sp.Expr:
    """Mean attention weight of a column in the logits of its own sequences: its action
    at j = i - L, plus chance occurrences elsewhere.
    """
    chance = delta_sum(delta(c, 1), (c, 1, d_g)) / d_g
    of_R = mean_field.weight_of_R().subs(A, pi_i)
    return written_as(of_R, pi_i + (1 - pi_i) * chance)


@chapter.derives(z_v, "right logit", "mean over the other columns")
def column_right() -> sp.Expr:
    """Mean right logit, given the column's entry."""
    return b_i * v_k + (1 - b_i) * S


@chapter.derives(
    z_w, "wrong logit", "mean over the other columns, whose entries sum to zeta"
)
def column_wrong() -> sp.Expr:
    """Mean wrong logit, given the column's entry."""
    return b_i * v_w + (1 - b_i) * (zeta - S) / (N - 1)


@chapter.derives(
    V_all,
    "variance of other columns' entries",
    "independent permutations",
    name="entry_variance",
)
def mixture_variance() -> sp.Expr:
    """Variance of an entry that is the correct one of
    its column with probability 1/N.
    """
    square = (V_k + R**2) / N + (V_w + mean_w**2) * (N - 1) / N
    mean = R / N + mean_w * (N - 1) / N
    form = V_k / N + (N - 1) / N * V_w + (N - 1) / N**2 * (R - mean_w) ** 2
    return written_as(form, square - mean**2)


@cache
def noise() -> tuple[sp.Expr, sp.Expr]:
    """Coefficients in the variance of a logit: of the variance of the other columns'
    entries, and of the mean squared deviation of the own column's entry from their
    mean.

    Others: variance of sum_j pi_j X_j [g_j is not the own action], X drawn per action.
    Own: variance of the weight with which the own action occurs at the other positions.
    """
    a, b = sp.symbols("a b", integer=True, positive=True)
    other = 1 - delta(a, 1)
    alone = delta_sum(other, (a, 1, d_g)) / d_g
    twice = other * delta(a, b)
    together = delta_sum(twice, (b, 1, d_g), (a, 1, d_g)) / d_g**2
    by_others = T * alone + ((1 - pi_i) ** 2 - T) * together
    mean = delta_sum(delta(a, 1), (a, 1, d_g)) / d_g
    by_own = T * (mean - mean**2)
    form = (1 - 1 / d_g) * ((1 - 1 / d_g) * T + (1 - pi_i) ** 2 / d_g)
    by_others = written_as(form, by_others)
    return by_others, written_as(T / d_g * (1 - 1 / d_g), by_own)


@chapter.derives(u_k, "noise of the right logit", *CLOSED)
def noise_right() -> sp.Expr:
    """Variance of the right logit from other columns."""
    by_others, by_own = noise()
    return by_others * V_all + by_own * (V_k + (R - S) ** 2)


@chapter.derives(u_w, "noise of a wrong logit", *CLOSED)
def noise_wrong() -> sp.Expr:
    """Variance of a wrong logit from other columns."""
    by_others, by_own = noise()
    return by_others * V_all + by_own * (V_w + ((R - S) / (N - 1)) ** 2)


@chapter.derives(W, "mean exponential", *CLOSED, SELF_AVERAGING)
def wrong_mean() -> sp.Expr:
    """Mean of exp(wrong logit) over initial values and noise."""
    v_0 = sp.Symbol("v_0", real=True)
    of_start = sp.Function("z_w")(v_0)
    return sp.Integral(sp.exp(of_start + u_w / 2), (v_0, -1, 1)) / 2


NORMAL = sp.exp(-(xi**2) / 2) / sp.sqrt(2 * sp.pi)
LINE = (xi, -sp.oo, sp.oo)
NOISY = sp.exp(z_v + sp.sqrt(u_k) * xi)  # exponential of the right logit


@chapter.derives(p_k, "weight of the right entry", *CLOSED, SELF_AVERAGING)
def right_probability() -> sp.Expr:
    """Probability of the right state, over the noise."""
    return sp.Integral(NORMAL * NOISY / (NOISY + (N - 1) * W), LINE)


@chapter.derives(
    p_w, "weight of a wrong entry", *CLOSED, SELF_AVERAGING, "mean over v_k as well"
)
def wrong_probability() -> sp.Expr:
    """Probability of a wrong state, over the noise."""
    inverse = sp.Integral(NORMAL / (NOISY + (N - 1) * W), LINE)
    return sp.exp(z_w + u_w / 2) * inverse


def diffusion() -> sp.Expr:
    """Response of a wrong entry without the contribution of its own sequences (weight
    b_i, slope b_i).
    """
    of_entry = left[i] / (N - 1) * (1 - left[i] / (N - 1))
    response = (dressed.spread[i] - beta[i] ** 2) * of_entry
    return eta / L * sp.Sum(response, (i, 1, L))


SHARE = (1 + epsilon) * eta / L


@chapter.derives(sp.Derivative(v_k, alpha), "right entry", *CLOSED, dressed.RESPONSE)
def rate_right() -> sp.Expr:
    """Rate of the right entry of a column."""
    pull = sp.Sum(beta[i] * (1 - right_mass[i]), (i, 1, L))
    return SHARE * pull - diffusion() * (v_k - R)


@chapter.derives(sp.Derivative(v_w, alpha), "wrong entry", *CLOSED, dressed.RESPONSE)
def rate_wrong() -> sp.Expr:
    """Rate of a wrong entry of a column."""
    push = sp.Sum(beta[i] * wrong_mass[i], (i, 1, L))
    return -SHARE * push - diffusion() * (v_w - mean_w)


@chapter.derives(sp.Derivative(S, alpha), "off-target overlap", "closure", "means only")
def rate_S() -> sp.Expr:
    """Rate of the overlap with the teachers of other actions."""
    return eta / L * sp.Sum(left[i] * (1 - beta[i]) / (d_g - 1), (i, 1, L))


@chapter.derives(
    of_shares,
    "finite training set",
    "leading order",
    "occurrences of (action, state) are Poisson with mean n L / (d_g N)",
)
def share_variance() -> sp.Expr:
    """Variance of shares of the training set."""
    return d_g * N / (n_train * L)


def equations() -> Equations:
    """Logits of a column, their noise, softmax weights,
    and the rates of the entries.
    """
    return chapter.equations


# Numerical cavity equations

# Quadrature nodes in v_0, epsilon and xi: with more nodes no time changes by 1e-4.
NODES = 10
SHARES = 5
NOISE = 5


FINE = 65  # points of the interpolation of distributions of entries


@cache
def column_forms() -> dict[str, Callable]:
    """Functions of the theory compiled from its equations, and from those of the
    dressed theory.
    """
    arguments = {
        "entry_variance": (V_k, V_w, R, mean_w, N),
        "noise_right": (pi_i, T, V_all, V_k, R, S, d_g),
        "noise_wrong": (pi_i, T, V_all, V_w, R, S, N, d_g),
        "column_right": (b_i, v_k, S),
        "column_wrong": (b_i, v_w, S, zeta, N),
        "share_variance": (d_g, N, n_train, L),
    }
    own = chapter.equations
    compiled = {name: own[name].lambdify(*of) for name, of in arguments.items()}
    return forms() | compiled


@dataclass(frozen=True)
class Logits:
    """Means and variances of the logits of B seeds at L positions; columns are labelled
    by share and v_0.

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
    """Cavity equations of entries of M, by initial value and share of the training set.
    State per seed: W_Q, W_K, v_k, v_w, S.

    Parameters
    ----------
    p : Parameters
        Sizes, learning rate and ``n_train``.
    start : Start
        Initial values of the seeds.
    accuracies : bool
        Compute accuracies, which take most of the time of an evaluation; otherwise they
        are NaN.
    """

    BY_SEED = ("zeta",)

    def __init__(self, p: Parameters, start: Start, accuracies: bool = True) -> None:
        self.p = p
        self.attention = Attention(p)
        self.zeta = start.zeta[:, None, None, None]
        self.accuracies = accuracies
        self.v_0, weight = gauss_legendre(NODES, -1)
        self.of_v = weight / 2
        self.e, self.of_share = gauss_hermite(SHARES)
        of_shares = column_forms()["share_variance"](p.d_g, p.N, p.n_train, p.L)
        self.share = np.maximum(1 + self.e * np.sqrt(of_shares), 0)
        self.xi, self.of_xi = gauss_hermite(NOISE)
        # For accuracies, values at edges and middles of cells, and at equally spaced
        # shares.
        fine = np.linspace(-1, 1, FINE)
        middles = (fine[1:] + fine[:-1]) / 2
        self.to_cells = [_between(self.v_0, x) for x in (fine, middles)]
        shares = np.linspace(-3, 3, 13)
        self.to_shares = _between(self.e, shares)
        of_share = np.exp(-(shares**2) / 2)  # the trapezoidal rule on a Gaussian
        self.of_fine_share = of_share / of_share.sum()
        spread = np.ones((1, len(self.e), 1)) * self.v_0

        def entries(variance: np.ndarray, mean: np.ndarray) -> np.ndarray:
            """Uniform entries of these variances and means."""
            return np.sqrt(3 * variance)[:, None, None] * spread + mean[:, None, None]

        mean_wrong = (start.zeta - start.R) / (p.N - 1)
        self.state = [
            start.W_Q.astype(float),
            start.W_K.astype(float),
            entries(start.variance_right, start.R),
            entries(start.variance_wrong, mean_wrong),
            start.S.astype(float),
        ]

    def _mean(self, f: np.ndarray) -> np.ndarray:
        """Average over shares and initial values (the last two axes)."""
        return (f @ self.of_v) @ self.of_share

    def _logits(self) -> Logits:
        """Logits in the current state."""
        p = self.p
        f = column_forms()
        W_Q, W_K, v_k, v_w, S = self.state
        pi, on_right, elsewhere = self.attention.parts(W_Q, W_K)
        R = self._mean(v_k)
        mean = self._mean(v_w)
        V_k = self._mean(v_k**2) - R**2
        V_w = self._mean(v_w**2) - mean**2
        V_all = f["entry_variance"](V_k, V_w, R, mean, p.N)[:, None]
        weight = f["weight"](on_right, p.d_g)
        b = weight[..., None, None]
        other = S[:, None, None, None]
        inputs = on_right, elsewhere, V_all
        overlaps = R[:, None], S[:, None]
        return Logits(
            at=pi,
            own=on_right,
            elsewhere=elsewhere,
            weight=weight,
            R=R,
            V_w=V_w,
            mean_w=mean,
            u_k=f["noise_right"](*inputs, V_k[:, None], *overlaps, p.d_g),
            u_w=f["noise_wrong"](*inputs, V_w[:, None], *overlaps, p.N, p.d_g),
            z_k=f["column_right"](b, v_k[:, None], other),
            z_w=f["column_wrong"](b, v_w[:, None], other, self.zeta, p.N),
        )

    def rates(self) -> list[np.ndarray]:
        """Change of the state per epoch."""
        p = self.p
        f = column_forms()
        W_Q, W_K, v_k, v_w, S = self.state
        x = self._logits()
        e_w = np.exp(x.z_w + x.u_w[..., None, None] / 2)
        # average over columns of the same share
        others = (p.N - 1) * (e_w @ self.of_v)[..., None]
        noise = np.sqrt(x.u_k)[..., None, None, None] * self.xi
        e_k = np.exp(x.z_k)[..., None] * np.exp(noise)
        inverse = 1 / (e_k + others[..., None])
        p_k = (e_k * inverse) @ self.of_xi
        p_w = e_w * ((inverse @ self.of_xi) @ self.of_v)[..., None]
        wrong = 1 - self._mean(p_k)
        gain = self.share[:, None] * x.weight[..., None, None]
        variance = f["spread"](x.elsewhere + x.own**2, p.d_g) - x.weight**2
        diffusion = (variance * f["curvature"](wrong, p.N)).mean(1)[:, None, None]
        rise = (gain * (1 - p_k)).mean(1) - diffusion * (v_k - x.R[:, None, None])
        fall = -(gain * p_w).mean(1) - diffusion * (v_w - x.mean_w[:, None, None])
        off_target = (wrong * (1 - x.own)).mean(1) / p.d_g
        force = forces(p, x.at, wrong, x.V_w, x.R, S)
        heads = self.attention.backward(W_Q, W_K, x.at, force)
        of_heads = [-p.eta * slope for slope in heads]
        by_alpha = rise, fall, off_target
        return of_heads + [p.eta * rate / (p.d_g * p.N) for rate in by_alpha]

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        p = self.p
        x = self._logits()
        right = self._mean(x.z_k)
        other = self._mean(x.z_w)
        e_w = np.exp(x.z_w + x.u_w[..., None, None] / 2)
        others = (p.N - 1) * (e_w @ self.of_v)[..., None, None]
        noisy = x.z_k[..., None] + np.sqrt(x.u_k)[..., None, None, None] * self.xi
        steps = self._accuracy(x) if self.accuracies else np.full(x.own.shape, np.nan)
        loss = (np.log(np.exp(noisy) + others) - noisy) @ self.of_xi
        observables = summary(
            x.own,
            x.R,
            self.state[4],
            loss=self._mean(loss),
            correct=(right, self._mean(x.z_k**2) - right**2 + x.u_k),
            other=(other, self._mean(x.z_w**2) - other**2 + x.u_w),
        )
        observables["accuracy"] = steps.mean(-1)
        observables["rollout_accuracy"] = rollout(steps, p.N)[..., -1]
        return observables

    def _accuracy(self, logits: Logits) -> np.ndarray:
        """Probability that the correct logit is the largest, per seed and position.

        The N - 1 wrong logits are independent draws of a column's wrong entries plus
        noise. Their distribution function has kinks once the noise has vanished, and
        each column is learned at a sharp time; therefore the logits, smooth in v_0 and
        epsilon, are interpolated to many values of both.
        """
        from theory.state_tracking.single_students.kernels import accuracy_kernels

        cells = (*self.to_cells, self.of_v)
        settings = (*cells, self.p.N - 1, 2 * FINE, *gauss_hermite(7))
        z_k, z_w = (self.to_shares @ z for z in (logits.z_k, logits.z_w))
        accuracies = []
        for column in zip(z_k, z_w, logits.u_k, logits.u_w, strict=True):
            accuracies.append(accuracy_kernels.column_accuracies(*column, *settings))
        return np.array(accuracies) @ self.of_fine_share


def _between(nodes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Matrix from the values of a polynomial at nodes to those at points."""
    basis = np.polynomial.legendre.legvander
    degree = len(nodes) - 1
    return basis(points, degree) @ np.linalg.inv(basis(nodes, degree))
