"""Datasets of curves, of a theory or of students, as every comparison reads them: one
time, sorted, of numbers, and each student once.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.interpolate
import xarray as xr

from theory import ParameterError
from theory.call.refusal import shown
from verify.compare import same_students

UNTIMED = ("seed", "draw")  # dimensions that are no time
# ratio of the lengths of runs and theory at which their units of time may differ
APART = 10


def pair(
    curve: Any, runs: Any, time: str | None = None, what: str = "the curve"
) -> tuple[xr.Dataset, xr.Dataset, str]:
    """A theory curve and runs over the same time, which is renamed as in the curve, and
    of the same seeds if the curve has seeds. Those without any value are not counted
    among them.

    Parameters
    ----------
    curve, runs : Dataset
    time : str, optional
        Name of the time in the runs.
    what : str
        Of which a time is missing, for the message.

    Raises
    ------
    ParameterError
        If it is not clear which dimension is the time, if the times are not usable
        (`axis`), or if runs and curve belong to different students
        (`same_students.check_curve`).
    """
    same_students.are_datasets(curve, runs)
    runs, time = _named(curve, runs, time, what)
    curve = axis("curve", curve, time)
    runs = axis("runs", runs, time)
    units = [data[time].attrs.get("units") for data in (curve, runs)]
    if None not in units and units[0] != units[1]:
        raise ParameterError(
            f"{time}: in {units[0]} in the curve, in {units[1]} in the runs"
        )
    for whose, data in (("curve", curve), ("runs", runs)):
        twice = Counter(_seeds(data)).most_common(1)
        if twice and twice[0][1] > 1:
            raise ParameterError(
                f"{whose}: seed {twice[0][0]!r} comes {twice[0][1]} times"
            )
    if (
        _seeds(curve)
        and {*_seeds(curve)} != {*_seeds(runs)}
        and _used(curve) == _used(runs)
    ):
        curve = curve.reindex(seed=runs.seed)
    same_students.check_curve(curve, runs)
    return curve, runs, time


def _named(curve: xr.Dataset, runs: xr.Dataset, time: str | None, what: str) -> Any:
    """Runs with their time named as in the curve, and its name."""
    ours = [str(d) for d in curve.dims if d not in UNTIMED]
    theirs = ", ".join(map(str, runs.dims))
    if time is not None and not (isinstance(time, str) and time in runs.dims):
        raise ParameterError(
            f"time = {shown(time)}: must be a dimension of the runs ({theirs})"
        )
    if time is not None and time not in ours:
        if len(ours) != 1:
            raise ParameterError(
                f"curve: must have one time, has {', '.join(ours) or 'none'}"
            )
        (name,) = ours
        if name in runs.variables:
            raise ParameterError(
                f"runs: have {name}, too: runs.swap_dims({time}={name!r})"
            )
        return runs.rename({time: name}), name
    if time is None:
        shared = [d for d in ours if d in runs.dims]
        timed = [{*v.dims} - {*UNTIMED} for v in curve.values()]
        alone = [d for d in shared if {d} in timed]
        if len(alone or shared) > 1:
            raise ParameterError(
                f"time = None: {what} must have one; it has {', '.join(shared)}"
            )
        if not shared:
            raise ParameterError(
                f"runs: no dimension {' or '.join(ours)}; say which of {theirs} is the"
                " time, in the curve's unit: time=..."
            )
        (time,) = alone or shared
    return runs, time


def axis(whose: str, data: Any, name: str) -> Any:
    """A Dataset or DataArray sorted by a dimension, whose coordinate is made float.

    Raises
    ------
    ParameterError
        Unless the dimension has a coordinate of finite numbers, each once.
    """
    if name not in data.coords:
        raise ParameterError(
            f"{whose}: dimension {name} has no times: assign_coords({name}=...) gives"
            " them"
        )
    kind = data[name].dtype.kind
    if kind in "mM":
        since = (
            f"{whose}.{name}"
            if kind == "m"
            else f"({whose}.{name} - {whose}.{name}[0])"
        )
        raise ParameterError(
            f"{whose}: {name} must be numbers, not {data[name].dtype}: "
            f'{whose}.assign_coords({name}=({since} / np.timedelta64(1, "s")).values)'
        )
    if kind not in "iuf":
        raise ParameterError(
            f"{whose}: times {name} must be numbers, not {data[name].dtype}"
        )
    times = data[name].values.astype(float)
    if not np.isfinite(times).all() or len(np.unique(times)) < len(times):
        raise ParameterError(f"{whose}: times {name} must be finite, each once")
    if not times.size:
        raise ParameterError(f"{whose}: has no times {name}")
    return data.assign_coords({name: (name, times, data[name].attrs)}).sortby(name)


def other_unit(curve: xr.Dataset, runs: xr.Dataset, time: str, end: float) -> list[str]:
    """Hint that runs may have another unit of time, if they end far from where theory
    does.
    """
    last = float(runs[time].max())
    if APART * abs(end) >= abs(last) >= abs(end) / APART:
        return []
    unit = curve[time].attrs.get("long_name", time)
    return [
        f"another unit of time? The runs end at {time} = {last:g}, theory at {end:g},"
        f" in {unit}: {time}=COLUMN/NUMBER converts a column"
    ]


def numbers(whose: str, data: xr.Dataset, names: Iterable[str]) -> xr.Dataset:
    """Some variables of a dataset, loaded, as float64; blanks are NaN.

    Raises
    ------
    ParameterError
        If one is infinite somewhere, complex, or no number.
    """
    data = data[[*names]].compute()
    for name, values in data.items():
        if values.dtype.kind not in "iuf":
            raise ParameterError(
                f"{whose}.{name}: must be real numbers, not {values.dtype}"
            )
        if np.isinf(values).any():
            infinite = values.where(np.isinf(values)).stack(place=values.dims)
            first = infinite.dropna("place")[0].coords
            places = [f"{d} = {first[d].item()}" for d in values.dims if d in first]
            raise ParameterError(
                f"{whose}.{name}: is infinite at {', '.join(places)}; NaN makes it"
                " blank"
            )
    return data.astype(float)


def companions(
    data: xr.Dataset, names: Iterable[str], suffixes: Iterable[str]
) -> list[str]:
    """Variables ``NAME_SUFFIX`` that a dataset has."""
    pairs = itertools.product(names, suffixes)
    variables = [f"{name}_{suffix}" for name, suffix in pairs]
    return [variable for variable in variables if variable in data]


def _used(data: xr.Dataset) -> set[Any]:
    """Seeds with any value."""
    seeds: set[Any] = set()
    for values in data.values():
        if "seed" in values.dims:
            present = values.notnull().any({*values.dims} - {"seed"})
            seeds |= {*present.seed.values[present.values].tolist()}
    return seeds


def _seeds(data: xr.Dataset) -> list[Any]:
    return (
        data.seed.values.tolist()
        if "seed" in data.dims and "seed" in data.coords
        else []
    )


def precision(*values: xr.DataArray) -> float:
    """Relative rounding error of single- or half-precision data; 0 of others."""
    kinds = [v.dtype for v in values if v.dtype.kind == "f" and v.dtype.itemsize < 8]
    return max((float(np.finfo(kind).eps) for kind in kinds), default=0.0)


def at(curve: xr.DataArray, time: str, times: np.ndarray) -> xr.DataArray:
    """A curve at other times inside its range: cubic between its points (linear for
    fewer than four), blank beside a blank.
    """
    known = curve[time].values
    times = np.clip(times, known[0], known[-1])

    def row(values: np.ndarray) -> np.ndarray:
        linear = np.interp(times, known, values)
        valid = np.isfinite(values)
        if valid.sum() < 4:
            return linear
        cubic = scipy.interpolate.make_interp_spline(known[valid], values[valid])(times)
        return np.where(np.isnan(linear) | np.isin(times, known), linear, cubic)

    return xr.apply_ufunc(
        row, curve, input_core_dims=[[time]], output_core_dims=[["_"]], vectorize=True
    ).rename(_=time)


def error(curve: xr.DataArray, time: str, times: np.ndarray) -> xr.DataArray:
    """Upper estimate of the error of `at`, zero at the curve's points: what changes
    without every second point. Cubics over half the spacing err a sixteenth.
    """
    last = curve.sizes[time] - 1
    coarse = curve.isel({time: np.unique([*range(0, last, 2), last])})
    apart = abs(at(curve, time, times) - at(coarse, time, times))
    return apart.where(~np.isin(times, curve[time].values), 0.0)
