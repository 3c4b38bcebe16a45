"""Check of derived results against all inputs listed at tiny sizes: loss, gradients of
all weights, sizes of classes. It is part of every derivation, as the loss may be right
although the classes are wrong.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError
from theory.statement.derivation import symmetry
from theory.statement.derivation.symmetry import Points
from theory.statement.evaluation import arrays
from theory.statement.evaluation.frames import NEGLECTS
from theory.statement.words.tree import Weight, require

LARGEST_SIZE = 6  # of up to four sizes, in a check
SIZES, TEACHERS = 2, 4  # listings of a check: without teachers, with
# relative to the largest gradient: rounding of sums over at most 50,000 inputs
AGREE = 1e-9


def listed(made: Any, seed: int = 0) -> Iterator[arrays.Data]:
    """All inputs, at small sizes that fill every class, each with other teachers.

    Equal sizes come late, and so do teachers that happen to be one-to-one: they hide
    faults.

    Raises
    ------
    ParameterError
        If there are no such sizes, or none whose inputs can be listed.
    """
    points, stated = Points(made, seed), made.statement
    largest = max(LARGEST_SIZE - max(len(points.sizes) - 4, 0), 3)
    none = f"statement {stated.name}: no sizes from 2 to {largest} fill every class"
    refused, inputs = ParameterError(none), 0
    for n, sizes in enumerate(points.small(largest) * TEACHERS):
        rng = np.random.default_rng(seed + n)
        try:
            data = arrays.every_input(stated, points.numbers(sizes), rng)
        except ParameterError as error:
            refused = error if str(refused) == none else refused
            continue
        inputs += 1
        yield data
    if not inputs:
        raise refused


@dataclass(frozen=True)
class Predicted:
    """Derived loss and gradients, for all entries of all weights at random values of
    their classes.

    Attributes
    ----------
    loss : float
    weights, gradients : mapping of Weight to array
    sizes, counted : array
        Numbers of entries of the classes, as derived and as they are.
    members : mapping of Weight to array
        See `theory.statement.derivation.derived.Derived.members`.
    values, slopes : mapping of Symbol to float
        Of the classes: of every entry its value, and its gradient.
    """

    loss: float
    weights: dict[Weight, np.ndarray]
    gradients: dict[Weight, np.ndarray]
    sizes: np.ndarray
    counted: np.ndarray
    members: dict[Weight, np.ndarray]
    values: dict[Any, float]
    slopes: dict[Any, float]


def predicted(
    made: Any, data: arrays.Data, seed: int = 0, values: Any = None
) -> Predicted:
    """Derived loss and gradients, entry by entry, at given or random values of the
    classes.
    """
    values = values or Points(made, seed + 2).values()
    members = made.members(data)
    loss, slope = made.slopes(list(values.values()), data.numbers)
    sizes = np.array([data.scalar(c.size) for c in made.classes])
    gradient = slope / sizes
    nonzero = np.concatenate([numbers[numbers >= 0] for numbers in members.values()])

    def lifted(of_classes: Any) -> dict[Weight, np.ndarray]:
        return {w: arrays.lifted(numbers, of_classes) for w, numbers in members.items()}

    return Predicted(
        float(loss),
        lifted([*values.values()]),
        lifted(gradient),
        sizes,
        np.bincount(nonzero, minlength=len(sizes)),
        members,
        values,
        dict(zip(values, gradient, strict=True)),
    )


def compare(made: Any, data: arrays.Data, seed: int = 0) -> dict[str, float]:
    """How far loss, gradients of all weights and sizes of classes are off, at random
    classes.

    Gradients are compared along one random direction per weight, which no error hides
    from: by a complex step, exact to rounding.

    Returns
    -------
    dict
        Differences by name: ``loss``, ``entries of W`` (of its classes), and ``gradient
        of W``, relative to the largest of all, or to what it should be if that is
        larger.
    """
    stated = made.statement
    rng = np.random.default_rng(seed + 1)
    told = predicted(made, data, seed)

    def mean(weights: Mapping[Weight, Any]) -> Any:
        # masked terms may be anything
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = arrays.Evaluation(data, weights).value(stated.loss)
            return arrays.mean(data, loss)

    off = dict.fromkeys((f"entries of {w}" for w in told.members), 0.0)
    for c, gap in zip(made.classes, np.abs(told.sizes - told.counted), strict=True):
        off[f"entries of {c.weight}"] = max(off[f"entries of {c.weight}"], float(gap))
    off["loss"] = float(abs(mean(told.weights) - told.loss)) / max(abs(told.loss), 1)
    largest = max(
        symmetry.SMALL,
        *(float(np.abs(g).max(initial=0)) for g in told.gradients.values()),
    )
    for w, gradient in told.gradients.items():
        along = rng.normal(size=gradient.shape)
        step = {**told.weights, w: told.weights[w] + symmetry.STEP * along}
        derivative = float(mean(step).imag / abs(symmetry.STEP))
        error = abs(derivative - float((along * gradient).sum()))
        off[f"gradient of {w.name}"] = error / max(largest, abs(derivative))
    return off


def written(made: Any) -> Any:
    """The same with two directions, where there is a class for each."""
    if not made.directions:
        return made
    sizes: set[sp.Symbol] = set().union(*(c.many.free_symbols for c in made.directions))
    return made.at(**{s.name: 2 for s in sizes})


def confirm(made: Any, seed: int = 0) -> dict[str, float]:
    """`compare` with all inputs listed at tiny sizes.

    Raises
    ------
    ParameterError
        Naming what differs by more than rounding.
    """
    made = written(made)
    stated = made.statement
    worst: dict[str, float] = collections.defaultdict(float)
    kept = ", ".join(f.name for f in stated.functions if f.kept)
    choice = f" for one choice of teachers ({kept})" if kept else ""
    message = f"the classes do not close{choice}"
    message += f"; say where teachers are injective; {NEGLECTS}" if kept else ""
    for n, data in enumerate(
        itertools.islice(listed(made, seed), TEACHERS if kept else SIZES)
    ):
        where = " at " * bool(data.numbers)
        where += ", ".join(f"{k} = {v:.3g}" for k, v in data.numbers.items())
        for what, error in compare(made, data, seed + n).items():
            close = error < AGREE
            require(
                close,
                f"statement {stated.name}: {what} off by {error:.1e}{where}: {message}",
            )
            worst[what] = max(error, worst[what])
    return worst
