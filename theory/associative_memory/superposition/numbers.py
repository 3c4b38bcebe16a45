"""Recall accuracies in numbers: with Gaussian scores, and with the tails of the sphere."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

from theory.associative_memory.superposition.recall import equations
from theory.special import gauss_legendre, gaussian_accuracy


def gaussian(N: float, d: float) -> float:
    """Recall accuracy with Gaussian scores (`recall_gaussian`)."""
    numbers = {"N": N, "d": d}
    s_0, s_1 = (
        float(equations()[name].evaluate(numbers)) for name in ("sigma_right", "sigma_wrong")
    )
    return float(gaussian_accuracy(1.0, s_0, s_1, N))  # type: ignore[arg-type]  # N may be beyond whole numbers


def marginal_cdf(x: Any, d: int) -> np.ndarray:
    """Distribution function of one coordinate of a uniform unit vector in d dimensions."""
    x = np.clip(x, -1, 1)
    tail = 0.5 * scipy.special.betainc((d - 1) / 2, 0.5, 1 - x**2)
    return np.where(x < 0, tail, 1 - tail)


def sphere(N: int, d: int, nodes: int = 200) -> float:
    """Recall accuracy with sphere tails (`recall_sphere`).

    Parameters
    ----------
    N, d : int
        Keys and dimension.
    nodes : int
        Gauss points per integral; 200 leave nothing above 1e-6 for d from 8 to 256.
    """
    s_0 = float(equations()["sigma_right"].evaluate({"N": N, "d": d}))
    point, weight = gauss_legendre(nodes, -1)
    normal_z = 8 * point  # beyond 8 standard deviations nothing is left
    normal_w = 8 * weight * np.exp(-(normal_z**2) / 2) / np.sqrt(2 * np.pi)
    angle = np.pi / 2 * point  # c = sin(angle): density (1 - c^2)^((d-3)/2) dc = cos^(d-2) d(angle)
    leak_w = np.pi / 2 * weight * np.cos(angle) ** (d - 2)
    leak_w /= leak_w.sum()
    rho = np.sqrt(
        equations()["recalled_length"].evaluate(
            {"N": N, "d": d, "sigma_0": s_0, "z_normal": normal_z}
        )
    )
    right = 1 + s_0 * normal_z
    below = marginal_cdf((right[:, None] - np.sin(angle)) / rho[:, None], d) @ leak_w
    return float(normal_w @ np.clip(below, 0, 1) ** (N - 1))
