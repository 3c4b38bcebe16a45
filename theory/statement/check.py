"""What was derived against all inputs listed at tiny sizes: loss, gradients of all weights, sizes
of classes. It is part of every derivation, as a right loss with wrong classes happens.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from theory.parameters import ParameterError
from theory.statement import arrays, symmetry
from theory.statement.points import Points
from theory.statement.tree import Weight

LARGEST_SIZE = 5  # of a size in a check
AGREE = 1e-9  # relative to the largest gradient: rounding of sums over at most 50,000 inputs


def tiny(made: Any, seed: int = 0) -> arrays.Data:
    """All inputs at cheap sizes that fill every class, if they can be all different.

    Raises
    ------
    ParameterError
        If there are none.
    """
    points, stated = Points(made, seed), made.statement
    grid = itertools.product(range(2, LARGEST_SIZE + 1), repeat=len(points.sizes))
    # Equal sizes, and teachers that happen to be one-to-one, hide faults: as dear as a size.
    hiding = {s: points.alike(s) for s in grid if points.allowed(s)}
    fitting = sorted(hiding, key=lambda s: (sum(s) + hiding[s], s))
    refused = None
    for sizes in fitting:
        try:
            return arrays.every_input(stated, points.numbers(sizes), np.random.default_rng(seed))
        except ParameterError as error:
            refused = refused or error
    raise refused or ParameterError(
        f"statement {stated.name}: no sizes from 2 to {LARGEST_SIZE} fill every class"
    )


def compare(made: Any, data: arrays.Data, seed: int = 0) -> dict[str, float]:
    """How far loss, gradients of all weights and sizes of classes are off, at random classes.

    Gradients are compared along one random direction per weight, which no error hides from: by a
    complex step, exact to rounding.

    Returns
    -------
    dict
        Differences by name: ``loss``, ``entries of W`` (of its classes), and ``gradient of W``,
        relative to the largest of all.
    """
    stated, rng = made.statement, np.random.default_rng(seed + 1)
    values = Points(made, seed + 2).values()
    loss, slope = made.slopes(list(values.values()), data.numbers)
    slope_of = dict(zip(values, slope, strict=True))
    lifted, predicted, off = {}, {}, {}
    for w, classes in made.roles.classes.items():
        own = arrays.class_numbers(classes, data)
        counted = np.bincount(own[own >= 0].ravel(), minlength=len(classes.listed))
        sizes = {c.symbol: data.scalar(c.size) for c in made.classes if c.weight is w}
        size = np.array([sizes[x] for x in classes.listed])
        off[f"entries of {w.name}"] = float(np.abs(size - counted).max(initial=0))
        shared = [slope_of[x] / n for x, n in zip(classes.listed, size, strict=True)]
        lifted[w] = np.array([*(values[x] for x in classes.listed), 0.0])[own]
        predicted[w] = np.array([*shared, 0.0])[own]

    def mean(weights: Mapping[Weight, Any]) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):  # masked terms may be anything
            found = arrays.Evaluation(data, weights).value(stated.loss)
        return (np.broadcast_to(found, data.chances.shape) * data.chances).sum()

    off["loss"] = float(abs(mean(lifted) - loss)) / max(abs(loss), 1)
    largest = max(float(np.abs(g).max(initial=0)) for g in predicted.values()) or 1.0
    for w, gradient in predicted.items():
        along = rng.normal(size=gradient.shape)
        step = {**lifted, w: lifted[w] + symmetry.STEP * along}
        error = mean(step).imag / abs(symmetry.STEP) - (along * gradient).sum()
        off[f"gradient of {w.name}"] = float(abs(error)) / largest
    return off


def confirm(made: Any, seed: int = 0) -> dict[str, float]:
    """`compare` with all inputs listed at tiny sizes.

    Raises
    ------
    ParameterError
        Naming what differs by more than rounding.
    """
    if made.directions:
        made = made.at(**{s.name: 2 for c in made.directions for s in c.many.free_symbols})
    stated, data = made.statement, tiny(made, seed)
    off = compare(made, data, seed)
    for what, error in off.items():
        if not error < AGREE:
            at = ", ".join(f"{k} = {v:.3g}" for k, v in data.numbers.items())
            kept = ", ".join(f.name for f in stated.functions if f.kept)
            raise ParameterError(
                f"statement {stated.name}: {what} off by {error:.1e} at {at}: the classes do not close"
                f"{f' for one choice of teachers ({kept})' if kept else ''}; say where teachers are "
                "injective, or ask for closure='mean logits'"
            )
    return off
