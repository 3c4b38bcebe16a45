"""Why theory and students differ: the levels of theory, from the one that knows least of a student
to the one that knows most.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import xarray as xr

from theory import ParameterError
from theory import state_tracking as st
from theory.state_tracking import Parameters
from theory.state_tracking.levels import LEVELS
from verify.check_table import percent
from verify.emergence import first_crossing

BEST = "fixed_disorder"  # the level that knows most
CLIMBED = (
    "flow",
    "own_start",
    "cavity",
    "disorder_counts",
    BEST,
)  # each differs from its neighbours
TITLE = "Levels of theory: rms error of the time of A = 1/2, and largest errors of curves"
CURVES = ("A", "R", "S")


def climb(
    p: Parameters, runs: xr.Dataset, levels: Iterable[str] = CLIMBED
) -> dict[str, dict[str, float]]:
    """How far levels of theory are from students.

    Parameters
    ----------
    p, runs : Parameters, Dataset
        Students over ``(seed, alpha)``, measured at time 0.
    levels : iterable of str
        Names in `theory.state_tracking.levels.LEVELS`.

    Returns
    -------
    dict of str to dict of str to float
        By level, without those that do not describe these students: ``half_time``, root mean square
        over seeds of predicted / measured - 1 for the time of A = 1/2; and of each curve the
        largest deviation, measured minus predicted mean over seeds, relative to the largest
        predicted size.
    """
    deviations: dict[str, dict[str, float]] = {}
    for level in levels:
        with contextlib.suppress(ParameterError):
            curves = st.predict(p, runs, level=level, accuracies=False)
            curves = curves.mean({"draw"} & {*curves.dims})
            off = {"half_time": rms(half_times(curves), half_times(runs))}
            for name in CURVES:
                gap = (runs[name] - curves[name].values).mean("seed").values
                off[name] = float(gap[np.abs(gap).argmax()] / np.abs(curves[name]).max())
            deviations[level] = off
    return deviations


def half_times(curves: xr.Dataset) -> np.ndarray:
    """Time of A = 1/2 of each student, in alpha; NaN if it is not reached."""
    return first_crossing(curves.A, 0.5).values


def rms(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Root mean square of the relative error, over students whose times are known."""
    return float(((xr.DataArray(predicted) / measured - 1) ** 2).mean()) ** 0.5


def table(
    levels: Mapping[str, Mapping[str, float]],
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Levels of theory with their errors as a table: head and rows."""
    rows = [
        (level, *map(percent, off.values()), LEVELS[level].knows) for level, off in levels.items()
    ]
    return ("level", "half-time", *CURVES, "knows of a student"), rows
