"""Numerical solutions of a flow: integration with events, descent with finite steps;
and its door, where expressions are read in one symbol per name.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
import xarray as xr
from sympy.core.relational import Relational

from theory.call import sweep
from theory.call.arrays import listed
from theory.call.grid import Grid, naming
from theory.call.parameters import BaseParameters, Stepped
from theory.call.refusal import Allowed, ParameterError, nearest, number, shown
from theory.call.scope import allow_beyond, marked
from theory.call.values import Values
from theory.dynamics import bulk
from theory.dynamics.optimisers import Optimiser
from theory.dynamics.trajectory import Trajectory
from theory.equations.equation import Equation
from theory.numbers import numeric
from theory.runtime import memory
from theory.symbols import notation

if TYPE_CHECKING:
    from theory.dynamics.flow import Flow


NO_PARAMETERS: Mapping[str, float] = types.MappingProxyType({})
TOLERANCE = Allowed(above=0, below=1)
END_ROUNDING = 16 * np.finfo(float).eps


def unify(flow: Flow) -> dict[str, Any]:
    """Fields of a flow: values are expressions, and symbols of one name are one symbol,
    whatever their assumptions.

    Raises
    ------
    ParameterError
        For keys that are no symbols, values that are no expressions, names of two
        quantities, a missing initial value, or one that depends on order parameters or
        time.
    """
    for part in ("rhs", "where", "observables", "second_order"):
        notation.mapping(part, getattr(flow, part), "{x: -x}")
    keys = [flow.time, *flow.rhs, *flow.where]
    for key in keys:
        if not isinstance(key, sp.Symbol):
            raise ParameterError(
                f"{flow.name}: {shown(key)} must be a symbol, as symbol('x')"
            )
    names = [x.name for x in keys]
    notation.distinct(flow.name, names)
    notation.distinct(flow.name, [*names[: 1 + len(flow.rhs)], *flow.observables])
    initial = notation.by_name(
        "initial: {} is no order parameter", flow.initial, flow.rhs
    )
    symbols: dict[str, sp.Expr] = {x.name: x for x in keys}

    def read(values: Mapping[Any, Any]) -> dict[Any, sp.Expr]:
        exprs = {}
        for x, value in values.items():
            expr = notation.expression(f"{flow.name}: {x}", value, {})
            exprs[x] = expr
            for s in sorted(expr.free_symbols, key=str):
                symbols.setdefault(str(s), s)
        return {x: notation.expression(str(x), e, symbols) for x, e in exprs.items()}

    rates = read(flow.rhs)
    start = read(initial)
    for x in flow.rhs:
        if x not in start or start[x].free_symbols & {*keys}:
            raise ParameterError(
                f"{flow.name}: {x} has no start, an expression in parameters"
            )
    parts = ("where", "observables", "second_order")
    more = {part: read(getattr(flow, part)) for part in parts}
    return {"rhs": rates, "initial": {x: start[x] for x in rates}, **more}


def quantities(flow: Flow, values: Mapping[str, Any]) -> dict[str, sp.Expr]:
    """Events of a flow by name, spelled out: expressions in order parameters, time,
    abbreviations, observables and parameters, as ``loss - 0.1``; relations, ``loss <
    0.1``; or the name of a quantity that crosses zero.

    Raises
    ------
    ParameterError
        If one is no expression, or one that nothing changes.
    """
    notation.mapping("events = {}", values, "{'half': x - 0.5}")
    names = [flow.time.name, *map(str, flow.state), *flow.observables]
    notation.distinct("events", [*names, *values])
    exprs = [*flow.expanded.values(), *flow.initial.values()]
    symbols = {*flow.state, flow.time, *flow.where}
    symbols = symbols.union(*(e.free_symbols for e in exprs))
    known = {s.name: s for s in symbols} | dict(flow.observables)
    events = {}
    for label, value in values.items():
        value = known.get(value, value) if isinstance(value, str) else value
        value = value.lhs - value.rhs if isinstance(value, Relational) else value
        expr = flow._spell(notation.expression(f"event {label}", value, known))
        if not expr.free_symbols:
            raise ParameterError(f"event {label} = {shown(value)}: never changes")
        events[label] = expr
    return events


def solve(
    flow: Flow,
    parameters: Any = NO_PARAMETERS,
    until: float | None = None,
    *,
    at: Iterable[float] | None = None,
    events: Mapping[str, sp.Expr] | None = None,
    rtol: float = 1e-12,
    atol: float = 1e-14,
    beyond: bool = False,
    fluctuations: bool = False,
    **end: Any,
) -> xr.Dataset:
    """Integrate from the initial values (LSODA with the symbolic Jacobian).

    Parameters
    ----------
    parameters : Parameters or mapping, optional
        Parameters, or numbers by symbol name.
    until : float
        Final time, also under the name of the flow's time: ``flow.solve(p, alpha=12)``.
    at : array, optional
        Output times; 601 equidistant ones by default.
    events : mapping of str to Expr, optional
        Expressions in the order parameters. The first zero crossing of each is returned
        under its name (NaN if there is none), to the accuracy of the integration. A
        jump at the start counts, at time 0 to this accuracy; what only touches zero, or
        is zero at the end, does not. No crossing is missed where rates or the event
        jump or peak in time or order parameters, if the peak is that of a function or
        power, however narrow: steps end there.
    rtol, atol : float
        Integrator tolerances, between 0 and 1. The absolute tolerance is lowered to
        ``rtol`` times the smallest nonzero initial value if that is smaller.
    beyond : bool
        Also solve for students that the flow does not describe, with a warning.
    fluctuations : bool
        Add what steps, batches and random weights do to every variable ``x`` and to the
        time of every event: ``x_bias``, of the mean over students, and ``x_sd``, as
        `theory.statement.randomness.minibatches.around` has them; for flows of
        statements.
    **end : array
        Arrays of fields, which become dimensions of the result: ``L=[5, 10, 20]``;
        lists as long as each other are read as pairs, DataArrays of different
        dimensions give a table.

    Returns
    -------
    Dataset
        Order parameters and observables over time, events as scalars, parameters,
        provenance and number of steps as attributes.

    Raises
    ------
    ParameterError
        If the final time is missing, misnamed, or not positive and finite; if a
        tolerance is not between 0 and 1; if an output time lies outside the run; if a
        symbol has no value; if the flow does not describe these students, or has no
        fluctuations; or if the solution overflows.
    """
    if until is not None:
        end["until"] = until
    with allow_beyond(beyond):
        return _solved(flow, parameters, at, events, rtol, atol, fluctuations, end)


def _solved(
    flow: Flow,
    parameters: Any,
    at: Iterable[float] | None,
    events: Mapping[str, sp.Expr] | None,
    rtol: float,
    atol: float,
    fluctuations: bool,
    end: dict[str, Any],
) -> xr.Dataset:
    name = flow.time.name
    known = flow.fluctuations and isinstance(parameters, BaseParameters)
    if fluctuations and not known:
        where = "follow from a statement, at Parameters with eta and batch_size"
        raise ParameterError(
            f"fluctuations: of {flow.name} are not known; they {where}"
        )
    if "until" in end and name not in end:
        end[name] = end.pop("until")
    crossing = quantities(flow, {} if events is None else events)
    _refuse(flow, parameters, end, crossing.values())
    rtol = number("rtol", rtol, TOLERANCE)
    atol = number("atol", atol, TOLERANCE)
    at = None if at is None else listed("at", at)
    if len(end) > 1:
        options: Any = {"rtol": rtol, "atol": atol, name: end.pop(name)}
        grid = sweep.spanned(parameters, end)
        if len(grid.points) >= bulk.FEWEST and bulk.follows(flow) and not fluctuations:
            return marked(_many(flow, grid, at, crossing, options))
        options |= {"at": at, "events": events, "fluctuations": fluctuations}
        if not grid.shape:
            return flow.solve(grid.points[0], **options)
        solved = []
        for k, q in enumerate(grid.distinct):
            with naming(grid.label(k)):
                solved.append(flow.solve(q, **options))
        return marked(grid.stack([solved[k] for k in grid.which]))
    flow._ask(parameters)
    numbers = sweep.numbers(parameters, [s.name for s in flow._compiled[0]])
    at = _times(name, at, end[name])
    path = Trajectory(flow, numbers, end[name], rtol, atol)
    result = flow.observed(parameters, at, path.states(at / end[name]))
    result.attrs["solver"] = f"LSODA, rtol {rtol:g}, atol {path.options['atol']:g}"
    result.attrs["steps"] = len(path.t) - 1
    for label, expr in crossing.items():
        others = expr.free_symbols - {*flow.state, flow.time}
        used = sweep.numbers(parameters, [s.name for s in others])
        spelled = expr.subs({s: used[s.name] for s in others})
        result[label] = end[name] * path.first_crossing(label, spelled)
    add = flow.fluctuations if fluctuations else None
    return marked(add(parameters, result, crossing)) if add else result


def _times(name: str, at: np.ndarray | None, end: float) -> np.ndarray:
    """Output times of a run."""
    at = np.linspace(0, end, 601) if at is None else at.astype(float)
    # A computed last output time may exceed the final time by a few rounding errors.
    at = np.where((at > end) & (at <= end * (1 + END_ROUNDING)), end, at)
    if not ((at >= 0) & (at <= end)).all():
        raise ParameterError(f"at: times must lie between 0 and {name} = {end:g}")
    return at


def _many(
    flow: Flow,
    grid: Grid,
    at: np.ndarray | None,
    crossing: Any,
    options: dict[str, Any],
) -> xr.Dataset:
    """Solutions at all points of a grid, integrated together; the first one also by
    itself, where what is wrong with a flow or an event is found.
    """
    end = options[flow.time.name]
    points = grid.distinct
    rtol = options["rtol"]
    with naming(grid.label(0)):
        first = flow.solve(points[0], at=at, events=crossing, **options)
    times = first[flow.time.name].values
    exprs = [*map(flow._spell, flow.observables.values()), *crossing.values()]
    read = set().union(flow._compiled[0], *(e.free_symbols for e in exprs))
    used = [x.name for x in sorted(read - {*flow.state, flow.time}, key=str)]
    rows = []
    for q in points:
        flow._ask(q)
        values = sweep.numbers(q, used)
        rows.append([values[x] for x in used])
    columns = np.array(rows, float).reshape(len(rows), -1).T
    numbers = dict(zip(used, columns, strict=True))
    parts = []
    chunks = len(points) * len(flow.state) // bulk.ROOM + 1
    for batch in np.array_split(np.arange(len(points)), chunks):
        here = {x: v[batch] for x, v in numbers.items()}
        labels = [grid.label(k) for k in batch]
        path = bulk.Bulk(flow, here, end, rtol, options["atol"], labels)
        states = path.states(times / end)
        along = dict(zip([x.name for x in flow.state], states, strict=True))
        here = {x: v[:, None] for x, v in here.items()} | {flow.time.name: times}
        crossed = {x: path.first_crossing(x, e, here) for x, e in crossing.items()}
        observables = _observables(flow, here | along, states.shape[1:])
        parts.append(along | observables | crossed)
    data = {}
    for x in first.data_vars:
        data[x] = np.concatenate([part[x] for part in parts])[grid.which]
    result = grid.labelled(first, data)
    for of_the_first in ("parameters", "steps"):
        result.attrs.pop(of_the_first, None)
    result.attrs["solver"] = (
        f"DOP853, a step per point, rtol {rtol:g}, atol {options['atol']:g}"
    )
    return result


def parameter_names(
    flow: Flow, parameters: Any, exprs: Iterable[sp.Expr] = ()
) -> list[str]:
    """Parameters that a flow, or expressions, have; an error for other names in a
    mapping.
    """
    if isinstance(parameters, BaseParameters):
        return [
            *(f.name for f in dataclasses.fields(parameters)),
            *parameters.CONSTANTS,
        ]
    exprs = [*flow.where.values(), *flow.observables.values(), *exprs]
    read = {*flow._compiled[0], *flow.others}.union(*(e.free_symbols for e in exprs))
    known = sorted(read - {*flow.state, flow.time, *flow.where}, key=str)
    if isinstance(parameters, Mapping) and not isinstance(parameters, Values):
        notation.by_name("p: {} is no parameter of the flow", parameters, known)
    return [x.name for x in known]


def _refuse(
    flow: Flow, parameters: Any, end: dict[str, Any], events: Iterable[sp.Expr] = ()
) -> None:
    """Reject keywords of `solve` that are no field, and a final time that is not
    positive.
    """
    name = flow.time.name
    fields = parameter_names(flow, parameters, events)
    others = [key for key in end if key not in (name, *fields)]
    if others and name not in end:
        raise ParameterError(
            f"{others[0]}: the time of {flow.name} is called {name}; give {name} ="
            f" {end[others[0]]}"
        )
    if others:
        known = (name, "at", "events", "rtol", "atol", *fields)
        hint = nearest(others[0], known)
        raise ParameterError(
            f"{others[0]}: unknown keyword; {hint}known are {', '.join(known)}"
        )
    try:
        end[name] = number(name, end[name], Allowed(above=0))
    except (KeyError, ParameterError):
        given = f"{name} = {shown(end[name])}" if name in end else "nothing"
        if isinstance(parameters, Stepped) and parameters.TIME == name:
            run = getattr(parameters, parameters.LENGTH) * parameters.time_per_step
            given += f"; these parameters run to {name}={run:g}"
        raise ParameterError(
            f"run length: must be {name} = a positive number, got {given}"
        ) from None


def descend(
    flow: Flow,
    parameters: Any,
    step: float,
    steps: int,
    *,
    optimizer: Optimiser | None = None,
) -> xr.Dataset:
    """Gradient descent with a finite step: the Euler map of the flow, with its terms of
    second order in the step; or another optimiser.

    Parameters
    ----------
    parameters : Parameters or mapping
        Parameters, or numbers by symbol name.
    step : float
        Step in the flow's time; the learning rate of an optimiser.
    steps : int
        Number of steps.
    optimizer : Optimiser, optional
        Momentum, weight decay, Adam, a schedule, clipping: steps of the student's
        weights, in place of plain descent. Time stays ``step`` times the number of
        steps.

    Returns
    -------
    Dataset
        Order parameters and observables over time, after every step.

    Raises
    ------
    ParameterError
        If a symbol has no value, if an optimiser is asked for where order parameters
        are not sums of weights, or if the path does not fit into memory.
    """
    flow._ask(parameters)
    step = number("step", step)
    steps = number("steps", steps, Allowed(low=0), int)
    size = 16.0 * steps * (1 + len(flow.state))  # path, and its copy
    if memory.exceeds(size):
        raise ParameterError(
            f"steps = {steps}: needs {memory.amount(size)} of memory; take fewer"
        )
    times = step * np.arange(steps + 1)
    if optimizer is not None:
        if flow.entries is None:
            raise ParameterError(
                f"optimizer: {flow.name} does not follow the weights themselves, which"
                " an optimiser moves; must be none, plain descent"
            )
        numbers = sweep.numbers(parameters)
        path = flow.entries().path(flow.state, numbers, optimizer, step, steps)
        return flow.observed(parameters, times, path)
    parameter_names(flow, parameters)
    numbers = sweep.numbers(parameters)
    rates, _, start = flow._functions(numbers, step, np.inf)
    free = flow._compiled[0]
    second = numeric.system(
        [flow.time, *flow.state, *free],
        [flow.second_order.get(x, sp.S.Zero) for x in flow.state],
    )
    fixed = [np.float64(numbers[s.name]) for s in free]
    path = np.empty((steps + 1, start.size))
    path[0] = start
    with np.errstate(all="ignore"):  # of a descent that diverges
        for n in range(steps):
            path[n + 1] = path[n] + rates(n, path[n])
            if flow.second_order:
                path[n + 1] += step**2 * np.array(second(times[n], *path[n], *fixed))
    return flow.observed(parameters, times, path.T)


def _observables(
    flow: Flow, known: Any, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Values of the observables along solutions."""
    named = {
        x: Equation(x, sp.Symbol(x), flow._spell(e), flow.reference, flow.status)
        for x, e in flow.observables.items()
    }
    return {x: np.broadcast_to(of.evaluate(known), shape) for x, of in named.items()}


def observed(
    flow: Flow, parameters: Any, times: np.ndarray, states: np.ndarray
) -> xr.Dataset:
    """Label an array of states ``(state, time)`` and add the observables."""
    name = flow.time.name
    numbers = sweep.numbers(parameters)
    data = {x.name: (name, states[i]) for i, x in enumerate(flow.state)}
    along = dict(zip([x.name for x in flow.state], states, strict=True))
    along[name] = times
    values = _observables(flow, numbers | along, times.shape)
    data |= {label: (name, value) for label, value in values.items()}
    clock = {"long_name": f"training time {name} = {flow.clock}"} if flow.clock else {}
    result = xr.Dataset(
        data,
        coords={name: (name, times, clock)},
        attrs={
            "kind": "theory",
            "flow": flow.name,
            "reference": flow.reference,
            "status": flow.status,
        },
    )
    if hasattr(parameters, "as_json"):
        result.attrs["parameters"] = parameters.as_json()
    return marked(
        parameters.timed(result) if isinstance(parameters, Stepped) else result
    )
