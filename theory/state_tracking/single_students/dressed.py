"""Fluctuation-dressed theory: mean-field loss with the variance of the logits, and
exact attention.

The paper replaces the logits by their means and the attention matrix by one number.
Here the variance of the logits over the entries of M is kept to second order, which
penalises concentrated attention, and keys and queries evolve under the exact softmax.
`integrate` integrates the equations from the initial weights of each seed.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import sympy as sp

from theory import Equations, array, delta_sum, symbol, table, written_as
from theory.state_tracking.attention import Attention
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
    n_train,
    ref,
    sigma2,
    z_k,
    z_kbar,
    zeta,
)
from theory.state_tracking.rollout import rollout
from theory.state_tracking.single_students.realisation import Start
from theory.symbols.special import gaussian_accuracy

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
force_noise = symbol(
    "force_noise",
    r"\langle(\delta f_{ij})^{2}\rangle",
    "variance of the force on attention, over training sets",
    nonnegative=True,
)
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
    gain = sp.expand_log(sp.log(sp.simplify(shifted / normal)), force=True)
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


def sampled_force() -> sp.Expr:
    """Variance over sequences of the force of one sequence on one attention entry,
    sum_r (p_r - y_r) M_r, at p = 1/N.
    """
    at_target, elsewhere = (1 / N - 1) ** 2, 1 / N**2
    return written_as(V * (1 - 1 / N), V * (at_target + (N - 1) * elsewhere))


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
        force_noise=(
            force_noise,
            sampled_force() / n_train,
            "one draw of the training set",
            "before anything is learned",
            "sequences independent",
        ),
    )


# Shared by the dressed and the column theory


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
        "logit": one["logit_correct_position"].lambdify(pi_i, R, S, d_g),
        "other": one["logit_other"].lambdify(z_k, zeta, N),
        "margin": mean_field.equations()["margin"].lambdify(z_k, zeta, N),
        "g": mean_field.equations()["g"].lambdify(m, N),
        "loss": mean_field.equations()["loss_of_margin"].lambdify(m, N),
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
    steps: np.ndarray,
    **logits: tuple[np.ndarray, np.ndarray],
) -> dict[str, np.ndarray]:
    """Observables from numbers per (seed, position), means and variances of logits
    among them, and accuracies of ``steps``. Variances over rows include the variance of
    the means.
    """
    means = {f"logit_{kind}": mean.mean(1) for kind, (mean, _) in logits.items()}
    variances = {
        f"variance_{kind}": v.mean(1) + mean.var(1)
        for kind, (mean, v) in logits.items()
    }
    overlaps = {"A": A.mean(1), "R": R.copy(), "S": S.copy()}
    return {**overlaps, **means, **variances, "loss": loss.mean(1), "steps": steps}


def accuracies(p: Parameters, steps: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy of one step and of a whole rollout, from that of every step (the last
    axis).
    """
    return {
        "accuracy": steps.mean(-1),
        "rollout_accuracy": rollout(steps, p.N)[..., -1],
    }


# Numerical dressed theory


class Dressed:
    """Dressed theory. State per seed: W_Q, W_K, R, S and V_M.

    Parameters
    ----------
    p : Parameters
        Sizes and learning rate.
    start : Start
        Initial values of the seeds.
    pull : ndarray, shape (B, L, L), optional
        Constant force on the attention entries of every position: the deviation of one
        training set from the mean.
    """

    BY_SEED = ("pull", "zeta")

    def __init__(
        self, p: Parameters, start: Start, pull: np.ndarray | float = 0.0
    ) -> None:
        self.p, self.attention = p, Attention(p)
        self.pull = pull + np.zeros((len(start.R), 1, 1))
        pooled = (start.variance_right + (p.N - 1) * start.variance_wrong) / p.N
        self.state = [
            x.astype(float).copy()
            for x in (start.W_Q, start.W_K, start.R, start.S, pooled)
        ]
        self.zeta = start.zeta[:, None]

    def _means(self) -> tuple[np.ndarray, ...]:
        """Attention, its diagonal, logit variance per variance of M, correct logit and
        margin, per seed and position.
        """
        W_Q, W_K, R, S, _ = self.state
        attention, on_right, elsewhere = self.attention.parts(W_Q, W_K)
        correct = forms()["logit"](on_right, R[:, None], S[:, None], self.p.d_g)
        spread = forms()["spread"](elsewhere + on_right**2, self.p.d_g)
        return (
            attention,
            on_right,
            spread,
            correct,
            forms()["margin"](correct, self.zeta, self.p.N),
        )

    def rates(self) -> list[np.ndarray]:
        """Change of the state per epoch."""
        p, f = self.p, forms()
        W_Q, W_K, R, S, V = self.state
        attention, on_right, spread, _, margin = self._means()
        wrong = f["g"](margin, p.N)
        force = forces(p, attention, wrong, V, R, S) + self.pull / p.L
        q = f["curvature"](wrong, p.N)
        by_alpha = [
            (wrong * f["weight"](on_right, p.d_g)).mean(1),
            (wrong * (1 - on_right)).mean(1) / p.d_g,
            -2 * (q * spread).mean(1) * V,
        ]
        heads = self.attention.backward(W_Q, W_K, attention, force)
        return [
            *(-p.eta * d for d in heads),
            *(p.eta * x / (p.d_g * p.N) for x in by_alpha),
        ]

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        p, f = self.p, forms()
        _, _, R, S, V = self.state
        _, on_right, spread, correct, margin = self._means()
        noise = spread * V[:, None]
        cost = f["cost"](f["g"](margin, p.N), p.N)
        return summary(
            on_right,
            R,
            S,
            loss=f["loss"](margin, p.N) + noise * cost / 2,
            steps=gaussian_accuracy(margin, np.sqrt(noise), np.sqrt(noise), p.N),
            correct=(correct, noise),
            other=(f["other"](correct, self.zeta, p.N), noise),
        )
