"""Directions in which the loss does not change,
found in numbers and proved in symbols.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError
from theory.symbols import notation
from theory.symbols.algebra import Rebuild, rebuilt, slope, vanishes
from theory.symbols.fractions import factored
from theory.symbols.notation import Forms
from theory.symbols.reading import sympified

RANK = 1e-9  # of a column's size: double precision with a margin
SMALL = 1e-4  # slope below which errors are absolute: all of them may vanish
STEP = 1e-30j  # small enough for derivatives exact to rounding
LARGEST = 24  # denominator of a coefficient
LARGEST_DRAWN = 13  # of a size
MOST_TRIES = 2000
HIDING = 3  # what a pair of equal sizes costs, in units of a size
AGREE = 1e-7  # of a coefficient and its fraction: a fit in double precision


def null_vectors(rows: np.ndarray) -> list[list[sp.Rational]]:
    """Rational vectors that every row of a matrix is orthogonal to.

    Each says how one column is a sum of those before it that are no such sums.
    """
    pivots: list[int] = []
    vectors = []
    for k, column in enumerate(rows.T):
        parts = (
            np.linalg.lstsq(rows[:, pivots], column, rcond=None)[0]
            if pivots
            else np.empty(0)
        )
        vector = np.zeros(rows.shape[1])
        vector[k], vector[pivots] = 1, -parts
        if np.abs(rows @ vector).max() > RANK * max(np.abs(rows).max(), SMALL):
            pivots.append(k)
            continue
        rounded = [sp.Rational(str(v)).limit_denominator(LARGEST) for v in vector]
        if np.abs(np.array(rounded, float) - vector).max() < AGREE:
            vectors.append(rounded)
    return vectors


def compiled(
    expressions: Sequence[sp.Expr], arguments: Sequence[sp.Symbol]
) -> Callable[..., Any]:
    """Expressions as functions of numbers, sizes as whole ones; sums are added up term
    by term.
    """
    several = any(e.has(sp.Sum) for e in expressions)  # whose indices must stay inside
    cse = False if several else _shared
    function = sp.lambdify(list(arguments), list(expressions), "numpy", cse=cse)
    integer = [x.is_integer for x in arguments]

    def called(*values: Any) -> Any:
        pairs = zip(integer, values, strict=True)
        return function(*(int(x) if is_integer else x for is_integer, x in pairs))

    return called


def _shared(
    expressions: Any, **_: Any
) -> tuple[list[tuple[sp.Symbol, sp.Expr]], list[sp.Expr]]:
    """Replace repeated exponentials and logarithms by symbols."""
    shared: dict[sp.Expr, sp.Symbol] = {}

    def rule(e: sp.Expr, of: Rebuild) -> sp.Expr | None:
        if not isinstance(e, sp.exp | sp.log):
            return None
        return shared.setdefault(e.func(of(e.args[0]), evaluate=False), sp.Dummy())

    reduced = [rebuilt(e, rule) for e in expressions]
    return [(short, e) for e, short in shared.items()], reduced


def slopes(
    made: Any,
) -> Callable[[Sequence[float], Mapping[str, float]], tuple[float, Any]]:
    """Numbers of the loss and its slopes along all classes, by complex steps: of values
    of these in order and numbers by name.
    """
    symbols = [c.symbol for c in made.classes]
    others = sorted(made.loss.free_symbols - set(symbols), key=str)
    loss = compiled([made.loss], [*symbols, *others])

    def loss_and_slopes(
        values: Sequence[float], numbers: Mapping[str, float]
    ) -> tuple[float, Any]:
        fixed = [numbers[s.name] for s in others]
        moved = np.array(values) + STEP * np.eye(len(values))
        steps = [complex(loss(*point, *fixed)[0]) for point in moved]
        return steps[0].real, np.array([s.imag for s in steps]) / abs(STEP)

    return loss_and_slopes


@dataclass(frozen=True)
class Conserved:
    """A conserved quantity of gradient flow.

    Attributes
    ----------
    kind : {'frozen', 'translation', 'scaling'}
        One class alone; a sum over weights; a sum over their squares.
    coefficients : mapping of Symbol to Rational
        The direction, per class.
    expression : Expr
        What is conserved, in values of classes.
    proved : bool
        Whether it was proved, and not only found in numbers.
    """

    kind: str
    coefficients: Mapping[sp.Symbol, sp.Rational]
    expression: sp.Expr
    proved: bool


@dataclass(frozen=True)
class Quotient:
    """Order parameters that no translation changes; ``d x / d t = -sum_y mobility[x][y]
    dL/dy``.

    Attributes
    ----------
    order : mapping of Symbol to Expr
        By order parameter, the combination of classes that it is.
    gauge : mapping of Symbol to Expr
        Classes in order parameters, with one class per translation at zero.
    mobility : mapping of Symbol to mapping
        How slopes of the loss make rates: one over numbers of entries.
    """

    order: Mapping[sp.Symbol, sp.Expr]
    gauge: Mapping[sp.Symbol, sp.Expr]
    mobility: Mapping[sp.Symbol, Mapping[sp.Symbol, sp.Expr]]


class Points:
    """Random numbers for sizes, `number` symbols and values of classes,
    sizes that fit.
    """

    def __init__(self, made: Any, seed: int = 0) -> None:
        self.made, self.rng = made, np.random.default_rng(seed)
        stated = made.statement
        known = {c.symbol for c in made.classes}
        free = made.loss.free_symbols.union(stated.symbols) - known
        self.sizes = [s for s in stated.symbols if s.is_integer and s not in made.sizes]
        self.others = sorted((s for s in free if not s.is_integer), key=str)
        room = [
            f.to.size - f.sorts[j].size for f in stated.functions for j in f.injective
        ]
        room += [i.sort.size - i.place for i in stated.draws if i.place is not None]
        sorts = [s.size for s in stated.sorts]
        classes = [c.size for c in made.classes]
        fixed = {k: sp.Integer(v) for k, v in made.sizes.items()}

        def at_fixed(counts: list[Any]) -> list[sp.Expr]:
            return [sympified(x).xreplace(fixed) for x in counts]

        limits = [at_fixed(sorts), at_fixed(classes), at_fixed(room)]
        self.counts = sp.lambdify(self.sizes, limits, "math")

    def cost(self, sizes: tuple[int, ...]) -> float:
        """Cost of choosing these sizes: their sum, and more for equal sizes, which hide
        faults; infinite if they do not fit one-to-one functions or leave a class empty.
        """
        try:
            sorts, classes, room = self.counts(*sizes)
        except ZeroDivisionError:
            return np.inf
        equal = sum(a == b for a, b in itertools.combinations(sorts, 2))
        fits = min(*sorts, *classes) > 0 and min(room, default=0) >= 0
        return sum(sizes) + HIDING * equal if fits else np.inf

    def small(self, largest: int) -> list[tuple[int, ...]]:
        """All sizes up to one that fit, cheap ones first."""
        grid = itertools.product(range(2, largest + 1), repeat=len(self.sizes))
        cost = {s: self.cost(s) for s in grid}
        return sorted((s for s in cost if cost[s] < np.inf), key=lambda s: (cost[s], s))

    def numbers(self, sizes: tuple[int, ...] | None = None) -> dict[str, float]:
        """Sizes (drawn, if not given) and numbers by name."""
        sizes = next(self._drawn()) if sizes is None else sizes
        values = {s.name: float(n) for s, n in zip(self.sizes, sizes, strict=True)}
        values |= {s.name: float(n) for s, n in self.made.sizes.items()}
        return values | {s.name: float(self.rng.uniform(0.2, 0.9)) for s in self.others}

    def _drawn(self) -> Iterator[tuple[int, ...]]:
        for _ in range(MOST_TRIES):
            sizes = tuple(
                self.rng.integers(2, LARGEST_DRAWN + 1, len(self.sizes)).tolist()
            )
            if self.cost(sizes) < np.inf:
                yield sizes
        name = self.made.statement.name
        raise ParameterError(
            f"statement {name}: no sizes from 2 to {LARGEST_DRAWN} fit"
        )

    def values(self) -> dict[sp.Symbol, float]:
        """Values of classes."""
        return {c.symbol: float(self.rng.normal()) for c in self.made.classes}


def conserved(made: Any) -> list[Conserved]:
    """Linear, then quadratic combinations of weights that gradient flow conserves."""
    points, invariants = Points(made), []
    size = {c.symbol: c.size for c in made.classes}
    values = [list(points.values().values()) for _ in range(4 * len(size))]
    rows = np.array([made.slopes(v, points.numbers())[1] for v in values])
    slopes = {x: slope(made.loss, x) for x in size}
    for power in (1, 2):
        for vector in null_vectors(rows * np.array(values) ** (power - 1)):
            part = {x: a for x, a in zip(size, vector, strict=True) if a != 0}
            if power == 2 and len(part) == 1:  # frozen, found at power 1
                continue
            terms = [a * size[x] * x**power for x, a in part.items()]
            expression = factored(sp.Add(*terms))
            if power == 2:
                kind = "scaling"
            elif len(part) > 1:
                kind = "translation"
            else:
                kind, expression = "frozen", next(iter(part))
            along = [a * x ** (power - 1) * slopes[x] for x, a in part.items()]
            proved = vanishes(sp.Add(*along))
            invariants.append(Conserved(kind, part, expression, proved))
    return invariants


def still(made: Any) -> list[Conserved]:
    """Order parameters of a closure that do not move."""
    frozen = (x for x, rate in made.rates.items() if vanishes(rate))
    return [Conserved("frozen", {x: sp.S.One}, x, True) for x in frozen]


def quotient(made: Any) -> Quotient:
    """One class per translation as a base at zero, the others relative to it."""
    size = {c.symbol: c.size for c in made.classes}
    shifts = [q.coefficients for q in made.conserved if q.kind != "scaling"]
    base: dict[sp.Symbol, Mapping[sp.Symbol, sp.Rational]] = {}
    for coefficients in shifts:
        last = next(x for x in reversed(size) if coefficients.get(x) == 1)
        base[last] = coefficients
    shift = {}
    for x in (x for x in size if x not in base):
        shift[x] = sp.Add(*(a.get(x, 0) * b for b, a in base.items()))
    order: Forms = {}
    gauge = dict.fromkeys(base, sp.S.Zero)
    for c in (c for c in made.classes if c.symbol in shift):
        x, moved = c.symbol, shift[c.symbol]
        if moved != 0:
            alike = [
                d for d in made.classes if d.weight is c.weight and shift.get(d.symbol)
            ]
            name = f"delta_{c.weight.name if len(alike) == 1 else x}"
            x = notation.symbol(name, means=str(x - moved), real=True)
        order[x], gauge[c.symbol] = c.symbol - moved, x
    free = {x: c for c, x in gauge.items() if c in shift}

    def mobility(c: sp.Symbol, d: sp.Symbol) -> sp.Expr:
        diagonal = 1 / size[c] if c == d else 0
        shared = [a.get(c, 0) * a.get(d, 0) / size[b] for b, a in base.items()]
        return factored(diagonal + sp.Add(*shared))

    table = {x: {y: mobility(c, d) for y, d in free.items()} for x, c in free.items()}
    return Quotient(order, gauge, table)


def invariants(made: Any) -> list[tuple[sp.Expr, sp.Expr]]:
    """Scalings in the order parameters: start and quantity.

    With translations divided out, a sum of sizes times squares is a quadratic form in
    the inverse of the mobility, if all that a translation joins is scaled alike.
    """
    q, quantities = made.quotient, []
    names = [*q.order]
    class_of = {x: c for c, x in q.gauge.items()}
    mobility = sp.Matrix([[q.mobility[x][y] for y in names] for x in names])
    start = {x: combined.xreplace(made.start) for x, combined in q.order.items()}
    for part in (c.coefficients for c in made.conserved if c.kind == "scaling"):
        total = sp.S.Zero
        for block in mobility.connected_components():
            x = sp.Matrix([names[k] for k in block])
            scaled = [part.get(class_of[y], sp.S.Zero) for y in x]
            form = (x.T * mobility.extract(block, block).inv() * x)[0]
            total += scaled[0] * form if len(set(scaled)) == 1 else sp.nan
        if total is not sp.nan:
            first = next(x for x in names if total.has(x))
            total = sp.expand(total / sp.diff(total, first, 2) * 2)
            quantities.append((total.xreplace(start), total))
    return quantities
