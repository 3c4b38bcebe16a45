"""Mean-field loss with the variance of the logits, and its forces on attention, which
`cavity` takes for keys and queries.

The paper replaces the logits by their means and the attention matrix by one number.
Here the variance of the logits over the entries of M is kept to second order, which
penalises concentrated attention, and keys and queries evolve under the exact softmax.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import sympy as sp

from theory import Chapter, Equations, array, delta_sum, symbol, written_as
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.definitions import pi
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
    g,
    i,
    j,
    m,
    ref,
    sigma2,
    z_k,
    z_kbar,
)
from theory.symbols.fractions import factored

BEYOND = "beyond the paper: dressed theory"
SECOND_ORDER = "second order in the noise of M"
RESPONSE = "linear response of a wrong entry, alike for all"

V = symbol(
    "V_M", r"V_{M}", "variance of the entries of M about their means", positive=True
)
v = symbol("v_i", r"v_{i}", "variance of a logit at position i", positive=True)
h = symbol(
    "h_i", r"h_{i}", "twice the loss per unit of that variance", nonnegative=True
)
loss_i = symbol("loss_i", r"\ell_{i}", "dressed loss at position i", real=True)
spread = array("spread", r"s^{2}", "logit variance per variance of M, by position")
curvature = array("curvature", r"q", "response of a wrong entry, by position")


chapter = Chapter(lambda place: ref(f"{BEYOND}, {place}"), status="leading order")
ASSUMED = (SECOND_ORDER, "noise independent of the means")
MARGIN = sp.log((N - 1) * (1 - g) / g)  # at which wrong states have the probability g


@chapter.derives(
    v, "noise", "exact", "entries of M independent with variance V_M", name="noise"
)
def noise_of_entries() -> sp.Expr:
    """Variance of a logit at given attention."""
    return mean_field.logit_variance().subs(sigma2, V)


@chapter.derives(h, "quenched average", *ASSUMED)
@cache
def noise_cost() -> sp.Expr:
    """Coefficient of v/2 in <ln Z>, for independent logits of variance v: the sum of
    second derivatives of ln Z.
    """
    x = sp.Symbol("x", real=True)
    of_right = sp.log(sp.exp(z_k + x) + (N - 1) * sp.exp(z_kbar))
    of_wrong = sp.log(sp.exp(z_k) + sp.exp(z_kbar + x) + (N - 2) * sp.exp(z_kbar))
    by_right, by_wrong = (sp.diff(f, x, 2).subs(x, 0) for f in (of_right, of_wrong))
    total = by_right + (N - 1) * by_wrong
    form = 2 * g - g**2 * N / (N - 1)
    return written_as(form, total.subs(z_k, z_kbar + MARGIN))


@chapter.derives(h, "annealed", "closure", "<ln Z> replaced by ln <Z>")
def noise_cost_annealed() -> sp.Expr:
    """The same in ln <Z>: every term of Z is multiplied by the same Gaussian factor."""
    x = sp.Symbol("x", real=True)
    size = sp.Symbol("v", positive=True)
    normal = sp.exp(-(x**2) / (2 * size)) / sp.sqrt(2 * sp.pi * size)
    # mean of e^x by completing the square
    shifted = (normal * sp.exp(x)).subs(x, x + size)
    gain = sp.expand_log(sp.log(factored(shifted / normal)), force=True)
    return written_as(sp.S.One, gain * 2 / size)


@chapter.derives(loss_i, "loss at one position", *ASSUMED)
def loss_dressed() -> sp.Expr:
    """Mean-field loss, and the cost of the noise."""
    return mean_field.loss_of_margin() + v * h / 2


@chapter.derives(m, "margin at one position", "exact")
@cache
def margin_position() -> sp.Expr:
    """Margin by the attention at the position."""
    return mean_field.margin().subs(z_k, mean_field.logit_correct_position())


# Chain rule: pi_ii enters through the margin and the variance, pi_ij only through the
# variance.


@chapter.derives(
    sp.Derivative(loss_i, pi_i),
    "force on the right action",
    *ASSUMED,
    "without the noise's own part",
)
def dloss_dpi_margin() -> sp.Expr:
    """Derivative of the loss by attention on the right action, through the margin."""
    mass = mean_field.wrong_mass()
    mean_loss = mean_field.loss_of_margin()
    g_by_m = written_as(-g * (1 - g), sp.diff(mass, m).subs(m, MARGIN))
    loss_by_m = written_as(-g, sp.diff(mean_loss, m).subs(m, MARGIN))
    slope = sp.diff(margin_position(), pi_i)
    m_by_pi = written_as(N / (N - 1) * (1 - 1 / d_g) * (R - S), slope)
    through_margin = (loss_by_m + v / 2 * sp.diff(noise_cost(), g) * g_by_m) * m_by_pi
    by_noise = 1 + v * (1 - g) * (1 - g * N / (N - 1))
    return written_as(
        -g * N / (N - 1) * (1 - 1 / d_g) * (R - S) * by_noise, through_margin
    )


@chapter.derives(
    sp.Derivative(loss_i, pi[i, j]), "force against concentration", *ASSUMED
)
def dloss_dpi_noise() -> sp.Expr:
    """Derivative of the loss by an attention entry, through the variance."""
    by_square = sp.diff(noise_of_entries(), mean_field.participation)
    return sp.expand(h / 2 * (by_square * 2 * pi[i, j]))


def response() -> sp.Expr:
    """Linear response: decay rate of a deviation of one wrong entry, divided by eta q:
    sum_j pi_j E[d z / d M | g_j is its action].

    The entry contributes to the logit with the attention on its action: pi_j at
    position j, plus the attention at other positions where the same action occurs by
    chance.
    """
    chance = delta_sum(sp.KroneckerDelta(c, 1), (c, 1, d_g)) / d_g
    of_entry = pi[i, j] + (1 - pi[i, j]) * chance
    total = sp.expand(pi[i, j] * of_entry)
    by_square, by_entry = (total.coeff(pi[i, j], power) for power in (2, 1))
    return by_square * mean_field.participation + by_entry  # rows sum to one


@chapter.derives(spread[i], "response", "exact", name="spread")
def one_position() -> sp.Expr:
    """Logit variance per variance of M at a position."""
    form = (1 - 1 / d_g) * mean_field.participation + 1 / d_g
    return written_as(form, response())


P_WRONG = g / (N - 1)
chapter.state(
    "curvature",
    curvature[i],
    P_WRONG * (1 - P_WRONG),
    "response",
    "exact",
    "softmax of the mean logits",
)


@chapter.derives(sp.Derivative(V, alpha), "variance of M", "closure", RESPONSE)
def dV_dalpha() -> sp.Expr:
    """Decay of the variance of M: twice that of a deviation."""
    return -2 * eta * sp.Sum(curvature[i] * spread[i], (i, 1, L)) / L * V


def equations() -> Equations:
    """Logit variance and its coefficient in the loss, the dressed loss, its derivatives
    with respect to attention entries, and the decay of the variance of M.
    """
    return chapter.equations


# Numbers for the cavity equations


@cache
def forms() -> dict[str, Callable]:
    """Functions of the theory compiled from its equations."""
    arguments = {
        "spread": (mean_field.participation, d_g),
        "curvature": (g, N),
        "noise_cost": (g, N),
        "dloss_dpi_margin": (g, v, R, S, N, d_g),
        "dloss_dpi_noise": (h, pi[i, j], V, d_g),
    }
    own = chapter.equations
    compiled = {name: own[name].lambdify(*of) for name, of in arguments.items()}
    compiled["weight"] = mean_field.logit_equations()["c_R"].lambdify(A, d_g)
    return compiled


def forces(
    p: Parameters,
    at: np.ndarray,
    wrong: np.ndarray,
    V: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
) -> np.ndarray:
    """Derivatives of the dressed loss with respect to all attention entries."""
    f = forms()
    noise = f["spread"]((at**2).sum(2), p.d_g) * V[:, None]
    cost = f["noise_cost"](wrong, p.N)[..., None]
    force = f["dloss_dpi_noise"](cost, at, V[:, None, None], p.d_g)
    on_right = f["dloss_dpi_margin"](wrong, noise, R[:, None], S[:, None], p.N, p.d_g)
    return (force + on_right[..., None] * np.eye(p.L)) / p.L


def summary(
    A: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
    loss: np.ndarray,
    **logits: tuple[np.ndarray, np.ndarray],
) -> dict[str, np.ndarray]:
    """Observables from numbers per (seed, position), means and variances of logits
    among them. Variances over rows include the variance of the means.
    """
    overlaps = {"A": A.mean(1), "R": R.copy(), "S": S.copy()}
    means = {}
    variances = {}
    for kind, (mean, variance) in logits.items():
        means[f"logit_{kind}"] = mean.mean(1)
        variances[f"variance_{kind}"] = variance.mean(1) + mean.var(1)
    return {**overlaps, **means, **variances, "loss": loss.mean(1)}
