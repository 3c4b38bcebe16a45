"""Numbers of `theory.statement.fluctuations`: bias and spread of order parameters along descent."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import numeric, prediction
from theory.optimisers import Optimiser
from theory.statement import wick
from theory.statement.fluctuations import Moments
from theory.statement.symmetry import STEP
from theory.statement.tree import require

TRUSTED = 0.1  # of how far a curve moves: largest shift or spread that is claimed
ORDER = "noise of batches to order eta / B, inputs drawn anew for every step"
ZERO = 1e-9  # of its terms: a variance that is none


class Recursion:
    """Second moments of all entries, and the shifts of class means that they cause, step by step.

    Parameters
    ----------
    found : Moments
    made : Derived
        At sizes, if sums have to be written out.
    p : Parameters
        Sizes, numbers, learning rate and batch size.

    Attributes
    ----------
    values, bias : array, shape (classes,)
        Of descent on all inputs, and what batches add to the mean over students.
    moments : array, shape (orbits,)
        Covariance of two entries, per orbit of pairs.
    """

    def __init__(self, found: Moments, made: Any, p: Any) -> None:
        self.p, trees = p, [*made.statement.trees]
        numbers = {s: sp.nsimplify(p.as_dict()[s.name]) for s in made.statement.symbols}
        write = functools.partial(wick.at_size, numbers=numbers)
        count = np.vectorize(lambda x: float(write(x)), otypes=[float])
        tables = [
            made.rates.values(),
            (made.loss, *made.observables.values()),
            [o.squares for o in found.orbits],
            *([o.curvature[k] for o in found.orbits] for k in trees),
        ]
        self._parts = np.cumsum([len(x) for x in tables])[:-1]
        written = [write(sp.sympify(x)) for part in tables for x in part]
        self._evaluate = numeric.system([c.symbol for c in made.classes], written)
        self.sizes = count([c.size for c in made.classes])
        self.pairs = count([o.size for o in found.orbits])
        self.orders = np.array([o.orders for o in found.orbits])
        self.one, self.two = np.array([o.ends for o in found.orbits]).T
        place, many = zip(*found.directed, strict=True)
        self.place, self.many = np.array(place), count(many)
        to, left, right, triples = (np.array(x) for x in zip(*found.triples, strict=True))
        triples = count(triples)
        live = triples > 0
        self.triples = to[live], left[live], right[live], triples[live] / self.many[to[live]]
        self.values = count([c.weight.mean for c in made.classes])
        self.bias, self.moments = np.zeros(len(self.sizes)), np.zeros(len(self.pairs))

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Product of two matrices over entries, given by their values on ordered orbits."""
        to, left, right, weight = self.triples
        return np.bincount(to, weight * a[left] * b[right], len(self.many))

    def folded(self, x: np.ndarray) -> np.ndarray:
        """Mean over both orders of a pair, from ordered orbits to orbits."""
        total = np.bincount(self.place, x, len(self.pairs))
        return total / self.orders

    def here(self) -> None:
        """Evaluate rates, curvature and noise, and their slopes along all classes."""
        steps = self.values[:, None] + STEP * np.eye(len(self.values), len(self.values) + 1, 1)
        with np.errstate(all="ignore"):
            values = self._evaluate(*steps)
        table = np.array([np.broadcast_to(v, steps.shape[1:]) for v in values])
        parts, slopes = (
            np.split(x, self._parts) for x in (table[:, 0].real, table[:, 1:].imag / abs(STEP))
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
        h, c = self.hessian[self.place], self.moments[self.place]
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
        shift[len(order) :] += np.array(self.curved) @ (self.orders * self.moments) / 2
        both = zip((slopes, abs(slopes)), self.covariance(), strict=True)
        spread, terms = (np.einsum("ik,kl,il->i", x, c, x) for x, c in both)
        spread = np.where(spread > ZERO * terms, spread, 0)
        return np.array([[*order @ self.values, *self.shown], shift, np.sqrt(spread)])


def curves(
    found: Moments, made: Any, p: Any, runs: xr.Dataset | None = None, until: float | None = None
) -> xr.Dataset:
    """Order parameters, loss and observables of descent with batches, over students.

    Parameters
    ----------
    found : Moments
    made : Derived
        At sizes, if sums have to be written out.
    p : Parameters
    runs, until
        As of `theory.prediction.clock`.

    Returns
    -------
    Dataset
        For every variable ``x`` of the flow its curve without noise, ``x_bias``, what batches add
        to the mean over students, to order eta / B, and ``x_sd``, the standard deviation over
        students, to order (eta / B)^(1/2): zero where inputs are equivalent. Bias and deviation
        are NaN from ``trust`` on, an attribute, infinite if within the run none exceeds a tenth of
        how far its curve moves.

    Raises
    ------
    ParameterError
        If there are no batches, the runs were trained by another optimiser or with other
        parameters, or the descent diverges.
    """
    said = "batch_size = 0: all inputs at every step, without noise; set batch_size=8, say"
    require(p.batch_size, said)
    if runs is not None:
        plain = prediction.optimiser(runs) in (None, Optimiser())
        require(plain, "runs: fluctuations are those of plain descent; predict without them")
        prediction.check_runs(p, runs, ("t", "step"))
    steps, times = prediction.clock(p, runs, until)
    forms = made.quotient.order.values()
    order = np.array([[form.coeff(c.symbol) for c in made.classes] for form in forms], float)
    path, known = Recursion(found, made, p), {}
    for n in range(int(steps[-1]) + 1):
        path.here()
        if n in steps:
            known[n] = path.state(order)
        path.step()
    found_at = np.array([known[n] for n in steps])
    if not np.isfinite(found_at).all():
        raise prediction.diverged(p)
    curve, bias, spread = np.moveaxis(found_at, 0, -1)
    moved = abs(curve - curve[:, :1]).max(1, keepdims=True)
    beyond = (np.maximum(abs(bias), spread) > TRUSTED * moved).any(0)
    first = int(beyond.argmax()) if beyond.any() else len(times)
    names = [*(x.name for x in made.quotient.order), *made.statement.trees]
    data = {}
    for k, name in enumerate(names):
        data[name] = ("t", curve[k])
        for label, values in (("bias", bias), ("sd", spread)):
            data[f"{name}_{label}"] = ("t", np.where(np.arange(len(times)) < first, values[k], np.nan))
    trust = float(times[first]) if beyond.any() else np.inf
    claimed = f"bias and spread are claimed before t = {trust:g}, where one exceeds a tenth of its curve"
    about = {
        "kind": "theory",
        "flow": made.flow.name,
        "reference": made.reference,
        "status": "leading order",
        "assumptions": "; ".join([ORDER, *[claimed] * bool(beyond.any())]),
        "trust": trust,
        "parameters": p.as_json(),
    }
    return p.timed(xr.Dataset(data, {"t": times, "step": ("t", steps)}, about))
