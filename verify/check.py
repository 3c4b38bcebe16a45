"""Check: both sides of a claim, the tolerance and its reason; a row, a JSON object and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.stats

from theory import cli

Z_MAX = 4.0
Z_REASON = "|z| <= 4, z from Student t: a true statement fails once in 16,000"


@dataclass(frozen=True)
class Check:
    """One claim and its verdict.

    Attributes
    ----------
    name : str
        What is checked.
    equation : str
        Name of the Equation, or a reference.
    predicted, measured : float
        Both sides; for arrays, the entries that differ most.
    error : float
        Deviation in the unit of `tolerance`.
    tolerance : float
        Largest acceptable error.
    reason : str
        Why this tolerance.
    known_limit : str
        When not empty, the deviation is a known limit of the theory: reported, not failed.
    standard_error : float or None
        Of `measured`, where it is sampled.
    """

    name: str
    equation: str
    predicted: float
    measured: float
    error: float
    tolerance: float
    reason: str
    known_limit: str = ""
    standard_error: float | None = None

    @property
    def within(self) -> bool:
        """Whether the error is inside the tolerance."""
        return bool(self.error <= self.tolerance)  # NaN is not

    @property
    def passed(self) -> bool:
        """Whether this check lets a command succeed."""
        return self.within or bool(self.known_limit and not np.isnan(self.error))

    @property
    def verdict(self) -> str:
        """Word for the table."""
        return "pass" if self.within else "known limit" if self.passed else "FAIL"

    @property
    def why(self) -> str:
        """Reason of the tolerance, or what is known to break it."""
        return self.known_limit if self.verdict == "known limit" else self.reason

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "passed": self.passed, "within": self.within, "verdict": self.verdict}


def identity(name: str, equation: str, predicted: Any, measured: Any, tolerance: float, reason: str) -> Check:
    """Two sides that must be equal: error relative to the largest measured entry."""
    both = [np.asarray(v, dtype=float) for v in (predicted, measured)]
    left, right = (v.ravel() for v in np.broadcast_arrays(*both))
    gap = np.abs(left - right)
    # The entry to show: the worst one, not-a-number first; when all agree, the largest.
    worst = int(np.argmax(np.where(np.isfinite(gap), gap, np.inf) if gap.any() else np.abs(right)))
    scale = np.abs(right).max()
    error = float(gap[worst] / scale) if scale > 0 else float(gap[worst])
    return Check(name, equation, float(left[worst]), float(right[worst]), error, tolerance, reason)


def normal_z(t: float, samples: int) -> float:
    """Normal z as unlikely as a Student t of ``samples`` values: few seeds do not look significant by themselves."""
    return float(scipy.stats.norm.isf(scipy.stats.t.sf(t, samples - 1))) if samples > 1 else np.nan


def sampled(name: str, equation: str, predicted: float, samples: Any, known_limit: str = "") -> Check:
    """A mean over independent samples against its prediction: error is |z|."""
    x = np.asarray(samples, dtype=float)
    standard_error = float(x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else np.nan
    z = normal_z(abs(float(x.mean()) - predicted) / standard_error, x.size)
    return Check(name, equation, float(predicted), float(x.mean()), z, Z_MAX, Z_REASON, known_limit, standard_error)


def passed(checks: Sequence[Check]) -> bool:
    """Whether all checks let the command succeed (an empty list does not)."""
    return bool(checks) and all(c.passed for c in checks)


def table(checks: Sequence[Check]) -> str:
    """Rows for people."""
    rows = []
    for c in checks:
        spread = f" +- {c.standard_error:.1e}" if c.standard_error is not None else ""
        rows.append((c.name, c.equation, f"{c.predicted:.6g}", f"{c.measured:.6g}{spread}", f"{c.error:.1e}",
                     f"{c.tolerance:.2g}", c.verdict, c.why))  # fmt: skip
    failed = sum(not c.passed for c in checks)
    limits = sum(not c.within for c in checks) - failed
    summary = f"{len(checks) - failed - limits} pass, {limits} known limits, {failed} fail"
    header = (
        "check",
        "equation",
        "predicted",
        "measured",
        "error",
        "tolerance",
        "verdict",
        "why this tolerance, or what limits the theory",
    )
    return f"{cli.table(header, rows)}\n{summary}"


def report(model: str, checks: Sequence[Check], as_json: bool, **more: Any) -> int:
    """Print the checks; return the exit code."""
    if as_json:
        print(cli.to_json({"model": model, **more, "checks": [c.as_dict() for c in checks], "passed": passed(checks)}))
    else:
        print(table(checks))
    return 0 if passed(checks) else 1
