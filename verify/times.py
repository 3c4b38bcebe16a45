"""Emergence times of students and of a theory, side by side, and their exponents, as datasets."""

import numpy as np
import xarray as xr

from theory import ParameterError, prediction, scope
from verify.emergence import first_crossing


def emergence_times(
    runs: xr.Dataset,
    theory: xr.Dataset,
    *,
    time: str | None = None,
    beyond: bool = False,
    **levels: float,
) -> xr.Dataset:
    """When variables first reach a level, in students and in theory: ``emergence_times(runs,
    st.predict(p, runs), A=0.5).to_dataframe()``.

    Parameters
    ----------
    runs, theory : Dataset
        Students and theory over the same time and, where they have them, over ``seed`` and fields
        that were swept.
    time : str, optional
        The dimension that is the time; needed only if something else is swept.
    beyond : bool
        Also for students that the theory does not describe, with a warning.
    **levels : float
        Variable and level.

    Returns
    -------
    Dataset
        ``measured`` and ``predicted`` over ``quantity`` and all dimensions but the time, in its
        unit, and ``deviation`` = measured / predicted - 1. NaN where a level is not reached.

    Raises
    ------
    ParameterError
        If a variable is missing, the time is not clear, or the theory does not describe the
        students.
    """
    with scope.allow_beyond(beyond):
        prediction.check_curve(theory, runs)
    if not levels:
        raise ParameterError("levels: none given; say for instance A=0.5")
    datasets = []
    for name, level in levels.items():
        sides = {"measured": runs, "predicted": theory}
        missing = [side for side, data in sides.items() if name not in data.data_vars]
        if missing:
            known = ", ".join(str(n) for n in runs.data_vars if n in theory.data_vars)
            raise ParameterError(f"{name}: not {' or '.join(missing)}; both have {known or 'none'}")
        crossed = {side: _crossing(data[name], level, time) for side, data in sides.items()}
        datasets.append(xr.Dataset(crossed).expand_dims(quantity=[f"{name} = {level:g}"]))
    times = xr.concat(datasets, "quantity")
    return times.assign(deviation=times.measured / times.predicted - 1)


def _crossing(curve: xr.DataArray, level: float, time: str | None) -> xr.DataArray:
    """First crossing along the time, of every other index."""
    clocks = [str(d) for d in curve.dims if d != "seed" and time in (None, d)]
    if len(clocks) != 1:
        others = ", ".join(str(d) for d in curve.dims if d != "seed")
        raise ParameterError(f"time = {time!r}: {curve.name} must have one; it has {others}")
    clock = clocks[0]

    def first(row: np.ndarray) -> float:
        return float(first_crossing(xr.DataArray(row, {clock: curve[clock]}), level).values[0])

    return xr.apply_ufunc(first, curve, input_core_dims=[[clock]], vectorize=True)


def exponents(times: xr.Dataset, along: str) -> xr.Dataset:
    """Exponent of each time in a swept field: least squares of its logarithm, seed by seed.

    Parameters
    ----------
    times : Dataset
        From `emergence_times`, over ``along`` and, where there are students, ``seed``.
    along : str
        The swept field; its values are positive.

    Returns
    -------
    Dataset
        Mean over seeds of each variable but the deviation, with ``NAME_error``, its standard error
        over seeds (NaN for a single value), and ``gap``, measured - predicted of the same seed.
        Seeds that do not reach the level everywhere are left out.

    Raises
    ------
    ParameterError
        If `along` is no dimension with at least two positive values.
    """
    if along not in times.dims or times.sizes[along] < 2 or not bool((times[along] > 0).all()):
        raise ParameterError(f"along = {along!r}: must be a dimension with two positive values")
    x = np.log(times[along])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slopes = (weights * np.log(times.drop_vars("deviation"))).sum(along, skipna=False)
    slopes = slopes.assign(gap=slopes.measured - slopes.predicted)
    out = xr.Dataset()
    for name, slope in slopes.items():
        seeds = slope.count("seed") if "seed" in slope.dims else 1
        out[name] = slope.mean("seed") if "seed" in slope.dims else slope
        error = slope.std("seed", ddof=1) if "seed" in slope.dims else np.nan
        out[f"{name}_error"] = error / np.sqrt(seeds) + 0 * out[name]
    return out
