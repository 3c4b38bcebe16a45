"""Numbers of `theory.statement.fluctuations`: bias and spread of order parameters along descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import numeric, prediction
from theory.optimisers import Optimiser
from theory.statement.fluctuations import Moments
from theory.statement.symmetry import STEP, compiled
from theory.statement.tree import require

TRUSTED = 0.1  # of how far a curve moves: largest shift or spread that is claimed
ZERO = 1e-9  # of its terms: a variance that is none


class Recursion:
    """Second moments of all entries, and the shifts of class means that they cause, step by step.

    Parameters
    ----------
    found : Moments
    p : Parameters
        Sizes, numbers, learning rate and batch size.

    Attributes
    ----------
    values, bias : array, shape (classes,)
        Of descent on all inputs, and what batches add to the mean over students.
    moments : array, shape (orbits,)
        Covariance of two entries, per orbit of pairs.
    """

    def __init__(self, found: Moments, p: Any) -> None:
        made, self.p = found.made, p
        known = {s: sp.Integer(v) for s, v in made.sizes.items()}
        numbers = {s: sp.nsimplify(p.as_dict()[s.name]) for s in made.statement.symbols} | known
        count = np.vectorize(lambda x: float(sp.sympify(x).xreplace(numbers)), otypes=[float])
        self.names = [*made.statement.trees]
        classes = [c.symbol for c in made.classes]
        others = sorted(made.statement.symbols, key=str)
        shown = [made.loss, *made.observables.values()]
        tables = [
            list(made.rates.values()),
            shown,
            [o.squares for o in found.orbits],
            *([o.curvature[k] for o in found.orbits] for k in self.names),
        ]
        self.ends = np.cumsum([len(x) for x in tables])[:-1]
        made_of = compiled([x for part in tables for x in part], [*classes, *others])
        fixed = [float(numbers[s]) for s in others]
        self._evaluate = lambda x: made_of(*x, *fixed)
        self.sizes = count([c.size for c in made.classes])
        self.pairs = count([o.size for o in found.orbits])
        self.orders = np.array([o.orders for o in found.orbits])
        self.one, self.two = np.array([o.ends for o in found.orbits]).T
        self.moment, many = (np.array(x) for x in zip(*found.directed, strict=True))
        self.many = count(many)
        first, second, third = (np.array([t[k] for t in found.triples]) for k in range(3))
        weights = count([t[3] for t in found.triples])
        live = weights > 0
        self.triples = first[live], second[live], third[live], (weights / self.many[first])[live]
        self.values = count([c.weight.mean for c in made.classes])
        self.bias, self.moments = np.zeros(len(classes)), np.zeros(len(self.pairs))

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Product of two matrices over entries, given by their values on ordered orbits."""
        to, left, right, weight = self.triples
        return np.bincount(to, weight * a[left] * b[right], len(self.many))

    def folded(self, x: np.ndarray) -> np.ndarray:
        """Mean over both orders of a pair, from ordered orbits to orbits."""
        total = np.bincount(self.moment, x, len(self.pairs))
        return total / self.orders

    def here(self) -> None:
        """Evaluate rates, curvature and noise, and their slopes along all classes."""
        steps = self.values[:, None] + STEP * np.eye(len(self.values), len(self.values) + 1, 1)
        with np.errstate(all="ignore"):
            values = self._evaluate(steps)
        table = np.array([np.broadcast_to(v, steps.shape[1:]) for v in values])
        parts, slopes = (
            np.split(x, self.ends) for x in (table[:, 0].real, table[:, 1:].imag / abs(STEP))
        )
        (self.rates, self.shown, squares, *self.curved) = parts
        (self.jacobian, self.slopes, _, *steeper) = slopes
        self.steeper = steeper[0]
        some = np.maximum(self.pairs, 1)
        self.hessian = np.where(self.pairs > 0, self.curved[0], 0) / some
        mean = -self.rates
        self.noise = np.where(self.pairs > 0, squares, 0) / some - mean[self.one] * mean[self.two]
        self.noise = np.where(self.pairs > 0, self.noise, 0)

    def step(self) -> None:
        """One step of descent with batches, after `here`."""
        eta, weight = self.p.eta, self.orders * self.moments
        h, c = self.hessian[self.moment], self.moments[self.moment]
        once = self.product(h, c)
        twice = self.product(once, h)
        self.bias = self.bias + eta * (self.jacobian @ self.bias)
        self.bias = self.bias - eta / 2 * (weight @ self.steeper) / self.sizes
        self.moments = (
            self.moments
            + self.folded(eta**2 * twice - 2 * eta * once)
            + eta**2 * self.noise / self.p.batch_size
        )
        self.values = self.values + eta * self.rates

    def covariance(self) -> tuple[np.ndarray, np.ndarray]:
        """Covariance of class means, and the size of its terms."""
        made = np.zeros((2, len(self.sizes), len(self.sizes)))
        for k, x in enumerate((self.moments, abs(self.moments))):
            np.add.at(made[k], (self.one, self.two), self.pairs * x * self.orders / 2)
        both = (made + made.swapaxes(1, 2)) / np.outer(self.sizes, self.sizes)
        return both[0], both[1]

    def state(self, order: np.ndarray) -> np.ndarray:
        """Order parameters, loss and observables: values, bias and standard deviation."""
        slopes = np.vstack([order, self.slopes])
        shift = slopes @ self.bias
        bent = [self.orders * self.moments @ x / 2 for x in self.curved]
        shift[len(order) :] += bent
        spread, terms = (np.einsum("ik,kl,il->i", x, c, x) for x, c in zip(
            (slopes, abs(slopes)), self.covariance(), strict=True
        ))
        spread = np.where(spread > ZERO * terms, spread, 0)
        return np.array([[*order @ self.values, *self.shown], shift, np.sqrt(spread)])
