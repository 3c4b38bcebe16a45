"""Proximal operator of the sentence loss: a minimiser of the objective of its Moreau
envelope, in a chosen well.

The objective ``|z - w|^2/(2V) + l(z, Y)`` is not convex. The loss is even in ``z``, so
that for large ``V`` there are two wells, near the two exact solutions of ``S(z) = Y``;
for ``w = 0`` they are mirror images of each other. This module descends to the well
that contains the starting point; `theory.positional_semantic.channel` decides which
well is used.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError
from theory.positional_semantic.model import definitions
from theory.positional_semantic.model.symbols import (
    Y_12,
    Y_21,
    V,
    sigma,
    w_1,
    w_2,
    z_1,
    z_2,
)

# smallest eigenvalue of the shifted Hessian in units of 1/V; limits Newton steps
SMALLEST_CURVATURE = 1e-4
FARTHEST = 0.7  # longest step; wells are about 1 apart
STEPS = 200
ROUNDING = 1e-15  # a step may raise the objective by rounding errors
GRADIENT = 1e-12  # of the gradient; V times this bounds the error of z
SHORTEST = 1e-6  # smallest fraction of a step: rounding level
OF_NEWTON = (
    "SMALLEST_CURVATURE",
    "FARTHEST",
    "STEPS",
    "ROUNDING",
    "GRADIENT",
    "SHORTEST",
)
ARGUMENTS = (z_1, z_2, w_1, w_2, Y_12, Y_21, V, sigma)


class NotConverged(ParameterError, ArithmeticError):
    """Damped and Newton steps have not found a solution."""


@cache
def _compiled() -> Any:
    """Objective, gradient and Hessian as one NumPy function with shared
    sub-expressions.
    """
    return sp.lambdify(ARGUMENTS, definitions.derivatives(), "numpy", cse=True)


def objective(
    z: np.ndarray, w: np.ndarray, Y: np.ndarray, variance: float, scale: float
) -> list[np.ndarray]:
    """Objective, two gradient and three Hessian entries at ``z``; arrays of shape ``(2,
    ...)``, ``scale`` = sigma.
    """
    return _compiled()(*z, *w, *Y, variance, scale)


@cache
def _compiled_loss() -> Any:
    """The sentence loss alone."""
    loss = definitions.equations()["sentence_loss"].rhs
    return sp.lambdify((z_1, z_2, Y_12, Y_21, sigma), loss, "numpy", cse=True)


def loss(z: np.ndarray, Y: np.ndarray, scale: float) -> np.ndarray:
    """Loss of a sentence at ``z``; arrays of shape ``(2, ...)``, ``scale`` = sigma."""
    return _compiled_loss()(*z, *Y, scale)


def target_solution(Y: np.ndarray, least: float = 0.05) -> np.ndarray:
    """Fields ``z_0`` with ``S(z_0) = Y``, one of the pair ``+-z_0``; shape ``(2,
    ...)``.

    With ``u = logit Y_12`` and ``v = logit Y_21``: ``z_1 - z_2 = sqrt(-(u + v))`` and
    ``z_1 + z_2 = (v - u)/(z_1 - z_2)``. If ``Y_12 + Y_21 >= 1`` there is no solution
    (the two attention probabilities of a tied layer add up to less than one); then, and
    if the difference is below ``least``, the difference is set to ``least``, which
    gives a starting point and a direction only.
    """
    u, v = (np.log(y) - np.log1p(-y) for y in np.clip(Y, 1e-12, 1 - 1e-12))
    gap = np.sqrt(np.maximum(-(u + v), least**2))
    total = (v - u) / gap
    return np.stack([total + gap, total - gap]) / 2


def newton(z, w, Y, variance, scale, value, hessian):  # type: ignore[no-untyped-def]
    """Minimise from every column of ``z``, in place; returns how many do not converge.
    Compiled to machine code, see `_newton`.
    """
    unsettled = 0
    for i in range(z.shape[1]):
        x, y = z[0, i], z[1, i]
        f, g_1, g_2, a, b, c = at(  # noqa: F821
            x, y, w[0, i], w[1, i], Y[0, i], Y[1, i], variance, scale
        )
        shrink, steps = 1.0, 0  # a rejected step is reduced to a quarter
        while (
            np.abs(g_1) + np.abs(g_2) >= GRADIENT
            and shrink >= SHORTEST
            and steps < STEPS
        ):
            steps += 1
            lowest = (a + c) / 2 - np.hypot((a - c) / 2, b)
            shift = max(0.0, SMALLEST_CURVATURE / variance - lowest) + max(0.0, -lowest)
            determinant = (a + shift) * (c + shift) - b * b
            step_x = (b * g_2 - (c + shift) * g_1) / determinant
            step_y = (b * g_1 - (a + shift) * g_2) / determinant
            length = shrink * min(1.0, FARTHEST / max(np.hypot(step_x, step_y), 1e-300))
            x_new, y_new = x + length * step_x, y + length * step_y
            new = at(x_new, y_new, w[0, i], w[1, i], Y[0, i], Y[1, i], variance, scale)  # noqa: F821
            if new[0] <= f + ROUNDING:
                x, y = x_new, y_new
                f, g_1, g_2, a, b, c = new
                shrink = min(1.0, 4 * shrink)
            else:
                shrink /= 4
        unsettled += steps == STEPS
        z[0, i], z[1, i], value[i] = x, y, f
        hessian[0, i], hessian[1, i], hessian[2, i] = a, b, c
    return unsettled


@cache
def _newton() -> Callable[..., int]:
    """`newton` compiled to machine code; ``at`` is the derived objective, gradient and
    Hessian.

    Compiled on first use, because importing Numba is slow.
    """
    from theory.numbers import compiled

    derived = sp.lambdify(ARGUMENTS, tuple(definitions.derivatives()), "math", cse=True)
    constants = "".join(f"{name} = {globals()[name]!r}\n" for name in OF_NEWTON)
    source = f'''"""Generated from the derivatives of the objective."""
import numba
import numpy as np
from theory.numbers.compiled import njit

{constants}
# Twice as fast as the library's.
tanh = numba.njit(lambda x: 1 - 2 / (1 + np.exp(2 * x)), error_model="numpy")

{inspect.getsource(derived)}
at = numba.njit(_lambdifygenerated, error_model="numpy")

{inspect.getsource(newton)}
newton = njit(
    "i8(f8[:,::1], f8[:,::1], f8[:,::1], f8, f8, f8[::1], f8[:,::1])",
    nogil=True,
    error_model="numpy",
    cache=KEPT,
)(newton)
'''
    return compiled.module(source).newton


def descend(
    start: np.ndarray, w: np.ndarray, Y: np.ndarray, variance: float, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minimiser of the well that ``start`` lies in, by Newton steps with a shifted
    Hessian.

    Parameters
    ----------
    start, w, Y : ndarray, shape (2, n)
        Starting points, centres of the quadratic term, and target entries (1,2) and
        (2,1).
    variance, scale : float
        The order parameter V, and sigma.

    Returns
    -------
    z : ndarray, shape (2, n)
        Minimisers. Every accepted step lowers the objective.
    value : ndarray, shape (n,)
        Objective at the minimiser: the Moreau envelope.
    hessian : ndarray, shape (3, n)
        Entries (11, 12, 22) of the objective's Hessian.

    Raises
    ------
    NotConverged
        If a point does not converge.
    """
    z = np.array(start, float, order="C")
    w = np.ascontiguousarray(w, float)
    Y = np.ascontiguousarray(Y, float)
    value = np.empty(z.shape[1])
    hessian = np.empty((3, z.shape[1]))
    unsettled = _newton()(z, w, Y, variance, scale, value, hessian)
    if unsettled:
        raise NotConverged(
            f"{unsettled} proximal points did not settle in {STEPS} Newton steps"
        )
    return z, value, hessian


# Losses of sentences in any number of fields

NEWTON = 100
FARTHEST_OF_MANY = 0.7
GRADIENT_OF_MANY = 1e-11
Derivatives = tuple[np.ndarray, np.ndarray, np.ndarray]  # value, gradient, Hessian


def differentiated(
    expressions: Sequence[sp.Expr],
    fields: Sequence[sp.Symbol],
    others: Sequence[sp.Symbol],
) -> Callable[..., Derivatives]:
    """Compile expressions with their derivatives in some symbols.

    Returns
    -------
    callable
        ``call(z, *others)`` for ``z`` of shape ``(n, fields)``: values ``(n,
        expressions)``, gradients ``(n, expressions, fields)``, Hessians ``(n,
        expressions, fields, fields)``.
    """
    values = sp.Matrix(expressions)
    entries = [*values, *values.jacobian(fields)]
    for expression in expressions:
        entries += sp.hessian(expression, fields)
    compiled = sp.lambdify([*fields, *others], entries, "numpy", cse=True)
    count = len(expressions)
    size = len(fields)

    def call(z: np.ndarray, *known: Any) -> Derivatives:
        columns = [np.broadcast_to(v, len(z)) for v in compiled(*z.T, *known)]
        parts = np.split(np.stack(columns, 1), [count, count * (1 + size)], 1)
        value, first, second = parts
        gradient = first.reshape(-1, count, size)
        return value, gradient, second.reshape(-1, count, size, size)

    return call


def chained(outer: Derivatives, inner: Derivatives) -> Derivatives:
    """Value ``(n,)``, gradient and Hessian of a loss of several functions, by the chain
    rule.

    Parameters
    ----------
    outer : tuple of ndarray
        One expression with its derivatives in these functions (`differentiated`).
    inner : tuple of ndarray
        The functions with their derivatives in the fields.
    """
    value, first, second = (part[:, 0] for part in outer)
    _, slope, bend = inner
    hessian = np.einsum("nk,nkij->nij", first, bend)
    hessian += np.einsum("nkl,nki,nlj->nij", second, slope, slope, optimize=True)
    return value, np.einsum("nk,nki->ni", first, slope), hessian


def proximal(
    loss: Callable[[np.ndarray, np.ndarray, Any], Derivatives],
    w: np.ndarray,
    Y: np.ndarray,
    V: np.ndarray,
    given: Any,
    start: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimiser and Moreau envelope of a loss, by Newton steps with a shifted Hessian.

    Parameters
    ----------
    loss : callable
        ``loss(z, Y, given)``: value, gradient and Hessian for fields ``z`` of shape
        ``(n, LR)``.
    w, start : ndarray, shape (n, L, R)
        Centres of the quadratic term, and starting points; descent stays in their well.
    Y : ndarray, shape (n, ...)
        What the loss knows of each sentence.
    V : ndarray, shape (L, R, R)
        Variances of the fields of each token.
    given : object
        What the loss knows besides.

    Raises
    ------
    NotConverged
        If a point does not settle.
    """
    n, L, R = w.shape
    blocks = np.einsum("lk,lab->lakb", np.eye(L), np.linalg.inv(V))
    inverse = blocks.reshape(L * R, L * R)
    centre = w.reshape(n, -1)
    z = start.reshape(n, -1).copy()

    def objective(at: np.ndarray, rows: Any) -> Derivatives:
        value, first, second = loss(at, Y[rows], given)
        away = at - centre[rows]
        quadratic = np.einsum("ni,ij,nj->n", away, inverse, away) / 2
        return value + quadratic, first + away @ inverse, second + inverse

    f, g, H = objective(z, slice(None))
    rows = np.arange(n)
    shrink = np.ones(n)  # a rejected step is reduced to a quarter
    for _ in range(NEWTON):
        steep = np.abs(g[rows]).sum(1) > GRADIENT_OF_MANY
        rows = rows[steep & (shrink[rows] > 1e-6)]
        if not rows.size:
            return z.reshape(n, L, R), f
        lowest = np.linalg.eigvalsh(H[rows])[:, 0]
        shift = np.maximum(0, 1e-4 - lowest) + np.maximum(0, -lowest)
        shifted = H[rows] + shift[:, None, None] * np.eye(L * R)
        step = -np.linalg.solve(shifted, g[rows][..., None])[..., 0]
        length = np.maximum(np.linalg.norm(step, axis=1), 1e-300)
        share = shrink[rows]
        step *= (share * np.minimum(1, FARTHEST_OF_MANY / length))[:, None]
        value, first, second = objective(z[rows] + step, rows)
        lower = value <= f[rows] + 1e-15
        good = rows[lower]
        z[good] += step[lower]
        f[good] = value[lower]
        g[good] = first[lower]
        H[good] = second[lower]
        shrink[rows] = np.where(lower, np.minimum(1, 4 * share), share / 4)
    raise NotConverged(
        f"{rows.size} proximal points did not settle in {NEWTON} Newton steps"
    )
