"""From a statement to classes, population loss, rates, conserved quantities and the flow."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from theory import notation
from theory.equation import Equation
from theory.flow import Flow
from theory.parameters import ParameterError
from theory.statement import arrays, symmetry
from theory.statement.language import Statement, Weight
from theory.statement.roles import Classes, Roles
from theory.statement.world import World

TIME = notation.symbol("t", means="time: learning rate times steps", real=True)
LOSS = notation.symbol("loss", r"\mathcal{L}", "population loss", real=True)
LARGEST_SIZE = 5  # of a size in a check
AGREE = 1e-9  # relative to the largest gradient: rounding of sums over at most 20,000 inputs
POPULATION = "gradient flow on the population loss"


@dataclass(frozen=True)
class Class:
    """A class of a weight's entries, which keep one common value.

    Attributes
    ----------
    symbol : Symbol
        The common value.
    weight : Weight
    pattern : tuple of bool
        Truth values of the atoms of `Classes`.
    size : Expr
        How many entries it has.
    means : str
        What is the same and what is not.
    """

    symbol: sp.Symbol
    weight: Weight
    pattern: tuple[bool, ...]
    size: sp.Expr
    means: str


@dataclass(frozen=True)
class Conserved:
    """What gradient flow keeps.

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
    """Order parameters that no translation changes; ``d x / d t = -sum_y mobility[x][y] dL/dy``.

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


@dataclass(frozen=True)
class Derived:
    """Everything that follows from a statement.

    Attributes
    ----------
    statement : Statement
    roles : Roles
        With the classes of every weight: ``roles.classes[weight]``.
    classes : list of Class
    loss : Expr
        Population loss in the values of the classes.
    observables : mapping of str to Expr
        Means of what the statement names, likewise.
    status, assumptions
        As for `theory.equation.Equation`.
    """

    statement: Statement
    roles: Roles
    classes: list[Class]
    loss: sp.Expr
    observables: Mapping[str, sp.Expr]
    status: str
    assumptions: tuple[str, ...]

    @functools.cached_property
    def rates(self) -> dict[sp.Symbol, sp.Expr]:
        """Rate of every class: minus the slope of the loss, shared among its entries."""
        return {c.symbol: -sp.diff(self.loss, c.symbol) / c.size for c in self.classes}

    @functools.cached_property
    def conserved(self) -> list[Conserved]:
        """What the flow keeps because the loss does not change along a direction."""
        return _conserved(self)

    @functools.cached_property
    def quotient(self) -> Quotient:
        """What moves, without the translations."""
        return _quotient(self)

    @functools.cached_property
    def flow(self) -> Flow:
        """The flow of what moves, with the loss and what the statement names beside it."""
        q = self.quotient
        start = {c.symbol: c.weight.start for c in self.classes}
        shown = {"loss": self.loss, **self.observables}
        observables = {k: v.xreplace(q.gauge) for k, v in shown.items()}
        slopes = {x: sp.diff(observables["loss"], x) for x in q.order}
        rhs = {
            x: symmetry.tidied(-sp.Add(*(m * slopes[y] for y, m in q.mobility[x].items())))
            for x in q.order
        }
        initial = {x: combination.xreplace(start) for x, combination in q.order.items()}
        return Flow(
            self.statement.name,
            TIME,
            rhs,
            initial,
            self.reference,
            self.status,
            self.assumptions,
            observables=observables,
        )

    @property
    def reference(self) -> str:
        """Where the equations come from."""
        return f"statement {self.statement.name}"

    def equations(self) -> dict[str, Equation]:
        """Loss, sizes of classes, conserved quantities and rates, by name."""
        return {e.name: e for part in self.sections().values() for e in part}

    def sections(self) -> dict[str, list[Equation]]:
        """Equations, grouped as a write-up would."""

        def made(name: str, lhs: sp.Expr, rhs: Any, *more: str) -> Equation:
            assumed = (*self.assumptions, *more)
            return Equation(name, lhs, rhs, self.reference, self.status, assumed)

        count = [
            Equation(
                f"entries_{c.symbol}",
                notation.symbol(f"entries_{c.symbol}", means=f"entries of {c.weight}: {c.means}"),
                c.size,
                self.reference,
                "exact",
            )
            for c in self.classes
        ]
        kept = [
            made(f"conserved_{k + 1}", notation.symbol(f"C_{k + 1}", means=q.kind), q.expression)
            for k, q in enumerate(self.conserved)
        ]
        moving = [
            made(f"order_{x}", x, combination)
            for x, combination in self.quotient.order.items()
            if x != combination
        ]
        return {
            "Loss and classes": [made("loss", LOSS, self.loss), *count],
            "Conserved": kept,
            "Flow": [*moving, *self.flow.equations().values()],
        }


def derive(stated: Statement, *, check: bool = True) -> Derived:
    """Classes, population loss and flow of a statement.

    Parameters
    ----------
    stated : Statement
    check : bool
        Compare loss, gradients of all weights and sizes of classes with enumerated inputs at tiny
        sizes.

    Raises
    ------
    ParameterError
        In one line, where the statement cannot be done exactly, or the check fails.
    """
    roles = Roles(stated)
    found, assumed = classes(stated, roles)
    world = World(stated, roles)
    loss = world.mean(lambda: world.value(stated.loss))
    observables = {
        k: world.mean(functools.partial(world.value, v)) for k, v in stated.observables.items()
    }
    leading = [f.name for f in stated.functions if f.leading]
    balanced = sorted({f.name for f in world.balanced | world.annealed} | assumed)
    assumptions = [POPULATION, "all entries of a weight equal at the start"]
    assumptions += [f"{n}: all values equally often" for n in balanced]
    assumptions += [f"{n}: values distinct" for n in leading]
    status = "leading order" if leading else "exact"
    made = Derived(stated, roles, found, loss, observables, status, tuple(assumptions))
    if check:
        confirm(made)
    return made


def classes(stated: Statement, roles: Roles) -> tuple[list[Class], set[str]]:
    """Classes of all weights with their sizes, found by drawing an entry's indices at random, and
    names of teachers that were taken to be balanced.
    """
    found, assumed = [], set()
    for weight, of in roles.classes.items():
        world = World(stated, roles)
        chances = world.chances(functools.partial(world.pattern, of, of.slots))
        assumed |= {f.name for f in world.balanced}
        keep = _telling(list(chances))
        of.atoms = [of.atoms[k] for k in keep]
        entries = sp.Mul(*(s.size for s in weight.sorts))
        patterns = sorted(
            ((tuple(p[k] for k in keep), q) for p, q in chances.items()), reverse=True
        )
        for pattern, chance in patterns:
            bits = "".join(str(int(b)) for b in pattern)
            name = f"{weight.name}_{bits}" if bits else weight.name
            told = zip(of.atoms, pattern, strict=True)
            means = ", ".join(_said(atom, holds) for atom, holds in told) or "every entry"
            symbol = notation.symbol(name, means=f"{weight.name}: {means}", real=True)
            of.symbols[pattern] = symbol
            found.append(Class(symbol, weight, pattern, sp.factor(entries * chance), means))
    return found, assumed


def _telling(patterns: list[tuple[bool, ...]]) -> list[int]:
    """Places of few atoms, simplest first, that tell all patterns apart."""
    keep: list[int] = []

    def told(places: list[int]) -> int:
        return len({tuple(p[i] for i in places) for p in patterns})

    for k in range(len(patterns[0]) if patterns else 0):
        if told([*keep, k]) > told(keep):
            keep.append(k)
    for k in list(keep):  # what later ones made needless
        if told([i for i in keep if i != k]) == len(patterns):
            keep.remove(k)
    return keep


def _said(atom: tuple[Any, ...], holds: bool) -> str:
    if len(atom) == 1:
        return f"{atom[0].image!r} {'is' if holds else 'is not'} a value of {atom[0].function.name}"
    return f"{atom[0]!r} {'=' if holds else '!='} {atom[1]!r}"


class Points:
    """Random numbers for sizes, `number` symbols and values of classes, sizes that fit."""

    def __init__(self, made: Derived, seed: int = 0) -> None:
        self.made, self.rng = made, np.random.default_rng(seed)
        stated = made.statement
        self.sizes = [s for s in stated.symbols if s.is_integer]
        self.others = [s for s in stated.symbols if not s.is_integer]
        counts = [s.size for s in stated.sorts] + [c.size for c in made.classes]
        wide = [
            f.to.size - f.sorts[j].size for f in stated.functions for j in f.injective
        ]
        places = [s.size - i.place for i in stated.draws if i.place for s in (i.sort,)]
        self.fits = sp.lambdify(self.sizes, [counts, [*wide, *places]], "math")

    def allowed(self, sizes: tuple[int, ...]) -> bool:
        """Whether sizes leave no class empty and fit all one-to-one functions."""
        try:
            counts, wide = self.fits(*sizes)
        except ZeroDivisionError:
            return False
        return all(n > 0 for n in counts) and all(n >= 0 for n in wide)

    def numbers(self, sizes: tuple[int, ...] | None = None) -> dict[str, float]:
        """Sizes (drawn, if not given) and numbers by name."""
        while sizes is None:
            drawn = tuple(int(n) for n in self.rng.integers(2, 14, len(self.sizes)))
            sizes = drawn if self.allowed(drawn) else None
        found = {s.name: float(n) for s, n in zip(self.sizes, sizes, strict=True)}
        return found | {s.name: float(self.rng.uniform(0.2, 0.9)) for s in self.others}

    def values(self) -> dict[sp.Symbol, float]:
        """Values of classes."""
        return {c.symbol: float(self.rng.normal()) for c in self.made.classes}


def _conserved(made: Derived) -> list[Conserved]:
    points = Points(made)
    symbols = [c.symbol for c in made.classes]
    slopes = [sp.diff(made.loss, x) for x in symbols]
    arguments = [*symbols, *points.sizes, *points.others]
    of = symmetry.compiled(slopes, arguments)

    def sample(rows: int, scaled: bool) -> np.ndarray:
        out = []
        for _ in range(rows):
            values, numbers = points.values(), points.numbers()
            row = np.array(of(*values.values(), *(numbers[s.name] for s in arguments[len(symbols) :])))
            out.append(row.astype(float) * (list(values.values()) if scaled else 1))
        return np.array(out)

    found = []
    for scaled in (False, True):
        for vector in symmetry.null_vectors(functools.partial(sample, scaled=scaled), len(symbols)):
            part = {x: a for x, a in zip(symbols, vector, strict=True) if a != 0}
            power = 2 if scaled else 1
            kept = sp.Add(*(part[c.symbol] * c.size * c.symbol**power for c in made.classes if c.symbol in part))
            slope = sp.Add(*(a * s * x ** (power - 1) for a, s, x in zip(vector, slopes, symbols, strict=True)))
            alone = len(part) == 1
            if scaled and alone and any(q.kind == "frozen" and q.coefficients.keys() == part.keys() for q in found):
                continue
            kind = "scaling" if scaled else "frozen" if alone else "translation"
            expression = symbols[vector.index(1)] if alone and not scaled else sp.factor(kept)
            found.append(Conserved(kind, part, expression, symmetry.proved(slope)))
    return found


def _quotient(made: Derived) -> Quotient:
    symbols = [c.symbol for c in made.classes]
    size = {c.symbol: c.size for c in made.classes}
    shifts = [q.coefficients for q in made.conserved if q.kind != "scaling"]
    base = {next(x for x in reversed(symbols) if a.get(x) == 1): a for a in shifts}
    order: dict[sp.Symbol, sp.Expr] = {}
    of: dict[sp.Symbol, sp.Symbol] = {}  # class by order parameter
    for c in made.classes:
        if c.symbol in base:
            continue
        shift = sp.Add(*(a.get(c.symbol, 0) * b for b, a in base.items()))
        x = c.symbol
        if shift != 0:
            several = sum(d.weight is c.weight for d in made.classes) > 2
            name = f"delta_{c.symbol if several else c.weight.name}"
            x = notation.symbol(name, means=str(c.symbol - shift), real=True)
        order[x], of[x] = c.symbol - shift, c.symbol
    mobility = {
        x: {
            y: sp.factor(
                sp.Add(*(a.get(c, 0) * a.get(d, 0) / size[b] for b, a in base.items()))
                + (1 / size[c] if c == d else 0)
            )
            for y, d in of.items()
        }
        for x, c in of.items()
    }
    gauge = dict.fromkeys(base, sp.S.Zero) | {c: x for x, c in of.items()}
    return Quotient(order, gauge, mobility)


def tiny(made: Derived, seed: int = 0) -> tuple[arrays.Data, dict[str, float]]:
    """Inputs at the cheapest sizes that fill every class, ranges larger than domains if they can be.

    Raises
    ------
    ParameterError
        If there are none.
    """
    points = Points(made, seed)
    stated = made.statement
    grid = itertools.product(range(2, LARGEST_SIZE + 1), repeat=len(points.sizes))
    even = [any(
        f.to.size == f.sorts[j].size for f in stated.functions for j in f.injective)]
    fitting = [s for s in grid if points.allowed(s)]
    wide = {
        s: sum(n > 0 for n in points.fits(*s)[1]) for s in fitting
    }
    fitting.sort(key=lambda s: (sum(s) - wide[s], s))
    refused = None
    for sizes in fitting:
        numbers = points.numbers(sizes)
        try:
            return arrays.every_input(stated, numbers, np.random.default_rng(seed)), numbers
        except ParameterError as error:
            refused = refused or error
    raise refused or ParameterError(f"statement {stated.name}: no sizes up to {LARGEST_SIZE} fill every class")


def confirm(made: Derived, seed: int = 0) -> dict[str, float]:
    """Compare loss, gradients of all weights and sizes with enumerated inputs at tiny sizes.

    Gradients are compared along one random direction per weight, which no error hides from: by
    a complex step, exact to rounding.

    Returns
    -------
    dict
        Differences by name: ``loss``, and ``gradient of W`` relative to the largest.

    Raises
    ------
    ParameterError
        Naming what differs.
    """
    stated, rng = made.statement, np.random.default_rng(seed + 1)
    data, numbers = tiny(made, seed)
    at = ", ".join(f"{k} = {v:g}" for k, v in numbers.items())
    values = Points(made, seed + 2).values()
    members = {w: arrays.class_numbers(of, data) for w, of in made.roles.classes.items()}
    by = {**values, **{s: numbers[s.name] for s in stated.symbols}}
    lifted, predicted = {}, {}
    slopes = [sp.diff(made.loss, c.symbol) for c in made.classes]
    of = symmetry.compiled([made.loss, *slopes], list(by))(*by.values())
    loss, slope = float(of[0]), dict(zip(values, map(float, of[1:]), strict=True))
    for w, own in members.items():
        symbols = list(made.roles.classes[w].symbols.values())
        lifted[w] = np.array([values[x] for x in symbols])[own]
        counted = np.bincount(own.ravel(), minlength=len(symbols))
        for c in (c for c in made.classes if c.weight is w):
            size, n = data.scalar(c.size), counted[symbols.index(c.symbol)]
            if abs(size - n) > 0.5:
                raise ParameterError(
                    f"weight {w.name}: {c.means}: {n} entries counted, {size:g} derived, at {at}: "
                    "how many depends on the teachers"
                )
        predicted[w] = np.array(
            [slope[x] / max(n, 1) for x, n in zip(symbols, counted, strict=True)]
        )[own]

    def mean(weights: Mapping[Weight, Any]) -> Any:
        found = arrays.Evaluation(data, weights).value(stated.loss)
        return (np.broadcast_to(found, data.chances.shape) * data.chances).sum()

    off = {"loss": float(abs(mean(lifted) - loss))}
    largest = max(float(np.abs(g).max(initial=0)) for g in predicted.values())
    largest = max(largest, 1e-12)
    for w, gradient in predicted.items():
        along = rng.normal(size=gradient.shape)
        step = {**lifted, w: lifted[w] + 1e-30j * along}
        found = mean(step).imag / 1e-30
        off[f"gradient of {w.name}"] = float(abs(found - (along * gradient).sum())) / largest
    for what, error in off.items():
        if not error < AGREE * (max(abs(loss), 1) if what == "loss" else 1):
            kept = ", ".join(f.name for f in stated.functions if f.kept)
            raise ParameterError(
                f"statement {stated.name}: {what} is off by {error:.1e} at {at}: the classes do not "
                f"close{f' for given teachers {kept}' if kept else ''}; declare what is injective, "
                "or ask for closure='mean logits'"
            )
    return off
