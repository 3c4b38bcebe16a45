"""Shared by the dressed and the column theory: compiled functions, forces on attention, and
observables.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from theory.state_tracking import cavity, dressed, logits, loss, variance
from theory.state_tracking.definitions import pi
from theory.state_tracking.logits import pi_i
from theory.state_tracking.numbers.rollout import rollout
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.symbols import N, R, S, d_g, g, m, z_k, zeta


@cache
def forms() -> dict[str, Callable]:
    """Functions of the theory compiled from its equations."""
    d, k, one = dressed.equations(), cavity.equations(), logits.equations()
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
        "entry_variance": k["entry_variance"].lambdify(cavity.V_k, cavity.V_w, R, cavity.mean_w, N),
        "noise_right": k["noise_right"].lambdify(
            pi_i, cavity.T, cavity.V_all, cavity.V_k, R, S, d_g
        ),
        "noise_wrong": k["noise_wrong"].lambdify(
            pi_i, cavity.T, cavity.V_all, cavity.V_w, R, S, N, d_g
        ),
        "right": k["column_right"].lambdify(cavity.b_i, cavity.v_k, S),
        "wrong": k["column_wrong"].lambdify(cavity.b_i, cavity.v_w, S, zeta, N),
        "share": k["share_variance"].lambdify(d_g, N, cavity.n_train, dressed.L),
    }


def forces(
    p: Parameters, at: np.ndarray, wrong: np.ndarray, V: np.ndarray, R: np.ndarray, S: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the dressed loss of a position with respect to all attention entries, and the
    extra part on the correct one.
    """
    f = forms()
    noise = f["spread"]((at**2).sum(2), p.d_g) * V[:, None]
    everywhere = f["by_noise"](f["cost"](wrong, p.N)[..., None], at, V[:, None, None], p.d_g)
    return everywhere, f["by_margin"](wrong, noise, R[:, None], S[:, None], p.N, p.d_g)


def summary(
    p: Parameters,
    *,
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
    """Observables from means and variances per (seed, position), and accuracies of ``steps``.
    Variances over rows include the variance of the means.
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
        "steps": steps,
    }


def accuracies(p: Parameters, steps: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy of one step and of a whole rollout, from that of every step (the last axis)."""
    return {"accuracy": steps.mean(-1), "rollout_accuracy": rollout(steps, p.N)[..., -1]}
