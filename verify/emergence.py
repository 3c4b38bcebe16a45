"""First crossing of a level by a trajectory, seed by seed, where runs that end earlier are counted
as censored; times of students and of a theory side by side, and their exponents.
"""

from dataclasses import dataclass

import numpy as np
import scipy.interpolate
import scipy.stats
import xarray as xr

from theory import ParameterError, scope
from theory.parameters import number
from verify import timed


@dataclass(frozen=True)
class Times:
    """Emergence times of an ensemble.

    Attributes
    ----------
    values : ndarray, shape (seeds,)
        First crossing per seed in the trajectory's time unit; NaN if the run ended before it.
    end : float
        Length of the runs.
    """

    values: np.ndarray
    end: float

    @property
    def seen(self) -> np.ndarray:
        """Times of the uncensored seeds."""
        return self.values[np.isfinite(self.values)]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the mean over uncensored seeds (Student t)."""
        if self.seen.size < 2:
            return np.nan, np.nan
        half = scipy.stats.t.ppf((1 + level) / 2, self.seen.size - 1) * scipy.stats.sem(self.seen)
        return float(self.seen.mean() - half), float(self.seen.mean() + half)

    def summary(self, name: str) -> str:
        """One line: mean, interval, number of censored seeds."""
        censored = self.values.size - self.seen.size
        note = (
            f"; {censored} of {self.values.size} seeds censored: not before {self.end:.3g}"
            if censored
            else ""
        )
        if not self.seen.size:
            return f"{name}: no seed emerged before {self.end:.3g}"
        low, high = self.interval()
        return f"{name}: {self.seen.mean():.4f}, 95% interval [{low:.4f}, {high:.4f}] over {self.seen.size} seeds{note}"


def first_crossing(trajectory: xr.DataArray, level: float) -> Times:
    """First upward crossing of ``level`` along time, by linear interpolation between
    evaluations.

    Raises
    ------
    ParameterError
        If the times are no finite numbers, each once.
    """
    time = next(str(d) for d in trajectory.dims if d != "seed")
    trajectory = timed.axis("runs", trajectory, time)
    times = trajectory[time].values
    rows = trajectory.transpose(..., time).values.reshape(-1, times.size)
    return Times(np.array([crossed(row, times, level)[0] for row in rows]), float(times[-1]))


def crossed(row: np.ndarray, times: np.ndarray, level: float, side: int = 1) -> tuple[float, str]:
    """First time at which a curve is above a level (below it, for ``side`` = -1), and what else
    there is to say: in which case a time is missing, or is the first that was measured.
    """
    above = np.flatnonzero(side * row >= side * level)
    known = np.flatnonzero(np.isfinite(row))
    if not known.size:
        return np.nan, "no values"
    if not above.size:
        blank = known[-1] < len(row) - 1 or len(known) < known[-1] - known[0] + 1
        return np.nan, f"not reached to {times[known[-1]]:g}{', with blanks' if blank else ''}"
    j = above[0]
    if j == known[0]:
        return (times[0], "passed at the first time") if j == 0 else (np.nan, "blank before")
    if not np.isfinite(row[j - 1]):
        return np.nan, "blank before"
    share = (level - row[j - 1]) / (row[j] - row[j - 1])
    return times[j - 1] + share * (times[j] - times[j - 1]), ""


def smooth_crossing(path: xr.DataArray, level: float) -> float:
    """First crossing of a level by one curve without noise, by a cubic spline through all its
    points: its error is of fourth order in their distance. NaN if there is none.
    """
    spline = scipy.interpolate.CubicSpline(path[path.dims[0]], path)
    found = spline.solve(level, extrapolate=False)
    return float(found[0]) if len(found) else np.nan


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
        unit, and ``deviation`` = measured / predicted - 1. A quantity that falls in runs and theory
        together is named so, and crosses its level downwards. NaN where a time is not known;
        ``measured_note`` and ``predicted_note`` say why: not reached, no values, blank before; and
        where a level was passed when the first value was measured.

    Raises
    ------
    ParameterError
        If a variable is missing, the time is not clear or no finite numbers, or the theory does not
        describe the students.
    """
    with scope.allow_beyond(beyond):
        theory, runs, time = timed.pair(theory, runs, time, next(iter(levels), "the curve"))
    if not levels:
        raise ParameterError("levels: none given; say for instance A=0.5")
    datasets = []
    for name, level in levels.items():
        level = number(name, level)
        sides = {"measured": runs, "predicted": theory}
        missing = [side for side, data in sides.items() if name not in data.data_vars]
        if missing:
            known = ", ".join(str(n) for n in runs.data_vars if n in theory.data_vars)
            raise ParameterError(f"{name}: not {' or '.join(missing)}; both have {known or 'none'}")
        both = [timed.numbers(side, data, [name])[name] for side, data in sides.items()]
        rise = sum(_rise(x.transpose(..., time).values) for x in both)
        label = f"{name} = {level:g}{', falling' if rise < 0 else ''}"
        first = {
            part: values
            for side, curve in zip(sides, both, strict=True)
            for part, values in zip(
                (side, f"{side}_note"),
                _crossing(curve, level, time, -1 if rise < 0 else 1),
                strict=True,
            )
        }
        datasets.append(xr.Dataset(first).expand_dims(quantity=[label]))
    times = xr.concat(datasets, "quantity")
    order = ["measured", "predicted", "measured_note", "predicted_note"]
    return times[order].assign(deviation=times.measured / times.predicted - 1)


def _rise(values: np.ndarray) -> float:
    """Share of curves, rows of an array, that end above their start less that of those below."""
    rows = (row[np.isfinite(row)] for row in values.reshape(-1, values.shape[-1]))
    return float(np.mean([np.sign(row[-1] - row[0]) if row.size else 0 for row in rows]))


def _crossing(curve: xr.DataArray, level: float, time: str, side: int) -> tuple:
    """First crossing along the time, of every other index, and what there is to say of each."""

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
    slopes = (weights * np.log(times[["measured", "predicted"]])).sum(along, skipna=False)
    slopes = slopes.assign(gap=slopes.measured - slopes.predicted)
    out = xr.Dataset()
    for name, slope in slopes.items():
        seeds = slope.count("seed") if "seed" in slope.dims else 1
        out[name] = slope.mean("seed") if "seed" in slope.dims else slope
        error = slope.std("seed", ddof=1) if "seed" in slope.dims else np.nan
        out[f"{name}_error"] = error / np.sqrt(seeds) + 0 * out[name]
    return out
