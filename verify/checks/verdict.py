"""Check: predicted and measured value of a claim, minimum detectable effect and
verdict; significance of deviations: Student's t for few samples, correction for
skewness, the largest along a curve.
"""

import bisect
import functools
import re
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from scipy.special import ndtr, ndtri, stdtr, stdtrit

Z_MAX = 4.0
POWER = 0.9  # power of a check at its minimum detectable effect
MOST = 10**7  # largest number of seeds considered
MANY = 30  # number of values from which on the skewness is corrected for


class Shape(NamedTuple):
    """Properties of samples beyond the standard error of their mean.

    Attributes
    ----------
    skewness : float
        Skewness of the values. Not used for fewer than `MANY` values, which are treated
        as normal.
    points : int
        Number of points along a curve of which this deviation is the largest.
    length : float
        Length of the curve that the normalised deviations describe on the unit sphere
        (`path`). Perfectly correlated neighbours contribute zero.
    others : tuple of (samples, points, length, parts)
        Further parts of the curve, which this deviation is the largest of, too: those
        with other numbers of samples.
    """

    skewness: float = 0.0
    points: int = 1
    length: float = 0.0
    others: tuple[tuple[float, int, float, int], ...] = ()


SINGLE = Shape()


def skewness(values: np.ndarray) -> float:
    """Third standardised moment, unbiased for normal values; zero if there is no
    scatter.
    """
    x = np.asarray(values, dtype=float)
    scatters = x.size > 2 and np.isfinite(x).all() and np.ptp(x) > 0
    return float(scipy.stats.skew(x, bias=False)) if scatters else 0.0


def path(deviations: np.ndarray) -> tuple[int, float]:
    """Number of points and length of the curve that normalised deviations describe.

    Parameters
    ----------
    deviations : ndarray, shape (samples, points)
        Deviations of every sample from the mean over samples, along time.

    Returns
    -------
    tuple of int and float
        Number of points with scatter, and the sum of the angles between neighbouring
        points as directions in the space of samples.
    """
    size = np.linalg.norm(deviations, axis=0)
    unit = deviations[:, size > 0] / size[size > 0]
    angles = np.arccos(np.clip((unit[:, 1:] * unit[:, :-1]).sum(0), -1, 1))
    return max(1, unit.shape[1]), float(angles.sum())


def _hall(t: float, bend: float) -> float:
    """Transformation of Student's t that removes skewness (Hall 1992); for positive
    skewness its left tail is the long one.
    """
    return t if bend == 0 else ((1 + bend * t) ** 3 - 1) / (3 * bend) + bend / 2


def _bend(samples: float, shape: Shape) -> float:
    many = MANY <= samples < np.inf
    return shape.skewness / (3 * np.sqrt(samples)) if many else 0.0


def _above(t: float, samples: float) -> float:
    """Probability of a Student t above ``t``; as in `scipy.stats`, without its checks,
    which cost more than the rest of a row.
    """
    return float(ndtr(-t) if np.isinf(samples) else stdtr(samples - 1, -t))


def _exceeded(share: float, samples: float) -> float:
    """What Student's t exceeds with this probability."""
    return -float(ndtri(share) if np.isinf(samples) else stdtrit(samples - 1, share))


def _chance(t: float, samples: float, shape: Shape) -> float:
    """Probability that chance alone takes the largest deviation to ``t`` or beyond, in
    either direction.

    The probability for one point plus the mean number of level crossings of the curve
    (formula of Rice for t, Worsley 1994), bounded by the sum over all points
    (Bonferroni).
    """
    one, total = 2 * _above(t, samples), 0.0
    for size, points, length, parts in (
        (samples, shape.points, shape.length, 1),
        *shape.others,
    ):
        level = t if size == samples else _exceeded(one / 2, size)  # as unlikely there
        decay = (
            level**2 / 2
            if np.isinf(size)
            else (size - 2) / 2 * np.log1p(level**2 / (size - 1))
        )
        several = parts * one + length / np.pi * float(np.exp(-decay))
        total += float(np.minimum(points * one, several))
    return float(np.minimum(1.0, total))


def normal_z(t: float, samples: float, shape: Shape = SINGLE) -> float:
    """Normal z with the same p-value as a Student t of ``samples`` values, corrected
    for skewness and for the number of points along a curve.

    Parameters
    ----------
    t : float
        Measured minus predicted, in standard errors.
    """
    if not samples > 1:
        return np.nan
    t = float(np.minimum(abs(t), abs(_hall(t, _bend(samples, shape)))))
    return _exceeded(_chance(t, samples, shape) / 2, np.inf)


@functools.cache
def detectable_effect(
    samples: float, z_max: float = Z_MAX, shape: Shape = SINGLE
) -> float:
    """Minimum detectable effect in standard errors: deviation of a mean of ``samples``
    values that is flagged with a power of 90%, on the side where detection is harder.
    """
    if samples <= 1:
        return np.inf
    wanted = 2 * _above(z_max, np.inf)
    critical = _exceeded(wanted / 2, samples)
    points = shape.points + sum(part[1] for part in shape.others)
    most = 1.01 * _exceeded(wanted / 2 / points, samples)

    def beyond(t: float) -> float:
        return float(np.log(_chance(t, samples, shape) / wanted))

    if beyond(critical) > 0:
        critical = float(scipy.optimize.brentq(beyond, critical, most))
    if bend := abs(
        _bend(samples, shape)
    ):  # inverse of `_hall` on the side of the long tail
        critical = max(
            critical, (1 - np.cbrt(1 - 3 * bend * (critical + bend / 2))) / bend
        )
    return critical - _exceeded(POWER, samples)


def samples_needed(spread: float, required: float, shape: Shape = SINGLE) -> int | None:
    """Smallest number of samples of standard deviation ``spread`` with which a
    deviation ``required`` would be detected; None if unreasonably large.
    """

    def shows(size: int) -> bool:
        return bool(
            detectable_effect(size, shape=shape) * spread / np.sqrt(size) <= required
        )

    sizes = range(2, MOST)
    first = bisect.bisect_left(sizes, True, key=shows)
    return sizes[first] if first < len(sizes) else None


Z_REASON = (
    f"|z| <= {Z_MAX:g}, z from Student t: a true statement fails once in 16,000, where"
    f" fewer than {MANY} values are near normal; of more, their skewness is"
    " corrected for"
)
IDENTITY = 1e-6  # tolerance of identities: rounding, or the error of a numerical method
SEEN = 0.05  # minimum detectable relative error required for *agrees*
VERDICTS = ("exact", "agrees", "coarse", "bound", "limit", "undecided", "FAIL")


@dataclass(frozen=True)
class Band:
    """Measured systematic deviation of a theory that is not exact.

    Attributes
    ----------
    low, high : float
        Limits of measured / predicted - 1 (or of the deviation divided by the check's
        scale).
    why : str
        What the theory neglects.
    """

    low: float
    high: float
    why: str

    def __str__(self) -> str:
        """The band and its reason as text."""
        return f"off by {self.low:+.1%} to {self.high:+.1%}: {self.why}"


@dataclass(frozen=True)
class Check:
    """One claim and its verdict.

    Attributes
    ----------
    name : str
        What is checked; after the first comma, at which parameters.
    equation : str
        Name of the Equation, or a reference.
    predicted, measured : float
        Both values; for arrays, the entries that differ most.
    error : float
        Deviation from the prediction, or from the band, in the unit of `tolerance`.
    tolerance : float
        Largest acceptable error.
    reason : str
        Reason for the tolerance.
    band : Band, optional
        Known systematic deviation of the theory. A value outside the band, on either
        side, fails.
    standard_error : float, optional
        Standard error of `measured`, if it is sampled.
    resolution : float, optional
        Minimum detectable effect: relative error of the prediction that the check would
        have flagged with a power of 90% (by default its tolerance).
    required : float
        Largest `resolution` at which the check has enough power for a verdict.
    samples_needed : int, optional
        Number of samples with which it would have enough power.
    scale : float, optional
        Scale of relative deviations; by default the absolute value of `predicted`.
    bound : {'', '>=', '<='}
        Direction of the inequality, if `predicted` is a bound.
    """

    name: str
    equation: str
    predicted: float
    measured: float
    error: float
    tolerance: float
    reason: str
    band: Band | None = None
    standard_error: float | None = None
    resolution: float | None = None
    required: float = SEEN
    samples_needed: int | None = None
    scale: float | None = None
    bound: str = ""

    @property
    def deviation(self) -> float:
        """Deviation of `measured` from `predicted`, relative to the scale; NaN for a
        bound.
        """
        if self.bound:
            return np.nan
        scale = abs(self.predicted) if self.scale is None else self.scale
        return (self.measured - self.predicted) / scale if scale else np.nan

    @property
    def statistic(self) -> str:
        """Kind of `error`: z for sampled values, otherwise an error in the unit of
        `tolerance`.
        """
        return "error" if self.standard_error is None else "z"

    @property
    def id(self) -> str:
        """Address that ledgers cite: the name up to its first comma. Rows that differ
        only in parameters share it.
        """
        what = re.split(
            r",|:| (?:at|for) [^,:]*=", self.name.strip().replace("= 1/2", "half")
        )[0]
        return re.sub(r"\W+", "_", what).strip("_")

    @property
    def within(self) -> bool:
        """Whether the error is inside the tolerance."""
        return bool(self.error <= self.tolerance)  # false for NaN

    @property
    def detectable(self) -> float:
        """Minimum detectable effect: relative error of the prediction that would have
        been flagged.
        """
        return self.tolerance if self.resolution is None else self.resolution

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`.

        *exact*: an identity. *agrees*: within tolerance, and an error of 5% would have
        been detected. *coarse*: within tolerance, but the design of the check cannot
        detect 5% (see `detectable`). *bound*: an inequality holds with a margin above
        5%, so that the size is not tested. *limit*: inside the band of known systematic
        deviations. *undecided*: within tolerance, but there are too few samples for the
        required power. *FAIL*: outside.
        """
        if not self.within:
            return "FAIL"
        if self.standard_error is not None and not self.detectable <= self.required:
            return "undecided"
        if (
            self.band is not None
            and not -SEEN <= self.band.low <= 0 <= self.band.high <= SEEN
        ):
            return "limit"
        if (
            self.standard_error is None
            and self.resolution is None
            and self.tolerance <= IDENTITY
        ):
            return "exact"
        return (
            "agrees" if self.detectable <= SEEN else "bound" if self.bound else "coarse"
        )

    @property
    def why(self) -> str:
        """Reason of the tolerance, known limitation of the theory, or samples needed
        for a decision.
        """
        if self.verdict == "undecided":
            more = (
                f"{self.samples_needed} samples would show {self.required:.0%}"
                if self.samples_needed
                else f"no number of samples would show {self.required:.0%}"
            )
            unseen = (
                f"an error below {self.detectable:.0%}"
                if self.detectable < 10
                else "any error"
            )
            return f"{unseen} would go unnoticed; {more}"
        return str(self.band) if self.band is not None else self.reason

    def as_dict(self) -> dict[str, Any]:
        """Dictionary for JSON."""
        return {
            "id": self.id,
            **asdict(self),
            "deviation": self.deviation,
            "statistic": self.statistic,
            "detectable": self.detectable,
            "within": self.within,
            "verdict": self.verdict,
        }
