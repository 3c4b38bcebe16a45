"""Check: predicted and measured value of a claim, the minimum detectable effect, and the verdict;
shown as a table row or JSON, and used for the exit code.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from theory.equation import Equation
from verify.significance import (
    MANY,
    SINGLE,
    Z_MAX,
    Shape,
    detectable_effect,
    normal_z,
    samples_needed,
    skewness,
)

Z_REASON = (
    f"|z| <= {Z_MAX:g}, z from Student t: a true statement fails once in 16,000, where fewer than "
    f"{MANY} values are near normal; of more, their skewness is corrected for"
)
IDENTITY = 1e-6  # tolerance of identities: rounding, or the error of a numerical method
SEEN = 0.05  # minimum detectable relative error required for *agrees*
ROUNDING = 4 * np.finfo(float).eps  # relative tolerance for samples without any scatter
VERDICTS = ("exact", "agrees", "coarse", "bound", "limit", "undecided", "FAIL")


@dataclass(frozen=True)
class Band:
    """Measured systematic deviation of a theory that is not exact.

    Attributes
    ----------
    low, high : float
        Limits of measured / predicted - 1 (or of the deviation divided by the check's scale).
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
        Known systematic deviation of the theory. A value outside the band, on either side, fails.
    standard_error : float, optional
        Standard error of `measured`, if it is sampled.
    resolution : float, optional
        Minimum detectable effect: relative error of the prediction that the check would have
        flagged with a power of 90% (by default its tolerance).
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
        """Deviation of `measured` from `predicted`, relative to the scale; NaN for a bound."""
        if self.bound:
            return np.nan
        scale = abs(self.predicted) if self.scale is None else self.scale
        return (self.measured - self.predicted) / scale if scale else np.nan

    @property
    def statistic(self) -> str:
        """Kind of `error`: z for sampled values, otherwise an error in the unit of `tolerance`."""
        return "error" if self.standard_error is None else "z"

    @property
    def id(self) -> str:
        """Address that ledgers cite: the name up to its first comma. Rows that differ only in
        parameters share it.
        """
        what = re.split(r",|:| (?:at|for) [^,:]*=", self.name.strip().replace("= 1/2", "half"))[0]
        return re.sub(r"\W+", "_", what).strip("_")

    @property
    def within(self) -> bool:
        """Whether the error is inside the tolerance."""
        return bool(self.error <= self.tolerance)  # false for NaN

    @property
    def detectable(self) -> float:
        """Minimum detectable effect: relative error of the prediction that would have been
        flagged.
        """
        return self.tolerance if self.resolution is None else self.resolution

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`.

        *exact*: an identity. *agrees*: within tolerance, and an error of 5% would have been
        detected. *coarse*: within tolerance, but the design of the check cannot detect 5% (see
        `detectable`). *bound*: an inequality holds with a margin above 5%, so that the size is not
        tested. *limit*: inside the band of known systematic deviations. *undecided*: within
        tolerance, but there are too few samples for the required power. *FAIL*: outside.
        """
        if not self.within:
            return "FAIL"
        if self.standard_error is not None and not self.detectable <= self.required:
            return "undecided"
        if self.band is not None and not -SEEN <= self.band.low <= 0 <= self.band.high <= SEEN:
            return "limit"
        if self.standard_error is None and self.resolution is None and self.tolerance <= IDENTITY:
            return "exact"
        return "agrees" if self.detectable <= SEEN else "bound" if self.bound else "coarse"

    @property
    def why(self) -> str:
        """Reason of the tolerance, known limitation of the theory, or samples needed for a
        decision.
        """
        if self.verdict == "undecided":
            more = (
                f"{self.samples_needed} samples would"
                if self.samples_needed
                else "more samples would not"
            )
            return f"could not have seen {self.required:.0%}; {more}"
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


def identity(
    name: str, equation: str, predicted: Any, measured: Any, tolerance: float, reason: str
) -> Check:
    """Check that two sides are equal; the error is relative to the largest measured entry."""
    both = [np.asarray(v, dtype=float) for v in (predicted, measured)]
    left, right = (v.ravel() for v in np.broadcast_arrays(*both))
    gap = np.abs(left - right)
    # Entry shown: the worst one, NaN first; if all agree, the largest.
    worst = int(np.argmax(np.where(np.isfinite(gap), gap, np.inf) if gap.any() else np.abs(right)))
    scale = np.abs(right).max()
    error = float(gap[worst] / scale) if scale > 0 else float(gap[worst])
    return Check(
        name,
        equation,
        float(left[worst]),
        float(right[worst]),
        error,
        tolerance,
        reason,
        scale=float(scale),
    )


class Sides:
    """Collects both sides of Equations point by point; gives one `identity` per label.

    Parameters
    ----------
    table : mapping of str to Equation
        Equations by name; tests pass a faulty one.
    tolerance, reason
        Common to all rows.
    """

    def __init__(self, table: Mapping[str, Equation], tolerance: float, reason: str) -> None:
        self.table, self.tolerance, self.reason = table, tolerance, reason
        self.found: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)

    def add(self, label: str, equation: str, values: Any, measured: Any) -> None:
        """Add the value of an equation and the measured value: numbers or arrays."""
        both = np.broadcast_arrays(self.table[equation].evaluate(values), np.asarray(measured))
        self.found[label, equation].append(np.reshape(both, (2, -1)))

    def each(
        self, label: str, equation: str, values: Any, letters: str, measured: np.ndarray
    ) -> None:
        """Every entry of an array, its indices, counted from 1, called by letters."""
        for place, one in np.ndenumerate(measured):
            at = {letter: k + 1 for letter, k in zip(letters, place, strict=True)}
            self.add(label, equation, {**values, **at}, one)

    def checks(self) -> list[Check]:
        """One row per label and equation."""
        rows = []
        for (label, equation), parts in self.found.items():
            predicted, measured = np.concatenate(parts, axis=1)
            rows.append(identity(label, equation, predicted, measured, self.tolerance, self.reason))
        return rows


def near(
    name: str,
    equation: str,
    predicted: float,
    measured: Any,
    tolerance: float,
    reason: str,
    scale: float | None = None,
    band: Band | None = None,
) -> Check:
    """Check of a number without sampling error against its prediction, in units of ``scale``
    (default: the prediction). Of several, the one with the largest deviation is shown, NaN first.
    """
    off = np.abs(np.ravel(measured) - predicted)
    measured = np.ravel(measured)[np.argmax(np.where(np.isfinite(off), off, np.inf))]
    scale = abs(predicted) if scale is None else scale
    deviation = (measured - predicted) / scale
    error = abs(deviation) if band is None else outside(deviation, band)
    return Check(
        name,
        equation,
        float(predicted),
        float(measured),
        float(error),
        0.0 if band else tolerance,
        reason,
        band,
        resolution=band.high - band.low if band else tolerance,
        scale=float(scale),
    )


def vanishing(name: str, equation: str, measured: Any, tolerance: float, reason: str) -> Check:
    """Check that something is zero; the error is its largest absolute value."""
    size = float(np.abs(np.asarray(measured, dtype=float)).max())
    return Check(name, equation, 0.0, size, size, tolerance, reason)


def at_least(name: str, equation: str, bound: float, measured: float, reason: str) -> Check:
    """Check that a value is not below a bound; `detectable` is the relative margin."""
    return _bounded(name, equation, bound, measured, reason, ">=", bound - measured)


def at_most(name: str, equation: str, bound: float, measured: float, reason: str) -> Check:
    """Check that a value does not exceed a bound; `detectable` is the relative margin."""
    return _bounded(name, equation, bound, measured, reason, "<=", measured - bound)


def _bounded(
    name: str, equation: str, bound: float, measured: float, reason: str, sign: str, beyond: float
) -> Check:
    error = max(0.0, float(beyond)) if np.isfinite(measured) else np.nan
    slack = max(0.0, -float(beyond))
    detectable = 0.0 if slack == 0 else slack / abs(measured) if measured else np.inf
    return Check(
        name,
        equation,
        float(bound),
        float(measured),
        error,
        0.0,
        reason,
        resolution=float(detectable),
        bound=sign,
    )


def outside(deviation: float, band: Band) -> float:
    """Distance from a band, zero inside."""
    return (
        float(max(band.low - deviation, deviation - band.high, 0.0))
        if np.isfinite(deviation)
        else np.nan
    )


def estimated(
    name: str,
    equation: str,
    predicted: float,
    measured: float,
    standard_error: float,
    samples: float = np.inf,
    *,
    band: Band | None = None,
    scale: float | None = None,
    required: float = SEEN,
    reason: str = Z_REASON,
    shape: Shape = SINGLE,
) -> Check:
    """Check of an estimate with a standard error against its prediction, or against the band around
    it; the error is |z|.

    Parameters
    ----------
    samples : float
        Number of independent values behind the standard error (infinite if the error is known).
    band : Band, optional
        Known systematic deviation of the theory.
    scale : float, optional
        Scale of relative errors; by default ``|predicted|``. Required for a decision if the
        prediction is zero.
    required : float
        Required minimum detectable effect (with a band: at least twice its width).
    shape : Shape
        Skewness of the values, and the number of points along a curve of which this deviation is
        the largest.
    """
    scale = abs(predicted) if scale is None else scale
    deviation = (measured - predicted) / scale if scale else np.nan
    away = abs(measured - predicted) if band is None else scale * outside(deviation, band)
    if standard_error == 0:  # no scatter: must be equal up to rounding
        z = 0.0 if away <= ROUNDING * max(abs(predicted), abs(measured)) else np.inf
    else:
        middle = 0.0 if band is None else scale * (band.low + band.high) / 2
        side = 1 if measured >= predicted + middle else -1
        z = normal_z(side * away / standard_error, samples, shape)
    relative = standard_error / scale if scale else np.inf
    width = 0.0 if band is None else band.high - band.low  # a smaller shift may stay inside
    required = max(required, 2 * width)
    known = shape if samples >= MANY else shape._replace(skewness=0.0)
    wanted = (
        samples_needed(relative * np.sqrt(samples), required - width, known)
        if np.isfinite(samples)
        else None
    )
    return Check(
        name,
        equation,
        float(predicted),
        float(measured),
        z,
        Z_MAX,
        reason,
        band,
        float(standard_error),
        float(width + detectable_effect(samples, shape=shape) * relative),
        required,
        wanted,
        float(scale),
    )


def sampled(
    name: str,
    equation: str,
    predicted: float,
    samples: Any,
    *,
    band: Band | None = None,
    scale: float | None = None,
    required: float = SEEN,
) -> Check:
    """Check of a mean over independent samples against its prediction (see `estimated`)."""
    x = np.asarray(samples, dtype=float)
    same = x.size > 1 and bool((x == x[0]).all())  # mean and deviation have rounding errors
    error = 0.0 if same else float(x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else np.nan
    mean = float(x[0] if same else x.mean())
    return estimated(
        name,
        equation,
        float(predicted),
        mean,
        error,
        x.size,
        band=band,
        scale=scale,
        required=required,
        shape=Shape(skewness(x)),
    )


def together(
    parts: Iterable[tuple[Sequence[Check], Sequence[str]]],
) -> tuple[list[Check], list[str]]:
    """Checks of several parts, and notes of all of them."""
    rows, notes = zip(*parts, strict=True)
    return [check for of in rows for check in of], [line for of in notes for line in of]


def failed(checks: Sequence[Check]) -> bool:
    """Whether a command with these checks fails (also without any checks)."""
    return not checks or not all(c.within for c in checks)
