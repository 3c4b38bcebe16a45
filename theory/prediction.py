"""What every ``predict(p, runs)`` asks first: do these runs belong to these parameters, and do they
hold what a curve of theory starts from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import xarray as xr

from theory.parameters import BaseParameters, ParameterError

MEASURED = ("epochs", "steps", "eval_every", "n_test")  # how long and how a run was looked at


def held(
    p: BaseParameters, runs: xr.Dataset, needed: Iterable[str], free: Iterable[str] = ()
) -> None:
    """Refuse runs that cannot be those of ``p``.

    Parameters
    ----------
    p : Parameters
        Those that a curve will be computed for.
    runs : Dataset
        Students, or any dataset with the needed variables.
    needed : iterable of str
        Variables and coordinates.
    free : iterable of str
        Fields that do not matter to the curve, beside `MEASURED`.

    Raises
    ------
    ParameterError
        Naming a missing variable, or a field of ``p`` in which the runs differ.
    """
    missing = [name for name in needed if name not in runs.variables]
    if missing:
        raise ParameterError(f"runs: variable {', '.join(missing)} is missing")
    trained = json.loads(runs.attrs.get("parameters", "{}"))
    for name, value in p.as_dict(training_only=True).items():
        if name in (*MEASURED, *free) or name not in trained:
            continue
        if trained[name] != value:
            raise ParameterError(f"{name} = {value}: the runs were trained with {trained[name]}")
