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

from theory import Equations, array, delta_sum, symbol, table, written_as
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


def noise_cost() -> tuple[sp.Expr, sp.Expr]:
    """Coefficient of v/2 in <ln Z> (quenched) and in ln <Z> (annealed), for independent
    logits of variance v.

    Quenched: the sum of second derivatives of ln Z. Annealed: every term of Z is
    multiplied by the same Gaussian factor.
    """
    x = sp.Symbol("x", real=True)
    size = sp.Symbol("v", positive=True)
    of_right = sp.log(sp.exp(z_k + x) + (N - 1) * sp.exp(z_kbar))
    of_wrong = sp.log(sp.exp(z_k) + sp.exp(z_kbar + x) + (N - 2) * sp.exp(z_kbar))
    second = [sp.diff(f, x, 2).subs(x, 0) for f in (of_right, of_wrong)]
    margin = sp.log(
        (N - 1) * (1 - g) / g
    )  # margin at which the probability of wrong states is g
    quenched = written_as(
        2 * g - g**2 * N / (N - 1),
        (second[0] + (N - 1) * second[1]).subs(z_k, z_kbar + margin),
    )
    normal = sp.exp(-(x**2) / (2 * size)) / sp.sqrt(2 * sp.pi * size)
    shifted = (normal * sp.exp(x)).subs(
        x, x + size
    )  # mean of e^x by completing the square
    gain = sp.expand_log(sp.log(factored(shifted / normal)), force=True)
    return quenched, written_as(sp.S.One, gain * 2 / size)


def response() -> sp.Expr:
    """Linear response: decay rate of a deviation of one wrong entry, divided by eta q:
    sum_j pi_j E[d z / d M | g_j is its action].

    The entry contributes to the logit with the attention on its action: pi_j at
    position j, plus the attention at other positions where the same action occurs by
    chance.
    """
    there = (
        pi[i, j]
        + (1 - pi[i, j]) * delta_sum(sp.KroneckerDelta(c, 1), (c, 1, d_g)) / d_g
    )
    total = sp.expand(pi[i, j] * there)
    return total.coeff(pi[i, j], 2) * mean_field.participation + total.coeff(
        pi[i, j], 1
    )  # rows sum to one


@cache
def equations() -> Equations:
    """Logit variance and its coefficient in the loss, the dressed loss, its derivatives
    with respect to attention entries, and the decay of the variance of M.
    """
    quenched, annealed = noise_cost()
    of_logits = mean_field.variance_equations()["logit_variance"].rhs.subs(sigma2, V)
    at_i = mean_field.logit_equations()["logit_correct_position"].rhs
    margin = mean_field.equations()["margin"].rhs.subs(z_k, at_i)
    mean_loss = mean_field.equations()["loss_of_margin"].rhs
    # Chain rule: pi_ii enters through the margin and the variance, pi_ij only through
    # the variance.
    g_of_m = mean_field.equations()["g"].rhs
    g_by_m = written_as(
        -g * (1 - g), sp.diff(g_of_m, m).subs(m, sp.log((N - 1) * (1 - g) / g))
    )
    loss_by_m = written_as(
        -g, sp.diff(mean_loss, m).subs(m, sp.log((N - 1) * (1 - g) / g))
    )
    m_by_pi = written_as(N / (N - 1) * (1 - 1 / d_g) * (R - S), sp.diff(margin, pi_i))
    noise_by_pi = sp.diff(of_logits, mean_field.participation) * 2 * pi[i, j]
    through_margin = (loss_by_m + v / 2 * sp.diff(quenched, g) * g_by_m) * m_by_pi
    through_margin = written_as(
        -g
        * N
        / (N - 1)
        * (1 - 1 / d_g)
        * (R - S)
        * (1 + v * (1 - g) * (1 - g * N / (N - 1))),
        through_margin,
    )
    p_w = g / (N - 1)
    decay = -2 * eta * sp.Sum(curvature[i] * spread[i], (i, 1, L)) / L * V
    one_position = written_as(
        (1 - 1 / d_g) * mean_field.participation + 1 / d_g, response()
    )
    assumed = (SECOND_ORDER, "noise independent of the means")
    independent = "entries of M independent with variance V_M"
    return table(
        lambda place: ref(f"{BEYOND}, {place}"),
        status="leading order",
        noise=(v, of_logits, "noise", "exact", independent),
        noise_cost=(h, quenched, "quenched average", *assumed),
        noise_cost_annealed=(
            h,
            annealed,
            "annealed",
            "closure",
            "<ln Z> replaced by ln <Z>",
        ),
        loss_dressed=(loss_i, mean_loss + v * h / 2, "loss at one position", *assumed),
        margin_position=(m, margin, "margin at one position", "exact"),
        dloss_dpi_margin=(
            sp.Derivative(loss_i, pi_i),
            through_margin,
            "force on the right action",
            *assumed,
            "without the noise's own part",
        ),
        dloss_dpi_noise=(
            sp.Derivative(loss_i, pi[i, j]),
            sp.expand(h / 2 * noise_by_pi),
            "force against concentration",
            *assumed,
        ),
        spread=(spread[i], one_position, "response", "exact"),
        curvature=(
            curvature[i],
            p_w * (1 - p_w),
            "response",
            "exact",
            "softmax of the mean logits",
        ),
        dV_dalpha=(
            sp.Derivative(V, alpha),
            decay,
            "variance of M",
            "closure",
            RESPONSE,
        ),
    )


# Numbers for the cavity equations


@cache
def forms() -> dict[str, Callable]:
    """Functions of the theory compiled from its equations."""
    d, one = equations(), mean_field.logit_equations()
    return {
        "spread": d["spread"].lambdify(mean_field.participation, d_g),
        "curvature": d["curvature"].lambdify(g, N),
        "cost": d["noise_cost"].lambdify(g, N),
        "by_margin": d["dloss_dpi_margin"].lambdify(g, v, R, S, N, d_g),
        "by_noise": d["dloss_dpi_noise"].lambdify(h, pi[i, j], V, d_g),
        "weight": one["c_R"].lambdify(A, d_g),
    }


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
    force = f["by_noise"](f["cost"](wrong, p.N)[..., None], at, V[:, None, None], p.d_g)
    on_right = f["by_margin"](wrong, noise, R[:, None], S[:, None], p.N, p.d_g)
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
    means = {f"logit_{kind}": mean.mean(1) for kind, (mean, _) in logits.items()}
    variances = {
        f"variance_{kind}": v.mean(1) + mean.var(1)
        for kind, (mean, v) in logits.items()
    }
    overlaps = {"A": A.mean(1), "R": R.copy(), "S": S.copy()}
    return {**overlaps, **means, **variances, "loss": loss.mean(1)}
