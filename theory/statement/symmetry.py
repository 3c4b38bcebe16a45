"""Directions in which the loss does not change, found in numbers and proved in symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

RANK = 1e-9  # relative to the largest singular value: double precision with a margin
STEP = 1e-30j  # small enough for derivatives exact to rounding
LARGEST = 24  # denominator of a coefficient
PROVABLE = 600  # operations of an expression that SymPy multiplies out in a second
MOST_EXPONENTIALS = 5  # different ones, of an expression that is put over one denominator
READABLE = 300  # operations of one that it factors in a second


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


def rational(expr: sp.Expr) -> tuple[sp.Expr, dict[sp.Symbol, sp.Expr]]:
    """An expression with exponentials and logarithms as symbols, and what these stand for.

    Exponentials of sums are products; arguments that are equal over one denominator are the same.
    """
    meaning: dict[sp.Symbol, sp.Expr] = {}
    named: dict[sp.Expr, sp.Symbol] = {}

    def name(x: sp.Expr) -> sp.Symbol:
        if x not in named:
            named[x] = sp.Dummy(f"e{len(named)}", positive=True)
            meaning[named[x]] = x
        return named[x]

    def spelled(x: sp.Expr) -> sp.Expr:
        if not x.has(sp.exp, sp.log):
            return x
        if isinstance(x, sp.exp):
            inside = sp.cancel(sp.together(spelled(x.args[0])))
            if not inside.is_polynomial(*inside.free_symbols):
                return name(sp.exp(inside))
            parts = (term.as_coeff_Mul() for term in sp.Add.make_args(sp.expand(inside)))
            return sp.Mul(*(name(sp.exp(rest)) ** many for many, rest in parts if rest != 1))
        if isinstance(x, sp.log):
            return name(sp.log(sp.factor(spelled(x.args[0]))))
        return x.func(*map(spelled, x.args))

    return spelled(expr), meaning


def proved(expr: sp.Expr) -> bool:
    """Whether an expression that is zero in numbers is shown to be zero, where that is cheap."""
    if expr == 0:
        return True
    if expr.has(sp.Sum) or expr.count_ops() > PROVABLE:
        return False
    made, meaning = rational(expr)
    return len(meaning) <= 2 * MOST_EXPONENTIALS and sp.expand(sp.numer(sp.together(made))) == 0


def tidied(expr: sp.Expr) -> sp.Expr:
    """A rational function of exponentials over one denominator, in factors, if that is shorter."""
    if expr.has(sp.Sum, sp.log) or expr.count_ops() > READABLE:
        return expr
    made, meaning = rational(expr)
    if len(meaning) > MOST_EXPONENTIALS:
        return expr
    made = sp.factor(sp.together(made))
    for short, long in reversed(meaning.items()):
        made = made.xreplace({short: long})
    return min((made, expr), key=lambda x: x.count_ops())


def compiled(expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol]) -> Callable[..., Any]:
    """Expressions as functions of numbers, sizes as whole ones; sums are added up term by term."""
    several = any(e.has(sp.Sum) for e in expressions)  # whose indices must stay inside
    made = sp.lambdify(list(arguments), list(expressions), "numpy", cse=not several)
    whole = [x.is_integer for x in arguments]
    return lambda *v: made(*(int(x) if w else x for w, x in zip(whole, v, strict=True)))


def slopes(
    expr: sp.Expr, by: Sequence[sp.Symbol], others: Sequence[sp.Symbol]
) -> Callable[..., tuple[float, np.ndarray]]:
    """An expression's value and derivatives by some of its symbols, by complex steps."""
    of = compiled([expr], [*by, *others])

    def found(values: Sequence[float], numbers: Sequence[float]) -> tuple[float, np.ndarray]:
        steps = [
            complex(of(*(x + STEP * (k == n) for n, x in enumerate(values)), *numbers)[0])
            for k in range(len(values))
        ]
        return steps[0].real, np.array([s.imag for s in steps]) / abs(STEP)

    return found
