"""How far a mean of few, skewed or many neighbouring values strays by chance: Student's t, the
correction for skewness, and the largest of many points along a curve.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats

Z_MAX = 4.0
POWER = 0.9  # how often what a check claims to see would be flagged
MOST = 10**7  # seeds: nobody trains more
MANY = 30  # values from which on their skewness is known well enough to be corrected for


class Shape(NamedTuple):
    """What a standard error of a mean does not say.

    Attributes
    ----------
    skewness : float
        Of the values. Below `MANY` of them it is not used: few values are taken as normal.
    points : int
        Among how many points of a curve this deviation is the largest.
    length : float
        Of the curve that the scatter of the values describes on the unit sphere (`path`):
        neighbours that move together count as one point.
    """

    skewness: float = 0.0
    points: int = 1
    length: float = 0.0


SINGLE = Shape()


def skewness(values: np.ndarray) -> float:
    """Third standardised moment, without bias for normal values; zero where nothing scatters."""
    x = np.asarray(values, dtype=float)
    scatters = x.size > 2 and np.isfinite(x).all() and np.ptp(x) > 0
    return float(scipy.stats.skew(x, bias=False)) if scatters else 0.0


def path(deviations: np.ndarray) -> tuple[int, float]:
    """Points and length of the curve that scatter describes.

    Parameters
    ----------
    deviations : ndarray, shape (samples, points)
        Of every sample from the mean over samples, along time.

    Returns
    -------
    tuple of int and float
        Points at which anything scatters, and the sum of the angles between neighbouring ones, as
        directions in the space of samples.
    """
    size = np.linalg.norm(deviations, axis=0)
    unit = deviations[:, size > 0] / size[size > 0]
    angles = np.arccos(np.clip((unit[:, 1:] * unit[:, :-1]).sum(0), -1, 1))
    return max(1, unit.shape[1]), float(angles.sum())


def _hall(t: float, bend: float) -> float:
    """Student's t made symmetric (Hall 1992): for positive skewness the left tail is the long
    one.
    """
    return t if bend == 0 else ((1 + bend * t) ** 3 - 1) / (3 * bend) + bend / 2


def _bend(samples: float, shape: Shape) -> float:
    many = MANY <= samples < np.inf
    return shape.skewness / (3 * np.sqrt(samples)) if many else 0.0


def _chance(t: float, samples: float, shape: Shape) -> float:
    """That chance alone takes the largest of the points to ``t`` or beyond, in either direction.

    One point, and the number of times that a curve crosses the level on average: the formula of
    Rice, for t (Worsley 1994); never more than all points by themselves (Bonferroni).
    """
    one = float(2 * scipy.stats.t.sf(t, samples - 1))
    decay = t**2 / 2 if np.isinf(samples) else (samples - 2) / 2 * np.log1p(t**2 / (samples - 1))
    several = one + shape.length / np.pi * float(np.exp(-decay))
    return float(np.minimum(1.0, np.minimum(shape.points * one, several)))


def normal_z(t: float, samples: float, shape: Shape = SINGLE) -> float:
    """Normal z as unlikely as a Student t of ``samples`` values: few seeds do not look significant
    by themselves, nor does the largest of many points, nor what skewness explains.

    Parameters
    ----------
    t : float
        Signed: measured less predicted, in standard errors.
    """
    if not samples > 1:
        return np.nan
    t = float(np.minimum(abs(t), abs(_hall(t, _bend(samples, shape)))))
    return float(scipy.stats.norm.isf(_chance(t, samples, shape) / 2))


@functools.cache
def reach(samples: float, z_max: float = Z_MAX, shape: Shape = SINGLE) -> float:
    """Standard errors by which a mean of ``samples`` values must be off, to the side where that is
    harder to see, to be flagged nine times in ten.
    """
    if samples <= 1:
        return np.inf
    wanted = 2 * scipy.stats.norm.sf(z_max)
    critical = float(scipy.stats.t.isf(wanted / 2, samples - 1))
    most = 1.01 * float(scipy.stats.t.isf(wanted / 2 / shape.points, samples - 1))

    def beyond(t: float) -> float:
        return float(np.log(_chance(t, samples, shape) / wanted))

    if beyond(critical) > 0:
        critical = float(scipy.optimize.brentq(beyond, critical, most))
    if bend := abs(_bend(samples, shape)):  # the inverse of `_hall`, on the side of the long tail
        critical = max(critical, (1 - np.cbrt(1 - 3 * bend * (critical + bend / 2))) / bend)
    return float(critical + scipy.stats.t.ppf(POWER, samples - 1))


def needed(spread: float, see: float, shape: Shape = SINGLE) -> int | None:
    """Samples of standard deviation ``spread`` whose mean would show ``see``; None beyond any
    reason.
    """

    def shows(size: int) -> bool:
        return bool(reach(size, shape=shape) * spread / np.sqrt(size) <= see)

    low, high = 1, 2
    while not shows(high):
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high
