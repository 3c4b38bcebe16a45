"""Numerical recall accuracies: with Gaussian scores, and with the tails of the sphere."""

from typing import Annotated, Any

import numpy as np
import scipy.special

from theory.arguments import Nodes, checked
from theory.associative_memory.superposition.recall import equations
from theory.dimensions import by_dimension
from theory.parameters import ANYTHING, Allowed
from theory.special import gauss_legendre, gaussian_accuracy

Keys = Annotated[float, Allowed(low=2)]  # not only integers
Dimension = Annotated[float, Allowed(low=3)]
FAR = 9.0  # cutoff of the leak in standard deviations


@checked
def gaussian(N: Keys, d: Dimension) -> float:
    """Recall accuracy with Gaussian scores (`recall_gaussian`)."""
    numbers = {"N": N, "d": d}
    s_0, s_1 = (
        float(equations()[name].evaluate(numbers)) for name in ("sigma_right", "sigma_wrong")
    )
    return float(gaussian_accuracy(1.0, s_0, s_1, N))  # type: ignore[arg-type]  # a float


@by_dimension()
@checked
def marginal_cdf(x: Annotated[Any, ANYTHING], d: Annotated[float, Allowed(low=2)]) -> np.ndarray:
    """Cumulative distribution function of one coordinate of a uniform unit vector in d
    dimensions.
    """
    return _above(-np.asarray(x), d)


def _above(x: np.ndarray, d: float) -> np.ndarray:
    """Probability that the coordinate exceeds ``x``, accurate if it is small and if d is large."""
    tail = 0.5 * scipy.special.betaincc(0.5, (d - 1) / 2, np.clip(x, -1, 1) ** 2)
    return np.where(x > 0, tail, 1 - tail)


@checked
def sphere(N: Keys, d: Dimension, nodes: Nodes = 200) -> float:
    """Recall accuracy with sphere tails (`recall_sphere`).

    Parameters
    ----------
    N, d : float
        Keys and dimension.
    nodes : int
        Gauss points per integral. With 200 the error is below 1e-6 up to d = 10^6 and below 1e-5 at
        any d.
    """
    s_0 = float(equations()["sigma_right"].evaluate({"N": N, "d": d}))
    point, weight = gauss_legendre(nodes, -1)
    normal_z = 8 * point  # cut off at 8 standard deviations
    normal_w = 8 * weight * np.exp(-(normal_z**2) / 2) / np.sqrt(2 * np.pi)
    # c = sin(angle): density (1 - c^2)^((d-3)/2) dc = cos^(d-2) d(angle).
    angle = min(np.pi / 2, FAR / np.sqrt(d - 2)) * point
    leak_w = weight * np.exp((d - 2) * np.log1p(-(np.sin(angle) ** 2)) / 2)
    leak_w /= leak_w.sum()
    rho = np.sqrt(
        equations()["recalled_length"].evaluate(
            {"N": N, "d": d, "sigma_0": s_0, "z_normal": normal_z}
        )
    )
    right = 1 + s_0 * normal_z
    above = _above((right[:, None] - np.sin(angle)) / rho[:, None], d) @ leak_w
    with np.errstate(divide="ignore"):  # a wrong score that is certainly larger
        return float(normal_w @ np.exp((N - 1) * np.log1p(-np.clip(above, 0, 1))))
