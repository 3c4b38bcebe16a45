"""One integration of a flow: in parts between the times at which its rates jump by themselves, with
events that cannot be missed, and the reason where the solution ends.

Sign changes of functions of time are found by subdivision: on every part the function is a
Chebyshev series, which shows that there is no zero, at most one, or that the part must be halved.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp
from sympy.core.relational import Relational

from theory import numeric
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
DEGREE = 8  # of the series
NODES = np.polynomial.chebyshev.chebpts2(DEGREE + 1)
SERIES = np.linalg.inv(np.polynomial.chebyshev.chebvander(NODES, DEGREE)).T
SLOPES = SERIES @ np.polynomial.chebyshev.chebder(np.eye(DEGREE + 1)).T
LEVELS = 48  # of halving
MOST = 2000  # times at which an integration begins anew
MOST_PARTS = 20_000  # that are halved at once
APART = 1e-13  # times that are two, in units of the run
LITTLE = 1.0  # change of an argument in a step
PIECES = 64  # of a run, in which zeros of functions of time are looked for
CLIPPED = 1e300
NONE = 2  # side of zero of what is no number
SMOOTH_POWERS = range(2, 7)
UNDEFINED = (sp.Derivative, sp.DiracDelta, sp.Subs, sp.Sum, sp.Integral)
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
            edges, gap = special_times(rates, lambda t: {flow.time.name: end * t}), EDGE
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
        """First sign change of an expression in order parameters and time, NaN if there is none.
        Bracketed on the integrator's polynomials, refined by integrating up to it.

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

        def along(t: Any) -> dict[str, Any]:
            names = [x.name for x in (self.flow.time, *self.flow.state)]
            return dict(zip(names, (self.end * t, *self.states(t)), strict=True))

        try:
            edges = np.union1d(self.t, special_times([expr], along, self.t))
            sides, low, high = np.sign(of(self.t, self.y)), np.nan, np.nan
            for end in (self.t[1:][sides[1:] != sides[0]].min(initial=1.0), 1.0):
                if np.isnan(low):
                    part = edges[edges <= end]
                    low, high = next(sign_changes(sampled, part), (np.nan, np.nan))
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
        return zero(exact, low, high, xtol=1e-15 * high, rtol=1e-14)


def with_errors(
    of: Callable[[Any, np.ndarray], Any],
    used: Sequence[bool],
    t: np.ndarray,
    y: np.ndarray,
    atol: Any,
    rtol: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Values of a function of states, and what errors of those that it uses make of them; the start
    is exact.
    """
    here, noise = of(t, y), np.zeros(t.shape)
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
    """Error for a solution that ends, or cannot be computed. Rates are in units of the run."""
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


def sign_changes(of: Callable[[Any], Any], edges: np.ndarray) -> Iterator[tuple[float, float]]:
    """Brackets of the sign changes of a function, in order. ``of`` gives values at times and their
    errors; a smaller value has no sign. Between ``edges`` it is smooth.

    Raises
    ------
    ParameterError
        If the function is no real number, or changes its sign too often.
    """
    parts = np.zeros(len(edges) - 1, int)
    times, sides, _ = _samples(lambda t, _: of(t), edges[:-1], edges[1:], parts)
    for k in np.flatnonzero((sides[1:] != sides[:-1]) | (sides[1:] == NONE)):
        if NONE in sides[k : k + 2]:
            raise ParameterError("is no real number")
        yield times[k], times[k + 1]


def first_sign_changes(
    of: Callable[[Any, Any], Any], low: np.ndarray, high: np.ndarray, owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bracket of the first sign change of each of several functions.

    Parameters
    ----------
    of : callable
        As of `sign_changes`, at times and the numbers of the parts that these lie in.
    low, high, owner : array
        Ends of parts, on which the functions are smooth, and which function that is.

    Returns
    -------
    owner, low, high : array
        Functions that change their sign, and where.
    real : array of bool
        Whether they are real numbers up to there.

    Raises
    ------
    ParameterError
        If functions change their sign too often.
    """
    times, sides, owner = _samples(of, low, high, owner)
    change = (sides[1:] != sides[:-1]) & (owner[1:] == owner[:-1]) | (sides[1:] == NONE)
    found, first = np.unique(owner[1:][change], return_index=True)
    k = np.flatnonzero(change)[first]
    return found, times[k], times[k + 1], (sides[k] != NONE) & (sides[k + 1] != NONE)


def _samples(
    of: Callable[[Any, Any], Any], low: np.ndarray, high: np.ndarray, owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times between which functions change their sign once at most, the sides of zero on which they
    are there, and which function that is: ordered by functions, then by times.
    """
    part, most = np.arange(len(low)), MOST_PARTS * len(np.unique(owner))
    times, values, parts = np.empty(0), np.empty((2, 0)), np.empty(0, int)
    for _ in range(LEVELS):
        t = (low + high)[:, None] / 2 + (high - low)[:, None] / 2 * NODES
        t[:, 0], t[:, -1] = low, high
        of_part = np.repeat(part, len(NODES))
        both = np.clip(of(t.ravel(), of_part), -CLIPPED, CLIPPED)
        times, values = np.append(times, t), np.append(values, both, 1)
        parts = np.append(parts, of_part)
        v, noise = both.reshape(2, *t.shape)
        series, slopes = np.abs(v @ SERIES), np.abs(v @ SLOPES)
        rest = 4 * series[:, -3:].sum(1)  # a slope's is larger by the square of the degree
        clear = 2 * series[:, 0] > series.sum(1) + rest
        clear |= 2 * slopes[:, 0] > slopes.sum(1) + DEGREE**2 * rest
        halved = ~clear & (np.abs(v) > noise).any(1)
        middle = (low + high)[halved] / 2
        low, high = np.append(low[halved], middle), np.append(middle, high[halved])
        part = np.tile(part[halved], 2)
        if not 0 < len(middle) <= most:
            break
    if len(middle) > most:
        raise ParameterError("changes its sign too often")
    order = np.lexsort((times, owner[parts]))
    order = order[~(np.abs(values[0, order]) <= values[1, order])]
    value = values[0, order]
    return times[order], np.where(np.isnan(value), NONE, value > 0), owner[parts[order]]


def zero(of: Callable[[float], float], low: float, high: float, **tolerances: float) -> float:
    """Zero in a bracket of `sign_changes`; its middle where ends differ by less than rounding, so
    that one value at a time has other signs than values in arrays.
    """
    if (of(low) > 0) == (of(high) > 0):
        return (low + high) / 2
    return float(scipy.optimize.brentq(of, low, high, **tolerances))


def parts_of(expr: sp.Expr) -> Iterator[tuple[sp.Expr, str]]:
    """Expressions at whose zeros an expression has a jump or a kink, and arguments of what has a
    pole or branch at zero, or may change fast.
    """
    real = {x: sp.Symbol(x.name, real=True) for x in expr.free_symbols}
    for e in sp.postorder_traversal(expr.xreplace(real).rewrite(sp.Piecewise)):
        if isinstance(e, Relational):
            yield e.lhs - e.rhs, "jump"
        elif isinstance(e, sp.floor | sp.ceiling | sp.frac | sp.Mod):
            yield sp.sin(sp.pi * e.args[0] / sp.Mul(*e.args[1:])), "jump"
        elif isinstance(e, sp.Function) or (e.is_Pow and e.exp not in SMOOTH_POWERS):
            kind = "pole" if e.is_Pow or isinstance(e, sp.log) else "fast"
            yield from ((a, kind) for a in e.args if isinstance(a, sp.Expr))


def fast(
    parts: Sequence[tuple[sp.Expr, str]], known: Mapping[str, np.ndarray]
) -> Iterator[np.ndarray]:
    """Steps in which arguments change by more than `LITTLE`; of powers, by a share of that. A jump
    may be in any.
    """
    call = numeric.system([sp.Symbol(x, real=True) for x in known], [part for part, _ in parts])
    still = np.zeros(np.broadcast_shapes(*map(np.shape, known.values())))
    with np.errstate(all="ignore"):
        for row, (_, kind) in zip(call(*known.values()), parts, strict=True):
            v = np.real(row) + still
            size = np.abs(v[1:]) if kind == "pole" else 1
            yield ~(np.abs(np.diff(v)) <= LITTLE * size) | (kind == "jump")


def special_times(
    exprs: Sequence[sp.Expr],
    along: Callable[[Any], Mapping[str, Any]],
    steps: np.ndarray | None = None,
) -> np.ndarray:
    """Times from 0 to 1 at which expressions jump, have a kink, or may change fast.

    Parameters
    ----------
    exprs, along
        Expressions, and a function that gives values of symbols at times, by name; what depends on
        other symbols is passed over.
    steps : array, optional
        Times between which these values are smooth: what changes little there does not change fast.

    Raises
    ------
    ParameterError
        If there are more than `MOST` jumps.
    """
    edges, special = np.linspace(0, 1, PIECES + 1), np.array([0.0, 1.0])
    known = along(0.0)

    def usable(parts: Iterable[tuple[sp.Expr, str]]) -> list[tuple[sp.Expr, str]]:
        return [
            (part, kind)
            for part, kind in dict(parts).items()
            if part.free_symbols
            and not part.has(*UNDEFINED)
            and known.keys() >= {x.name for x in part.free_symbols}
        ]

    def over_time(part: sp.Expr) -> tuple[Any, Any]:
        used = sorted(part.free_symbols, key=str)
        call = numeric.function(part, used)

        def value(t: Any) -> Any:
            known = along(t)
            with np.errstate(all="ignore"):
                return np.nan_to_num(np.real(call(*(known[x.name] for x in used))))

        return value, lambda t: (value(t), 0 * t)

    parts = usable(p for expr in exprs for p in parts_of(expr))
    if steps is not None and parts:
        parts = [p for p, at in zip(parts, fast(parts, along(steps)), strict=True) if at.any()]
    slopes = ((a.diff(x), "fast") for a, kind in parts if kind != "jump" for x in a.free_symbols)
    for part, kind in usable([*slopes, *parts]):
        value, exact = over_time(part)
        try:
            pairs = [*sign_changes(exact, np.union1d(edges, special))]
            if len(pairs) > MOST:
                raise ParameterError(f"changes its sign {len(pairs)} times")
        except ParameterError as error:
            if kind != "jump":
                continue
            raise ParameterError(f"{part}: {error}; take a shorter run") from None
        special = np.union1d(special, [zero(value, *p, xtol=1e-17, rtol=1e-15) for p in pairs])
    return special[np.append(True, np.diff(special) > APART)]
