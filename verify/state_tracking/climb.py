"""Why theory and students differ: the levels of theory one after the other, until one describes a
curve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from theory import ParameterError
from theory import state_tracking as st
from theory.state_tracking import Parameters
from theory.state_tracking.levels import LEVELS
from theory.state_tracking.predict import ACCURACIES
from verify.check import SEEN, Band, Check
from verify.emergence import first_crossing
from verify.state_tracking.bands import UNKNOWN

BEST = "fixed_disorder"  # the level that knows most
EXPLAINED = "explained by the level"


def climb(
    p: Parameters, runs: xr.Dataset, name: str, above: str = "", *, every: bool = False
) -> dict[str, float]:
    """Largest deviation of a curve at each level of theory, up to the first that explains it.

    Parameters
    ----------
    p, runs : Parameters, Dataset
        Students over ``(seed, alpha)``, measured at time 0.
    name : str
        A curve, such as ``"S"``.
    above : str
        Begin with the level after this one; with the lowest by default.
    every : bool
        Go on to the highest level.

    Returns
    -------
    dict of str to float
        By level, measured minus predicted mean over seeds at the time where they differ most,
        relative to the largest predicted size. The last is below 5% if a level explains the curve.
        Levels without this curve, or not for these students, are left out.
    """
    order = list(LEVELS)
    deviations: dict[str, float] = {}
    for level in order[order.index(above) + 1 if above else 0 :]:
        try:
            curves = st.predict(p, runs, level=level, accuracies=name in ACCURACIES)
        except ParameterError:
            continue
        if name not in curves or name not in runs:
            continue
        curve = curves[name].mean("draw") if "draw" in curves.dims else curves[name]
        gap = (runs[name].transpose(*curve.dims) - curve.values).mean("seed").values
        deviations[level] = float(gap[np.abs(gap).argmax()] / np.abs(curve).max())
        if abs(deviations[level]) <= SEEN and not every:
            break
    return deviations


def explained(
    p: Parameters, runs: xr.Dataset, table: Mapping[str, Band], below: str
) -> dict[str, Band]:
    """Bands of a level whose reasons name, where they are unknown, the level that describes the
    curve.
    """
    return {
        name: replace(band, why=reason(climb(p, runs, name, below)))
        if band.why == UNKNOWN and name in runs
        else band
        for name, band in table.items()
    }


def half_times(p: Parameters, runs: xr.Dataset, level: str) -> np.ndarray:
    """Predicted time of A = 1/2 per seed; NaN if it is not reached, or these students are not the
    level's.
    """
    try:
        curves = st.predict(p, runs, level=level, accuracies=False)
    except ParameterError:
        return np.full(runs.sizes["seed"], np.nan)
    return first_crossing(curves.A, 0.5).values


def rms(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Root mean square of the relative error, over seeds whose times are known."""
    off = predicted / measured - 1
    return float(np.sqrt(np.mean(off[np.isfinite(off)] ** 2))) if np.isfinite(off).any() else np.nan


def highlights(p: Parameters, runs: xr.Dataset, checks: Sequence[Check]) -> list[str]:
    """Result of a comparison: errors of the predicted times, and which level explains what the
    theory that is judged does not.
    """
    measured = first_crossing(runs.A, 0.5).values
    errors = [(level, rms(half_times(p, runs, level), measured)) for level in ("flow", BEST)]
    lines = [
        f"time of A = 1/2, rms error over students: {off:.1%} by {LEVELS[level].title}"
        for level, off in errors
        if np.isfinite(off)
    ]
    return lines + [
        f"{c.name.partition(',')[0]}: off by {c.deviation:+z.1%}, {c.band.why}"
        for c in checks
        if c.band and c.band.why.startswith(EXPLAINED)
    ]


def reason(deviations: Mapping[str, float]) -> str:
    """In words, which level explains a deviation."""
    level, off = next(reversed(deviations.items()), ("", 1.0))
    if abs(off) > SEEN:
        return f"{UNKNOWN}: no level of theory describes it"
    return f"{EXPLAINED} {level} (off by {off:+z.1%}), which knows {LEVELS[level].knows}"
