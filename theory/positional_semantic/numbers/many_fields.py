"""Losses of sentences in any number of fields: derivatives compiled from SymPy, proximal points.

`prox` does the same for the two fields of the figures' layer, in machine code.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy as sp

NEWTON, FARTHEST, GRADIENT = 100, 0.7, 1e-11
Derivatives = tuple[np.ndarray, np.ndarray, np.ndarray]  # value, gradient, Hessian


def differentiated(
    expressions: Sequence[sp.Expr], fields: Sequence[sp.Symbol], others: Sequence[sp.Symbol]
) -> Callable[..., Derivatives]:
    """Compile expressions with their derivatives in some symbols.

    Returns
    -------
    callable
        ``call(z, *others)`` for ``z`` of shape ``(n, fields)``: values ``(n, expressions)``,
        gradients ``(n, expressions, fields)``, Hessians ``(n, expressions, fields, fields)``.
    """
    values = sp.Matrix(expressions)
    parts = [values, values.jacobian(fields), *(sp.hessian(e, fields) for e in expressions)]
    entries = [entry for part in parts for entry in part]
    compiled = sp.lambdify([*fields, *others], entries, "numpy", cse=True)
    count, size = len(expressions), len(fields)

    def call(z: np.ndarray, *given: Any) -> Derivatives:
        out = np.stack([np.broadcast_to(v, len(z)) for v in compiled(*z.T, *given)], 1)
        value, first, second = np.split(out, [count, count * (1 + size)], 1)
        return value, first.reshape(-1, count, size), second.reshape(-1, count, size, size)

    return call


def chained(outer: Derivatives, inner: Derivatives) -> Derivatives:
    """Value ``(n,)``, gradient and Hessian of a loss of several functions, by the chain rule.

    Parameters
    ----------
    outer : tuple of ndarray
        One expression with its derivatives in these functions (`differentiated`).
    inner : tuple of ndarray
        The functions with their derivatives in the fields.
    """
    (value, first, second), (_, slope, bend) = outer, inner
    hessian = np.einsum("nk,nkij->nij", first[:, 0], bend)
    hessian += np.einsum("nkl,nki,nlj->nij", second[:, 0], slope, slope, optimize=True)
    return value[:, 0], np.einsum("nk,nki->ni", first[:, 0], slope), hessian


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
        ``loss(z, Y, given)``: value, gradient and Hessian for fields ``z`` of shape ``(n, LR)``.
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
    ArithmeticError
        If a point does not settle.
    """
    n, L, R = w.shape
    inverse = np.einsum("lk,lab->lakb", np.eye(L), np.linalg.inv(V)).reshape(L * R, L * R)
    centre, z = w.reshape(n, -1), start.reshape(n, -1).copy()

    def objective(at: np.ndarray, rows: Any) -> Derivatives:
        value, first, second = loss(at, Y[rows], given)
        away = at - centre[rows]
        return (
            value + np.einsum("ni,ij,nj->n", away, inverse, away) / 2,
            first + away @ inverse,
            second + inverse,
        )

    f, g, H = objective(z, slice(None))
    rows = np.arange(n)
    shrink = np.ones(n)  # a rejected step is reduced to a quarter
    for _ in range(NEWTON):
        rows = rows[(np.abs(g[rows]).sum(1) > GRADIENT) & (shrink[rows] > 1e-6)]
        if not rows.size:
            return z.reshape(n, L, R), f
        lowest = np.linalg.eigvalsh(H[rows])[:, 0]
        shift = np.maximum(0, 1e-4 - lowest) + np.maximum(0, -lowest)
        shifted = H[rows] + shift[:, None, None] * np.eye(L * R)
        step = -np.linalg.solve(shifted, g[rows][..., None])[..., 0]
        length = np.maximum(np.linalg.norm(step, axis=1), 1e-300)
        step *= (shrink[rows] * np.minimum(1, FARTHEST / length))[:, None]
        moved = objective(z[rows] + step, rows)
        lower = moved[0] <= f[rows] + 1e-15
        good = rows[lower]
        z[good] += step[lower]
        f[good], g[good], H[good] = (part[lower] for part in moved)
        shrink[rows] = np.where(lower, np.minimum(1, 4 * shrink[rows]), shrink[rows] / 4)
    raise ArithmeticError(f"{rows.size} proximal points did not settle in {NEWTON} Newton steps")
