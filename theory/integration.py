"""One integration of a flow: in parts between the times at which its rates change by themselves,
with events that cannot be missed, and the reason where it ends early.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import crossings, numeric, special_times
from theory.parameters import ParameterError, most_extreme, shown

if TYPE_CHECKING:
    from theory.flow import Flow

EDGE = 16 * np.finfo(float).eps  # distance from a jump at which rates are taken
CLOSE = 1e-14  # times that are one
LARGE, NEAR, FAR = 1e280, 1e-3, 1e3  # sizes: overflow; and, relative to the start, zero, infinity
STEPS = 500  # at least, where rates depend on time and state in one function
ERROR = 4  # of an event, in tolerances of a step


class Path:
    """Solution of a flow over time in units of the length of the run.

    Parameters
    ----------
    flow : Flow
        The flow.
    numbers : mapping
        Numbers of its parameters.
    end : float
        Length of the run.
    rtol, atol : float
        Of LSODA.

    Raises
    ------
    ParameterError
        If the solution ends before the run does.
    """

    def __init__(
        self, flow: Flow, numbers: Mapping[str, Any], end: float, rtol: float, atol: float
    ) -> None:
        self.flow, self.numbers, self.end, self.rtol, self.atol = flow, numbers, end, rtol, atol
        self.rhs, self.jacobian, _ = flow._functions(numbers, end)
        self.explicit = flow.moves_with_time
        self.known = {s: sp.Float(numbers[s.name]) for s in flow._compiled[0]}
        self.edges = np.array([0.0, 1.0])
        self.options: dict[str, Any] = {}
        if self.explicit:
            rates = [r.xreplace(self.known) for r in flow.expanded.values()]
            self.edges = self.with_special_times(rates)
            if any(special_times.mixed(r, flow.time, flow.state) for r in rates):
                self.options = {"max_step": 1 / STEPS}

    def with_special_times(self, exprs: list[sp.Expr]) -> np.ndarray:
        """Ends of the parts of the run, and times at which expressions change by themselves."""
        times = special_times.special_times(exprs, self.flow.time, self.end)
        edges = np.unique([*self.edges, *(t / self.end for t in times)])
        return edges[np.append(True, np.diff(edges) > CLOSE * edges[1:])]

    def run(self, start: np.ndarray) -> None:
        """Integrate to the end."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for t in self.edges[:-1]:
                if not np.isfinite(np.append(start, self.rhs(t, start))).all() and t == 0:
                    raise self.stopped(0, start, start)
        self.start, parts, y = start, [], start
        for a, b in zip(self.edges, self.edges[1:], strict=False):
            parts.append(self.integrate(a, y, b, dense_output=True))
            y = parts[-1].y[:, -1]
        self.t = np.concatenate([self.edges[:1], *(p.t[1:] for p in parts)])
        self.y = np.concatenate([parts[0].y[:, :1], *(p.y[:, 1:] for p in parts)], 1)
        self.steps = [step for p in parts for step in p.sol.interpolants]
        self.dense = scipy.integrate.OdeSolution(self.t, self.steps)

    def integrate(self, t0: float, y0: np.ndarray, t1: float, **options: Any) -> Any:
        """Solution from a state to a time, with no edge between."""
        rhs, jacobian = self.rhs, self.jacobian
        if self.explicit:  # inside the part, on either side of a jump at its ends
            after = self.edges[np.searchsorted(self.edges, t0, "right") - 1]
            before = self.edges[np.searchsorted(self.edges, t1)]
            low, high = after + EDGE * before, before * (1 - EDGE)
            inside = lambda t: min(max(t, low), high)  # noqa: E731
            rhs = lambda t, y: self.rhs(inside(t), y)  # noqa: E731
            slopes = self.jacobian
            jacobian = slopes and (lambda t, y: slopes(inside(t), y))
        with np.errstate(all="ignore"), warnings.catch_warnings():  # e^m overflows: no rate
            warnings.simplefilter("ignore")
            solution = scipy.integrate.solve_ivp(
                rhs,
                (t0, t1),
                y0,
                method="LSODA",
                jac=jacobian,
                rtol=self.rtol,
                atol=self.atol,
                **self.options,
                **options,
            )
        good = np.isfinite(solution.y).all(0)
        if not solution.success or not good.all():
            last = max(np.argmin(good) - 1, 0) if not good.all() else -1
            raise self.stopped(solution.t[last], solution.y[:, last], self.start)
        return solution

    def stopped(self, t: float, y: np.ndarray, start: np.ndarray) -> ParameterError:
        """Error for a solution that ends: what is zero or infinite there."""
        flow, time = self.flow, self.end * t
        when = f"{flow.time.name} = {time:.6g}"
        for base in sorted(self.singular(), key=sp.count_ops):
            of = numeric.function(base.xreplace(self.known), [flow.time, *flow.state])
            here, begun = float(of(time, *y)), float(of(0.0, *start))
            if abs(here) <= NEAR * abs(begun) or (t == 0 and here <= 0):
                reaches = "reaches" if t else "is at or below"
                return ParameterError(
                    f"{flow.name}: {base} {reaches} 0 at {when}, where the rates are not defined; "
                    "take a shorter run"
                    if t
                    else f"{flow.name}: {base} {reaches} 0 at the start, where the rates are not defined"
                )
        k = int(np.abs(y).argmax())
        size = np.abs(start).max()
        if abs(y[k]) < LARGE and abs(y[k]) > FAR * max(size, self.atol):
            return ParameterError(
                f"{flow.name}: {flow.state[k]} diverges near {when}; take a shorter run"
            )
        if abs(y[k]) >= LARGE or t == 0:
            return ParameterError(
                beyond(flow, "leaves double precision (1.8e308)", time, self.numbers)
            )
        return ParameterError(
            f"{flow.name}: no rates are real numbers after {when}; take a shorter run"
        )

    def singular(self) -> set[sp.Expr]:
        """Expressions at whose zeros rates are infinite or no real numbers."""
        found = set()
        for rate in self.flow.expanded.values():
            for e in rate.atoms(sp.Pow, sp.log, sp.asin, sp.acos, sp.atanh):
                if e.is_Pow and not (e.exp.is_integer and e.exp.is_nonnegative):
                    found.add(e.base)
                elif isinstance(e, sp.log):
                    found.add(e.args[0])
                elif not e.is_Pow:
                    found.add(1 - e.args[0] ** 2)
        return {
            b for b in found if not b.free_symbols.isdisjoint({self.flow.time, *self.flow.state})
        }

    def states(self, t: np.ndarray) -> np.ndarray:
        """States at times, all at once: the polynomials of LSODA's steps."""
        k = np.clip(np.searchsorted(self.t, t, "left") - 1, 0, len(self.steps) - 1)
        coefficients, start, length = self.polynomials
        x = (t - start[k]) / length[k]
        total = np.zeros((len(self.y), t.size))
        for power in range(coefficients.shape[0] - 1, -1, -1):
            total = total * x + coefficients[power][:, k]
        return total

    @functools.cached_property
    def polynomials(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients ``(power, order parameter, step)``, and times and lengths of the steps."""
        most = max(step.yh.shape[1] for step in self.steps)
        powers = np.zeros((most, len(self.y), len(self.steps)))
        for k, step in enumerate(self.steps):
            powers[: step.yh.shape[1], :, k] = step.yh.T
        return powers, *np.array([(step.t, step.h) for step in self.steps]).T

    def first_crossing(self, label: str, expr: sp.Expr) -> float:
        """First sign change of an expression, NaN if there is none. Bracketed on the integrator's
        polynomials by subdivision, refined by integrating up to it.

        Raises
        ------
        ParameterError
            If the expression is no real number before.
        """
        call = numeric.function(expr, [self.flow.time, *self.flow.state])

        def of(t: Any, y: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                value = np.asarray(
                    numeric.real(f"event {label}", call(self.end * np.asarray(t), *y)), float
                )
            return np.broadcast_to(value, np.shape(t))

        def noise(t: np.ndarray) -> np.ndarray:
            y = self.states(t)
            here, total = of(t, y), np.zeros(t.shape)
            for k, size in enumerate(ERROR * (self.atol + self.rtol * np.abs(y))):
                moved = y.copy()
                moved[k] += size
                total += np.abs(np.nan_to_num(of(t, moved) - here))
            return total

        if of(0.0, self.start) == 0:
            return 0.0
        edges = self.t
        if self.flow.time in expr.free_symbols:
            edges = np.unique([*edges, *self.with_special_times([expr])])
        sides = np.sign(of(self.t, self.y))
        changed = self.t[sides != sides[0]]  # also where it is no number
        first = edges[edges <= changed[0]] if changed.size else edges
        low = high = np.nan
        for part in (first, edges) if len(first) < len(edges) else (edges,):
            changes = crossings.sign_changes(lambda t: of(t, self.states(t)), part, noise)
            try:
                low, high = next(changes, (np.nan, np.nan))
            except crossings.NoSign as error:
                raise ParameterError(
                    f"event {label} = {shown(expr)}: {error.why} at {self.flow.time.name} = "
                    f"{self.end * error.time:g}"
                ) from None
            if not np.isnan(low):
                break
        if np.isnan(low):
            return np.nan
        return self.refined(of, low, high)

    def refined(self, of: Any, low: float, high: float) -> float:
        """Zero in a bracket, by integrating from the step before it."""
        first = np.searchsorted(self.t, low, "right") - 1

        @functools.cache
        def at(t: float) -> float:
            k = first if t <= self.t[first + 1] else np.searchsorted(self.t, t) - 1
            t0, y0 = self.t[k], self.y[:, k]
            return float(of(t, self.integrate(t0, y0, t).y[:, -1] if t > t0 else y0))

        if (at(low) > 0) == (at(high) > 0):  # closer to zero than the integration is exact
            at = lambda t: float(of(np.array([t]), self.states(np.array([t])))[0])  # noqa: E731
        return float(scipy.optimize.brentq(at, low, high, xtol=1e-15 * high, rtol=1e-14))


def beyond(flow: Flow, what: str, time: float, numbers: Mapping[str, float]) -> str:
    """Error message for a solution that cannot be computed; names the most extreme
    parameter, if there is one.
    """
    free = flow._compiled[0]
    where = f"{flow.name} {what} at {flow.time.name} = {time:g}"
    known = {s.name: float(numbers[s.name]) for s in free}
    if not any(known.values()):
        return f"{where}; take a shorter run"
    return f"{most_extreme(known)}: {where}; take it less extreme"
