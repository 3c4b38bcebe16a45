"""Rows of a report: a `Check` from the two sides of a claim, one function per kind of
claim.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from theory.equations.equation import Equation
from verify.checks.verdict import (
    MANY,
    SEEN,
    SINGLE,
    Z_MAX,
    Z_REASON,
    Band,
    Check,
    Shape,
    detectable_effect,
    normal_z,
    samples_needed,
    skewness,
)

P = ParamSpec("P")
T = TypeVar("T")
Noted = tuple[list[Check], list[str]]  # rows, and lines of text beside them
ROUNDING = 4 * np.finfo(float).eps  # relative tolerance for samples without any scatter


def identity(
    name: str,
    equation: str,
    predicted: Any,
    measured: Any,
    tolerance: float,
    reason: str,
) -> Check:
    """Check that two sides are equal; the error is relative to the largest measured
    entry.
    """
    both = [np.asarray(v, dtype=float) for v in (predicted, measured)]
    left, right = (v.ravel() for v in np.broadcast_arrays(*both))
    gap = np.abs(left - right)
    # Entry shown: the worst one, NaN first; if all agree, the largest.
    worst = int(
        np.argmax(
            np.where(np.isfinite(gap), gap, np.inf) if gap.any() else np.abs(right)
        )
    )
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

    def __init__(
        self, table: Mapping[str, Equation], tolerance: float, reason: str
    ) -> None:
        self.table, self.tolerance, self.reason = table, tolerance, reason
        self.collected: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)

    def add(self, label: str, equation: str, values: Any, measured: Any) -> None:
        """Add the value of an equation and the measured value: numbers or arrays."""
        both = np.broadcast_arrays(
            self.table[equation].evaluate(values), np.asarray(measured)
        )
        self.collected[label, equation].append(np.reshape(both, (2, -1)))

    def each(
        self, label: str, equation: str, values: Any, letters: str, measured: np.ndarray
    ) -> None:
        """Every entry of an array, its indices, counted from 1, called by letters."""
        for place, one in np.ndenumerate(measured):
            indices = {letter: k + 1 for letter, k in zip(letters, place, strict=True)}
            self.add(label, equation, values | indices, one)

    def checks(self) -> list[Check]:
        """One row per label and equation."""
        rows = []
        for (label, equation), parts in self.collected.items():
            predicted, measured = np.concatenate(parts, axis=1)
            rows.append(
                identity(
                    label, equation, predicted, measured, self.tolerance, self.reason
                )
            )
        return rows


def listed(make: Callable[P, Iterable[T]]) -> Callable[P, list[T]]:
    """Decorator: collect what a generator yields, rows as a rule, into a list."""

    @functools.wraps(make)
    def group(*arguments: P.args, **named: P.kwargs) -> list[T]:
        return list(make(*arguments, **named))

    return group


def with_notes(make: Callable[P, Iterable[Check | str]]) -> Callable[P, Noted]:
    """Decorator: the rows that a function yields, and the notes, which are text.

    Raises
    ------
    TypeError
        By the decorated function, for what is neither.
    """

    @functools.wraps(make)
    def group(*arguments: P.args, **named: P.kwargs) -> Noted:
        rows: list[Check] = []
        notes: list[str] = []
        for item in make(*arguments, **named):
            if isinstance(item, Check):
                rows.append(item)
            elif isinstance(item, str):
                notes.append(item)
            else:
                raise TypeError(
                    f"{make.__name__}: yields {item!r}, must yield Checks and text"
                )
        return rows, notes

    return group


def against(
    table: Mapping[str, Equation],
    check: Callable[..., Check],
    name: str,
    equation: str,
    values: Any,
    *given: Any,
    **more: Any,
) -> Check:
    """Check of a number against an equation at given values; ``check`` is `identity`,
    `near` or `sampled`, whose other arguments follow.
    """
    return check(name, equation, table[equation].evaluate(values), *given, **more)


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
    """Check of a number without sampling error against its prediction, in units of
    ``scale`` (default: the prediction). Of several, the one with the largest deviation
    is shown, NaN first.
    """
    off = np.abs(np.ravel(measured) - predicted)
    worst = np.argmax(np.where(np.isfinite(off), off, np.inf))
    measured = np.ravel(measured)[worst]
    scale = abs(predicted) if scale is None else scale
    deviation = (measured - predicted) / scale
    error = abs(deviation) if band is None else outside(deviation, band)
    resolution = band.high - band.low if band else tolerance
    return Check(
        name,
        equation,
        float(predicted),
        float(measured),
        float(error),
        0.0 if band else tolerance,
        reason,
        band,
        resolution=resolution,
        scale=float(scale),
    )


def rms(name: str, equation: str, errors: Any, bar: float, reason: str) -> Check:
    """Check that the root mean square of relative errors is below a bar."""
    return near(
        name, equation, 0.0, float(np.sqrt(np.mean(errors**2))), bar, reason, 1.0
    )


def vanishing(
    name: str, equation: str, measured: Any, tolerance: float, reason: str
) -> Check:
    """Check that something is zero; the error is its largest absolute value."""
    size = float(np.abs(np.asarray(measured, dtype=float)).max())
    return Check(name, equation, 0.0, size, size, tolerance, reason)


def at_least(
    name: str, equation: str, bound: float, measured: float, reason: str
) -> Check:
    """Check that a value is not below a bound; `detectable` is the relative margin."""
    return _bounded(name, equation, bound, measured, reason, ">=", bound - measured)


def at_most(
    name: str, equation: str, bound: float, measured: float, reason: str
) -> Check:
    """Check that a value does not exceed a bound;
    `detectable` is the relative margin.
    """
    return _bounded(name, equation, bound, measured, reason, "<=", measured - bound)


def _bounded(
    name: str,
    equation: str,
    bound: float,
    measured: float,
    reason: str,
    sign: str,
    beyond: float,
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
    """Check of an estimate with a standard error against its prediction, or against the
    band around it; the error is |z|.

    Parameters
    ----------
    samples : float
        Number of independent values behind the standard error (infinite if the error is
        known).
    band : Band, optional
        Known systematic deviation of the theory.
    scale : float, optional
        Scale of relative errors; by default ``|predicted|``. Required for a decision if
        the prediction is zero.
    required : float
        Required minimum detectable effect (with a band: at least twice its width).
    shape : Shape
        Skewness of the values, and the number of points along a curve of which this
        deviation is the largest.
    """
    scale = abs(predicted) if scale is None else scale
    z = distance(predicted, measured, standard_error, samples, band, scale, shape)
    relative = standard_error / scale if scale else np.inf
    # A shift smaller than the band may stay inside.
    width = 0.0 if band is None else band.high - band.low
    required = max(required, 2 * width)
    detectable = width + detectable_effect(samples, shape=shape) * relative
    needed = None
    if np.isfinite(samples):
        known = shape if samples >= MANY else shape._replace(skewness=0.0)
        scatter = relative * np.sqrt(samples)
        needed = samples_needed(scatter, required - width, known)
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
        float(detectable),
        required,
        needed,
        float(scale),
    )


def distance(
    predicted: float,
    measured: float,
    standard_error: float,
    samples: float,
    band: Band | None,
    scale: float,
    shape: Shape = SINGLE,
) -> float:
    """``|z|`` of `estimated`."""
    deviation = (measured - predicted) / scale if scale else np.nan
    away = (
        abs(measured - predicted) if band is None else scale * outside(deviation, band)
    )
    rounding = ROUNDING * max(abs(predicted), abs(measured))
    if standard_error <= rounding:  # no scatter: must be equal up to rounding
        return 0.0 if away <= rounding else np.inf
    middle = 0.0 if band is None else scale * (band.low + band.high) / 2
    side = 1 if measured >= predicted + middle else -1
    return normal_z(side * away / standard_error, samples, shape)


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
    """Check of a mean over independent samples against its prediction (see
    `estimated`).
    """
    x = np.asarray(samples, dtype=float)
    mean, error = float(x.mean()), np.nan
    if x.size > 1:
        error = float(x.std(ddof=1) / np.sqrt(x.size))
        if (x == x[0]).all():  # without the rounding errors of mean and deviation
            mean, error = float(x[0]), 0.0
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


def together(parts: Iterable[tuple[Sequence[Check], Sequence[str]]]) -> Noted:
    """Checks of several parts, and notes of all of them."""
    rows, notes = zip(*parts, strict=True)
    chain = itertools.chain.from_iterable
    return list(chain(rows)), list(chain(notes))


def failed(checks: Sequence[Check]) -> bool:
    """Whether a command with these checks fails (also without any checks)."""
    return not checks or not all(c.within for c in checks)
