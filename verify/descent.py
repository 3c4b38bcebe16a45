"""Descent against every flow of a model, at steps that are halved: curves and half-way times."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import ParameterError, registry
from theory.flow import Flow
from theory.parameters import Stepped
from verify.check import Check
from verify.emergence import smooth_crossing
from verify.rates import rates

MANY = 4.0  # half-way times in a run
STEPS = (128, 256, 512, 1024)  # to the end of a run
FINER = 16  # times as many at most, where these do not decide


def described(flow: Flow, model: registry.Model) -> Any:
    """Parameters that a flow describes: the defaults, a preset, or one with fields that its scope
    names.

    Raises
    ------
    ParameterError
        If there are none.
    """
    kind = (flow.scope and flow.scope.parameters) or model.wing("theory").Parameters
    settings = [make() for make in (kind, *kind.presets().values())]
    for p in settings:
        if flow.scope is None or not flow.scope.applies(p):
            return p
        for changes in flow.scope._within(p, {}):
            return p.replace(**changes)
    raise ParameterError(f"{flow.name}: describes no preset of {model.name}")


def length(flow: Flow, p: Any) -> float:
    """Time of a run; where parameters have none, ten times that in which something moves by one."""
    if isinstance(p, Stepped) and p.TIME == flow.time.name:
        return getattr(p, p.LENGTH) * p.time_per_step
    begun = flow.descend(p, 1.0, 1)[[x.name for x in flow.state]].to_array().values
    return 10 / float(abs(np.diff(begun)).max())


def rows(model: registry.Model) -> Iterator[Check | str]:
    """Two rows for each flow of a model, or a note why there are none."""
    for flow in getattr(model.wing("theory"), "flows", dict)().values():
        try:
            p = described(flow, model)
        except ParameterError as error:
            yield f"no row of {flow.name}: {error}"
        else:
            yield from of_flow(flow, p, length(flow, p))


def of_flow(flow: Flow, p: Any, end: float) -> Iterator[Check | str]:
    """Exponents in the step: of the curves of all order parameters, and of the times at which those
    that get somewhere are half-way.

    Parameters
    ----------
    flow : Flow
    p : Parameters or mapping
        As for `Flow.solve`.
    end : float
        Length of a run; shorter if nothing moves any more, or a step of a 128th is too large.
    """
    names = [x.name for x in flow.state]

    @functools.cache
    def descent(step: float) -> xr.Dataset:
        with np.errstate(over="ignore", invalid="ignore"):
            return flow.descend(p, step, round(end / step))[names]

    while not np.isfinite(descent(end / STEPS[0]).to_array()).all():
        end /= 2
    long = flow.solve(p, until=end)[names]
    levels = {
        n: float(x[[0, -1]].mean())
        for n, x in long.items()
        if abs(float(x[-1] - x[0])) > float(x.max() - x.min()) / 2
    }
    events = {
        f"half-way {x.name}": x - sp.Float(levels[x.name]) for x in flow.state if x.name in levels
    }
    exact = flow.solve(p, at=[0.0], until=end, events=events)[[*events]]
    end = min(end, MANY * float(exact.to_array().max()))

    def crossings(step: float) -> xr.Dataset:
        path = descent(step)
        found = {f"half-way {n}": smooth_crossing(path[n], x) for n, x in levels.items()}
        return xr.Dataset(found).fillna(2 * end)  # of one that never comes: off at every step

    def curve(step: float) -> xr.Dataset:
        return flow.solve(p, at=step * np.arange(round(end / step) + 1), until=end)[names]

    for what, theory, measured in (
        ("curves", curve, descent),
        ("half-way times", exact, crossings),
    ):
        for finer in range(FINER.bit_length()):
            rate = rates(theory, measured, [end / (n << finer) for n in STEPS])
            if rate.verdict != "undecided":
                break
        yield rate.check(f"order of descent in its step, {what}, {flow.name}", flow.name)
