"""Theory minus measured along a curve, from the values that there are at each time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import xarray as xr

from verify.checks import check
from verify.checks.check import Band, Check
from verify.checks.verdict import Shape, path, skewness


class Part(NamedTuple):
    """Times at which the same students have values, or published means are over as
    many.

    Attributes
    ----------
    k : int
        Place of the largest deviation among all times.
    samples : float
        Number of students.
    predicted, measured : float
        Mean of theory and of these students there.
    error : float
        Standard error of their difference.
    skewness : float
        Skewness of the measured values.
    points, length : int, float
        As of `Shape`.
    """

    k: int
    samples: float
    predicted: float
    measured: float
    error: float
    skewness: float
    points: int
    length: float


@dataclass(frozen=True)
class Gaps:
    """Differences of one variable, theory minus measured.

    Attributes
    ----------
    gap : DataArray
        Over ``(seed, time)`` or time; NaN where there is no value.
    measured : DataArray
        Measured values at these times.
    runs : DataArray
        Those at all times.
    time : str
        Name of the time.
    error : ndarray
        Squared standard error of the theory at each time.
    scale : float
        Largest predicted size.
    std, n : DataArray, optional
        Of published means: standard deviations and numbers of students.
    own : bool
        Whether these standard deviations are the theory's, and known.
    """

    gap: xr.DataArray
    measured: xr.DataArray
    runs: xr.DataArray
    time: str
    error: np.ndarray
    scale: float
    std: xr.DataArray | None = None
    n: xr.DataArray | None = None
    own: bool = False

    @cached_property
    def each(self) -> np.ndarray:
        """Differences as an array of students and times."""
        return np.atleast_2d(self.gap.values)

    @cached_property
    def students(self) -> np.ndarray:
        """Measured values at the same places."""
        return np.broadcast_to(np.atleast_2d(self.measured.values), self.each.shape)

    @cached_property
    def samples(self) -> np.ndarray:
        """Number of students with values at each time."""
        count = np.isfinite(self.each).sum(0)
        if self.std is None or self.n is None:
            return count
        return np.where((count > 0) & self.std.notnull(), self.n.fillna(0), 0)

    @property
    def used(self) -> np.ndarray:
        """Whether the check looks at a time: two students if there are any that
        scatter.
        """
        return self.samples > 1 if (self.samples > 1).any() else self.samples > 0

    @property
    def deviation(self) -> xr.DataArray:
        """Mean in standard deviations; NaN without scatter."""
        several = "seed" in self.gap.dims
        mean = self.gap.mean("seed") if several else self.gap
        spread = self.std
        if spread is None:
            spread = (
                self.gap.std("seed", ddof=1) if several else xr.full_like(mean, np.nan)
            )
        return mean / spread.where((spread > 0) & (self.own | (self.samples > 1)))

    def parts(self) -> Iterator[Part]:
        """Times grouped by the students that have values."""
        used = np.flatnonzero(self.used)
        present = np.isfinite(self.each) if self.std is None else self.samples[None]
        kinds, group = np.unique(present[:, used], axis=1, return_inverse=True)
        for number, kind in enumerate(kinds.T):
            times, some = used[group.ravel() == number], kind.astype(bool)
            each = self.each[some][:, times]
            mean = each.mean(0)
            at = int(np.argmax(np.abs(mean)))
            k, one = int(times[at]), each[:, at]
            measured = float(self.students[some, k].mean())
            if self.std is not None:
                samples = float(kind[0])
                variance = self.std.values[k] ** 2 / samples
                samples = np.inf if self.own else samples
                # Neighbours may be independent: the longest path.
                skew, points, length = 0.0, len(times), np.pi * len(times)
            else:
                samples = int(kind.sum())
                variance = one.var(ddof=1) / samples if samples > 1 else np.nan
                # The gap is theory minus measured.
                skew, (points, length) = -skewness(one), path(each - mean)
            error = float(np.sqrt(variance + self.error[k]))
            predicted = float(measured + mean[at])
            yield Part(k, samples, predicted, measured, error, skew, points, length)

    def check(self, name: str, label: str, band: Band | None) -> Check:
        """The largest deviation along the curve; of several parts, the least likely
        one.
        """
        scale, parts = self.scale, list(self.parts())
        used, times = int(self.used.sum()), len(self.times)
        where = "" if used == times else f"; at {used} of {times} times of the runs"
        what = f"{name}{label}, largest deviation, at {self.time} = "
        if not (self.own or (self.samples > 1).any()):
            part = max(parts, key=lambda part: abs(part.predicted - part.measured))
            why = "one curve, nothing says how it scatters: held to 5% of the largest"
            return check.near(
                f"{what}{self.at(part):.3g}",
                name,
                part.predicted,
                part.measured,
                check.SEEN,
                f"{why} size{where}",
                scale,
                band,
            )

        def distance(part: Part) -> float:
            numbers = part.predicted, part.measured, part.error, part.samples
            return check.distance(*numbers, band, scale, Shape(part.skewness))

        part = max(parts, key=distance)
        merged: dict[float, tuple[float, int, float, int]] = {}
        for x in parts:
            if x is not part:
                _, points, length, number = merged.get(x.samples, (0, 0, 0.0, 0))
                sums = points + x.points, length + x.length, number + 1
                merged[x.samples] = (x.samples, *sums)
        most = self.samples.max() if self.std is not None else self.students_with_values
        few = f"; {part.samples:g} of {most:g} students there"
        few = "" if self.own or part.samples == most else few
        others = tuple(merged.values())
        shape = Shape(part.skewness, part.points, part.length, others)
        return check.estimated(
            f"{what}{self.at(part):.3g}",
            name,
            part.predicted,
            part.measured,
            part.error,
            part.samples,
            band=band,
            scale=scale,
            reason=check.Z_REASON + few + where,
            shape=shape,
        )

    def at(self, part: Part) -> float:
        """Time of the deviation."""
        return float(self.gap[self.time][part.k])

    @property
    def times(self) -> np.ndarray:
        """All times of the runs with a value, also those outside the curve."""
        count = self.runs.notnull()
        some = count.any("seed") if "seed" in count.dims else count
        return self.runs[self.time].values[some.values]

    @property
    def students_with_values(self) -> int:
        """Number of seeds that are not blank."""
        return int(self.runs.notnull().any(self.time).sum())

    def notes(self, first: float, last: float) -> Iterator[str]:
        """What the check does not look at, for a curve between two times."""
        times = self.times
        used = self.gap[self.time].values[self.used]
        if len(used) < len(times):
            note = (
                f"compared at {len(used)} of {len(times)} times of the runs, "
                f"{self.time} = {used[0]:g} to {used[-1]:g}"
            )
            if (times < used[0]).any() or (times > used[-1]).any():
                note += f"; the curve covers {first:g} to {last:g}"
            if not self.own and (self.samples == 1).any():
                note += "; two students have values there"
            yield note
        if "seed" in self.runs.dims:
            blank = self.runs.sizes["seed"] - self.students_with_values
            if blank:
                yield f"{blank} of {self.runs.sizes['seed']} students have no value"
        numbers = self.samples[self.used]
        if numbers.min() < numbers.max():
            yield (
                f"means are over {numbers.min():g} to {numbers.max():g} students, by"
                " time"
            )
