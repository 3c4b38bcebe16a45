"""What was derived against all inputs listed at tiny sizes: loss, gradients of all weights, sizes
of classes. It is part of every derivation, as a right loss with wrong classes happens.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from theory.parameters import ParameterError
from theory.statement import arrays, symmetry
from theory.statement.language import Weight

LARGEST_SIZE = 5  # of a size in a check
LARGEST_DRAWN = 13  # of a size in a search for symmetries
AGREE = 1e-9  # relative to the largest gradient: rounding of sums over at most 50,000 inputs
MOST_TRIES = 2000


class Points:
    """Random numbers for sizes, `number` symbols and values of classes, sizes that fit."""

    def __init__(self, made: Any, seed: int = 0) -> None:
        self.made, self.rng = made, np.random.default_rng(seed)
        stated = made.statement
        self.sizes = [s for s in stated.symbols if s.is_integer and s not in made.sizes]
        values = {c.symbol for c in made.classes}
        free = made.loss.free_symbols.union(*(w.start.free_symbols for w in stated.weights))
        self.others = sorted(
            (s for s in free | set(stated.symbols) if not s.is_integer and s not in values), key=str
        )
        counts = [s.size for s in stated.sorts] + [c.size for c in made.classes]
        wide = [f.to.size - f.sorts[j].size for f in stated.functions for j in f.injective]
        wide += [i.sort.size - i.place for i in stated.draws if i.place is not None]
        fixed = {k: sp.Integer(v) for k, v in made.sizes.items()}
        limits = [[x.xreplace(fixed) for x in part] for part in (counts, wide)]
        self.fits = sp.lambdify(self.sizes, limits, "math")

    def allowed(self, sizes: tuple[int, ...]) -> bool:
        """Whether sizes leave no class empty and fit all one-to-one functions."""
        try:
            counts, wide = self.fits(*sizes)
        except ZeroDivisionError:
            return False
        return all(n > 0 for n in counts) and all(n >= 0 for n in wide)

    def numbers(self, sizes: tuple[int, ...] | None = None) -> dict[str, float]:
        """Sizes (drawn, if not given) and numbers by name."""
        for _ in range(MOST_TRIES):
            if sizes is not None:
                break
            drawn = tuple(self.rng.integers(2, LARGEST_DRAWN + 1, len(self.sizes)).tolist())
            sizes = drawn if self.allowed(drawn) else None
        if sizes is None:
            name = self.made.statement.name
            raise ParameterError(f"statement {name}: no sizes from 2 to {LARGEST_DRAWN} fit")
        found = {s.name: float(n) for s, n in zip(self.sizes, sizes, strict=True)}
        found |= {s.name: float(n) for s, n in self.made.sizes.items()}
        return found | {s.name: float(self.rng.uniform(0.2, 0.9)) for s in self.others}

    def values(self) -> dict[sp.Symbol, float]:
        """Values of classes."""
        return {c.symbol: float(self.rng.normal()) for c in self.made.classes}


def tiny(made: Any, seed: int = 0) -> arrays.Data:
    """All inputs at the cheapest sizes that fill every class, ranges larger than domains.

    Raises
    ------
    ParameterError
        If there are none.
    """
    points, stated = Points(made, seed), made.statement
    grid = itertools.product(range(2, LARGEST_SIZE + 1), repeat=len(points.sizes))
    fitting = [s for s in grid if points.allowed(s)]
    fitting.sort(key=lambda s: (sum(s) - sum(n > 0 for n in points.fits(*s)[1]), s))
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
