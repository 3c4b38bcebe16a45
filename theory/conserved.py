"""What a flow conserves: looked for in floating-point numbers, then proved."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp

from theory.algebra import vanishes
from theory.equation import Equation

if TYPE_CHECKING:
    from theory.flow import Flow

ZERO = 1e-9  # relative: what rounding leaves of a few hundred rates
MANY = 30  # order parameters: with more, products of different ones are left out
POINTS = (0.1, 0.9)  # where every term is real


def ansatz(state: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """Terms of which conserved quantities are sums, from the one least expected on."""
    logs = [sp.log(f(x)) for f in (lambda x: 1 - x**2, lambda x: 1 - x, lambda x: x) for x in state]
    pairs = [x * y for x, y in itertools.combinations_with_replacement(state, 2)]
    squares = [x**2 for x in state] if len(state) > MANY else pairs
    return [*logs, *(sp.exp(x) for x in state), *squares, *state]


def conserved(flow: Flow) -> list[Equation]:
    """Independent sums of the terms of `ansatz`, constant along a flow at any parameters.

    The null space of the terms' rates at random points gives the terms of each; their coefficients
    follow from the rates as symbols, and `theory.algebra.vanishes` has the last word.

    Returns
    -------
    list of Equation
        Value at the start (a symbol where that is infinite) = quantity. Nothing that was not
        proved.
    """
    terms, rng = ansatz(flow.state), np.random.default_rng(0)
    found: list[Equation] = []
    gradients = np.empty((0, len(flow.state)))
    slopes, space = _null_space(flow, terms, rng)
    for vector in reversed(space):
        along = np.vstack([gradients, vector @ slopes])
        if np.linalg.matrix_rank(along, tol=1e-6 * np.abs(along).max()) == len(gradients):
            continue
        chosen = [term for term, c in zip(terms, vector, strict=True) if abs(c) > 1e3 * ZERO]
        if (quantity := _proved(flow, chosen)) is None:
            continue
        gradients, name = along, f"conserved_{len(found) + 1}"
        start = quantity.subs(flow.initial)
        if not start.is_finite and start.has(sp.oo, -sp.oo, sp.zoo, sp.nan):
            start = sp.Symbol(f"C_{len(found) + 1}")
        found.append(Equation(name, start, quantity, flow.reference, flow.status, flow.assumptions))
    return found


def _null_space(
    flow: Flow, terms: Sequence[sp.Expr], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the terms at one point; row-reduced coefficients of what is conserved there, at
    random parameters.
    """
    free, rhs = flow._compiled[:2]
    fixed = [
        rng.integers(3, 20) if x.is_integer else rng.uniform(0.5, 2) for x in (flow.time, *free)
    ]
    points = rng.uniform(*POINTS, (len(flow.state), 2 * len(terms) + 5))
    rates = [sp.Dummy() for _ in flow.state]
    slopes = [[sp.diff(f, x) for x in flow.state] for f in terms]
    moved = [sp.Add(*map(sp.Mul, row, rates)) for row in slopes]
    with np.errstate(all="ignore"):
        found = rhs(fixed[0], *points, *fixed[1:])
        rate = np.array([np.broadcast_to(r, points.shape[1]) for r in found], float)
        rows = np.array(sp.lambdify([*flow.state, *rates], moved, "numpy")(*points, *rate)).T
    rows = rows / np.where(rate.any(0), np.abs(rate).max(0), 1)[:, None]
    rows = rows[np.isfinite(rows).all(1)]
    at_one = np.array(sp.lambdify(flow.state, slopes, "numpy")(*points[:, 0]), float)
    if len(rows) < len(terms):
        return at_one, np.empty((0, len(terms)))
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    return at_one, _reduced(basis[values <= ZERO * values[0]])


def _reduced(rows: np.ndarray) -> np.ndarray:
    """Row-reduced: each row has the one term of its own that comes first."""
    rows, done = rows.copy(), 0
    for column in range(rows.shape[1]):
        if done == len(rows):
            break
        best = done + int(np.abs(rows[done:, column]).argmax())
        if abs(rows[best, column]) < 1e3 * ZERO:
            continue
        rows[[done, best]] = rows[[best, done]]
        rows[done] /= rows[done, column]
        others = np.arange(len(rows)) != done
        rows[others] -= np.outer(rows[others, column], rows[done])
        done += 1
    return rows


def _proved(flow: Flow, terms: Sequence[sp.Expr]) -> sp.Expr | None:
    """The sum of the terms, with coefficients, that is conserved; None if that cannot be shown.

    Abbreviations of the flow are left as they are, where that suffices.
    """
    for rates in (flow.rhs, flow.expanded):
        moved = [sp.Add(*(sp.diff(f, x) * rates[x] for x in flow.state)) for f in terms]
        unknown = [sp.Dummy() for _ in moved[1:]]
        total = moved[0] + sp.Add(*(c * rate for c, rate in zip(unknown, moved[1:], strict=True)))
        first = next((m for m in moved if m != 0), sp.S.One)
        top = sp.expand(
            sp.numer(sp.together(sp.Add(*(t / first for t in sp.Add.make_args(total)))))
        )
        by_point: defaultdict[sp.Expr, sp.Expr] = defaultdict(lambda: sp.S.Zero)
        for term in sp.Add.make_args(top):
            constant, moving = term.as_independent(*flow.state, *flow.where, as_Add=False)
            by_point[moving] += constant
        solutions = sp.linsolve([*by_point.values()], unknown) if unknown else [()]
        for solution in solutions if unknown or top == 0 else ():
            coefficients = [sp.factor(c.subs(dict.fromkeys(unknown, 0))) for c in solution]
            weights = [sp.S.One, *coefficients]
            if vanishes(sp.Add(*(c * rate for c, rate in zip(weights, moved, strict=True)))):
                return sp.Add(*(c * f for c, f in zip(weights, terms, strict=True)))
    return None
