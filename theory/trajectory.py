"""One integration of a flow: in parts between the times at which its rates jump by themselves, with
events that cannot be missed, and the reason where the solution ends.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.integrate
import sympy as sp

from theory import numeric, zeros
from theory.parameters import ParameterError, most_extreme, shown

if TYPE_CHECKING:
    from theory.flow import Flow

EDGE = 1e-14  # distance from a jump at which integration ends and begins, in units of the run
STEPS = 600  # at least, where rates depend on time
ERROR = 4  # of an event, in tolerances of a step
CLOSE = 1e-9  # to the end of a solution, in units of the run
DIVERGING = 1e-6  # time in which a diverging quantity would grow by its size
LARGEST = 1e280
SMALLEST = 1e-260  # nonzero initial value that LSODA can follow
BEYOND = "leaves double precision (1.8e308)"


class Trajectory:
    """Solution of a flow, over time in units of the length of the run.

    Parameters
    ----------
    flow : Flow
        The flow.
    numbers : mapping
        Numbers of its parameters.
    end : float
        Length of the run.
    rtol, atol : float
        Of LSODA; the absolute one is lowered to the relative one times the least initial value.

    Raises
    ------
    ParameterError
        If the solution ends before the run does, or starts too small to be followed.
    """

    def __init__(
        self, flow: Flow, numbers: Mapping[str, Any], end: float, rtol: float, atol: float
    ) -> None:
        self.flow, self.numbers, self.end = flow, numbers, end
        self.rhs, jacobian, self.start = flow._functions(numbers, end)
        least = smallest(self.start)
        if least < SMALLEST:
            known = {s.name: float(numbers[s.name]) for s in flow._compiled[0]}
            raise ParameterError(
                f"{most_extreme(known)}: {flow.name} starts below {SMALLEST:g} in size, which no "
                "integration follows; take it larger, or 0"
            )
        atol = min(atol, rtol * least)
        self.options: dict[str, Any] = {"rtol": rtol, "atol": atol, "jac": jacobian}
        edges, gap = np.array([0.0, 1.0]), 0.0
        if flow.driven:
            known = {s: sp.Float(numbers[s.name]) for s in flow._compiled[0]}
            rates = [rate.xreplace(known) for rate in flow.expanded.values()]
            edges, gap = zeros.special_times(rates, lambda t: {flow.time.name: end * t}), EDGE
            self.options["max_step"] = 1 / STEPS
        with np.errstate(all="ignore"):
            moving = self.rhs(gap, self.start)
            if not np.isfinite([*self.start, *moving]).all():
                raise ended(flow, numbers, 0.0, self.start, moving)
            parts, y = [], self.start
            for a, b in zip(edges, edges[1:], strict=False):
                y = y + gap * self.rhs(a + gap, y) if gap else y
                parts.append(self.integrate(a + gap, y, b - gap, dense_output=True))
                y = parts[-1].y[:, -1]
                y = y + gap * self.rhs(b - gap, y) if gap else y
        self.t = np.concatenate([*(p.t[:-1] for p in parts), parts[-1].t[-1:]])
        self.y = np.concatenate([*(p.y[:, :-1] for p in parts), parts[-1].y[:, -1:]], 1)
        steps = [step for p in parts for step in p.sol.interpolants]
        self.states = scipy.integrate.OdeSolution(self.t, steps)

    def integrate(self, t0: float, y0: np.ndarray, t1: float, **options: Any) -> Any:
        """Solution from a state to a time, with no jump between."""
        with np.errstate(all="ignore"), warnings.catch_warnings():  # e^m overflows: no rate
            warnings.simplefilter("ignore")
            solution = scipy.integrate.solve_ivp(
                self.rhs, (t0, t1), y0, method="LSODA", **self.options, **options
            )
        good = np.isfinite(solution.y).all(0)
        if solution.success and good.all():
            return solution
        last = np.flatnonzero(good)[-1].item()
        t, y = solution.t[last], solution.y[:, last]
        if t1 - t > CLOSE:  # the integrator gave up on a long step: the solution goes on
            y = self.integrate(t, y, t := (t + t1) / 2).y[:, -1]
            self.integrate(t, y, t1)
        with np.errstate(all="ignore"):
            raise ended(self.flow, self.numbers, self.end * t, y, self.rhs(t, y))

    def first_crossing(self, label: str, expr: sp.Expr) -> float:
        """First sign change of an expression in the order parameters and time, NaN if there is
        none. Bracketed on the integrator's polynomials, refined by integrating up to it.

        Raises
        ------
        ParameterError
            If the expression is no real number before.
        """
        call = numeric.function(expr, [self.flow.time, *self.flow.state])
        used = [k for k, x in enumerate(self.flow.state) if x in expr.free_symbols]

        def of(t: Any, y: np.ndarray) -> Any:
            with np.errstate(all="ignore"):
                return numeric.real(f"event {label}", call(self.end * t, *y))

        def dense(t: Any) -> Any:
            return of(t, self.states(t))

        def sampled(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            y, noise = self.states(t), np.zeros(t.shape)
            here = of(t, y)
            for k in used:
                moved = y.copy()
                moved[k] += ERROR * (self.options["atol"] + self.options["rtol"] * np.abs(y[k]))
                noise += np.abs(of(t, moved) - here)
            return here, np.where(t > 0, noise, 0)  # the start is exact

        if of(0.0, self.start) == 0:
            return 0.0

        def along(t: Any) -> dict[str, Any]:
            names = [x.name for x in self.flow.state]
            return {
                self.flow.time.name: self.end * t,
                **dict(zip(names, self.states(t), strict=True)),
            }

        try:
            edges = np.union1d(self.t, zeros.special_times([expr], along, self.t))
            sides, low, high = np.sign(of(self.t, self.y)), np.nan, np.nan
            for end in (
                self.t[1:][sides[1:] != sides[0]].min(initial=1.0),
                1.0,
            ):  # most end at the first
                if np.isnan(low):
                    part = edges[edges <= end]
                    low, high = next(zeros.sign_changes(sampled, part), (np.nan, np.nan))
        except ParameterError as error:
            raise ParameterError(f"event {label} = {shown(expr)}: {error}") from None
        if np.isnan(low):
            return low

        @functools.cache
        def at(t: float) -> float:
            k = max(int(np.searchsorted(self.t, t)) - 1, 0)
            t0, y0 = self.t[k], self.y[:, k]
            return float(of(t, self.integrate(t0, y0, t).y[:, -1] if t > t0 else y0))

        # closer to zero than the integration is exact, polynomials must do
        exact = at if (at(low) > 0) != (at(high) > 0) else dense
        return zeros.zero(exact, low, high, xtol=1e-15 * high, rtol=1e-14)


def smallest(start: np.ndarray) -> Any:
    """Least initial value that is not zero, for every point; small ones grow later."""
    return np.min(np.abs(start), 0, where=start != 0, initial=np.inf)


def ended(
    flow: Flow,
    numbers: Mapping[str, float],
    time: float,
    y: np.ndarray,
    rates: np.ndarray,
    why: str = "",
) -> ParameterError:
    """Error for a solution that ends at a time, or cannot be computed; it names the most extreme
    parameter, if any. Rates are in units of the run.
    """
    k, when = int(np.abs(y).argmax()), f"{flow.time.name} = {time:.6g}"
    if abs(y[k]) < LARGEST and 0 < abs(y[k]) < DIVERGING * rates[k] * np.sign(y[k]):
        return ParameterError(f"{flow.name}: {flow.state[k]} diverges near {when}; take a shorter run")  # fmt: skip
    if not why and time and abs(y[k]) < LARGEST:
        at = ", ".join(f"{x} = {v:.3g}" for x, v in zip(flow.state, y, strict=True))
        return ParameterError(f"{flow.name}: there is no solution after {when}, where {at}; take a shorter run")  # fmt: skip
    where = f"{flow.name} {why or BEYOND} at {when}"
    known = {s.name: float(numbers[s.name]) for s in flow._compiled[0]}
    if not any(known.values()):
        return ParameterError(f"{where}; take a shorter run")
    return ParameterError(f"{most_extreme(known)}: {where}; take it less extreme")
