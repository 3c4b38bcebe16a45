"""Theory curves against students: one compared, several ranked."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from verify.checks.check import Band
from verify.compare.comparison import compare_one
from verify.compare.ranking import rank


def compare(
    curve: Any,
    runs: xr.Dataset,
    bands: Mapping[str, Band] | None = None,
    label: str = "",
    *,
    time: str | None = None,
    beyond: bool = False,
) -> Any:
    """Compare all variables common to a theory curve and an ensemble.

    Parameters
    ----------
    curve : Dataset
        Several theories by name are ranked (`verify.compare.ranking.rank`). Otherwise a
        theory over time; over ``(seed, time)`` if it predicts every seed, which is then
        compared seed by seed; or over ``(draw, time)`` for drawn initial values, whose
        mean is compared. With ``x_bias`` and ``x_sd`` (``predict(p,
        fluctuations=True)``) the mean is ``x + x_bias`` where that is claimed, and
        students scatter by ``x_sd`` where the theory has it. Interpolated (cubic) to
        the ensemble's evaluation times.
    runs : Dataset
        Students over ``(seed, time)``, or any dataset with variables of the same names;
        without ``seed`` a single curve.
    bands : mapping, optional
        Per variable, known systematic deviation: (measured - predicted) over the
        largest predicted size.
    label : str
        Text appended to the names of the variables.
    time : str, optional
        Name of the time in the runs, if it differs from the theory's; the unit must be
        the theory's.
    beyond : bool
        Also compare with students that the theory does not describe, with a warning.

    Returns
    -------
    Comparison
        Or a `verify.compare.ranking.Ranking`, of several theories.

    Raises
    ------
    ParameterError
        If curve and runs belong to different students, or to students that the theory
        does not describe; if there is no common time or variable, or a time has no
        coordinate.
    """
    if isinstance(curve, Mapping) and not isinstance(curve, xr.Dataset):
        return rank(curve, runs, time=time, beyond=beyond)
    return compare_one(curve, runs, bands, label, time=time, beyond=beyond)
