"""Check: predicted and measured value of a claim, minimum detectable effect and verdict."""

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from verify.significance import MANY, Z_MAX

Z_REASON = (
    f"|z| <= {Z_MAX:g}, z from Student t: a true statement fails once in 16,000, where fewer than "
    f"{MANY} values are near normal; of more, their skewness is corrected for"
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
                f"{self.samples_needed} samples would show {self.required:.0%}"
                if self.samples_needed
                else f"no number of samples would show {self.required:.0%}"
            )
            unseen = (
                f"an error below {self.detectable:.0%}" if self.detectable < 10 else "any error"
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
