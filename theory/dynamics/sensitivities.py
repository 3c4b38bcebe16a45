"""Sensitivities of a flow: derivatives of its curves and event times in parameters.

Along a solution ``dx/dt = f(x, p)`` the derivatives ``s = dx/dp`` obey the linear
equation ``ds/dt = (df/dx) s + df/dp``. It is integrated on the steps of the solution by
Gauss collocation of order six. An event ``g(x, t, p) = 0`` moves by ``dT = -(dg/dp +
grad g . s) / (grad g . f + dg/dt)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
import xarray as xr

from theory.call import arguments, sweep
from theory.call.refusal import ParameterError, number
from theory.call.scope import allow_beyond, marked
from theory.dynamics import solution
from theory.dynamics.dependence import Dependence, Whole
from theory.dynamics.special_times import all_parts
from theory.dynamics.trajectory import Trajectory
from theory.numbers import numeric
from theory.symbols.algebra import slope

if TYPE_CHECKING:
    from theory.dynamics.flow import Flow

# Gauss collocation with three points: weights of the stages and of the step.
ROOT = np.sqrt(15.0)
PLACES = np.array([0.5 - ROOT / 10, 0.5, 0.5 + ROOT / 10])
WEIGHTS = np.array([5 / 18, 4 / 9, 5 / 18])
STAGES = np.array(
    [
        [5 / 36, 2 / 9 - ROOT / 15, 5 / 36 - ROOT / 30],
        [5 / 36 + ROOT / 24, 2 / 9, 5 / 36 - ROOT / 24],
        [5 / 36 + ROOT / 30, 2 / 9 + ROOT / 15, 5 / 36],
    ]
)
CHUNK = 2**22  # entries of the matrices that are solved together
UNDEFINED = (sp.nan, sp.zoo, sp.oo, -sp.oo, sp.Derivative, sp.Subs, sp.DiracDelta)


@dataclass(frozen=True)
class Fall:
    """Event: a quantity has done a share of its change from the start to the end of
    the run.

    Attributes
    ----------
    quantity : Expr
    share : float
        Between 0 and 1.
    """

    quantity: sp.Expr
    share: float


class Variations:
    """Compiled derivatives of a flow in its order parameters and symbols.

    Parameters
    ----------
    flow : Flow
    more : sequence of Symbol
        Further symbols, of observables and events.

    Raises
    ------
    ParameterError
        If rates jump where a state or a symbol says so, or have no derivative.
    """

    def __init__(self, flow: Flow, more: Sequence[sp.Symbol] = ()) -> None:
        self.flow = flow
        free = flow._compiled[0]
        names = {s.name for s in free}
        self.symbols = [*free, *(s for s in more if s.name not in names)]
        rates = list(flow.expanded.values())
        moving = {*flow.state, *self.symbols}
        if any(r.has(sp.Piecewise, sp.floor, sp.ceiling, sp.frac) for r in rates):
            for part, kind in all_parts(tuple(rates)).items():
                names = {s.name for s in part.free_symbols}
                if kind == "jump" and names & {s.name for s in moving}:
                    raise ParameterError(
                        f"{flow.name}: rates may jump at {part} = 0, where their"
                        " derivatives are not defined"
                    )
        of = [*flow.state, *self.symbols]
        table = sp.Matrix([[slope(r, x) for x in of] for r in rates])
        starts = sp.Matrix(
            [[slope(flow.initial[x], s) for s in self.symbols] for x in flow.state]
        )
        for entry in [*table, *starts]:
            if entry.has(*UNDEFINED):
                raise ParameterError(
                    f"{flow.name}: has no derivative: {entry} occurs in it"
                )
        self._gradients: dict[sp.Expr, Any] = {}
        self._values: dict[sp.Expr, Any] = {}
        self.arguments = [flow.time, *flow.state, *self.symbols]
        self.rates = numeric.system(self.arguments, list(table))
        self.starts = numeric.system(self.symbols, list(starts))

    @classmethod
    def of(cls, flow: Flow, more: Iterable[sp.Symbol]) -> Variations:
        """Those of a flow, compiled once."""
        symbols = tuple(sorted(more, key=str))
        if symbols not in flow._variations:
            flow._variations[symbols] = cls(flow, symbols)
        return flow._variations[symbols]

    def value(self, expr: sp.Expr) -> Any:
        """Function that gives an expression."""
        if expr not in self._values:
            self._values[expr] = numeric.system(self.arguments, [expr])
        return self._values[expr]

    def gradient(self, expr: sp.Expr) -> Any:
        """Function that gives derivatives of an expression in time, state and symbols;
        None where there are none.
        """
        if expr not in self._gradients:
            slopes = [slope(expr, x) for x in self.arguments]
            defined = not any(e.has(*UNDEFINED) for e in slopes)
            function = numeric.system(self.arguments, slopes) if defined else None
            self._gradients[expr] = function
        return self._gradients[expr]

    def fixed(self, numbers: Mapping[str, float]) -> list[float]:
        """Numbers of the symbols, in order."""
        return [numbers[s.name] for s in self.symbols]

    def tables(
        self, t: np.ndarray, y: np.ndarray, fixed: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the rates in the state and in the symbols, over times."""
        n = len(self.flow.state)
        with np.errstate(all="ignore"):
            entries = self.rates(t, *y, *fixed)
        values = [np.broadcast_to(np.real(e), t.shape) for e in entries]
        table = np.array(values).T.reshape(len(t), n, n + len(self.symbols))
        return table[:, :, :n], table[:, :, n:]

    def start(self, fixed: Sequence[float]) -> np.ndarray:
        """Derivatives of the initial state in the symbols."""
        with np.errstate(all="ignore"):
            entries = np.array(self.starts(*fixed), float)
        return entries.reshape(len(self.flow.state), len(self.symbols))


def along(
    variations: Variations,
    path: Trajectory,
    numbers: Mapping[str, float],
    directions: np.ndarray,
    times: np.ndarray,
    halvings: int = 0,
) -> np.ndarray:
    """Derivatives of the state along a solution.

    Parameters
    ----------
    variations, path, numbers
        Compiled derivatives, solution, and numbers of the symbols by name.
    directions : ndarray, shape (symbols, parameters)
        Derivatives of the symbols in the parameters.
    times : ndarray
        Sorted, in units of the run.
    halvings : int
        How often to halve the steps of the solution.

    Returns
    -------
    ndarray, shape (times, order parameters, parameters)
    """
    grid = path.t
    for _ in range(halvings):
        grid = np.union1d(grid, (grid[1:] + grid[:-1]) / 2)
    grid = np.union1d(grid, times)
    fixed = variations.fixed(numbers)
    n = len(variations.flow.state)
    s = variations.start(fixed) @ directions
    found = np.empty((len(grid), *s.shape))
    found[0] = s
    chunks = (len(grid) - 1) * (3 * n) ** 2 // CHUNK + 1
    for steps in np.array_split(np.arange(len(grid) - 1), chunks):
        grow, drive = _steps(variations, path, fixed, directions, grid, steps)
        for k, matrix, vector in zip(steps, grow, drive, strict=True):
            found[k + 1] = matrix @ found[k] + vector
    return found[np.searchsorted(grid, times)]


def _steps(
    variations: Variations,
    path: Trajectory,
    fixed: Sequence[float],
    directions: np.ndarray,
    grid: np.ndarray,
    steps: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and vector of every step: s -> matrix s + vector."""
    n = len(variations.flow.state)
    h = np.diff(grid)[steps]
    t = (grid[steps, None] + h[:, None] * PLACES).ravel()
    by_state, by_symbol = variations.tables(path.end * t, path.states(t), fixed)
    by_state = path.end * by_state.reshape(len(h), 3, n, n)
    pushed = path.end * (by_symbol @ directions).reshape(len(h), 3, n, -1)
    # stages k_i = J_i (s + h sum_j a_ij k_j) + b_i
    implicit = np.einsum("h,ij,hixy->hixjy", h, STAGES, by_state)
    system = np.eye(3 * n) - implicit.reshape(len(h), 3 * n, 3 * n)
    right = np.concatenate([by_state, pushed], -1).reshape(len(h), 3 * n, -1)
    stages = np.linalg.solve(system, right).reshape(len(h), 3, n, -1)
    moved = h[:, None, None] * np.einsum("i,hixk->hxk", WEIGHTS, stages)
    return np.eye(n) + moved[:, :, :n], moved[:, :, n:]


def sensitivities(
    flow: Flow,
    parameters: Any = solution.NO_PARAMETERS,
    *names: str,
    until: float | None = None,
    at: Iterable[float] | None = None,
    events: Mapping[str, Any] | None = None,
    rtol: float = 1e-12,
    atol: float = 1e-14,
    beyond: bool = False,
    **end: Any,
) -> xr.Dataset:
    """Derivatives of curves and event times in parameters.

    Parameters
    ----------
    parameters : Parameters or mapping
        Parameters, or numbers by symbol name.
    *names : str
        Fields and derived constants; all on which the flow depends if there are none.
        A field also moves what follows from it; a derived constant moves alone. Sizes
        are taken as continuous.
    until, at, events, rtol, atol, beyond
        As of `Flow.solve`; an event may also be a `Fall`.
    **end
        The final time under the name of the flow's time, and constants to override, as
        of `Flow.solve`.

    Returns
    -------
    Dataset
        What `Flow.solve` returns; and for every order parameter, observable and event
        ``x``, over ``parameter``, its derivative ``d_x``. ``value`` holds the
        parameters' values. The attribute ``left_out`` names parameters from which the
        flow's numbers follow at whole numbers only.

    Raises
    ------
    ParameterError
        As `Flow.solve`; if nothing depends on a name, or only at whole numbers; or if
        rates have no derivative.
    """
    if until is not None:
        end["until"] = until
    with allow_beyond(beyond):
        return _sensitivities(flow, parameters, names, at, events, rtol, atol, end)


def _sensitivities(
    flow: Flow,
    parameters: Any,
    names: tuple[str, ...],
    at: Iterable[float] | None,
    events: Mapping[str, Any] | None,
    rtol: float,
    atol: float,
    end: dict[str, Any],
) -> xr.Dataset:
    time = flow.time.name
    if "until" in end and time not in end:
        end[time] = end.pop("until")
    events = {} if events is None else events
    falls = {x: e for x, e in events.items() if isinstance(e, Fall)}
    plain = {x: e for x, e in events.items() if x not in falls}
    quantities = solution.quantities(
        flow, plain | {x: e.quantity for x, e in falls.items()}
    )
    solution._refuse(flow, parameters, end, quantities.values())
    rtol = number("rtol", rtol, solution.TOLERANCE)
    atol = number("atol", atol, solution.TOLERANCE)
    length = end.pop(time)
    if end:
        grid = sweep.spanned(parameters, end)
        if grid.shape:
            raise ParameterError(f"{grid.names}: must be single numbers here")
        parameters = grid.points[0]
    flow._ask(parameters)
    times = solution._times(
        time, None if at is None else arguments.listed("at", at), length
    )
    observables = {x: flow._spell(e) for x, e in flow.observables.items()}
    read = others(flow, [*observables.values(), *quantities.values()])
    variations = Variations.of(flow, read)
    depends = Dependence(parameters, [s.name for s in variations.symbols])
    columns, left_out = _columns(flow, depends, names)
    numbers = depends.of_symbols()
    directions = np.array([*columns.values()]).T.reshape(-1, len(columns))
    path = Trajectory(flow, sweep.numbers(parameters), length, rtol, atol)

    crossings = {}
    for label, expr in quantities.items():
        level = (
            _level(variations, path, numbers, falls[label], expr)
            if (label in falls)
            else 0.0
        )
        spelled = expr.subs({s: numbers[s.name] for s in read}) - level
        crossings[label] = path.first_crossing(label, spelled)
    inside = [t for t in crossings.values() if np.isfinite(t)]
    every = np.unique([0.0, *times / length, *inside, 1.0])
    s = along(variations, path, numbers, directions, every)

    result = flow.observed(parameters, times, path.states(times / length))
    wanted = np.searchsorted(every, times / length)
    data: dict[str, Any] = {}
    for k, x in enumerate(flow.state):
        data[f"d_{x.name}"] = (("parameter", time), s[wanted, k].T)
    here = _Point(variations, path, numbers, directions, every, s)
    for x, expr in observables.items():
        if (moved := here.slopes(expr, wanted)) is not None:
            data[f"d_{x}"] = (("parameter", time), moved.T)
    for label, expr in quantities.items():
        data[label] = length * crossings[label]
        moved = here.shift(expr, crossings[label], falls.get(label))
        data[f"d_{label}"] = ("parameter", moved)
    data["value"] = ("parameter", [depends.value(x) for x in columns])
    result = result.assign_coords(parameter=list(columns)).assign(data)
    if left_out:
        result.attrs["left_out"] = "; ".join(left_out)
    result.attrs["solver"] = (
        f"LSODA, rtol {rtol:g}; collocation of order 6 on its steps"
    )
    return marked(result)


def _columns(
    flow: Flow, depends: Dependence, names: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Derivatives of the flow's symbols in each parameter, and what was left out."""
    columns: dict[str, np.ndarray] = {}
    left_out = []
    for name in names or depends.names:
        try:
            columns[name] = depends.direction(name)
        except Whole as error:
            if names:
                raise
            left_out.append(str(error))
            continue
        if not columns[name].any():
            raise ParameterError(
                f"{name}: nothing in {flow.name} depends on it; that depends on"
                f" {', '.join(depends.names)}"
            )
    if not columns:
        raise ParameterError(f"{flow.name}: depends on no parameter")
    return columns, left_out


def _level(
    variations: Variations,
    path: Trajectory,
    numbers: Mapping[str, float],
    fall: Fall,
    expr: sp.Expr,
) -> float:
    """Value at which a quantity has done a share of its change."""
    call = numeric.function(expr, variations.arguments)
    fixed = variations.fixed(numbers)
    first, last = (call(path.end * t, *path.states(t), *fixed) for t in (0.0, 1.0))
    return (1 - fall.share) * float(first) + fall.share * float(last)


@dataclass(frozen=True)
class _Point:
    """Derivatives of expressions along a solution whose sensitivities are known."""

    variations: Variations
    path: Trajectory
    numbers: Mapping[str, float]
    directions: np.ndarray
    times: np.ndarray
    s: np.ndarray

    def parts(self, expr: sp.Expr, k: Any) -> Any:
        """Derivatives in time, state and symbols at some of the times; None where
        there are none.
        """
        call = self.variations.gradient(expr)
        if call is None:
            return None
        return self._broadcast(call, self.times[k])

    def values(self, expr: sp.Expr, k: np.ndarray) -> np.ndarray:
        """An expression at some of the times."""
        (value,) = self._broadcast(self.variations.value(expr), self.times[k])
        return value

    def _broadcast(self, call: Any, t: Any) -> list[np.ndarray]:
        """What a compiled function gives at some times."""
        fixed = self.variations.fixed(self.numbers)
        with np.errstate(all="ignore"):
            values = call(self.path.end * t, *self.path.states(t), *fixed)
        return [np.broadcast_to(np.real(v), np.shape(t)) for v in values]

    def slopes(self, expr: sp.Expr, k: np.ndarray) -> np.ndarray | None:
        """Derivatives in the parameters at fixed times."""
        parts = self.parts(expr, k)
        if parts is None:
            return None
        n = len(self.variations.flow.state)
        state = np.array(parts[1 : n + 1])
        symbols = np.array(parts[n + 1 :])
        by_state = np.einsum("xt,txp->tp", state, self.s[k])
        return by_state + symbols.reshape(-1, len(k)).T @ self.directions

    def shift(self, expr: sp.Expr, time: float, fall: Fall | None) -> np.ndarray:
        """Derivatives of the time of an event; NaN where there is none."""
        if not np.isfinite(time) or time == 0:
            return np.full(self.directions.shape[1], 0.0 if time == 0 else np.nan)
        k = np.searchsorted(self.times, [time])
        slopes = self.slopes(expr, k)
        parts = self.parts(expr, k)
        if slopes is None:
            raise ParameterError(f"event {expr}: has no derivative")
        moved = slopes[0]
        if fall is not None:
            ends = self.slopes(expr, np.array([0, len(self.times) - 1]))
            assert ends is not None
            moved = moved - (1 - fall.share) * ends[0] - fall.share * ends[1]
        n = len(self.variations.flow.state)
        y = self.path.states(time)
        rates = self.path.rhs(time, y) / self.path.end
        pairs = zip(parts[1 : n + 1], rates, strict=True)
        speed = parts[0][0] + sum(gradient[0] * rate for gradient, rate in pairs)
        return -moved / speed + 0.0  # no -0


def elasticities(found: xr.Dataset, name: str) -> xr.DataArray:
    """Relative derivatives ``d ln x / d ln p`` of a result of `sensitivities`;
    NaN where a value is zero.

    Parameters
    ----------
    found : Dataset
    name : str
        A variable ``x`` that has a derivative ``d_x``.
    """
    size = found[name] * xr.ones_like(found.value)
    ratio = found[f"d_{name}"] * found.value / size
    return ratio.where((found.value != 0) & (size != 0))


def curves(
    flow: Flow,
    depends: Dependence,
    names: Sequence[str],
    quantities: Sequence[sp.Expr],
    end: float,
    times: np.ndarray,
    rtol: float = 1e-9,
    atol: float = 1e-12,
) -> tuple[np.ndarray, np.ndarray]:
    """Quantities and their derivatives in some parameters, at given times.

    Parameters
    ----------
    flow : Flow
    depends : Dependence
        Of the symbols of `Variations`.
    names : sequence of str
        Fields and constants.
    quantities : sequence of Expr
        Spelled out in order parameters, time and symbols.
    end : float
        Length of the run.
    times : ndarray
        Sorted, within the run.

    Returns
    -------
    values : ndarray, shape (quantities, times)
    slopes : ndarray, shape (quantities, times, parameters)

    Raises
    ------
    ParameterError
        If there is no solution, or a quantity has no derivative.
    """
    numbers = depends.of_symbols()
    variations = Variations.of(flow, others(flow, quantities))
    directions = np.array([depends.direction(x) for x in names]).T
    path = Trajectory(flow, numbers, end, rtol, atol)
    every = np.unique([0.0, *times / end, 1.0])
    s = along(variations, path, numbers, directions, every)
    here = _Point(variations, path, numbers, directions, every, s)
    wanted = np.searchsorted(every, times / end)
    values = np.array([here.values(e, wanted) for e in quantities])
    slopes = [here.slopes(e, wanted) for e in quantities]
    for quantity, moved in zip(quantities, slopes, strict=True):
        if moved is None:
            raise ParameterError(f"{quantity}: has no derivative")
    return values, np.array(slopes)


def others(flow: Flow, quantities: Iterable[sp.Expr]) -> list[sp.Symbol]:
    """Symbols of quantities that are neither time nor order parameters."""
    free = set().union(*(e.free_symbols for e in quantities))
    return sorted(free - {*flow.state, flow.time}, key=str)
