"""Bias and spread along descent with batches, or from random initial weights, of order
parameters and of the times at which they reach a level: the numbers of
`theory.statement.randomness.fluctuations`.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.interpolate import CubicSpline

from theory.call import sweep
from theory.dynamics import prediction
from theory.dynamics.optimisers import Optimiser
from theory.numbers import numeric
from theory.statement.randomness import random_starts
from theory.statement.randomness.fluctuations import ORDER, RANDOM
from theory.statement.randomness.recursion import ZERO, Recursion, confirmed
from theory.statement.words.tree import require

TRUSTED = 0.1  # of how far a curve moves: largest shift that is claimed
TURNED = (
    0.5  # of the square of what a curve moves between measurements: variance of that
)
MOST_STEPS = 10**6  # of a run, followed one by one: some minutes


@dataclass(frozen=True)
class Path:
    """Order parameters, loss and observables along descent with batches.

    Attributes
    ----------
    names : list of str
        Of all of them, order parameters first.
    order : int
        How many are order parameters.
    times : array
    table : array, shape (4, names, times)
        Curves without noise, bias, standard deviation, and that which noise adds
        between two measurements, each after the time ``apart``.
    apart : float
    orders : str
        To which orders of what.
    """

    names: list[str]
    order: int
    times: np.ndarray
    table: np.ndarray
    apart: float
    orders: str

    @functools.cached_property
    def trust(self) -> float:
        """Time from which on a shift or the square of a spread exceeds a tenth of how
        far its curve moves, or of the square of that; infinite if none does.
        """
        moved = abs(self.table[0] - self.table[0, :, :1]).max(1, keepdims=True)
        most = (
            TRUSTED ** np.array([1, 0.5])[:, None, None]
        )  # a shift is a square of a spread
        far = (abs(self.table[1:3]) > np.maximum(most * moved, ZERO * moved.max())).any(
            (0, 1)
        )
        return float(self.times[far.argmax()]) if far.any() else np.inf

    @functools.cached_property
    def smooth(self) -> CubicSpline:
        """Curves, bias and variances between the times."""
        return CubicSpline(self.times, [*self.table[:2], *self.table[2:] ** 2], axis=-1)

    def at(self, times: np.ndarray) -> np.ndarray:
        """The table at other times."""
        value, bias, *variances = self.smooth(times)
        return np.array([value, bias, *np.sqrt(np.maximum(variances, 0))])

    def claimed(self, table: np.ndarray, times: np.ndarray) -> np.ndarray:
        """A table without the bias and spread that are not claimed."""
        table[1:, :, times >= self.trust] = np.nan
        # Near a minimum slopes vanish. Of a square of normal numbers the next order of
        # the variance is twice the square of the shift.
        _, shift, spread, _ = table[:, self.order :]
        spread[(spread > 0) & (TRUSTED * spread**2 < 2 * shift**2)] = np.nan
        return table

    def named(self, table: np.ndarray) -> dict[str, tuple[str, np.ndarray]]:
        """Variables of a dataset over time."""
        variables = {}
        for label, part in zip(("", "_bias", "_sd"), table[:3], strict=True):
            for name, curve in zip(self.names, part, strict=True):
                variables[name + label] = ("t", curve)
        return variables

    @property
    def about(self) -> dict[str, Any]:
        """Attributes of what is made of it."""
        end = f"bias and spread claimed before t = {self.trust:g}"
        late = [f"{end}: later they are too large for that order"] * math.isfinite(
            self.trust
        )
        assumed = "; ".join([self.orders, *late])
        return {"status": "leading order", "trust": self.trust, "assumptions": assumed}

    def crossing(self, name: str, level: float) -> tuple[float, float, float]:
        """Time at which descent brings a variable to a level, its shift by batches and
        random starts, and its standard deviation over students; NaN if that time is not
        reached or not trusted, or the shift or the square of the spread exceeds a tenth
        of it, or of its square.

        Of one student the curve is m + x, with m that without noise, b the mean of x
        and V its variance. To second order in x, which is the order of b, it crosses
        the level later by -x/m' + x x'/m'^2 - m'' x^2 / (2 m'^3), and the mean of x x'
        is V'/2. That is so of a curve that crosses once: no shift is claimed where
        noise turns it between two measurements.
        """
        k, never = self.names.index(name), (np.nan,) * 3
        mean = CubicSpline(self.times, self.table[0, k] - level)
        roots = mean.roots(extrapolate=False)
        if not len(roots) or roots[0] >= self.trust:
            return never
        t = roots[0]
        slope, bend = mean(t, 1), mean(t, 2)
        (_, bias, variance, kick), (_, _, rise, _) = (
            self.smooth(t, nu)[:, k] for nu in (0, 1)
        )
        shift = -bias / slope + rise / (2 * slope**2) - bend * variance / (2 * slope**3)
        spread = self.claimed(self.at(np.array([t])), np.array([t]))[2, k, 0] / abs(
            slope
        )
        near = abs(shift) <= TRUSTED * t and not variance > TRUSTED * (slope * t) ** 2
        shift = shift if kick < TURNED * (self.apart * slope) ** 2 else np.nan
        return (t, shift, spread) if near else never


@functools.lru_cache(maxsize=16)
def _begun(made: Any, numbers: frozenset[tuple[str, Any]]) -> Recursion:
    """The start of a path, whose expressions take a second to compile and hold no
    learning rate.
    """
    return Recursion(confirmed(made.moments), made, dict(numbers))


def path(made: Any, p: Any, steps: np.ndarray, at: np.ndarray | None = None) -> Path:
    """Follow descent with batches, or from random weights.

    Parameters
    ----------
    made : Derived
        At sizes, if sums have to be written out.
    p : Parameters
    steps : array
        After which to look.
    at : array, optional
        Order parameters of students whose class means start alike: what scatter about
        these adds.

    Raises
    ------
    ParameterError
        If there are neither batches nor random weights, or the descent diverges.
    """
    random = random_starts.sizes(made, p)
    message = (
        "batch_size = 0: all inputs at every step, without noise; set batch_size=8, say"
    )
    require(p.batch_size or random, message)
    forms = made.quotient.order
    order = random_starts.coefficients(made)
    names_read = {s.name for s in made.statement.symbols}
    numbers = frozenset(
        (name, x) for name, x in p.as_dict().items() if name in names_read
    )
    walk = copy.copy(_begun(made, numbers))  # steps put new arrays in place of its own
    if at is not None:
        classes = [made.quotient.gauge[c.symbol] for c in made.classes]
        walk.values = np.array(numeric.compiled([*forms], classes)(*at), float)
        walk.from_means()
    known = {}
    for n in range(int(steps[-1]) + 1):
        walk.here()
        if n in steps:
            known[n] = walk.state(order)
        walk.step(np.float64(p.eta), p.batch_size)
    table = np.stack([known[n] for n in steps], -1)
    if not np.isfinite(table).all():
        raise prediction.diverged(p)
    names = [*(x.name for x in forms), *made.statement.trees]
    table[3] *= p.eta * math.sqrt(p.eval_every / p.batch_size) if p.batch_size else 0.0
    orders = "; ".join([ORDER] * bool(p.batch_size) + [RANDOM] * bool(random))
    return Path(names, len(forms), p.eta * steps, table, p.eta * p.eval_every, orders)


def curves(
    made: Any, p: Any, runs: xr.Dataset | None = None, until: float | None = None
) -> Any:
    """Order parameters, loss and observables of descent with batches, or from random
    weights, over students.

    Parameters
    ----------
    made, p
        As of `path`.
    runs, until
        As of `theory.dynamics.prediction.clock`.

    Returns
    -------
    Dataset
        For every variable ``x`` of the flow its curve without noise from the mean of
        the start, ``x_bias``, what is added to the mean over students, to order eta / B
        and to second order of initial weights, and ``x_sd``, the standard deviation
        over students, to first order of these and to order (eta / B)^(1/2): zero where
        inputs are equivalent and weights start alike. Both are NaN from ``trust`` on, a
        time among the attributes (`Path.trust`). The deviation of loss and observables
        is NaN also where slopes vanish: where its square is below twenty times that of
        their shift.

    Raises
    ------
    ParameterError
        As `path`; if the runs were trained by another optimiser or with other
        parameters.
    """
    plain = prediction.optimiser(runs) in (None, Optimiser())
    require(
        plain, "runs: fluctuations are those of plain descent; predict without them"
    )
    steps, times = prediction.clock(p, runs, until)
    if runs is not None:
        prediction.check_runs(p, runs, ())  # of the same batch size
    along = path(made, p, steps)
    table = along.claimed(along.table, times)
    about = {"kind": "theory", "flow": made.flow.name, "reference": made.reference}
    about |= along.about | {"parameters": p.as_json()}
    where = {"t": times, "step": ("t", steps)}
    return p.timed(xr.Dataset(along.named(table), where, about))


def around(
    made: Any, p: Any, solved: xr.Dataset, events: Mapping[str, Any]
) -> xr.Dataset:
    """Add to a solution of the flow what steps, batches and random weights add.

    Parameters
    ----------
    made, p
        As of `path`.
    solved : Dataset
        With the times of the events.
    events : mapping of str to Expr
        By name, a variable less its level.

    Returns
    -------
    Dataset
        With ``x_bias``, the mean over students less the flow's ``x``, and ``x_sd``, as
        of `curves`; likewise of the time of every event, whose attribute ``noise`` is
        what batches add to it.

    Raises
    ------
    ParameterError
        As `path`; for an event that is not a variable at a level, or too many steps.
    """
    times = solved.t.values
    many = max(math.ceil(times[-1] / p.eta), 1)
    require(
        many <= MOST_STEPS,
        f"fluctuations: t = {times[-1]:g} is {many:.0e} steps of eta = {p.eta:g}, each"
        f" of which they follow: at most {MOST_STEPS:.0e}; take a shorter run",
    )
    along = path(made, p, np.arange(many + 1))
    table = along.claimed(along.at(times), times)
    table[1] += table[0] - [solved[name].values for name in along.names]
    result = solved.merge(xr.Dataset(along.named(table)), compat="override")
    result = result.assign_attrs(along.about)
    known = {x.name: x for x in made.flow.state} | dict(made.flow.observables)
    for event, expr in events.items():
        levels = {name: x - expr for name, x in known.items()}
        name = next(
            (x for x, level in levels.items() if not level.has(*made.flow.state)), ""
        )
        require(
            name,
            f"event {event}: {expr}: its bias is that of a variable at a level, as"
            " x - 1",
        )
        numbers = sweep.numbers(p)
        level = levels[name].subs(
            {s: numbers[s.name] for s in levels[name].free_symbols}
        )
        t, shift, spread = along.crossing(name, float(level))
        result[f"{event}_bias"] = (
            (),
            t + shift - float(solved[event]),
            {"noise": float(shift)},
        )
        result[f"{event}_sd"] = (), spread
    return result
