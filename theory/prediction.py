"""What every ``predict(p, runs)`` asks first: do these runs belong to these parameters, do they
hold what a curve of theory starts from, and when were they looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
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


def evaluations(last: int, every: int) -> np.ndarray:
    """Steps at which a run is looked at: every so many, and the last."""
    return np.unique(np.append(np.arange(0, last, every), last))


def clock(
    p: Any, runs: xr.Dataset | None, t: float | None, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """Steps of descent and their times, at which a curve that follows no seed is wanted.

    Parameters
    ----------
    p : Parameters
        With ``steps``, ``eval_every`` and a batch that the curve does not depend on.
    runs : Dataset or None
        Students over ``(seed, t)``: at their evaluations.
    t : float or None
        Length of the curve without runs; ``p.steps`` if None.
    step : float
        One step in t.

    Raises
    ------
    ParameterError
        As `held`.
    """
    if runs is not None:
        held(p, runs, ("t", "step"), free=("batch_size",))
        return runs.step.values, runs.t.values
    p = p.run_to(t)
    steps = evaluations(p.steps, p.eval_every)
    return steps, step * steps
