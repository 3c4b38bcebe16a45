"""Rates of convergence, an exponent in place of a tolerance: ``python -m verify.rates
[MODEL]``. Every flow of a model against descent at steps that are halved, by curves and
half-way times; and orders that its theory states besides.
"""

import argparse
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import ParameterError
from theory.call.arrays import listed
from theory.call.parameters import Stepped
from theory.call.refusal import Allowed, number, shown
from theory.dynamics.flow import Flow
from theory.models import command_line, plugins, registry
from theory.runtime import cli, progress
from verify.checks.check import Check, together, with_notes
from verify.checks.report import Report, gathered, merged
from verify.compare.emergence import smooth_crossing
from verify.compare.exponents import Rate, fitted

ROUNDING = 1e-9  # relative error of a solved flow, at its usual tolerances
MANY = 4.0  # half-way times in a run
STEPS = (128, 256, 512, 1024)  # to the end of a run
FINER = 16  # times as many at most, where these do not decide


def rates(
    theory: Any,
    measured: Any,
    steps: Sequence[float] | np.ndarray,
    order: float | None = 1,
    *,
    rounding: float = ROUNDING,
) -> Rate:
    """Measure with which power of a step the difference between a theory and a
    measurement shrinks.

    Parameters
    ----------
    theory, measured : callable, sequence, or a single value
        A function of the step, one value per step, or a number, DataArray or Dataset
        for all steps. A value may also be an array. Curves are compared at the times of
        ``measured`` at the largest step; between others they are interpolated, and the
        error of that counts as an error of theirs. Of ``theory = 0`` the exponent of
        ``measured`` itself is found. A dimension ``seed``, as long at every step, gives
        standard errors.
    steps : sequence of float
        Three or more sizes of what is divided: learning rate, 1/N, 1/batch, ...
    order : float or None
        The power that the theory states; None if there must be no difference.
    rounding : float
        Relative numerical error of both sides.

    Returns
    -------
    Rate

    Raises
    ------
    ParameterError
        For fewer than three different steps, steps that are not positive, sides of
        another length, values that are not finite or do not fit together, and a single
        seed.

    Notes
    -----
    The logarithm of the difference is fitted as ``a + order log(step) + b step + ...``.
    Without seeds the exponent is Richardson's extrapolation of those between
    neighbouring steps, and its error the difference of the last two of these. With
    seeds it is least squares, and its error what the next orders change, and that of
    leaving out a seed at a time (jackknife), at all steps at once. Of a right theory
    the extrapolation comes nearer to the order; of a wrong one, whose difference stays,
    it leads away. Four steps are better than three.
    """
    h = listed("steps", steps, Allowed(above=0))
    if len(set(h)) < max(3, len(h)):
        raise ParameterError(
            f"steps = {shown(steps)}: must be three or more different sizes"
        )
    order = None if order is None else number("order", order)
    rounding = number("rounding", rounding, Allowed(above=0, below=1))
    theories, measurements = (
        _values("theory", theory, h),
        _values("measured", measured, h),
    )
    falling = np.argsort(-h)
    pairs = [[theories[k], measurements[k]] for k in falling]
    return fitted(h[falling], order, *_gaps(pairs, rounding))


def _values(name: str, side: Any, h: np.ndarray) -> list[xr.DataArray]:
    """One array per step; the variables of a dataset become a dimension."""
    if callable(side):
        side = [side(float(step)) for step in h]
    elif isinstance(side, xr.Dataset | xr.DataArray | int | float | np.generic) or (
        isinstance(side, np.ndarray) and not side.ndim
    ):
        side = [side] * len(h)
    if not hasattr(side, "__len__") or len(side) != len(h):
        raise ParameterError(
            f"{name}: must be a function of the step, or {len(h)} values, one each"
        )
    return [
        x.to_dataarray() if isinstance(x, xr.Dataset) else xr.DataArray(x) for x in side
    ]


def _gaps(
    pairs: list[list[xr.DataArray]], rounding: float
) -> tuple[list[np.ndarray], np.ndarray]:
    """Differences over seeds and values, in units of each variable's largest value; and
    their rounding errors.
    """
    curves = list(itertools.chain.from_iterable(pairs))
    for pair in pairs:
        one, other = ({*x.dims} - {"seed"} for x in pair)
        if not (one <= other or other <= one) or any(np.iscomplexobj(x) for x in pair):
            raise ParameterError(
                f"theory, measured: dimensions {shown(sorted(map(str, one)))} and "
                f"{shown(sorted(map(str, other)))}: must be the same, and values real"
            )
    indexed = [{*x.indexes} for x in curves]
    times = {*curves[0].dims}.intersection(*indexed) - {"seed", "variable"}
    between = np.zeros(len(pairs))
    for time in times:
        ends = [x[time].values[[0, -1]] for x in curves]
        first, last = max(e[0] for e in ends), min(e[1] for e in ends)
        at = np.unique(pairs[0][1][time].clip(first, last))
        for k, pair in enumerate(pairs):
            between[k] += max(_between(x, time, at) for x in pair)
            pairs[k] = [_at(x, time, at) for x in pair]
    sizes = [(_size(theory), _size(measured)) for theory, measured in pairs]
    theories, measurements = zip(*sizes, strict=True)
    try:
        with xr.set_options(arithmetic_join="exact"):
            unit = functools.reduce(np.maximum, theories)
            of_measured = functools.reduce(np.maximum, measurements)
            unit = unit.where(unit > 0, of_measured.where(of_measured > 0, 1.0))
            apart = [(measured - theory) / unit for theory, measured in pairs]
    except ValueError as error:
        raise ParameterError(
            f"theory, measured: {str(error).splitlines()[0]}"
        ) from None
    seeds = {x.sizes.get("seed", 0) for x in apart}
    if len(seeds) > 1 or 1 in seeds:
        raise ParameterError(
            "measured: seeds must be two or more, as many at every step"
        )
    if not all(np.isfinite(x).all() for x in apart):
        raise ParameterError(
            "theory, measured: must be finite, at all times and of all seeds"
        )
    rows = [x.transpose("seed", ..., missing_dims="ignore").values for x in apart]
    floors = []
    for both in sizes:
        largest = max(float((size / unit).max()) for size in both)
        floors.append(rounding * largest)
    if between[0] > np.sqrt((rows[0] ** 2).mean()):
        raise ParameterError(
            "theory, measured: too few times to interpolate between; give both at the"
            " same ones, as flow.solve(p, at=runs.t, ...)"
        )
    return [x.reshape(max(*seeds, 1), -1) for x in rows], np.array(floors) + between


def _size(x: xr.DataArray) -> xr.DataArray:
    """Largest absolute value of each variable."""
    return abs(x).max({*x.dims} - {"variable"})


def _at(x: xr.DataArray, time: Any, at: np.ndarray) -> xr.DataArray:
    """A curve at times, between its own by cubic interpolation."""
    several = x[time].size > 3 and len(at) > 3
    return x.interp({time: at}, "cubic" if several else "linear")


def _between(x: xr.DataArray, time: Any, at: np.ndarray) -> float:
    """Error of `_at`, relative to the largest value: what every second time would add,
    which is more than the error of all.
    """
    if np.isin(at, x[time]).all():
        return 0.0
    fewer = x.isel({time: sorted({*range(0, x[time].size, 2), x[time].size - 1})})
    apart = abs(_at(fewer, time, x[time].values) - x)
    return float(apart.max() / max(float(abs(x).max()), np.finfo(float).tiny))


# Descent against every flow of a model


def described(flow: Flow, model: registry.Model) -> Any:
    """Parameters that a flow describes: the defaults, a preset, or one with fields that
    its scope names.

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
    """Time of a run; where parameters have none, ten times that in which something
    moves by one.
    """
    if isinstance(p, Stepped) and p.TIME == flow.time.name:
        return getattr(p, p.LENGTH) * p.time_per_step
    begun = flow.descend(p, 1.0, 1)[[x.name for x in flow.state]].to_array().values
    return 10 / float(abs(np.diff(begun)).max())


def flow_rows(model: registry.Model) -> Iterator[Check | str]:
    """Two rows for each flow of a model, or a note why there are none."""
    for flow in getattr(model.wing("theory"), "flows", dict)().values():
        try:
            p = described(flow, model)
        except ParameterError as error:
            yield f"no row of {flow.name}: {error}"
        else:
            yield from of_flow(flow, p, length(flow, p))


def of_flow(flow: Flow, p: Any, end: float) -> Iterator[Check | str]:
    """Exponents in the step: of the curves of all order parameters, and of the times at
    which those that get somewhere are half-way.

    Parameters
    ----------
    flow : Flow
    p : Parameters or mapping
        As for `Flow.solve`.
    end : float
        Length of a run; shorter if nothing moves any more, or a step of a 128th is too
        large.
    """
    names = [x.name for x in flow.state]

    @functools.cache
    def descent(step: float) -> xr.Dataset:
        with np.errstate(over="ignore", invalid="ignore"):
            return flow.descend(p, step, round(end / step))[names]

    while not np.isfinite(descent(end / STEPS[0]).to_array()).all():
        end /= 2
    long = flow.solve(p, until=end)[names]
    levels = {}
    for name, x in long.items():
        if abs(float(x[-1] - x[0])) > float(x.max() - x.min()) / 2:
            levels[name] = float(x[[0, -1]].mean())
    events = {
        f"half-way {x.name}": x - sp.Float(levels[x.name])
        for x in flow.state
        if x.name in levels
    }
    exact = flow.solve(p, at=[0.0], until=end, events=events)[[*events]]
    end = min(end, MANY * float(exact.to_array().max()))

    def crossings(step: float) -> xr.Dataset:
        path = descent(step)
        times = {
            f"half-way {n}": smooth_crossing(path[n], x) for n, x in levels.items()
        }
        # Of one that never comes: off at every step.
        return xr.Dataset(times).fillna(2 * end)

    def curve(step: float) -> xr.Dataset:
        times = step * np.arange(round(end / step) + 1)
        return flow.solve(p, at=times, until=end)[names]

    for what, theory, measured in (
        ("curves", curve, descent),
        ("half-way times", exact, crossings),
    ):
        for finer in range(FINER.bit_length()):
            rate = rates(theory, measured, [end / (n << finer) for n in STEPS])
            if rate.verdict != "undecided":
                break
        yield rate.check(
            f"order of descent in its step, {what}, {flow.name}", flow.name
        )


def report(model: registry.Model) -> Report:
    """Rows of a model: its flows against descent, and orders that its theory states
    besides.
    """
    systems = model.systems or [model]
    modules = {x.wing("verify", "rates") for x in systems if x.has("verify", "rates")}
    groups = [getattr(module, "GROUPS", None) or module.rates for module in modules]
    parts = [with_notes(flow_rows)(system) for system in systems]
    parts += [(gathered(group), []) for group in groups]
    return Report(*together(parts))


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    what = (
        "With which power of a step a theory is approached: flows by descent, laws by"
        " what they leave out."
    )
    args = command_line.parser(
        "verify.rates", what, "json", "wide", "quiet", model="all"
    ).parse_args(argv)
    models = [m for m in registry.TABLE.values() if m.beside or not m.family]
    if args.model:
        models = [args.model]
    reports = []
    with progress.bar("verify.rates", show=not args.quiet):
        for model in progress.each(models, "models", lambda m: m.name):
            with plugins.skip_on_error(model):
                reports.append(report(model))
    merged_report = merged(reports)
    if not (merged_report.checks or merged_report.notes):
        raise ParameterError(
            f"verify.rates: {models[0].name} has no flow, and states no order"
        )
    args.model = args.model or argparse.Namespace(name="all")
    return merged_report.printed(args)


if __name__ == "__main__":
    cli.run(main)
