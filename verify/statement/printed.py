"""Printed equations against autograd of the student that their statement makes, on all inputs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import sympy as sp
import torch

from simulate.statement import Student
from theory.flow import Flow
from theory.statement import arrays, check
from theory.statement.derived import Derived
from theory.statement.printed import spelled
from verify.check import Check
from verify.statement import gradients


class Point:
    """The statement's student at random values of all classes, with numbers by printed name.

    Parameters
    ----------
    made : Derived
    flow : Flow
        The printed flow, as `theory.statement.printed.flow` makes it.
    names : mapping of str to Symbol
        Its order parameters by their names in the derivation.
    numbers : mapping of str to float
        Sizes and numbers, small enough to list all inputs.

    Attributes
    ----------
    known : dict
        Numbers, order parameters and abbreviations.
    rates : dict
        Of the order parameters, by autograd; entries of a class move alike by another row.
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
        moved = {
            c.symbol: -float(slopes[c.weight].numpy()[told.members[c.weight] == k].mean())
            for k, c in enumerate(made.classes)
        }
        order = {names[x.name]: combined for x, combined in made.quotient.order.items()}
        values = {x: float(combined.subs(told.values)) for x, combined in order.items()}
        self.rates = {x.name: float(combined.subs(moved)) for x, combined in order.items()}
        fixed = {s: numbers[s.name] for s in stated.symbols}
        shorts = {x: spelled(x, flow.where).subs({**values, **fixed}) for x in flow.where}
        self.known = dict(numbers.items()) | {
            x.name: float(v) for x, v in (values | shorts).items()
        }
        trees = stated.trees.items()
        self.each = {k: student.each(weights, taken, tree).numpy() for k, tree in trees}


def generic(made: Derived, sizes: int = 2) -> list[Check]:
    """The rows that every statement gets, under names that tell them from a model's own."""
    rows = gradients.checks(made, sizes)
    return [replace(c, name=c.name.replace(",", " as stated,", 1)) for c in rows]


def numbers_of(p: Any, made: Derived) -> dict[str, float]:
    """Sizes and numbers of a statement from parameters."""
    return {s.name: float(getattr(p, s.name)) for s in made.statement.symbols}
