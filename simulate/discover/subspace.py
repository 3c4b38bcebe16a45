"""The smallest affine subspace of the weights in which descent stays: its coordinates
(the order parameters), and the loss and its slopes in these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.linalg

from simulate.discover.loss import Loss
from theory.dynamics.optimisers import Optimiser, Steps
from theory.statement.words.tree import require

FAINT = 1e-5  # smallest accepted residual of directions, in which rounding grows
ROUNDING = 1e-10  # largest rejected residual
APART = 1e3  # smallest accepted over largest rejected residual
DENOMINATOR = 5040  # largest, of coordinates
SIMPLE = 1e-7  # of a coordinate and its fraction, times the denominator
STEP = 1e-5  # of differences, where torch has no second derivatives
STEPS = 10  # of the comparison of descents
SMALL = 1e-12  # learning rate of that, at which a loss that does not fall is given up
SYMMETRIC = (
    "give a symmetric start, such as start=0, and all inputs instead of a sample"
)
Array = np.ndarray


@dataclass
class Gap:
    """Smallest accepted and largest rejected residual, relative to gradients."""

    accepted: float
    rejected: float

    def __str__(self) -> str:
        return f"{self.accepted:.1g} accepted, {self.rejected:.1g} rejected"

    def require(self, what: str, faint: float = 0) -> None:
        """Refuse residuals that are not orders of magnitude apart."""
        require(
            self.accepted >= max(APART * self.rejected, faint)
            and self.rejected <= ROUNDING,
            f"{what}: residuals cannot be told from rounding ({self}); {SYMMETRIC}",
        )


def averaged(labels: Array, rows: Array) -> Array:
    """Means over the entries of every class, along the last axis."""
    sums = np.apply_along_axis(lambda row: np.bincount(labels, row), -1, rows)
    return sums / np.bincount(labels)


def everywhere(function: Callable[[Array], Any], values: Sequence[Any]) -> Array:
    """A function of all order parameters, at numbers or at arrays of them."""
    return np.apply_along_axis(
        function, 0, np.array(np.broadcast_arrays(*values), float)
    )


def simple(x: float) -> Fraction | float:
    """The simple fraction that a number is, if it is one."""
    fraction = Fraction(x).limit_denominator(DENOMINATOR)
    return fraction if abs(fraction - x) * fraction.denominator < SIMPLE else x


def echelon(rows: Array) -> Array:
    """Reduced row echelon form, in fractions where numbers are simple."""
    pivots = list[int]()
    for j in range(rows.shape[1]):
        more = [*pivots, j]
        if np.linalg.matrix_rank(rows[:, more], 1e-6) == len(more):
            pivots = more
    return np.vectorize(simple, otypes=[object])(np.linalg.solve(rows[:, pivots], rows))


@dataclass(frozen=True)
class Subspace:
    """Where descent stays, and the loss there.

    Attributes
    ----------
    loss : Loss
        Mean loss over the inputs, in double precision.
    labels : array
        Class of every entry. Entries of a class start equal and move alike.
    forms : array
        Coordinates as combinations of means over classes, a row each: fractions, or
        floats.
    gap : Gap
        Of the directions, at fresh points, too; ``class_gap`` of the classes.
    """

    loss: Loss
    labels: Array
    forms: Array
    gap: Gap
    class_gap: Gap

    @functools.cached_property
    def counts(self) -> Array:
        """Numbers of entries of the classes."""
        return np.bincount(self.labels)

    @property
    def rational(self) -> bool:
        """Whether coordinates are fractions."""
        return all(isinstance(x, Fraction) for x in self.forms.flat)

    @functools.cached_property
    def rows(self) -> Array:
        """Coordinates as floats."""
        return self.forms.astype(float)

    @functools.cached_property
    def lift(self) -> Array:
        """Moves of classes from moves of coordinates."""
        scaled = self.rows / self.counts
        return scaled.T @ np.linalg.inv(scaled @ self.rows.T)

    @functools.cached_property
    def moving(self) -> Array:
        """Which classes move."""
        return (self.rows != 0).any(0)

    def coordinates(self, theta: Array) -> Array:
        """Order parameters of weights, along the last axis."""
        return averaged(self.labels, theta) @ self.rows.T

    def weights(self, values: Array) -> Array:
        """Weights of order parameters, along the last axis."""
        moved = (values - self.coordinates(self.loss.start)) @ self.lift.T
        return self.loss.start + moved[..., self.labels]

    @functools.cached_property
    def conserved(self) -> Array:
        """Combinations of means over classes that move, but stay constant together: a
        row each.
        """
        still = scipy.linalg.null_space(self.lift[self.moving].T).T
        rows = np.zeros((len(still), len(self.counts)), object)
        rows[:, self.moving] = echelon(still)
        return rows

    def value(self, *values: Any) -> Array:
        """The loss, at numbers or at arrays of the order parameters."""
        return everywhere(lambda y: self.loss(self.weights(y)), values)

    def rates(self, values: Array) -> Array:
        """Rates of the order parameters under gradient descent."""
        return -self.coordinates(self.loss.gradient(self.weights(values))[1])

    def jacobian(self, values: Array) -> Array:
        """Derivatives of the rates by the order parameters."""
        if not self.loss.twice:
            differences = []
            for step in STEP * np.eye(len(values)):
                above, below = self.rates(values + step), self.rates(values - step)
                differences.append(above - below)
            return np.stack(differences, 1) / (2 * STEP)
        rows = self.loss.curvature(
            self.weights(values), (self.rows / self.counts)[:, self.labels]
        )
        return -self.counts * averaged(self.labels, rows) @ self.lift

    def descent(self, how: Optimiser, eta: float, steps: int) -> Array:
        """All weights before the first and after every step of an optimiser."""
        step, path = Steps(how, eta, steps), [self.loss.start]
        for _ in range(steps):
            (theta,) = step([path[-1][None]], [self.loss.gradient(path[-1])[1][None]])
            path += [theta[0]]
        return np.array(path)

    def path(
        self, state: Any, numbers: Any, how: Optimiser, eta: float, steps: int
    ) -> Array:
        """Order parameters of these;
        as `theory.dynamics.optimisers.Entries` has them.
        """
        return self.coordinates(self.descent(how, eta, steps)).T

    def deviation(self) -> float:
        """Largest difference between descent of all weights of the module and of the
        order parameters, relative to the largest weight.
        """
        start, eta = self.loss.start, 1.0
        begun, slopes = self.loss.gradient(start)
        while (
            eta > SMALL
            and self.loss(start - eta * slopes) > begun - eta / 2 * slopes @ slopes
        ):
            eta /= 2
        path = [self.coordinates(start)]
        for _ in range(STEPS):
            path += [path[-1] + eta * self.rates(path[-1])]
        weights = self.descent(Optimiser(), eta, STEPS)
        return float(
            np.abs(weights - self.weights(np.array(path))).max()
            / max(np.abs(weights).max(), 1)
        )
