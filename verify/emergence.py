"""First crossing of a level by a trajectory, seed by seed. Runs that end earlier are counted as
censored.
"""

from dataclasses import dataclass

import numpy as np
import scipy.stats
import xarray as xr


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
    """
    time = next(d for d in trajectory.dims if d != "seed")
    times = trajectory[time].values
    rows = trajectory.transpose(..., time).values.reshape(-1, times.size)
    out = np.full(len(rows), np.nan)
    for k, row in enumerate(rows):
        above = np.flatnonzero(row >= level)
        if above.size:
            j = above[0]
            out[k] = (
                times[0]
                if j == 0
                else times[j - 1]
                + (level - row[j - 1]) / (row[j] - row[j - 1]) * (times[j] - times[j - 1])
            )
    return Times(out, float(times[-1]))
