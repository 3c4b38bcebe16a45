"""Flow of discovered order parameters: its right-hand side is the module's gradient, in numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
import sympy as sp
import torch
import xarray as xr

from simulate.discover.loss import Loss, double
from simulate.discover.subspace import Subspace
from theory import Equation, Flow, solution
from theory.conserved import ZERO, _null_space, ansatz
from theory.linearised import Mode, linearised
from theory.optimisers import Optimiser, Steps
from theory.parameters import ParameterError

TRIES = 24  # random starts of the search for fixed points
STILL = 1e-9  # largest rate at a fixed point, and largest step of Newton's method
SAME = 1e-6  # of two fixed points
STEPS = 20  # of the comparison of descents
AGREE = 1e-9  # of both descents, relative to the largest weight


@dataclass(frozen=True)
class Reduced:
    """The loss and its slopes in coordinates of the subspace, and in all weights behind them."""

    loss: Loss
    subspace: Subspace

    def value(self, values: np.ndarray) -> float:
        """The loss."""
        return self.loss(self.subspace.weights(values))

    def rates(self, values: np.ndarray) -> np.ndarray:
        """Rates of the coordinates under gradient descent."""
        return -self.subspace.coordinates(self.loss.gradient(self.subspace.weights(values))[1])

    def jacobian(self, values: np.ndarray) -> np.ndarray:
        """Derivatives of the rates by the coordinates."""
        s = self.subspace
        columns = self.loss.curvature(s.weights(values), s.lift[s.labels])
        return -np.stack([s.coordinates(c) for c in columns.T], 1)

    def path(
        self,
        state: Sequence[sp.Symbol],
        numbers: Mapping[str, Any],
        how: Optimiser,
        eta: float,
        steps: int,
    ) -> np.ndarray:
        """Coordinates before the first and after every step of an optimiser of all weights."""
        s = self.subspace
        many = np.bincount(s.fine)
        step = Steps(how, eta, steps, [many])
        values = (np.bincount(s.fine, s.start) / many)[None]
        path = [s.coordinates(s.start)]
        for _ in range(steps):
            slopes = self.loss.gradient(values[0][s.fine])[1]
            (values,) = step([values], [(np.bincount(s.fine, slopes) / many)[None]])
            path.append(s.coordinates(values[0][s.fine]))
        return np.array(path).T

    def deviation(self) -> float:
        """Largest difference between descent of all weights of the module (`torch.optim.SGD`) and
        of the coordinates, relative to the largest weight.
        """
        s, loss = self.subspace, self.loss
        values = s.coordinates(s.start)
        eta = 1 / max(np.abs(np.linalg.eigvals(self.jacobian(values))).max(), 1.0)
        loss.load(s.start)
        descent = torch.optim.SGD(loss.leaves.values(), lr=eta)
        worst = 0.0
        for _ in range(STEPS):
            descent.zero_grad()
            with double(), torch.enable_grad():
                loss.call().backward()
            descent.step()
            here = loss.flat(loss.leaves)
            loss_rates = self.rates(values)
            loss.load(here)
            values = values + eta * loss_rates
            size = max(np.abs(here).max(), 1.0)
            worst = max(worst, float(np.abs(here - s.weights(values)).max() / size))
        descent.zero_grad()
        return worst


@dataclass(frozen=True, repr=False)
class NumericFlow(Flow):
    """Flow whose rates are gradients of a module; time is learning rate times number of steps."""

    reduced: Reduced = field(kw_only=True)

    @functools.cached_property
    def _compiled(self) -> tuple[list[sp.Symbol], Any, Any, Any]:
        held = np.array([self.rhs[x] == 0 for x in self.state])

        def rates(_: float, *values: Any) -> np.ndarray:
            points = np.array(np.broadcast_arrays(*values), float)
            columns = points.reshape(len(points), -1).T
            made = np.stack([np.where(held, 0.0, self.reduced.rates(y)) for y in columns], 1)
            return made.reshape(points.shape)

        def jacobian(_: float, *values: Any) -> np.ndarray:
            made = self.reduced.jacobian(np.array(values, float))
            return np.where(held[:, None], 0.0, made)

        return [], rates, jacobian, lambda: [float(self.initial[x]) for x in self.state]

    def solve(self, parameters: Any = None, **options: Any) -> xr.Dataset:  # type: ignore[override]
        """As `theory.Flow.solve`; there are no parameters: ``flow.solve(t=100)``."""
        return solution.solve(self, parameters or {}, **options)

    def descend(self, step: float, steps: int, *, optimizer: Optimiser | None = None) -> xr.Dataset:  # type: ignore[override]
        """As `theory.Flow.descend`; an optimiser moves all weights."""
        return solution.descend(self, {}, step, steps, optimizer=optimizer)

    def observed(self, parameters: Any, times: np.ndarray, states: np.ndarray) -> xr.Dataset:
        """Label states ``(state, time)`` and add the loss, if they span the weights."""
        made = solution.observed(self, parameters, times, states)
        made["loss"] = (self.time.name, [self.reduced.value(y) for y in states.T])
        return made

    def jacobian(self, at: Mapping[Any, float] | None = None) -> np.ndarray:  # type: ignore[override]
        """Derivatives of the rates, at the start by default."""
        return self._compiled[2](0.0, *self._point(at))

    def _point(self, at: Mapping[Any, float] | None) -> np.ndarray:
        named = {getattr(x, "name", x): v for x, v in (at or self.initial).items()}
        names = [x.name for x in self.state]
        for wrong in sorted({*named} ^ {*names}):
            raise ParameterError(
                f"at: {wrong} is missing or unknown; a point has {', '.join(names)}"
            )
        return np.array([named[name] for name in names], float)

    def linearised(  # type: ignore[override]
        self, at: Mapping[Any, Any] | None = None, parameters: Any = None
    ) -> list[Mode]:
        """Growth rates and their directions in numbers, the fastest first."""
        return linearised(self, at, parameters or {})

    def fixed_points(self, spread: float = 3.0) -> list[dict[sp.Symbol, float]]:  # type: ignore[override]
        """Points where nothing moves, those that are reached from random points about the start;
        there may be more.
        """
        _, rates, jacobian, initial = self._compiled
        start, rng, points = np.array(initial()), np.random.default_rng(0), list[np.ndarray]()
        free = np.array([self.rhs[x] != 0 for x in self.state])
        for n in range(TRIES):
            y = start.copy()

            def at(z: np.ndarray, y: np.ndarray = y) -> np.ndarray:
                return np.where(free, z, y)

            guess = y + (n > 0) * spread * free * rng.normal(size=y.size)
            with np.errstate(all="ignore"):
                result = scipy.optimize.root(
                    lambda z: np.where(free, rates(0, *at(z)), z - y),  # noqa: B023
                    guess,
                    jac=lambda z: np.where(free[:, None], jacobian(0, *at(z)), np.eye(len(y))),  # noqa: B023
                )
            here = at(result.x)
            # rates also vanish far away, where saturated softmaxes are: there a Newton step is long
            left = rates(0, *here)
            newton = np.linalg.lstsq(jacobian(0, *here), left, rcond=None)[0]
            still = max(np.abs(left).max(), np.abs(newton).max()) < STILL
            if still and all(np.abs(here - p).max() > SAME for p in points):
                points.append(here)
        return [dict(zip(self.state, map(float, p), strict=True)) for p in points]

    def conserved(self) -> list[Equation]:  # type: ignore[override]
        """Combinations of squares, products, logarithms and exponentials of the order parameters
        that are constant at random points: found in numbers, not proved.
        """
        terms = ansatz(self.state)
        slopes, space = _null_space(self, terms, np.random.default_rng(0))
        found, gradients = list[Equation](), np.empty((0, len(self.state)))
        for vector in reversed(space):
            along = np.vstack([gradients, vector @ slopes])
            if np.linalg.matrix_rank(along, tol=1e-6 * np.abs(along).max()) == len(gradients):
                continue
            gradients = along
            form = sp.Add(
                *(
                    sp.nsimplify(c, rational=True, tolerance=1e-6) * term
                    for c, term in zip(vector, terms, strict=True)
                    if abs(c) > 1e3 * ZERO
                )
            )
            name = f"conserved_{len(found) + 1}"
            start = form.subs(self.initial)
            found.append(Equation(name, start, form, self.reference, "empirical", self.assumptions))
        return found

    def series(self, *_: Any, **__: Any) -> Any:
        """Refuse: a numeric flow has no Taylor series.

        Raises
        ------
        ParameterError
            Always.
        """
        raise ParameterError(f"series: {self.name} is a flow in numbers; use flow.solve(t=...)")
