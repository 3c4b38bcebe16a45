"""Flow of discovered order parameters: its right-hand side is the module's gradient, in numbers;
and trained networks in their coordinates: where they move, and what lies outside.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
import torch
import xarray as xr

from simulate.discover.loss import Loss
from simulate.discover.subspace import Subspace
from theory import Equation, Flow, notation, solution
from theory.conserved import SAME, Mode, conserved, linearised, standing
from theory.optimisers import Optimiser, Steps
from theory.statement.tree import require

if TYPE_CHECKING:
    from simulate.discover.found import Discovered

TRIES = 24  # random starts of the search for fixed points
STEP = 1e-5  # of differences, where torch has no second derivatives
STEPS = 10  # of the comparison of descents
AGREE = 1e-9  # of both descents, relative to the largest weight
SMALL = 1e-12  # learning rate of that, at which a loss that does not fall is given up


@dataclass(frozen=True)
class Reduced:
    """The loss and its slopes in coordinates of the subspace, and in all weights behind them."""

    loss: Loss
    subspace: Subspace

    def value(self, *values: Any) -> np.ndarray:
        """The loss, at numbers or at arrays of the coordinates."""
        points = np.array(np.broadcast_arrays(*values), float)
        return np.apply_along_axis(lambda y: self.loss(self.subspace.weights(y)), 0, points)

    def rates(self, values: np.ndarray) -> np.ndarray:
        """Rates of the coordinates under gradient descent."""
        return -self.subspace.coordinates(self.loss.gradient(self.subspace.weights(values))[1])

    def jacobian(self, values: np.ndarray) -> np.ndarray:
        """Derivatives of the rates by the coordinates."""
        s = self.subspace
        if not self.loss.twice:
            ends = [[self.rates(values + x) for x in (e, -e)] for e in STEP * np.eye(len(values))]
            return np.stack([a - b for a, b in ends], 1) / (2 * STEP)
        rows = self.loss.curvature(s.weights(values), (s.rows / s.counts)[:, s.labels])
        return -np.stack([np.bincount(s.labels, row) for row in rows]) @ s.lift

    def path(
        self,
        state: Sequence[sp.Symbol],
        numbers: Mapping[str, Any],
        how: Optimiser,
        eta: float,
        steps: int,
    ) -> np.ndarray:
        """Coordinates before the first and after every step of an optimiser of all weights."""
        theta = self.subspace.start[None]
        step, path = Steps(how, eta, steps), [theta[0]]
        for _ in range(steps):
            (theta,) = step([theta], [self.loss.gradient(theta[0])[1][None]])
            path.append(theta[0])
        return np.array([self.subspace.coordinates(x) for x in path]).T

    def deviation(self) -> float:
        """Largest difference between descent of all weights of the module (`torch.optim.SGD`) and
        of the coordinates, relative to the largest weight.
        """
        s, loss = self.subspace, self.loss
        (begun, slopes), eta = loss.gradient(s.start), 1.0
        while eta > SMALL and loss(s.start - eta * slopes) > begun - eta / 2 * slopes @ slopes:
            eta /= 2
        values, here, worst = s.coordinates(s.start), s.start, 0.0
        descent = torch.optim.SGD(loss.leaves.values(), lr=eta)
        for _ in range(STEPS):
            values = values + eta * self.rates(values)
            loss.load(here)
            descent.zero_grad()
            loss.call(loss.inputs).backward()
            descent.step()
            here = loss.flat(loss.leaves)
            gap = np.abs(here - s.weights(values)).max() / max(np.abs(here).max(), 1.0)
            worst = max(worst, float(gap))
        descent.zero_grad()
        return worst


@dataclass(frozen=True, repr=False)
class NumericFlow(Flow):
    """Flow whose rates are gradients of a module; time is learning rate times number of steps."""

    reduced: Reduced = field(kw_only=True)

    @functools.cached_property
    def _compiled(self) -> tuple[list[sp.Symbol], Any, Any, Any]:
        free = np.array([self.rhs[x] != 0 for x in self.state])

        def rates(_: float, *values: Any) -> np.ndarray:
            points = np.array(np.broadcast_arrays(*values), float)
            return np.apply_along_axis(lambda y: free * self.reduced.rates(y), 0, points)

        def jacobian(_: float, *values: Any) -> np.ndarray:
            return free[:, None] * self.reduced.jacobian(np.array(values, float))

        return [], rates, jacobian, lambda: [float(self.initial[x]) for x in self.state]

    def solve(self, parameters: Any = None, **options: Any) -> xr.Dataset:  # type: ignore[override]
        """As `theory.Flow.solve`; there are no parameters: ``flow.solve(t=100)``."""
        return solution.solve(self, parameters or {}, **options)

    def descend(self, *given: Any, **options: Any) -> xr.Dataset:
        """As `theory.Flow.descend`: ``flow.descend(step, steps)``. Optimisers move all weights."""
        return solution.descend(self, *({}, *given)[-3:], **options)

    def jacobian(self, at: Mapping[Any, float] | None = None) -> np.ndarray:  # type: ignore[override]
        """Derivatives of the rates, at the start by default."""
        moved = notation.by_name("at: {} is no order parameter", at or {}, self.state)
        return self._compiled[2](0.0, *({**self.initial, **moved}[x] for x in self.state))

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
        start = np.array(initial())
        rng = np.random.default_rng(0)
        held = np.diag([float(self.rhs[x] == 0) for x in self.state])  # these stay at the start
        far = (np.arange(TRIES) > 0)[:, None] * spread * rng.normal(size=(TRIES, start.size))
        points = standing(
            lambda y: rates(0, *y) + held @ (y - start),
            lambda y: jacobian(0, *y) + held,
            start + far,
        )
        return [dict(zip(self.state, map(float, p), strict=True)) for p in points]

    def conserved(self) -> list[Equation]:  # type: ignore[override]
        """Combinations of squares, products, logarithms and exponentials of the order parameters
        that are constant at random points: found in numbers, not proved.
        """
        return [replace(e, status="empirical") for e in conserved(self)]

    def invariant(self, terms: Mapping[sp.Expr, float]) -> sp.Expr:
        """A conserved combination of terms, with simple fractions."""
        simple = [(sp.nsimplify(c, rational=True, tolerance=SAME), f) for f, c in terms.items()]
        return sp.Add(*(c * f for c, f in simple))


def project(
    found: Discovered, checkpoints: Sequence[Any] | xr.Dataset, times: Sequence[float] | None = None
) -> xr.Dataset:
    """Order parameters of checkpoints of a run, with any optimiser, batches and start.

    Parameters
    ----------
    found : Discovered
    checkpoints : sequence
        Modules, ``state_dict()`` mappings, or paths of saved ones, in the order of training; or a
        sequence of these for every seed; or what `simulate.ensemble.ensemble` gives with
        ``weights=True``, at its times.
    times : sequence of float, optional
        When, as learning rate times steps; by default 0, 1, 2, ...

    Returns
    -------
    Dataset
        Order parameters and ``loss`` over ``t``. ``outside`` is the share of the squared distance
        from the start that lies outside of the subspace, ``update_outside`` that of the move since
        the last checkpoint; ``by_chance`` is the share of random weights.

    Raises
    ------
    ParameterError
        If a weight is missing, or has another shape.
    """
    if isinstance(checkpoints, xr.Dataset):
        data, shapes = checkpoints, found.loss.shapes
        know = {"seed", "t", *shapes} <= {*data.variables}
        require(know, "checkpoints: need seed, t and all weights; train with weights=True")
        every = zip(*(data[k].transpose("seed", "t", ...).values for k in shapes), strict=True)
        named = [[dict(zip(shapes, w, strict=True)) for w in zip(*of, strict=True)] for of in every]
        return project(found, named, data.t.values).assign_coords(seed=data.seed)
    require(len(checkpoints), "checkpoints: there are none")
    several = isinstance(checkpoints[0], list | tuple)
    many = {len(run) for run in checkpoints} if several else {len(checkpoints)}
    t = np.arange(max(many)) if times is None else np.asarray(times)
    require({len(t)} == many, f"times: {len(t)} for {min(many)} checkpoints")
    runs: Sequence[Any] = checkpoints if several else [checkpoints]
    thetas = np.array([[flat(found, c, n) for n, c in enumerate(run)] for run in runs])
    s = found.subspace

    def outside(move: np.ndarray) -> float:
        """Share of a squared move outside of the subspace; NaN for no move."""
        left = move - s.weights(s.coordinates(s.start + move)) + s.start
        return left @ left / (move @ move) if move.any() else np.nan

    functions: dict[str, Any] = {
        "loss": (found.loss, thetas),
        "outside": (outside, thetas - s.start),
        "update_outside": (outside, np.diff(thetas, axis=1, prepend=thetas[:, :1])),
    }
    dims = ("seed", "t")
    chance = 1 - len(s.forms) / found.loss.size
    made = xr.Dataset(
        {k: (dims, np.apply_along_axis(f, -1, rows)) for k, (f, rows) in functions.items()},
        {"t": t.astype(float)},
        {"kind": "students", "inputs": found.scope},
    ).assign(by_chance=chance)
    values = np.apply_along_axis(s.coordinates, -1, thetas)
    for k, (x, meaning) in enumerate(zip(found.flow.state, found.order_parameters, strict=True)):
        made[x.name] = dims, values[..., k], {"meaning": meaning}
    return made if several else made.isel(seed=0)


def flat(found: Discovered, checkpoint: Any, number: int) -> np.ndarray:
    """All weights of a checkpoint in one vector."""
    if isinstance(checkpoint, torch.nn.Module):
        checkpoint = dict(checkpoint.named_parameters())
    elif not isinstance(checkpoint, Mapping):
        checkpoint = torch.load(checkpoint, map_location="cpu", weights_only=True)
    for name, shape in found.loss.shapes.items():
        require(name in checkpoint, f"checkpoint {number}: has no weight {name}")
        got = tuple(checkpoint[name].shape)
        require(got == shape, f"checkpoint {number}: {name} has shape {got}, must have {shape}")
    theta = found.loss.flat(checkpoint)
    require(np.isfinite(theta).all(), f"checkpoint {number}: weights are not finite")
    return theta
