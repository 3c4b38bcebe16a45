"""Directions in which the loss does not change, found in numbers and proved in symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from theory import algebra

RANK = 1e-9  # relative to the largest singular value: double precision with a margin
LARGEST = 24  # denominator of a coefficient
PROVABLE = 400  # operations of an expression that SymPy multiplies out in a second


def null_vectors(sample: Callable[[int], np.ndarray], width: int) -> list[list[sp.Rational]]:
    """Rational vectors that every row of a matrix is orthogonal to, as reduced echelon form.

    Parameters
    ----------
    sample : callable
        Makes a matrix of so many rows, another one at every call.
    width : int
        Number of columns. Pivots are chosen from the last column on.
    """
    rows = sample(3 * width)
    _, sizes, vectors = np.linalg.svd(rows)
    rank = int((sizes > RANK * max(sizes.max(initial=0), 1e-300)).sum())
    reduced = _echelon(vectors[rank:, ::-1])[:, ::-1]
    found = [[Fraction(float(v)).limit_denominator(LARGEST) for v in row] for row in reduced]
    others = sample(width)
    scale = np.abs(others).max(initial=1e-300)
    return [
        [sp.Rational(v.numerator, v.denominator) for v in row]
        for row in found
        if np.abs(others @ np.array(row, float)).max(initial=0) < 1e-7 * scale
    ]


def _echelon(rows: np.ndarray) -> np.ndarray:
    rows, top = rows.copy(), 0
    for column in range(rows.shape[1]):
        if top == len(rows):
            break
        pivot = top + int(np.abs(rows[top:, column]).argmax())
        if abs(rows[pivot, column]) < 1e-8:
            continue
        rows[[top, pivot]] = rows[[pivot, top]]
        rows[top] /= rows[top, column]
        for other in range(len(rows)):
            if other != top:
                rows[other] -= rows[other, column] * rows[top]
        top += 1
    return rows[:top]


def proved(expr: sp.Expr) -> bool:
    """Whether an expression that is zero in numbers is shown to be zero, where that is cheap."""
    return expr == 0 or (expr.count_ops() < PROVABLE and algebra.vanishes(expr))


def tidied(expr: sp.Expr) -> sp.Expr:
    """A rational function of exponentials over one denominator, in factors; others as they are."""
    if expr.has(sp.Sum, sp.log) or expr.count_ops() > PROVABLE:
        return expr
    spelled = expr.replace(
        lambda x: isinstance(x, sp.exp), lambda x: sp.exp(sp.expand(x.args[0]))
    )
    inner = [x for x in spelled.atoms(sp.exp) if x.args[0].has(sp.exp)]
    if inner:
        return expr
    return sp.factor(sp.together(sp.expand_power_exp(spelled)))


def compiled(expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol]) -> Callable[..., Any]:
    """Expressions as functions of numbers; sums are added up term by term."""
    from theory import numeric

    if not any(e.has(sp.Sum) for e in expressions):
        return sp.lambdify(list(arguments), list(expressions), "numpy", cse=True)
    return numeric.function(list(expressions), tuple(arguments))
