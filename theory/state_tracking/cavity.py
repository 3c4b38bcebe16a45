"""Cavity equations for single columns of M, in place of Gaussian logits (as in dynamical mean-field
theory: one column in the self-consistent environment of the others).

Given the attention, the columns (action, state) of M for different states learn independently;
columns of the same state act on each other as noise. One column in a self-consistent environment
therefore represents all. Its correct entry v_k and wrong entries v_w are followed as functions of
their initial value v_0, which is uniform, and of the column's share 1 + epsilon of the training
set. `per_seed` integrates these equations.
"""

from functools import cache

import sympy as sp

from theory import Equation, array, delta_sum, symbol, table, written_as
from theory.state_tracking import dressed, logits
from theory.state_tracking.logits import pi_i
from theory.state_tracking.symbols import A, L, N, R, S, alpha, c, d_g, eta, i, n_train, ref, zeta

BEYOND = "beyond the paper: cavity equations"
CAVITY = "other columns of the state act as independent Gaussian noise"
SELF_AVERAGING = "sums over the wrong entries self-average"

v_k = symbol("v_k", means="right entry of a column of M", real=True)
v_w = symbol("v_w", r"v_{\bar k}", "wrong entry of a column of M", real=True)
epsilon = symbol(
    "share", r"\varepsilon", "relative excess of the column's share of the training set", real=True
)
V_k = symbol("V_k", means="variance of right entries", positive=True)
V_w = symbol("V_w", r"V_{\bar k}", "variance of wrong entries", positive=True)
V_all = symbol(
    "V_all",
    r"\bar V",
    "variance of an entry of another column, right or wrong there",
    positive=True,
)
b_i = symbol("b_i", means="weight of the column in the logits it is right for", positive=True)
T = symbol(
    "T_i", r"T_{i}", "sum of squared attention on all but the right action", nonnegative=True
)
z_v = symbol("z_v", r"z_{i,k}", "mean right logit, given the column's entry", real=True)
z_w = symbol("z_w", r"z_{i,\bar k}", "mean wrong logit, given the column's entry", real=True)
u_k = symbol("u_k", means="variance of the right logit from other columns", positive=True)
u_w = symbol("u_w", r"u_{\bar k}", "variance of a wrong logit from other columns", positive=True)
xi = symbol("xi", r"\xi", "standard Gaussian", real=True)
W = symbol("W_i", means="mean of exp(wrong logit)", positive=True)
p_k = symbol("p_k", means="probability of the right state", positive=True)
p_w = symbol("p_w", r"p_{\bar k}", "probability of a wrong state", positive=True)
mean_w = symbol("mean_w", r"\langle v_{\bar k}\rangle", "mean of wrong entries", real=True)
of_shares = symbol(
    "share_variance",
    r"\langle\varepsilon^{2}\rangle",
    "variance of shares of the training set",
    positive=True,
)
beta = array("column_weight", r"b", "weight of the column, by position")
right_mass = array("p_k", means="probability of the right state, by position")
wrong_mass = array("p_w", r"p_{\bar k}", "probability of a wrong state, by position")
left = array("g", means="probability left to wrong states, by position", nonnegative=True)


def own_weight() -> sp.Expr:
    """Mean attention weight of a column in the logits of its own sequences: its action at j = i -
    L, plus chance occurrences elsewhere.
    """
    chance = delta_sum(sp.KroneckerDelta(c, 1), (c, 1, d_g)) / d_g
    return pi_i + (1 - pi_i) * chance


def noise() -> tuple[sp.Expr, sp.Expr]:
    """Coefficients in the variance of a logit: of the variance of the other columns' entries, and
    of the mean squared deviation of the own column's entry from their mean.

    Others: variance of sum_j pi_j X_j [g_j is not the own action], X drawn per action. Own:
    variance of the weight with which the own action occurs at the other positions.
    """
    a, b = sp.symbols("a b", integer=True, positive=True)
    other = 1 - sp.KroneckerDelta(a, 1)
    alone = delta_sum(other, (a, 1, d_g)) / d_g
    together = delta_sum(other * sp.KroneckerDelta(a, b), (b, 1, d_g), (a, 1, d_g)) / d_g**2
    by_others = T * alone + ((1 - pi_i) ** 2 - T) * together
    mean = delta_sum(sp.KroneckerDelta(a, 1), (a, 1, d_g)) / d_g
    by_own = T * (mean - mean**2)
    return (
        written_as((1 - 1 / d_g) * ((1 - 1 / d_g) * T + (1 - pi_i) ** 2 / d_g), by_others),
        written_as(T / d_g * (1 - 1 / d_g), by_own),
    )


def mixture_variance() -> sp.Expr:
    """Variance of an entry that is the correct one of its column with probability 1/N."""
    square = (V_k + R**2) / N + (V_w + mean_w**2) * (N - 1) / N
    mean = R / N + mean_w * (N - 1) / N
    form = V_k / N + (N - 1) / N * V_w + (N - 1) / N**2 * (R - mean_w) ** 2
    return written_as(form, square - mean**2)


@cache
def equations() -> dict[str, Equation]:
    """Logits of a column, their noise, softmax weights, and the rates of the entries."""
    by_others, by_own = noise()
    normal = sp.exp(-(xi**2) / 2) / sp.sqrt(2 * sp.pi)
    line = (xi, -sp.oo, sp.oo)
    noisy = sp.exp(z_v + sp.sqrt(u_k) * xi)
    v_0 = sp.Symbol("v_0", real=True)
    of_start = sp.Function("z_w")(v_0)
    # Response of a wrong entry without the contribution of its own sequences (weight b_i, slope
    # b_i).
    stir = (
        eta
        / L
        * sp.Sum(
            (dressed.spread[i] - beta[i] ** 2) * left[i] / (N - 1) * (1 - left[i] / (N - 1)),
            (i, 1, L),
        )
    )
    share = (1 + epsilon) * eta / L
    weight = written_as(logits.equations()["c_R"].rhs.subs(A, pi_i), own_weight())
    noise_k = by_others * V_all + by_own * (V_k + (R - S) ** 2)
    noise_w = by_others * V_all + by_own * (V_w + ((R - S) / (N - 1)) ** 2)
    average = sp.Integral(sp.exp(of_start + u_w / 2), (v_0, -1, 1)) / 2
    right = sp.Integral(normal * noisy / (noisy + (N - 1) * W), line)
    rise = share * sp.Sum(beta[i] * (1 - right_mass[i]), (i, 1, L)) - stir * (v_k - R)
    fall = -share * sp.Sum(beta[i] * wrong_mass[i], (i, 1, L)) - stir * (v_w - mean_w)
    off_target = eta / L * sp.Sum(left[i] * (1 - beta[i]) / (d_g - 1), (i, 1, L))
    closed = ("closure", CAVITY)
    return table(
        lambda place: ref(f"{BEYOND}, {place}"),
        status="exact",
        own_weight=(b_i, weight, "weight of the own column"),
        column_right=(z_v, b_i * v_k + (1 - b_i) * S, "right logit", "mean over the other columns"),
        column_wrong=(
            z_w,
            b_i * v_w + (1 - b_i) * (zeta - S) / (N - 1),
            "wrong logit",
            "mean over the other columns, whose entries sum to zeta",
        ),
        entry_variance=(
            V_all,
            mixture_variance(),
            "variance of other columns' entries",
            "independent permutations",
        ),
        noise_right=(u_k, noise_k, "noise of the right logit", *closed),
        noise_wrong=(u_w, noise_w, "noise of a wrong logit", *closed),
        wrong_mean=(W, average, "mean exponential", *closed, SELF_AVERAGING),
        right_probability=(p_k, right, "weight of the right entry", *closed, SELF_AVERAGING),
        wrong_probability=(
            p_w,
            sp.exp(z_w + u_w / 2) * sp.Integral(normal / (noisy + (N - 1) * W), line),
            "weight of a wrong entry",
            *closed,
            SELF_AVERAGING,
            "mean over v_k as well",
        ),
        rate_right=(sp.Derivative(v_k, alpha), rise, "right entry", *closed, dressed.RESPONSE),
        rate_wrong=(sp.Derivative(v_w, alpha), fall, "wrong entry", *closed, dressed.RESPONSE),
        rate_S=(sp.Derivative(S, alpha), off_target, "off-target overlap", "closure", "means only"),
        share_variance=(
            of_shares,
            d_g * N / (n_train * L),
            "finite training set",
            "leading order",
            "occurrences of (action, state) are Poisson with mean n L / (d_g N)",
        ),
    )
