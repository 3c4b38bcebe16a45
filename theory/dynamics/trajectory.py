"""One integration of a flow: in parts between the times at which its rates jump by
themselves, with events and pulses that cannot be missed, and the reason where the
solution ends.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.integrate
import sympy as sp

from theory.call.refusal import ParameterError, most_extreme, shown
from theory.dynamics.special_times import (
    APART,
    all_parts,
    sign_changes,
    special_times,
    values_of,
    zero,
)
from theory.numbers import numeric

if TYPE_CHECKING:
    from theory.dynamics.flow import Flow


# distance from a jump at which integration ends and begins, in units of the run
EDGE = 1e-14
STEPS = 600  # at least, where rates depend on time
ERROR = 4  # of a state at an event, in tolerances of a step
MISSED = (
    100.0  # change of a state, in tolerances, from which a pulse counts as stepped over
)
CLOSE = 1e-9  # to the end, in units of the run: no new start of the solver from there
DIVERGING = 1e-6  # time in which a diverging quantity would grow by its size
LARGEST = 1e280  # a state beyond has overflowed
SMALLEST = 1e-260  # nonzero initial value that LSODA can follow
BEYOND = "leaves double precision (1.8e308)"


class Trajectory:
    """Solution of a flow, over time in units of the length of the run.

    Parameters
    ----------
    flow, numbers, end
        The flow, numbers of its parameters by name, length of the run.
    rtol, atol
        Of LSODA; ``atol`` at most ``rtol`` times the least initial value.

    Raises
    ------
    ParameterError
        If the solution ends before the run does, or starts too small to be followed.
    """

    def __init__(
        self,
        flow: Flow,
        numbers: Mapping[str, Any],
        end: float,
        rtol: float,
        atol: float,
    ) -> None:
        self.flow = flow
        self.numbers = numbers
        self.end = end
        self.rhs, jacobian, self.start = flow._functions(numbers, end)
        self.fixed = {s.name: float(numbers[s.name]) for s in flow._compiled[0]}
        least = smallest(self.start)
        if least < SMALLEST:
            raise ParameterError(
                f"{most_extreme(self.fixed)}: {flow.name} starts below {SMALLEST:g} in"
                " size, which no integration follows; take it larger, or 0"
            )
        atol = min(atol, rtol * least)
        self.options: dict[str, Any] = {"rtol": rtol, "atol": atol, "jac": jacobian}
        edges = np.array([0.0, 1.0])
        gap = 0.0
        self.parts = all_parts(tuple(flow.expanded.values()))
        if flow.driven:
            edges = special_times(
                self.parts, lambda t: self.fixed | {flow.time.name: end * t}
            )
            gap = EDGE
            self.options["max_step"] = 1 / STEPS
        with np.errstate(all="ignore"):
            moving = self.rhs(gap, self.start)
            if not np.isfinite([*self.start, *moving]).all():
                raise ended(flow, numbers, 0.0, self.start, moving)
            pieces: list[Any] = []
            y = self.start
            for a, b in itertools.pairwise(edges):
                pieces += self.resolved(a + gap, self.across(a + gap, y, gap), b - gap)
                y = self.across(b - gap, pieces[-1].y[:, -1], gap)
        last = pieces[-1]
        self.t = np.concatenate([*(p.t[:-1] for p in pieces), last.t[-1:]])
        self.y = np.concatenate([*(p.y[:, :-1] for p in pieces), last.y[:, -1:]], 1)
        steps = [step for p in pieces for step in p.sol.interpolants]
        self.between = scipy.integrate.OdeSolution(self.t, steps)

    def states(self, t: Any) -> np.ndarray:
        """Order parameters at times; at the start as they are given,
        without rounding.
        """
        start = self.start.reshape(-1, *[1] * np.ndim(t))
        return np.where(np.asarray(t) == 0, start, self.between(t))

    def across(self, t: float, y: np.ndarray, gap: float) -> np.ndarray:
        """State at the other end of a gap beside a jump of the rates."""
        rates = self.rhs(t, y) if gap else 0 * y
        if not np.isfinite(rates).all():
            raise ended(self.flow, self.numbers, self.end * t, y, rates)
        return y + gap * rates

    def resolved(self, t0: float, y: np.ndarray, t1: float) -> list[Any]:
        """Solutions one after the other from a state to a time. One that steps over a
        pulse of the rates is replaced by one that ends in it.
        """
        ends = [t1]
        solutions = []
        while ends:
            solution = self.integrate(t0, y, ends[-1], dense_output=True)
            missed = self.stepped_over(solution)
            if len(missed):
                ends.append(missed[0])
                continue
            solutions.append(solution)
            t0 = ends.pop()
            y = solution.y[:, -1]
        return solutions

    def stepped_over(self, solution: Any) -> np.ndarray:
        """Times at which rates are not the slope of a solution: of those at which their
        parts jump or change fast, and between.
        """
        steps = solution.t
        states = solution.sol
        times = special_times(
            self.parts, lambda t: self.fixed | self.named(t, states(t)), steps
        )
        if len(times) < 3:
            return times[:0]
        times = np.sort(np.append(times, (times[1:] + times[:-1]) / 2))[1:-1]
        step = np.diff(steps)[np.searchsorted(steps, times) - 1]
        from_ends = np.minimum(times - steps[0], steps[-1] - times)
        far = from_ends > np.maximum(APART, 0.01 * step)
        times = times[far]
        step = step[far]
        y = states(times)
        short = 0.01 * step
        rates = np.transpose([*map(self.rhs, times, y.T)])
        slope = (states(times + short) - states(times - short)) / (2 * short)
        size = self.options["atol"] + self.options["rtol"] * np.abs(y)
        return times[(np.abs(rates - slope) * step > MISSED * size).any(0)]

    def named(self, t: Any, y: np.ndarray) -> dict[str, Any]:
        """Time and order parameters by name."""
        names = [x.name for x in (self.flow.time, *self.flow.state)]
        return dict(zip(names, (self.end * t, *y), strict=True))

    def integrate(self, t0: float, y0: np.ndarray, t1: float, **options: Any) -> Any:
        """Solution from a state to a time, with no jump between."""
        # e^m overflows: no rate
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options |= {"method": "LSODA"} | self.options
            try:
                solution = scipy.integrate.solve_ivp(self.rhs, (t0, t1), y0, **options)
            except ParameterError:
                raise
            except ValueError:  # steps within rounding, which have no polynomials
                options["dense_output"] = False
                solution = scipy.integrate.solve_ivp(self.rhs, (t0, t1), y0, **options)
                last = np.argmin(np.diff(solution.t) > 0)
                t = solution.t[last]
                y = solution.y[:, last]
                raise self._error_at(t, y) from None
        good = np.isfinite(solution.y).all(0)
        if solution.success and good.all():
            return solution
        last = np.flatnonzero(good)[-1].item()
        t = solution.t[last]
        y = solution.y[:, last]
        if t1 - t > CLOSE:
            # the integrator gave up on a long step: the solution goes on
            middle = (t + t1) / 2
            y = self.integrate(t, y, middle).y[:, -1]
            t = middle
            self.integrate(t, y, t1)
        with np.errstate(all="ignore"):
            raise self._error_at(t, y)

    def _error_at(self, t: float, y: np.ndarray) -> ParameterError:
        """Error for a solution that ends in a state."""
        return ended(self.flow, self.numbers, self.end * t, y, self.rhs(t, y))

    def first_crossing(self, label: str, expr: sp.Expr) -> float:
        """First sign change of an expression in order parameters and time, NaN if there
        is none; a jump beside the start is one at the start. Bracketed on the
        integrator's polynomials, refined by integrating up to it.

        Raises
        ------
        ParameterError
            If the expression is no real number before.
        """
        call = numeric.function(expr, [self.flow.time, *self.flow.state])
        used = [x in expr.free_symbols for x in self.flow.state]

        def of(t: Any, y: np.ndarray) -> Any:
            with np.errstate(all="ignore"):
                return numeric.real(f"event {label}", call(self.end * t, *y))

        def dense(t: Any) -> Any:
            return of(t, self.states(t))

        def sampled(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return with_errors(
                of, used, t, self.states(t), self.options["atol"], self.options["rtol"]
            )

        if of(0.0, self.start) == 0:
            return 0.0

        try:
            special = special_times(
                all_parts((expr,)), lambda t: self.named(t, self.states(t)), self.t
            )
            edges = np.union1d(self.t, special)
            sides = np.sign(of(self.t, self.y))
            changed = self.t[1:][sides[1:] != sides[0]]
            for end in (changed.min(initial=1.0), 1.0):
                brackets = sign_changes(sampled, edges[edges <= end])
                low, high = next(brackets, (np.nan, np.nan))
                if not np.isnan(low):
                    break
        except ParameterError as error:
            raise ParameterError(f"event {label} = {shown(expr)}: {error}") from None
        if np.isnan(low):
            return low

        @functools.cache
        def at(t: float) -> float:
            k = max(int(np.searchsorted(self.t, t)) - 1, 0)
            t0 = self.t[k]
            y0 = self.y[:, k]
            y = self.integrate(t0, y0, t).y[:, -1] if t > t0 else y0
            return float(of(t, y))

        # closer to zero than the integration is exact, polynomials must do
        exact = at if (at(low) > 0) != (at(high) > 0) else dense
        return zero(exact, low, high, xtol=1e-15 * high, rtol=1e-14)


def with_errors(
    of: Callable[[Any, np.ndarray], Any],
    used: Sequence[bool],
    t: np.ndarray,
    y: np.ndarray,
    atol: Any,
    rtol: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Values of a function of states, and what errors of those that it uses make of
    them; the start is exact.
    """
    here = of(t, y)
    noise = np.zeros(t.shape)
    for k in np.flatnonzero(used):
        moved = y.copy()
        moved[k] += ERROR * (atol + rtol * np.abs(y[k]))
        noise += np.abs(of(t, moved) - here)
    return here, np.where(t > 0, noise, 0)


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
    """Error for a solution that ends, or cannot be computed. Rates are in units of the
    run.
    """
    k = int(np.abs(y).argmax())
    when = f"{flow.time.name} = {time:.6g}"
    known = {s.name: float(numbers[s.name]) for s in flow._compiled[0]}
    parts = all_parts((*flow.expanded.values(),))
    jumps = [e for e, kind in parts.items() if kind == "jump"]
    # what diverges jumps at no zero that is far away
    most = np.maximum(np.abs(y), 1) / 2
    around = y[:, None] + np.clip(DIVERGING * rates, -most, most)[:, None] * [-1, 1]
    states = dict(zip([x.name for x in flow.state], around, strict=True))
    arguments = known | {flow.time.name: time} | states
    values = values_of((*arguments,), (*jumps,))(*arguments.values())
    for jump, sides in zip(jumps, values, strict=True):
        if np.ptp(np.sign(np.real(sides))) > 0:
            return ParameterError(
                f"{flow.name}: rates jump at {jump} = 0, and there is no way across at"
                f" {when}: the solution slides along it, or the jump is too high;"
                " smooth it, or take a shorter run"
            )
    other = "a shorter run" if time else "other numbers"
    if abs(y[k]) < LARGEST and 0 < abs(y[k]) < DIVERGING * rates[k] * np.sign(y[k]):
        return ParameterError(
            f"{flow.name}: {flow.state[k]} diverges near {when}; take {other}"
        )
    undefined = time or np.isnan([*y, *rates]).any()
    if not why and undefined and not abs(y[k]) >= LARGEST:
        at = ", ".join(f"{x} = {v:.3g}" for x, v in zip(flow.state, y, strict=True))
        return ParameterError(
            f"{flow.name}: there is no solution after {when}, where {at}; take {other}"
        )
    where = f"{flow.name} {why or BEYOND} at {when}"
    if not any(known.values()):
        return ParameterError(f"{where}; take a shorter run")
    return ParameterError(f"{most_extreme(known)}: {where}; take it less extreme")
