"""First crossing of a level by a trajectory, seed by seed. Runs that end earlier are
counted as censored.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.interpolate
import scipy.stats
import xarray as xr

from theory.call.refusal import ParameterError, number, shown
from verify.compare import time_axes


@dataclass(frozen=True)
class Times:
    """Emergence times of an ensemble.

    Attributes
    ----------
    values : ndarray, shape (seeds,)
        First crossing per seed in the trajectory's time unit; NaN if the run ended
        before it.
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
        half = scipy.stats.t.ppf((1 + level) / 2, self.seen.size - 1) * scipy.stats.sem(
            self.seen
        )
        return float(self.seen.mean() - half), float(self.seen.mean() + half)

    def summary(self, name: str) -> str:
        """One line: mean, interval, number of censored seeds."""
        censored = self.values.size - self.seen.size
        note = (
            f"; {censored} of {self.values.size} seeds censored: not before"
            f" {self.end:.3g}"
            if censored
            else ""
        )
        if not self.seen.size:
            return f"{name}: no seed emerged before {self.end:.3g}"
        low, high = self.interval()
        return (
            f"{name}: {self.seen.mean():.4f}, 95% interval [{low:.4f}, {high:.4f}] over"
            f" {self.seen.size} seeds{note}"
        )


def first_crossing(trajectory: xr.DataArray, level: float) -> Times:
    """First upward crossing of ``level`` along time, by linear interpolation between
    evaluations.

    Raises
    ------
    ParameterError
        If there is more than one dimension that may be the time, the times are no
        finite numbers, each once, a value is infinite or no real number, or the level
        is none.
    """
    level = number("level", level)
    if not isinstance(trajectory, xr.DataArray):
        raise ParameterError(
            f"trajectory = {shown(trajectory)}: must be a DataArray: runs.A"
        )
    if len({*trajectory.dims} - {*time_axes.UNTIMED}) != 1:
        several = ", ".join(
            str(d) for d in trajectory.dims if d not in time_axes.UNTIMED
        )
        raise ParameterError(
            f"runs: have {several or 'no time'}: pick one of all but the time:"
            " .sel(...)"
        )
    time = next(str(d) for d in trajectory.dims if d != "seed")
    one = time_axes.axis("runs", trajectory.to_dataset(name="level"), time)
    trajectory = time_axes.numbers("runs", one, ["level"]).level
    times = trajectory[time].values
    rows = trajectory.transpose(..., time).values.reshape(-1, times.size)
    return Times(
        np.array([crossed(row, times, level)[0] for row in rows]), float(times[-1])
    )


def crossed(
    row: np.ndarray, times: np.ndarray, level: float, side: int = 1
) -> tuple[float, str]:
    """First time at which a curve is above a level (below it, for ``side`` = -1), and
    what else there is to say: in which case a time is missing, or is the first that was
    measured.
    """
    above = np.flatnonzero(side * row >= side * level)
    known = np.flatnonzero(np.isfinite(row))
    if not known.size:
        return np.nan, "no values"
    if not above.size:
        blank = known[-1] < len(row) - 1 or len(known) < known[-1] - known[0] + 1
        return (
            np.nan,
            f"not reached to {times[known[-1]]:g}{', with blanks' if blank else ''}",
        )
    j = above[0]
    if j == known[0]:
        return (
            (times[0], "passed at the first time")
            if j == 0
            else (np.nan, "blank before")
        )
    if not np.isfinite(row[j - 1]):
        return np.nan, "blank before"
    share = (level - row[j - 1]) / (row[j] - row[j - 1])
    return times[j - 1] + share * (times[j] - times[j - 1]), ""


def smooth_crossing(path: xr.DataArray, level: float) -> float:
    """First crossing of a level by one curve without noise, by a cubic spline through
    all its points: its error is of fourth order in their distance. NaN if there is
    none.
    """
    spline = scipy.interpolate.CubicSpline(path[path.dims[0]], path)
    found = spline.solve(level, extrapolate=False)
    return float(found[0]) if len(found) else np.nan


def power(sizes: Any, times: Any) -> np.ndarray:
    """Exponents of times in a size, by least squares of logarithms, seed by seed; NaN
    where a time is.
    """
    x = np.log(sizes)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return weights @ np.log(times)
