"""Gradient descent in strides of many epochs whose length follows from an error estimate.

Descent adds up changes, ``x(n + h) = x(n) + f(x(n)) + ... + f(x(n + h - 1))``, which vary slowly
from epoch to epoch. They are interpolated by a polynomial, which is summed over whole epochs, where
the method of Adams would integrate it: the finite size of steps is kept, and strides of one epoch
are descent itself.
"""

import math
from typing import Any

import numpy as np

# Error of one stride, relative to what the stride changes: no time changes by 3e-5 at the settings
# of the shipped ensembles.
TOLERANCE = 3e-5
FLOOR = 0.01  # of an array's size counts as changed, since changes pass through zero
ORDER = 4  # changes kept; higher orders need shorter strides where descent has converged
PLACES = np.arange(ORDER + 1.0)
LONGER, SHORTER, SAFE = 2.0, 0.2, 0.9  # limits of the next stride over the last


def sums(nodes: np.ndarray, many: int) -> np.ndarray:
    """Weights of the values at some epochs in the sum over epochs 0 to ``many - 1`` of the
    polynomial through them.
    """
    # Binomials of the epoch are a basis of polynomials; their sums are the next binomials.
    order = PLACES[: len(nodes)]
    values = np.ones((len(nodes), len(nodes)))
    np.divide(nodes - order[:-1, None], order[:-1, None] + 1, out=values[1:])
    moments = np.multiply.accumulate((many - order) / (order + 1))
    return np.linalg.solve(np.multiply.accumulate(values), moments)


class Strides:
    """Descent of a system from epoch 0, a stride at a time.

    Parameters
    ----------
    system : object
        With ``state``, a list of arrays over independent members, and ``rates()``, their change per
        epoch. Members share strides, which the one with the largest error decides. If it has a
        method ``room(epoch)``, this is called at the start of a stride, with the state of that
        epoch: how many epochs the stride may have, and whether the rates have jumped.
    tolerance : float
        Explained at `TOLERANCE`.

    Attributes
    ----------
    epoch, length : int
        First epoch of the last stride, and its length.
    """

    def __init__(self, system: Any, tolerance: float = TOLERANCE) -> None:
        self.system, self.tolerance = system, tolerance
        self.epoch, self.length, self.next = 0, 0, 1
        self.shapes = [np.shape(x) for x in system.state]
        sizes = [size for shape in self.shapes for size in [math.prod(shape[1:])] * shape[0]]
        self.members = np.cumsum([0, *sizes[:-1]])  # where arrays of members begin in all numbers
        self.start = self.end = self.change = self._flat(system.state)
        self.kept = np.zeros((ORDER + 1, len(self.start)))  # rates at `times`
        # Change and error of a stride, and squares: new arrays of this size cost more than sums.
        self.made = np.empty((3, len(self.start)))
        self.times = np.zeros(ORDER + 1)
        self.recent: list[int] = []  # places in them, the latest first

    def advance(self) -> None:
        """Take a stride as long as the error allows."""
        self.start = self._reached(self.epoch + self.length)
        self.epoch += self.length
        if not np.isfinite(self.start).all():
            self.recent, self.length = [], 2 * self.length  # descent has diverged, and stays so
            return
        self.system.state, most = self._arrays(self.start), self.next
        if room := getattr(self.system, "room", None):
            left, jumped = room(self.epoch)
            most, self.recent = min(most, left), [] if jumped else self.recent
        if not self.recent:
            self._rates(self.epoch, 0)
            self.recent, most = [0], 1
        past = self.recent[:ORDER]
        self._stride(most, past, min({*range(ORDER + 1)} - {*past}))

    def _stride(self, many: int, past: list[int], free: int) -> None:
        """Predict from past rates, correct by the rates there, until the error is small enough."""
        while True:
            ahead = self._weights(past, many) @ self.kept
            ahead += self.start
            self.system.state = self._arrays(ahead)
            self._rates(self.epoch + many, free)
            error = self._error([free, *past], many)
            fits = many * SAFE * max(error, 1e-9) ** (-1 / (len(past) + 1))
            if error <= 1 or many == 1:
                break
            many = max(1, int(min(max(fits, SHORTER * many), SAFE * many)))
        self.recent, self.length, self.end = [free, *past], many, self.start + self.change
        self.next = max(1, int(min(fits, LONGER * many)))

    def at(self, epoch: int) -> list[np.ndarray]:
        """State at an epoch of the last stride."""
        return self._arrays(self._reached(epoch))

    def _reached(self, epoch: int) -> np.ndarray:
        if epoch == self.epoch or not self.recent:
            return self.start
        if epoch == self.epoch + self.length:
            return self.end
        reached = self._weights(self.recent, epoch - self.epoch) @ self.kept
        reached += self.start
        return reached

    @staticmethod
    def _flat(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([x.ravel() for x in arrays])

    def _arrays(self, flat: np.ndarray) -> list[np.ndarray]:
        parts = np.split(flat, np.cumsum([math.prod(shape) for shape in self.shapes[:-1]]))
        return [x.reshape(shape) for x, shape in zip(parts, self.shapes, strict=True)]

    def _rates(self, epoch: int, place: int) -> None:
        self.times[place] = epoch
        np.concatenate([x.ravel() for x in self.system.rates()], out=self.kept[place])

    def _weights(self, places: list[int], many: int) -> np.ndarray:
        weights = np.zeros(ORDER + 1)
        weights[places] = sums(self.times[places] - self.epoch, many)
        return weights

    def _error(self, places: list[int], many: int) -> float:
        """Error by the polynomial of one degree less, over the tolerance."""
        weights = self._weights(places, many)
        lower = weights - self._weights(places[:-1], many)
        *found, squares = self.made
        self.change = np.matmul([weights, lower], self.kept, out=self.made[:2])[0]
        size, change, error = (
            np.sqrt(np.add.reduceat(np.square(x, out=squares), self.members))
            for x in (self.start, *found)
        )
        worst = float((error / (change + FLOOR * size + np.finfo(float).tiny)).max())
        return math.inf if math.isnan(worst) else worst / self.tolerance


class Single:
    """As `Strides`, an epoch at a time, for a system whose steps remember earlier ones."""

    def __init__(self, system: Any) -> None:
        self.system, self.start = system, system.state
        self.epoch, self.length = 0, 0

    def advance(self) -> None:
        """Take an epoch."""
        self.start, self.epoch, self.length = self.system.state, self.epoch + self.length, 1
        self.system.epoch()

    def at(self, epoch: int) -> list[np.ndarray]:
        """State at the last epoch or the one before."""
        return self.system.state if epoch == self.epoch + self.length else self.start
