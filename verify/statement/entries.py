"""Printed rates of all entries of all weights, no symmetry assumed, against autograd of the student
that a statement makes, on all inputs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from simulate.statement import Student
from theory.statement import arrays
from theory.statement.stated import Statement
from verify.check import Check, Sides, vanishing


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
        self.loss, self.rates = float(loss), {w.name: -s.numpy() for w, s in slopes.items()}
        self.known: dict[str, Any] = dict(numbers.items()) | self.weights

    def input(self, name: str) -> np.ndarray:
        """Gaussian data of all inputs."""
        return next(x for g, x in self.data.gausses.items() if g.name == name)


def rates(
    sides: Sides, points: Iterable[Entries], names: Mapping[str, tuple[str, str]], label: str
) -> None:
    """Add the rate of every entry of the named weights: equation and letters of its indices."""
    for x in points:
        for name, (equation, letters) in names.items():
            sides.each(f"{label} of {name}", equation, x.known, letters, x.rates[name])


def invariant(
    sides: Sides,
    points: Iterable[Entries],
    equation: str,
    letters: str,
    measured: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    why: tuple[float, str],
) -> Check:
    """Add the measured value of a conserved quadratic form of weights; its rate has to vanish."""
    drift: list[float] = []
    for x in points:
        here, ahead, behind = (
            measured({n: w + sign * x.rates[n] for n, w in x.weights.items()})
            for sign in (0, 1, -1)
        )
        sides.each(f"{equation} as measured", equation, x.known, letters, here)
        drift += np.ravel(ahead - behind).tolist()
    return vanishing(f"{equation}, its rate", equation, np.array(drift) / 2, *why)
