"""Numerical functions shared by several theories: Gauss nodes, the root of y + e^y / n
= c, the first crossing of a level, accuracy with Gaussian logits.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special

from theory.call import arrays, refusal
from theory.call.refusal import ANYTHING, Allowed
from theory.call.sweep import by_dimension


@cache
def gauss_hermite(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Hermite quadrature for the standard normal density."""
    x, w = np.polynomial.hermite_e.hermegauss(order)
    return x, w / w.sum()


@cache
def gauss_legendre(
    order: int, low: float = 0, high: float = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre quadrature on an interval."""
    x, w = np.polynomial.legendre.leggauss(order)
    return low + (high - low) * (x + 1) / 2, w * (high - low) / 2


def log_linear(c: Any, n: Any) -> np.ndarray:
    """Root y of ``y + e^y / n = c`` to machine precision, also if ``e^c`` overflows.

    W_0 of an exponential is Wright's omega function. Two Newton steps restore the
    digits lost in its difference from c.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        w = scipy.special.wrightomega(c - np.log(n))
        y = np.where(w < 1, c - w, np.log(n) + np.log(w))
        for _ in range(2):
            step = (n * (y - c) + np.exp(y)) / (n + np.exp(y))
            y = y - np.where(np.isfinite(step), step, 0)  # n c overflows
    return y


def first_crossing(run: Any, index: int, level: float) -> float:
    """First time at which a component of a ``solve_ivp`` solution (with dense output)
    reaches a level; infinite if it does not.
    """
    above = np.flatnonzero(run.y[index] >= level)
    if not above.size:
        return math.inf
    if above[0] == 0:
        return float(run.t[0])
    low, high = run.t[above[0] - 1], run.t[above[0]]
    return float(
        scipy.optimize.brentq(
            lambda t: run.sol(t)[index] - level, low, high, xtol=1e-12 * high
        )
    )


@by_dimension()
@np.errstate(over="ignore")  # far above or below all others the accuracy is 1 or 0
def gaussian_accuracy(gap: Any, sigma_k: Any, sigma_kbar: Any, N: int) -> np.ndarray:
    """Probability that the correct logit is the largest of N independent Gaussian
    logits (forner2026, Eq. 17).

    Parameters
    ----------
    gap : array_like
        Mean of the correct logit minus mean of the others.
    sigma_k, sigma_kbar : array_like
        Standard deviations of the correct logit and of each other logit, positive.
    N : int
        Number of logits.

    Returns
    -------
    ndarray
        Accuracy, broadcast over the inputs; absolute error below 1e-12 for N up to 1e4
        and ratios sigma_k/sigma_kbar in [0.1, 10].

    Raises
    ------
    ParameterError
        If a standard deviation is not positive, or N below 2.

    Notes
    -----
    Integrating over the narrower of the two distributions keeps the integrand smooth on
    a scale of 0.2 standard deviations, where the trapezoidal rule on the whole line
    converges geometrically: step 1/16 leaves nothing above rounding.
    """
    wide = Allowed(above=0)
    gap, s_k, s_o = np.broadcast_arrays(
        *(
            arrays.array(name, v, allowed).astype(float)[..., None]
            for name, v, allowed in (
                ("gap", gap, ANYTHING),
                ("sigma_k", sigma_k, wide),
                ("sigma_kbar", sigma_kbar, wide),
            )
        )
    )
    N = refusal.number("N", N, Allowed(low=2))
    step = 1 / 16
    u = np.arange(-12, 12 + step / 2, step)
    normal = np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)
    over_correct = normal * np.exp(
        (N - 1) * scipy.special.log_ndtr((s_k * u + gap) / s_o)
    )
    # Integral over the largest other logit, with density (N-1) phi Phi^(N-2): the
    # correct one must exceed it.
    largest = (N - 1) * normal * np.exp((N - 2) * scipy.special.log_ndtr(u))
    over_largest = largest * scipy.special.ndtr((gap - s_o * u) / s_k)
    return np.clip(
        np.where(s_k < s_o, over_correct, over_largest).sum(-1) * step, 0, 1
    )  # rounding aside
