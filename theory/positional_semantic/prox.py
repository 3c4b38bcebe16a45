"""Proximal operator of the sentence loss: a minimiser of its Moreau envelope, in a chosen well.

The envelope's objective ``|z - w|^2/(2V) + l(z, Y)`` is not convex. The loss is even in ``z``, so where
``V`` is large there are two wells, near the two exact solutions of ``S(z) = Y`` and mirror images of each
other for ``w = 0``. This module descends to the well a start lies in; which well counts is decided in
`theory.positional_semantic.channel`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory.positional_semantic import definitions
from theory.positional_semantic.symbols import Y_12, Y_21, V, sigma, w_1, w_2, z_1, z_2

BLOCK = 8192  # nodes worked on at once: their temporaries stay in the cache of a core
SMALLEST_CURVATURE = 1e-4  # of the shifted Hessian, in units of 1/V: below it a Newton step would run away
FARTHEST = 0.7  # longest step; wells are about 1 apart
STEPS = 200
ROUNDING = 1e-15  # a step may raise the objective by its rounding
GRADIENT = 1e-12  # of the objective, whose scale is sigma^2; V times this bounds the error of z


@cache
def _compiled() -> Any:
    """Objective, gradient and Hessian as one NumPy function with shared sub-expressions."""
    return sp.lambdify((z_1, z_2, w_1, w_2, Y_12, Y_21, V, sigma), definitions.derivatives(), "numpy", cse=True)


def objective(z: np.ndarray, w: np.ndarray, Y: np.ndarray, variance: float, scale: float) -> list[np.ndarray]:
    """Objective, two gradient and three Hessian entries at ``z``; arrays of shape ``(2, ...)``, ``scale`` = sigma."""
    return _compiled()(z[0], z[1], w[0], w[1], Y[0], Y[1], variance, scale)


def target_solution(Y: np.ndarray, least: float = 0.05) -> np.ndarray:
    """Fields ``z_0`` with ``S(z_0) = Y``, one of the pair ``+-z_0``; shape ``(2, ...)``.

    With ``u = logit Y_12`` and ``v = logit Y_21``: ``z_1 - z_2 = sqrt(-(u + v))`` and
    ``z_1 + z_2 = (v - u)/(z_1 - z_2)``. Where ``Y_12 + Y_21 >= 1`` there is no solution (the two
    attention probabilities of a tied layer add up to less than one); there, and where the difference
    falls below ``least``, the difference is held at ``least``: a starting point and a direction only.
    """
    u, v = (np.log(y) - np.log1p(-y) for y in np.clip(Y, 1e-12, 1 - 1e-12))
    gap = np.sqrt(np.maximum(-(u + v), least**2))
    total = (v - u) / gap
    return np.stack([total + gap, total - gap]) / 2


def descend(start: np.ndarray, w: np.ndarray, Y: np.ndarray, variance: float,
            scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Minimiser of the well that ``start`` lies in, by Newton steps with a shifted Hessian.

    Parameters
    ----------
    start, w, Y : ndarray, shape (2, n)
        Starting points, centres of the quadratic term, and target entries (1,2) and (2,1).
    variance, scale : float
        The order parameter V, and sigma.

    Returns
    -------
    z : ndarray, shape (2, n)
        Minimisers; every accepted step lowers the objective, so a start is not left for a higher well.
    value : ndarray, shape (n,)
        Objective there: the Moreau envelope.
    hessian : ndarray, shape (3, n)
        Entries (11, 12, 22) of the objective's Hessian.
    """
    z = np.array(start, float)
    value, hessian = np.empty(z.shape[1]), np.empty((3, z.shape[1]))
    for begin in range(0, z.shape[1], BLOCK):
        part = slice(begin, begin + BLOCK)
        z[:, part], value[part], hessian[:, part] = _descend(z[:, part], w[:, part], Y[:, part], variance, scale)
    return z, value, hessian


def _split(found: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Value, and derivatives as one array ``(5, n)``."""
    return found[0], np.array(found[1:])


def _descend(z: np.ndarray, w: np.ndarray, Y: np.ndarray, variance: float,
             scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    result = z.copy(), np.empty(z.shape[1]), np.empty((3, z.shape[1]))
    where = np.arange(z.shape[1])
    f, rest = _split(objective(z, w, Y, variance, scale))
    shrink = np.ones(z.shape[1])  # of the step; halved on every refusal
    for _ in range(STEPS):
        done = np.abs(rest[0]) + np.abs(rest[1]) < GRADIENT
        # Below this a node's step is its rounding: no further improvement can be seen in the objective.
        done |= shrink < 1e-6
        if done.mean() > 0.25 or done.all():
            finished = where[done]
            result[0][:, finished], result[1][finished], result[2][:, finished] = z[:, done], f[done], rest[2:, done]
            keep = ~done
            if not keep.any():
                return result
            where, z, w, Y, f, rest, shrink = (where[keep], z[:, keep], w[:, keep], Y[:, keep], f[keep],
                                               rest[:, keep], shrink[keep])  # fmt: skip
        g1, g2, a, b, c = rest
        lowest = (a + c) / 2 - np.hypot((a - c) / 2, b)
        shift = np.maximum(0, SMALLEST_CURVATURE / variance - lowest) + np.maximum(0, -lowest)
        a, c = a + shift, c + shift
        determinant = a * c - b * b
        step = np.array([b * g2 - c * g1, b * g1 - a * g2]) / determinant
        step *= shrink * np.minimum(1, FARTHEST / np.maximum(np.hypot(*step), 1e-300))
        there = z + step
        f_there, rest_there = _split(objective(there, w, Y, variance, scale))
        better = f_there <= f + ROUNDING
        z = np.where(better, there, z)
        f = np.where(better, f_there, f)
        rest = np.where(better, rest_there, rest)
        shrink = np.where(better, np.minimum(1, 4 * shrink), shrink / 4)
    raise ArithmeticError(f"{where.size} proximal points did not settle in {STEPS} Newton steps")
