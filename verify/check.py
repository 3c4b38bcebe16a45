"""Check: both sides of a claim, what the check could have seen, and the verdict that follows; a
row, a JSON object, an exit code.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from theory import output
from theory.equation import Equation
from verify.significance import MANY, SINGLE, Z_MAX, Shape, needed, normal_z, reach, skewness

Z_REASON = (
    f"|z| <= {Z_MAX:g}, z from Student t: a true statement fails once in 16,000, where fewer than "
    f"{MANY} values are near normal; of more, their skewness is corrected for"
)
IDENTITY = 1e-6  # an identity is held to this or better: what is left is rounding, or the error of a numerical method
SEEN = 0.05  # relative error of a prediction that an agreement must be able to see
ROUNDING = (
    4 * np.finfo(float).eps
)  # relative: samples without any scatter, against a prediction of a few operations
VERDICTS = ("exact", "agrees", "coarse", "bound", "limit", "undecided", "FAIL")


@dataclass(frozen=True)
class Band:
    """Where a theory that is not exact was measured to lie.

    Attributes
    ----------
    low, high : float
        Of measured / predicted - 1 (where a check states a scale: of the deviation over that
        scale).
    why : str
        What the theory leaves out.
    """

    low: float
    high: float
    why: str

    def __str__(self) -> str:
        """Say how far off, and why."""
        return f"off by {self.low:+.1%} to {self.high:+.1%}: {self.why}"


@dataclass(frozen=True)
class Check:
    """One claim and its verdict.

    Attributes
    ----------
    name : str
        What is checked; up to the first comma it says what, behind it where.
    equation : str
        Name of the Equation, or a reference.
    predicted, measured : float
        Both sides; for arrays, the entries that differ most.
    error : float
        Deviation in the unit of `tolerance`: from the prediction, or from the band.
    tolerance : float
        Largest acceptable error.
    reason : str
        Why this tolerance.
    band : Band, optional
        Where a theory that is not exact lies; what leaves it on either side fails.
    standard_error : float, optional
        Of `measured`, where it is sampled.
    resolution : float, optional
        Relative error of the prediction that the check would have flagged nine times in ten (by
        default its tolerance).
    see : float
        What `resolution` must reach for a verdict.
    needed : int, optional
        Samples with which it would.
    scale : float, optional
        What the deviation is relative to; by default the size of `predicted`.
    bound : {'', '>=', '<='}
        Where `predicted` is a bound.
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
    see: float = SEEN
    needed: int | None = None
    scale: float | None = None
    bound: str = ""

    @property
    def deviation(self) -> float:
        """Of `measured` from `predicted`, relative to the scale; NaN where there is none, as for a
        bound.
        """
        if self.bound:
            return np.nan
        scale = abs(self.predicted) if self.scale is None else self.scale
        return (self.measured - self.predicted) / scale if scale else np.nan

    @property
    def statistic(self) -> str:
        """What `error` is: of sampled values z, otherwise an error in the unit of `tolerance`."""
        return "error" if self.standard_error is None else "z"

    @property
    def id(self) -> str:
        """Address that ledgers cite: what is checked, without where (rows that differ in that alone
        share it).
        """
        what = re.split(r",|:| (?:at|for) [^,:]*=", self.name.strip().replace("= 1/2", "half"))[0]
        return re.sub(r"\W+", "_", what).strip("_")

    @property
    def within(self) -> bool:
        """Whether the error is inside the tolerance."""
        return bool(self.error <= self.tolerance)  # NaN is not

    @property
    def sees(self) -> float:
        """Relative error of the prediction that would have been flagged."""
        return self.tolerance if self.resolution is None else self.resolution

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`.

        *exact*: an identity. *agrees*: within its tolerance, and 5% off or more would have been
        flagged. *coarse*: inside, but 5% would not have been flagged by design (see `sees`).
        *bound*: an inequality holds, by more than 5%, and nothing is said of the size. *limit*:
        inside the band in which the theory is known to be off. *undecided*: inside, but the samples
        could not have seen what the check must see. *FAIL*: outside.
        """
        if not self.within:
            return "FAIL"
        if self.standard_error is not None and not self.sees <= self.see:
            return "undecided"
        if self.band is not None and not -SEEN <= self.band.low <= 0 <= self.band.high <= SEEN:
            return "limit"
        if self.standard_error is None and self.resolution is None and self.tolerance <= IDENTITY:
            return "exact"
        return "agrees" if self.sees <= SEEN else "bound" if self.bound else "coarse"

    @property
    def why(self) -> str:
        """Reason of the tolerance, what is known to break the theory, or what would decide."""
        if self.verdict == "undecided":
            more = f"{self.needed} samples would" if self.needed else "more samples would not"
            return f"could not have seen {self.see:.0%}; {more}"
        return str(self.band) if self.band is not None else self.reason

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "id": self.id,
            **asdict(self),
            "deviation": self.deviation,
            "statistic": self.statistic,
            "sees": self.sees,
            "within": self.within,
            "verdict": self.verdict,
        }


def identity(
    name: str, equation: str, predicted: Any, measured: Any, tolerance: float, reason: str
) -> Check:
    """Two sides that must be equal: error relative to the largest measured entry."""
    both = [np.asarray(v, dtype=float) for v in (predicted, measured)]
    left, right = (v.ravel() for v in np.broadcast_arrays(*both))
    gap = np.abs(left - right)
    # The entry to show: the worst one, not-a-number first; when all agree, the largest.
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
    """Both sides of Equations, gathered point by point: an `identity` per label.

    Parameters
    ----------
    table : mapping of str to Equation
        Equations by name; a test hands in a faulty one.
    tolerance, reason
        Of all rows.
    """

    def __init__(self, table: Mapping[str, Equation], tolerance: float, reason: str) -> None:
        self.table, self.tolerance, self.reason = table, tolerance, reason
        self.found: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)

    def add(self, label: str, equation: str, values: Any, measured: Any) -> None:
        """What an equation says of these values, and what was measured: numbers or arrays."""
        both = np.broadcast_arrays(self.table[equation].evaluate(values), np.asarray(measured))
        self.found[label, equation].append(np.reshape(both, (2, -1)))

    def checks(self) -> list[Check]:
        """A row per label and equation."""
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
    """A number that is known (not sampled) against its prediction, in units of ``scale`` (default:
    of the prediction); of several, the one that is farthest off, not-a-number first.
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
    """Something that must be zero: the error is its largest size."""
    size = float(np.abs(np.asarray(measured, dtype=float)).max())
    return Check(name, equation, 0.0, size, size, tolerance, reason)


def at_least(name: str, equation: str, bound: float, measured: float, reason: str) -> Check:
    """A value that must not fall below a bound: sees how much smaller it could not be."""
    return _bounded(name, equation, bound, measured, reason, ">=", bound - measured)


def at_most(name: str, equation: str, bound: float, measured: float, reason: str) -> Check:
    """A value that must not exceed a bound: sees how much larger it could not be."""
    return _bounded(name, equation, bound, measured, reason, "<=", measured - bound)


def _bounded(
    name: str, equation: str, bound: float, measured: float, reason: str, sign: str, beyond: float
) -> Check:
    error = max(0.0, float(beyond)) if np.isfinite(measured) else np.nan
    slack = max(0.0, -float(beyond))
    sees = 0.0 if slack == 0 else slack / abs(measured) if measured else np.inf
    return Check(
        name,
        equation,
        float(bound),
        float(measured),
        error,
        0.0,
        reason,
        resolution=float(sees),
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
    see: float = SEEN,
    reason: str = Z_REASON,
    shape: Shape = SINGLE,
) -> Check:
    """An estimate with a standard error against its prediction, or against the band around it:
    error is |z|.

    Parameters
    ----------
    samples : float
        Number of independent values behind the standard error (infinite where it is known).
    band : Band, optional
        Where the theory is known to be off.
    scale : float, optional
        What relative errors are relative to; by default ``|predicted|``. A prediction of zero needs
        one to be decided.
    see : float
        Relative error that the check must be able to see (with a band: at least twice its width).
    shape : Shape
        Skewness of the values, and of how many points along a curve this one is the farthest off.
    """
    scale = abs(predicted) if scale is None else scale
    deviation = (measured - predicted) / scale if scale else np.nan
    away = abs(measured - predicted) if band is None else scale * outside(deviation, band)
    if standard_error == 0:  # nothing scatters: equal up to rounding, or not at all
        z = 0.0 if away <= ROUNDING * max(abs(predicted), abs(measured)) else np.inf
    else:
        middle = 0.0 if band is None else scale * (band.low + band.high) / 2
        side = 1 if measured >= predicted + middle else -1
        z = normal_z(side * away / standard_error, samples, shape)
    relative = standard_error / scale if scale else np.inf
    width = 0.0 if band is None else band.high - band.low  # a shift by less may stay inside
    see = max(see, 2 * width)
    known = shape if samples >= MANY else shape._replace(skewness=0.0)
    wanted = (
        needed(relative * np.sqrt(samples), see - width, known) if np.isfinite(samples) else None
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
        float(width + reach(samples, shape=shape) * relative),
        see,
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
    see: float = SEEN,
) -> Check:
    """A mean over independent samples against its prediction (see `estimated`)."""
    x = np.asarray(samples, dtype=float)
    same = x.size > 1 and bool((x == x[0]).all())  # their mean and deviation are off by rounding
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
        see=see,
        shape=Shape(skewness(x)),
    )


def failed(checks: Sequence[Check]) -> bool:
    """Whether a command that made these checks fails (one without checks does)."""
    return not checks or not all(c.within for c in checks)


def summary(checks: Sequence[Check]) -> str:
    """How many of each verdict."""
    found = Counter(c.verdict for c in checks)
    return ", ".join(f"{found[v]} {v}" for v in VERDICTS if found[v] or v == "FAIL")


def table(checks: Sequence[Check], *, wide: bool = False) -> str:
    """Rows for people: the deviation in per cent, and z where samples scatter.

    Unless ``wide``, the table fits the terminal: long names go on below, and so does the reason why
    a row is not simply right.
    """
    if wide:
        return _ended(output.table(WIDE, [[*_row(c), *_more(c)] for c in checks]), checks)
    rows = [_row(c) for c in checks]
    widths = [max(len(r[i]) for r in [NARROW, *rows]) for i in range(len(NARROW))]
    widths[0] = min(
        widths[0], max(NARROWEST, output.width() - sum(widths[1:]) - 2 * len(NARROW) + 2)
    )
    lines = [_line(NARROW, widths), _line(["-" * w for w in widths], widths)]
    for c, (name, *cells) in zip(checks, rows, strict=True):
        first, *others = output.wrapped(name, widths[0])
        lines += [_line([first, *cells], widths), *others]
        if c.verdict not in PLAIN:
            lines += output.wrapped(f"    {_trouble(c)}", output.width())
    return _ended("\n".join(lines), checks)


NARROW = ("check", "predicted", "measured", "off", "z", "verdict")
WIDE = (*NARROW, "equation", "error", "tolerance", "sees", "why")
NARROWEST = 20  # characters that names of checks keep
PLAIN = ("exact", "agrees")  # verdicts that need no reason
AGREES = "agrees: within its tolerance, and 5% off or more would have been flagged."
Z_SENTENCE = (
    f"z: standard errors between prediction (or band) and mean, as unlikely as a normal z; beyond {Z_MAX:g} a row fails,"
    " a true statement once in 16,000 times."
)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()


def _trouble(c: Check) -> str:
    """Why a row is not simply right; where nothing scatters, by how much it fails."""
    if c.verdict == "FAIL" and c.statistic == "error" and c.band is None:
        return f"error {c.error:.1e}, allowed {c.tolerance:.2g}: {c.why}"
    return c.why


def _ended(text: str, checks: Sequence[Check]) -> str:
    sampled_ones = any(c.standard_error is not None for c in checks)
    sentence = textwrap.wrap(Z_SENTENCE, max(60, output.width())) if sampled_ones else []
    agree = [AGREES] if any(c.verdict == "agrees" for c in checks) else []
    return "\n".join([text, *sentence, *agree, summary(checks)])


def percent(deviation: float) -> str:
    """A relative deviation in per cent; empty where there is none."""
    if not np.isfinite(deviation):
        return ""
    if abs(deviation) < 5e-5:
        return f"{100 * deviation:+.0e}%" if deviation else "0%"
    return f"{100 * deviation:+.{0 if abs(deviation) >= 1 else 1}f}%"


def uncertain(value: float, error: float | None) -> str:
    """A number, and its standard error to two digits, to as many places."""
    if error is None or not np.isfinite(error) or error == 0 or not 1e-4 < abs(value) < 1e6:
        return f"{value:.5g}" + ("" if error is None else f" +- {error:.1e}")
    places = max(0, 1 - int(np.floor(np.log10(error))))
    return (
        f"{value:.{places}f} +- {error:.{places}f}" if places < 7 else f"{value:.5g} +- {error:.1e}"
    )


def _row(c: Check) -> list[str]:
    z = f"{c.error:.1f}" if c.statistic == "z" else ""
    return [
        c.name,
        f"{c.bound} {c.predicted:.5g}".strip(),
        uncertain(c.measured, c.standard_error),
        percent(c.deviation),
        z,
        c.verdict,
    ]


def _more(c: Check) -> list[str]:
    sees = "" if c.verdict == "exact" else f"{c.sees:.1%}" if c.sees < 10 else "nothing"
    error = f"{c.error:.1e}" if c.statistic == "error" else ""
    why = "" if c.why == Z_REASON else c.why
    return [c.equation, error, f"{c.tolerance:.2g}", sees, why]
