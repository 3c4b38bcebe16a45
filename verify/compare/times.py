"""Emergence times of students and of a theory, side by side, and their exponents, as
datasets.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from theory import ParameterError
from theory.call import scope
from theory.call.refusal import number, shown
from verify.compare import time_axes
from verify.compare.emergence import crossed


def emergence_times(
    runs: xr.Dataset,
    theory: xr.Dataset,
    *,
    time: str | None = None,
    beyond: bool = False,
    **levels: float,
) -> xr.Dataset:
    """When variables first reach a level, in students and in theory:
    ``emergence_times(runs, st.predict(p, runs), A=0.5).to_dataframe()``.

    Parameters
    ----------
    runs, theory : Dataset
        Students and theory over the same time and, where they have them, over ``seed``
        and fields that were swept.
    time : str, optional
        The dimension that is the time; needed only if something else is swept.
    beyond : bool
        Also for students that the theory does not describe, with a warning.
    **levels : float
        Variable and level.

    Returns
    -------
    Dataset
        ``measured`` and ``predicted`` over ``quantity`` and all dimensions but the
        time, in its unit, and ``deviation`` = measured / predicted - 1. A quantity that
        crosses its level downwards in most curves is named so: falling. NaN where a
        time is not known; ``measured_note`` and ``predicted_note`` say why: not
        reached, no values, blank before; and where a level was passed when the first
        value was measured.

    Raises
    ------
    ParameterError
        If a variable is missing, the time is not clear or no finite numbers, or the
        theory does not describe the students.
    """
    what = next(iter(levels), "the curve")
    with scope.allow_beyond(beyond):
        theory, runs, time = time_axes.pair(theory, runs, time, what)
    if not levels:
        raise ParameterError("levels: none given; say for instance A=0.5")
    datasets = []
    for name, level in levels.items():
        level = number(name, level)
        sides = {"measured": runs, "predicted": theory}
        missing = [
            s for s, of in sides.items() if name not in of or time not in of[name].dims
        ]
        if missing:
            shared = [n for n, v in runs.items() if n in theory and time in v.dims]
            known = ", ".join(map(str, shared)) or "none"
            sought = f"not {' or '.join(missing)} over {time}"
            raise ParameterError(f"{name}: {sought}; both have {known}")
        curves = {
            side: time_axes.numbers(side, data, [name])[name]
            for side, data in sides.items()
        }
        rise = _rise([x.transpose(..., time).values - level for x in curves.values()])
        label = f"{name} = {level:g}{', falling' if rise < 0 else ''}"
        direction = -1 if rise < 0 else 1
        first: dict[str, Any] = {}
        for side, curve in curves.items():
            crossing, note = _crossing(curve, level, time, direction)
            first |= {side: crossing, f"{side}_note": note}
        datasets.append(xr.Dataset(first).expand_dims(quantity=[label]))
    times = xr.concat(datasets, "quantity")
    order = ["measured", "predicted", "measured_note", "predicted_note"]
    return times[order].assign(deviation=times.measured / times.predicted - 1)


def _rise(sides: Sequence[np.ndarray]) -> float:
    """Share of curves, rows of an array, that first cross zero upwards less that of
    those that do downwards, in sum over students and theory; where none crosses, by
    their ends.
    """
    crossing, ends = [], []
    for curves in sides:
        rows = [row[np.isfinite(row)] for row in curves.reshape(-1, curves.shape[-1])]
        crossing.append([-r[0] for r in rows if r.size and r.min() < 0 < r.max()])
        ends.append([r[-1] - r[0] for r in rows if r.size])
    rises = crossing if any(crossing) else ends
    return sum(np.sign(side).mean() for side in rises if side)


def _crossing(curve: xr.DataArray, level: float, time: str, side: int) -> tuple:
    """First crossing along the time, of every other index, and what there is to say of
    each.
    """

    def first(row: np.ndarray) -> tuple[float, str]:
        return crossed(row, curve[time].values, level, side)

    return xr.apply_ufunc(
        first,
        curve,
        input_core_dims=[[time]],
        output_core_dims=[[], []],
        vectorize=True,
        output_dtypes=[float, object],
    )


def exponents(times: xr.Dataset, along: str) -> xr.Dataset:
    """Exponent of each time in a swept field: least squares of its logarithm, seed by
    seed.

    Parameters
    ----------
    times : Dataset
        From `emergence_times`, over ``along`` and, where there are students, ``seed``.
    along : str
        The swept field; its values are positive.

    Returns
    -------
    Dataset
        Mean over seeds of each variable but the deviation, with ``NAME_error``, its
        standard error over seeds (NaN for a single value), and ``gap``, measured -
        predicted of the same seed. Seeds that do not reach the level everywhere are
        left out.

    Raises
    ------
    ParameterError
        If `along` is no dimension with at least two positive values.
    """
    if not isinstance(times, xr.Dataset):
        raise ParameterError(
            f"times = {shown(times)}: must be a Dataset, of emergence_times"
        )
    if (
        along not in times.dims
        or times.sizes[along] < 2
        or not bool((times[along] > 0).all())
    ):
        raise ParameterError(
            f"along = {along!r}: must be a dimension with two positive values"
        )
    x = np.log(times[along])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slopes = (weights * np.log(times[["measured", "predicted"]])).sum(
        along, skipna=False
    )
    slopes = slopes.assign(gap=slopes.measured - slopes.predicted)
    out = xr.Dataset()
    for name, slope in slopes.items():
        seeds = slope.count("seed") if "seed" in slope.dims else 1
        out[name] = slope.mean("seed") if "seed" in slope.dims else slope
        error = slope.std("seed", ddof=1) if "seed" in slope.dims else np.nan
        out[f"{name}_error"] = error / np.sqrt(seeds) + 0 * out[name]
    return out
