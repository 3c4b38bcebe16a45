"""Printed equations against autograd of the student that their statement makes, on all
inputs: of the flow, and of all entries of all weights, no symmetry assumed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import sympy as sp
import torch

from simulate.statement import Student
from theory.dynamics.flow import Flow
from theory.equations.equation import Equation
from theory.statement.derivation import check
from theory.statement.derivation.derived import Derived
from theory.statement.derivation.printed import spelled
from theory.statement.evaluation import arrays
from theory.statement.randomness import random_starts
from theory.statement.words.stated import Statement
from verify.checks.check import Check, Sides, vanishing
from verify.statement import gradients


class Point:
    """The statement's student at random values of all classes, with numbers by printed
    name.

    Parameters
    ----------
    made : Derived
    flow : Flow
        The printed flow, as `theory.statement.derivation.printed.flow` makes it.
    names : mapping of str to Symbol
        Its order parameters by their names in the derivation.
    numbers : mapping of str to float
        Sizes and numbers, small enough to list all inputs.

    Attributes
    ----------
    known : dict
        Numbers, order parameters and abbreviations.
    rates : dict
        Of the order parameters, by autograd; entries of a class move alike by another
        row.
    each : dict
        Loss and observables of every input.
    """

    def __init__(
        self,
        made: Derived,
        flow: Flow,
        names: Mapping[str, sp.Symbol],
        numbers: Mapping[str, float],
    ) -> None:
        stated = made.statement
        data = arrays.every_input(stated, numbers, np.random.default_rng(0))
        told, student = check.predicted(made, data), Student(stated)
        taken = student.taken(data)
        weights = {w: torch.tensor(x) for w, x in told.weights.items()}
        _, slopes = student.gradients(weights, taken)
        means = random_starts.means(
            made, told.members, {w: x.numpy() for w, x in slopes.items()}
        )
        moved = {c.symbol: -float(means[c.symbol.name]) for c in made.classes}
        order = {names[x.name]: combined for x, combined in made.quotient.order.items()}
        values = {x: float(combined.subs(told.values)) for x, combined in order.items()}
        self.rates = {
            x.name: float(combined.subs(moved)) for x, combined in order.items()
        }
        fixed = {s: numbers[s.name] for s in stated.symbols}
        shorts = {
            x: spelled(x, flow.where).subs({**values, **fixed}) for x in flow.where
        }
        self.known = dict(numbers.items()) | {
            x.name: float(v) for x, v in (values | shorts).items()
        }
        trees = stated.trees.items()
        self.each = {k: student.each(weights, taken, tree).numpy() for k, tree in trees}


def generic(made: Derived, sizes: int = 2) -> list[Check]:
    """The rows that every statement gets, under names that tell them from a model's
    own.
    """
    rows = gradients.checks(made, sizes)
    return [replace(c, name=c.name.replace(",", " as stated,", 1)) for c in rows]


def numbers_of(p: Any, made: Derived) -> dict[str, float]:
    """Sizes and numbers of a statement from parameters."""
    return {s.name: float(getattr(p, s.name)) for s in made.statement.symbols}


class Entries:
    """The student of a statement at given weights, or random ones of size ``size``.

    Parameters
    ----------
    stated : Statement
    numbers : mapping of str to float
        Sizes and numbers, small enough to list all inputs; others are left alone.
    weights : mapping of str to array, optional

    Attributes
    ----------
    loss : float
        Mean loss.
    rates : dict of str to array
        Minus the slopes of the mean loss.
    known : dict
        Numbers and weights by name.
    data : Data
        All inputs.
    """

    def __init__(
        self,
        stated: Statement,
        numbers: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        size: float = 0.4,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        sizes = {n: float(v) for n, v in numbers.items() if isinstance(v, int | float)}
        self.data, student = arrays.every_input(stated, sizes, rng), Student(stated)
        shapes = {w.name: self.data.shape(w.sorts) for w in stated.weights}
        drawn = {n: size * rng.normal(size=s) for n, s in shapes.items()}
        self.weights = {n: np.asarray((weights or drawn)[n], float) for n in shapes}
        held = {w: torch.tensor(self.weights[w.name]) for w in stated.weights}
        loss, slopes = student.gradients(held, student.taken(self.data))
        self.loss, self.rates = (
            float(loss),
            {w.name: -s.numpy() for w, s in slopes.items()},
        )
        self.known: dict[str, Any] = dict(numbers.items()) | self.weights

    def input(self, name: str) -> np.ndarray:
        """Gaussian data of all inputs."""
        return next(x for g, x in self.data.gausses.items() if g.name == name)


def letters(equation: Equation, known: Mapping[str, Any]) -> str:
    """Indices of an equation: those of its left-hand side, otherwise all symbols of the
    right-hand side that have no value, sorted.
    """
    lhs = (
        equation.lhs.args[0]
        if isinstance(equation.lhs, sp.Derivative)
        else equation.lhs
    )
    if isinstance(lhs, sp.Indexed):
        return "".join(str(x) for x in lhs.indices)
    free = {x.name for x in equation.rhs.free_symbols if x.is_Symbol}
    return "".join(sorted(n for n in free if n not in known))


def every(
    sides: Sides,
    label: str,
    equation: str,
    known: Mapping[str, Any],
    measured: np.ndarray,
) -> None:
    """Add every entry of an array to both sides of an equation with as many indices."""
    sides.each(label, equation, known, letters(sides.table[equation], known), measured)


def rates(sides: Sides, points: Iterable[Entries], system: str) -> None:
    """Add the rate of every entry of all weights, by the equations
    ``SYSTEM_dWEIGHT_dt``.
    """
    for x in points:
        for name, rate in x.rates.items():
            every(
                sides, f"{system} rate of {name}", f"{system}_d{name}_dt", x.known, rate
            )


def invariant(
    sides: Sides,
    points: Iterable[Entries],
    equation: str,
    measured: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    why: tuple[float, str],
) -> Check:
    """Add the measured value of a conserved quadratic form of weights; its rate has to
    vanish.
    """
    drift: list[float] = []
    for x in points:
        ahead = measured({n: w + x.rates[n] for n, w in x.weights.items()})
        behind = measured({n: w - x.rates[n] for n, w in x.weights.items()})
        here = measured(x.weights)
        every(sides, f"{equation} as measured", equation, x.known, here)
        drift += np.ravel(ahead - behind).tolist()
    return vanishing(f"{equation}, its rate", equation, np.array(drift) / 2, *why)
