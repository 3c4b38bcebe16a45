"""Many integrations of a flow at once, one per point of a sweep: SciPy's method of
order 8 (DOP853) with a step of its own per point. What it cannot follow is integrated
by itself (`Trajectory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize.elementwise
import sympy as sp
from scipy.integrate import DOP853

from theory.call import grid
from theory.dynamics.special_times import UNDEFINED, all_parts, fast, first_sign_changes
from theory.dynamics.trajectory import SMALLEST, Trajectory, smallest, with_errors
from theory.numbers import numeric

if TYPE_CHECKING:
    from theory.dynamics.flow import Flow

FEWEST = 32  # points, below which one after the other is faster
ROOM = 2**13  # numbers of a state that are integrated at once
FIRST = 1e-3  # step, in units of the run
LEAST = 1e-12  # step, in units of the run
MOST_STEPS = 2_000  # an explicit method needs more only where the flow is stiff
# of a step to the next
SAFETY = 0.9
SHORTER = 0.2
LONGER = 2.0
STAGES = DOP853.n_stages


def follows(flow: Flow) -> bool:
    """Whether the rates are smooth functions of the order parameters alone, and take
    arrays.
    """
    rates = [*flow.expanded.values(), *flow.initial.values()]
    jumps = "jump" in all_parts((*rates,)).values()
    undefined = any(rate.has(sp.Product, *UNDEFINED) for rate in rates)
    return not (flow.driven or undefined or jumps)


class Bulk:
    """Solutions of a flow at several points, over time in units of the length of the
    run.

    Parameters
    ----------
    flow : Flow
    numbers : mapping of str to array, shape (points,)
        Numbers of its parameters.
    end : float
        Length of the run.
    rtol, atol : float
        The absolute tolerance is lowered as in `Flow.solve`.
    labels : sequence of str
        The points in words, for errors.

    Raises
    ------
    ParameterError
        Naming the point, if a solution ends before the run does.
    """

    def __init__(
        self,
        flow: Flow,
        numbers: Mapping[str, np.ndarray],
        end: float,
        rtol: float,
        atol: float,
        labels: Sequence[str],
    ) -> None:
        self.flow = flow
        self.numbers = numbers
        self.end = end
        self.rtol = rtol
        self.labels = labels
        free, self._rhs, _, initial = flow._compiled
        points = len(labels)
        fixed = np.array([numbers[s.name] for s in free])
        self._fixed = fixed.reshape(len(free), points)
        rows = map(np.real, initial(*self._fixed))
        self.start = np.array([np.broadcast_to(row, points) for row in rows], float)
        least = smallest(self.start)
        self.atol = np.minimum(atol, rtol * least)
        with np.errstate(all="ignore"):
            self._integrate()
        self._left |= least < SMALLEST
        parts = all_parts((*flow.expanded.values(),))
        names = [flow.time, *flow.state, *free]
        self._left[self._point[self._changes_fast(parts, names, self._fixed)]] = True
        self.alone = {k: self._alone(k) for k in np.flatnonzero(self._left).tolist()}

    def _alone(self, point: int) -> Trajectory:
        numbers = {name: v[point].item() for name, v in self.numbers.items()}
        with grid.naming(self.labels[point]):
            return Trajectory(self.flow, numbers, self.end, self.rtol, self.atol[point])

    def _rates(self, y: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        rows = self._rhs(0.0, *y, *fixed)
        kind = complex if any(map(np.iscomplexobj, rows)) else float
        rates = np.empty(y.shape, kind)
        for row, rate in zip(rows, rates, strict=True):
            rate[:] = row
        return self.end * np.where(rates.imag == 0, rates.real, np.nan)

    def _stages(
        self, y: np.ndarray, first: np.ndarray, h: np.ndarray, fixed: np.ndarray
    ) -> Any:
        """State after a step, and the rates within, the last of them at its end."""
        rates = np.empty((STAGES + 1, *y.shape))
        rates[0] = first
        for n in range(1, STAGES):
            moved = y + h * np.tensordot(DOP853.A[n, :n], rates[:n], 1)
            rates[n] = self._rates(moved, fixed)
        end = y + h * np.tensordot(DOP853.B, rates[:STAGES], 1)
        rates[STAGES] = self._rates(end, fixed)
        return end, rates

    def _polynomial(
        self,
        y: np.ndarray,
        rates: np.ndarray,
        end: np.ndarray,
        h: np.ndarray,
        fixed: np.ndarray,
    ) -> np.ndarray:
        """Coefficients of the states within a step."""
        rates = np.concatenate([rates, np.empty((len(DOP853.A_EXTRA), *y.shape))])
        for n, row in enumerate(DOP853.A_EXTRA, STAGES + 1):
            rates[n] = self._rates(y + h * np.tensordot(row[:n], rates[:n], 1), fixed)
        moved = end - y
        first = h * rates[0]
        last = h * rates[STAGES]
        rest = h * np.tensordot(DOP853.D, rates, 1)
        return np.stack([moved, first - moved, 2 * moved - last - first, *rest])

    def _integrate(self) -> None:
        many = self.start.shape[1]
        points: Any = np.arange(many)
        t: Any = np.zeros(many)
        h: Any = np.full(many, FIRST)
        y = self.start
        self._left = points >= 0
        fixed = self._fixed
        atol = self.atol
        accepted = []
        first = self._rates(y, fixed)
        for _ in range(MOST_STEPS):
            h = np.minimum(h, 1 - t)
            end, rates = self._stages(y, first, h, fixed)
            size = atol + self.rtol * np.maximum(np.abs(y), np.abs(end))
            five, three = (
                ((np.tensordot(of, rates, 1) / size) ** 2).sum(0)
                for of in (DOP853.E5, DOP853.E3)
            )
            scaled = h * five / np.sqrt((five + 0.01 * three) * len(y))
            error = np.where(five > 0, scaled, 0 * five)
            error = np.where(np.isfinite(end).all(0) & ~np.isnan(error), error, np.inf)
            good = error < 1
            within = self._polynomial(y, rates, end, h, fixed)
            accepted.append([part[..., good] for part in (points, t, h, y, within)])
            y = np.where(good, end, y)
            first = np.where(good, rates[STAGES], first)
            t = np.where(good, np.where(h < 1 - t, t + h, 1.0), t)
            longest = np.where(good, LONGER, 1.0)
            h = h * np.clip(SAFETY * error**-0.125, SHORTER, longest)
            self._left[points[t == 1]] = False
            going = (t < 1) & (h > LEAST)
            if not going.all():
                points, t, h, y, first, fixed, atol = (
                    part[..., going] for part in (points, t, h, y, first, fixed, atol)
                )
            if not len(points):
                break
        steps = [np.concatenate(part, -1) for part in zip(*accepted, strict=True)]
        order = np.lexsort((steps[1], steps[0]))
        order = order[~self._left[steps[0][order]]]
        self._point, self._t, self._h, self._y, self._within = (
            x[..., order] for x in steps
        )

    def _within_step(self, t: np.ndarray, step: np.ndarray) -> np.ndarray:
        """States at times within steps."""
        share = (t - self._t[step]) / self._h[step]
        y = np.zeros((len(self._y), *np.shape(t)))
        for n, coefficients in enumerate(self._within[::-1]):
            y = (y + coefficients[:, step]) * (1 - share if n % 2 else share)
        return y + self._y[:, step]

    def _at(self, t: np.ndarray, step: np.ndarray) -> np.ndarray:
        """States at times within steps, by steps that end there: the polynomials are
        less exact.
        """
        y = self._y[:, step]
        fixed = self._fixed[:, self._point[step]]
        h = t - self._t[step]
        return self._stages(y, self._rates(y, fixed), h, fixed)[0]

    def states(self, t: np.ndarray) -> np.ndarray:
        """Order parameters at times, of shape ``(order parameters, points, times)``."""
        states = np.empty((*self.start.shape, len(t)))
        for k, path in self.alone.items():
            states[:, k] = path.states(t)
        many = np.flatnonzero(~self._left)
        place = self._point + self._t
        first, after = np.searchsorted(self._point, (many, many + 1))
        for k, time in enumerate(t):
            step = np.searchsorted(place, many + time, side="right") - 1
            step = np.clip(step, first, after - 1)
            states[:, many, k] = self._at(np.full(len(many), time), step)
        return states

    def first_crossing(
        self, label: str, expr: sp.Expr, others: Mapping[str, np.ndarray]
    ) -> Any:
        """First sign change of an expression at every point, NaN where there is none:
        as `Trajectory.first_crossing`, refined by a step that ends there.

        Parameters
        ----------
        label : str
        expr : Expr
            In the order parameters, time and other symbols.
        others : mapping of str to array, shape (points,)
            Numbers of these symbols.
        """
        moving = {*self.flow.state, self.flow.time}
        symbols = sorted(expr.free_symbols - moving, key=str)
        known = np.array([np.ravel(others[s.name]) for s in symbols])
        known = known.reshape(len(symbols), len(self.atol))
        names = [self.flow.time, *self.flow.state, *symbols]
        points = np.arange(len(self.atol))
        call = numeric.function(expr, names)
        used = [x in expr.free_symbols for x in self.flow.state]

        def of(t: Any, y: np.ndarray, point: np.ndarray) -> Any:
            with np.errstate(all="ignore"):
                value = call(self.end * t, *y, *known[:, point])
            return np.where(np.imag(value) == 0, np.real(value), np.nan)

        def sampled(t: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            point = self._point[step]
            return with_errors(
                lambda t, y: of(t, y, point),
                used,
                t,
                self._within_step(t, step),
                self.atol[point],
                self.rtol,
            )

        def after(t: np.ndarray, step: np.ndarray) -> np.ndarray:
            return of(t, self._at(t, step), self._point[step])

        # up to the first change at the end of a step; most have none before
        ends = self._t + self._h
        every = np.arange(len(self._t))
        early = of(ends, self._within_step(ends, every), self._point) > 0
        begun = of(0.0, self.start, points)
        found = np.where(begun == 0, 0.0, np.nan)
        alone = self._left.copy()
        changed = np.flatnonzero(early != (begun > 0)[self._point])
        last = np.full(len(points), len(every))
        np.minimum.at(last, self._point[changed], changed)
        if expr.has(*UNDEFINED):
            alone[:] = True
        alone[self._point[self._changes_fast(all_parts((expr,)), names, known)]] = True
        before = (every <= last[self._point]) & ~alone[self._point]
        searched = every[before & (found != 0)[self._point]]

        def part(t: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return sampled(t, searched[part])

        owner, low, high, real = first_sign_changes(
            part, self._t[searched], ends[searched], self._point[searched]
        )
        alone[owner[~real]] = True
        owner = owner[real]
        low = low[real]
        high = high[real]
        middle = owner + (low + high) / 2
        step = np.searchsorted(self._point + self._t, middle, side="right") - 1
        with np.errstate(all="ignore"):
            crossing = scipy.optimize.elementwise.find_root(
                after,
                (low, high),
                args=(step,),
                tolerances={"xatol": 0, "xrtol": 1e-15, "fatol": 0},
            )
        found[owner] = np.where(crossing.success, crossing.x, (low + high) / 2)
        for k in np.flatnonzero(alone).tolist():
            path = self.alone.get(k) or self._alone(k)
            values = dict(zip(symbols, known[:, k].tolist(), strict=True))
            with grid.naming(self.labels[k]):
                found[k] = path.first_crossing(label, expr.subs(values))
        return self.end * found

    def _changes_fast(
        self, parts: Mapping[sp.Expr, str], names: list[sp.Symbol], known: np.ndarray
    ) -> np.ndarray:
        """Steps within which parts jump or change fast."""
        slow = np.zeros(len(self._t), bool)
        if not parts:
            return slow
        three = self._t[:, None] + self._h[:, None] * [0, 0.5, 1]
        step = np.repeat(np.arange(len(slow)), 3)
        y = self._within_step(three.ravel(), step)
        values = (self.end * three.ravel(), *y, *known[:, self._point[step]])
        along = {x.name: v for x, v in zip(names, values, strict=True)}
        return np.any([at[::3] | at[1::3] for at in fast(parts, along)], 0)
