"""Gradient descent in strides of many epochs whose length follows from an error
estimate.

Descent adds up changes, ``x(n + h) = x(n) + f(x(n)) + ... + f(x(n + h - 1))``, which
vary slowly from epoch to epoch. They are interpolated by a polynomial, which is summed
over whole epochs, where the method of Adams would integrate it: the finite size of
steps is kept, and strides of one epoch are descent itself.
"""

import bisect
import copy
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

import numpy as np
import xarray as xr

from theory.call.arguments import checked
from theory.call.refusal import Allowed, ParameterError
from theory.state_tracking.single_students.cavity import Cavity
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.optimised_disorder import Trained

# Error of one stride, relative to what the stride changes: no time changes by 3e-5 at
# the settings of the shipped ensembles.
TOLERANCE = 3e-5
FLOOR = 0.01  # of an array's size counts as changed, since changes pass through zero
# changes kept; higher orders need shorter strides where descent has converged
ORDER = 4
PLACES = np.arange(ORDER + 1.0)
# limits of the next stride over the last
LONGER = 2.0
SHORTER = 0.2
SAFE = 0.9
LONGEST = 10**5  # stride, whose epochs are summed one by one


def sums(nodes: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Weights of the values at some epochs in the sum over epochs 0, 1, ... of the
    polynomial through them, each epoch times its entry of ``memory``.
    """
    epochs = np.arange(len(memory))
    nodes = np.array([*nodes]) / len(memory)
    within = epochs / len(memory)
    powers = PLACES[: len(nodes), None]
    return np.linalg.solve(nodes**powers, within**powers @ memory)


class Strides:
    """Descent of a system from epoch 0, a stride at a time.

    Parameters
    ----------
    system : object
        With ``state``, a list of arrays over independent members, and ``rates()``,
        their change per epoch. Members share strides, which the one with the largest
        error decides. If it has a method ``room(epoch)``, this is called at the start
        of a stride, with the state of that epoch: how many epochs the stride may have,
        and whether the rates have jumped.
    tolerance : float
        Explained at `TOLERANCE`.
    momentum : float
        Share of a step in the next one.

    Attributes
    ----------
    epoch, length : int
        First epoch of the last stride, and its length.
    """

    def __init__(
        self, system: Any, tolerance: float = TOLERANCE, momentum: float = 0.0
    ) -> None:
        self.system = system
        self.tolerance = tolerance
        self.momentum = momentum
        self.epoch = 0
        self.length = 0
        self.next = 1
        self.shapes = [np.shape(x) for x in system.state]
        sizes: list[int] = []
        for members, *shape in self.shapes:
            sizes += [math.prod(shape)] * members
        # where arrays of members begin in all numbers
        self.members = np.cumsum([0, *sizes[:-1]])
        self.start = self.end = self.change = self._flat(system.state)
        # Rates at `times`, and the step before the stride.
        self.kept = np.zeros((ORDER + 2, len(self.start)))
        # Change and error of a stride, and squares: new arrays of this size cost more
        # than sums.
        self.made = np.empty((3, len(self.start)))
        self.times = np.zeros(ORDER + 1)
        self.recent: list[int] = []  # places in them, the latest first

    def advance(self) -> None:
        """Take a stride as long as the error allows."""
        self.start = self._reached(self.epoch + self.length)
        if self.momentum and self.recent:
            weights = self._weights(self.recent, self.length, last=True)
            self.kept[-1] = weights @ self.kept
        self.epoch += self.length
        if not np.isfinite(self.start).all():
            # descent has diverged, and stays so
            self.recent = []
            self.length *= 2
            return
        self.system.state = self._arrays(self.start)
        most = self.next
        if room := getattr(self.system, "room", None):
            remaining, jumped = room(self.epoch)
            most = min(most, remaining)
            if jumped:
                self.recent = []
        if not self.recent:
            self._rates(self.epoch, 0)
            self.recent = [0]
            most = 1
        past = self.recent[:ORDER]
        free = min({*range(ORDER + 1)} - {*past})
        self._stride(most, past, free)

    def _stride(self, many: int, past: list[int], free: int) -> None:
        """Predict from past rates, correct by the rates there, until the error is small
        enough.
        """
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
        self.recent = [free, *past]
        self.length = many
        self.end = self.start + self.change
        self.next = max(1, int(min(fits, LONGER * many, LONGEST)))

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
        sizes = [math.prod(shape) for shape in self.shapes[:-1]]
        parts = np.split(flat, np.cumsum(sizes))
        return [x.reshape(shape) for x, shape in zip(parts, self.shapes, strict=True)]

    def _rates(self, epoch: int, place: int) -> None:
        self.times[place] = epoch
        np.concatenate([x.ravel() for x in self.system.rates()], out=self.kept[place])

    def _weights(self, places: list[int], many: int, last: bool = False) -> np.ndarray:
        """Weights of what is kept in the sum of all steps of a stride, or in its last
        step.
        """
        weights = np.zeros(ORDER + 2)
        # what is left of a step at the stride's end
        share = self.momentum ** np.arange(many + 1.0)[::-1]
        memory = share[1:] if last else (1 - share[:-1]) / (1 - self.momentum)
        weights[-1] = self.momentum * memory[0]
        weights[places] = sums(self.times[places] - self.epoch, memory)
        return weights

    def _error(self, places: list[int], many: int) -> float:
        """Error by the polynomial of one degree less, over the tolerance."""
        weights = self._weights(places, many)
        lower = weights - self._weights(places[:-1], many)
        changes = self.made[:2]
        squares = self.made[2]
        self.change = np.matmul([weights, lower], self.kept, out=changes)[0]

        def norm(values: np.ndarray) -> np.ndarray:
            """Root of the sum of squares of every array of a member."""
            np.square(values, out=squares)
            return np.sqrt(np.add.reduceat(squares, self.members))

        size = norm(self.start)
        change = norm(changes[0])
        error = norm(changes[1])
        worst = float((error / (change + FLOOR * size + np.finfo(float).tiny)).max())
        return math.inf if math.isnan(worst) else worst / self.tolerance


class Single:
    """As `Strides`, an epoch at a time,
    for a system whose steps remember earlier ones.
    """

    def __init__(self, system: Any) -> None:
        self.system = system
        self.start = system.state
        self.epoch = 0
        self.length = 0

    def advance(self) -> None:
        """Take an epoch."""
        self.start = self.system.state
        self.epoch += self.length
        self.length = 1
        self.system.epoch()

    def at(self, epoch: int) -> list[np.ndarray]:
        """State at the last epoch or the one before."""
        return self.system.state if epoch == self.epoch + self.length else self.start


# Curves and times of single seeds by the per-seed theory

System = Cavity | FixedDisorder
Tolerance = Annotated[float, Allowed(above=0, high=1)]


def members(system: System, size: int = 1) -> list[System]:
    """Every seed on its own, so that its strides do not depend on others; or so many
    together, which is faster.
    """
    alone = []
    for k in range(0, len(system.state[0]), size):
        one = copy.copy(system)
        one_seed = slice(k, k + size)
        one.state = [x[one_seed] for x in system.state]
        for name in system.BY_SEED:
            value = getattr(system, name)
            setattr(one, name, None if value is None else value[one_seed])
        alone.append(one)
    return alone


@checked
def solve(
    system: System, epochs: Iterable[int], tolerance: Tolerance = TOLERANCE
) -> xr.Dataset:
    """Integrate a system up to the last of the given epochs; returns the observables
    over ``(seed, alpha)`` at these epochs. ``tolerance`` is explained at `TOLERANCE`;
    steps of `Trained` are taken one by one.

    Raises
    ------
    ParameterError
        Unless the epochs are increasing non-negative integers.
    """
    epochs = np.asarray(epochs)
    whole = (epochs == epochs.astype(int)).all()
    if not whole or epochs[0] < 0 or (np.diff(epochs) <= 0).any():
        raise ParameterError(
            f"epochs = {epochs}: must be whole numbers >= 0, increasing"
        )
    parts = []
    for path in _paths(system, tolerance):
        records = []
        for epoch in epochs.astype(int):
            while path.epoch + path.length < epoch:
                path.advance()
            path.system.state = path.at(epoch)
            records.append(path.system.observe())
        parts.append(_joined(records, partial(np.stack, axis=1)))
    observables = _joined(parts, np.concatenate)
    data = {name: (("seed", "alpha"), x) for name, x in observables.items()}
    coordinates = {"alpha": system.p.alpha(epochs), "epoch": ("alpha", epochs)}
    return xr.Dataset(data, coordinates)


def _joined(
    records: list[dict[str, np.ndarray]], join: Callable[..., np.ndarray]
) -> dict[str, np.ndarray]:
    """Arrays of several records, joined by name."""
    return {name: join([record[name] for record in records]) for name in records[0]}


def _paths(
    system: System, tolerance: float, size: int = 1
) -> Iterable[Strides | Single]:
    """Descent of a system: as `members`, where seeds are independent of each other."""
    if isinstance(system, Trained):
        return [Single(system)]
    alone = members(system, size)
    return (Strides(one, tolerance, system.p.momentum) for one in alone)


@checked
def half_times(
    system: System,
    epochs: Annotated[int, Allowed(low=0)],
    tolerance: Tolerance = TOLERANCE,
    size: Annotated[int, Allowed(low=1)] = 1,
) -> np.ndarray:
    """Time of A = 1/2 per seed, in alpha; NaN if it is not reached within the given
    epochs. ``tolerance`` as for `solve`, ``size`` as for `members`.
    """
    half = [half_epochs(path, epochs) for path in _paths(system, tolerance, size)]
    return system.p.alpha(np.concatenate(half))


def half_epochs(path: Strides | Single, epochs: int) -> np.ndarray:
    """Epoch of A = 1/2 of every member of a path, linear between epochs."""
    system = path.system

    def A(epoch: int) -> np.ndarray:
        return system.attention.parts(*path.at(epoch)[:2])[1].mean(1)

    def A_of(member: int, epoch: int) -> float:
        return float(A(epoch)[member])

    times = np.where(A(0) >= 0.5, 0.0, np.nan)
    while np.isnan(times).any() and path.epoch + path.length < epochs:
        path.advance()
        end = min(path.epoch + path.length, epochs)
        for k in np.flatnonzero(np.isnan(times) & (A(end) >= 0.5)).tolist():
            within = range(path.epoch, end + 1)
            high = path.epoch + bisect.bisect_left(within, 0.5, key=partial(A_of, k))
            below = A(high - 1)[k]
            above = A(high)[k]
            times[k] = high - 1 + (0.5 - below) / (above - below)
    return times
