"""What `predict(p, runs)` and comparisons ask first: are parameters, runs and curve of the same
students, do the runs hold what a curve starts from, and when were they looked at.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from theory import registry, scope
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
    if not isinstance(runs, xr.Dataset):
        raise ParameterError(f"runs: must be a Dataset, got {type(runs).__name__}")
    missing = [name for name in needed if name not in runs.variables]
    if missing:
        raise ParameterError(f"runs: variable {', '.join(missing)} is missing")
    trained = _parameters(runs, "runs")
    for name, value in p.as_dict(training_only=True).items():
        if name in (*MEASURED, *free) or name not in trained:
            continue
        if trained[name] != value:
            raise ParameterError(f"{name} = {value}: the runs were trained with {trained[name]}")


def _parameters(data: xr.Dataset, whose: str) -> dict[str, Any]:
    """Parameters that a dataset says it is of; empty where it says nothing."""
    try:
        found = json.loads(data.attrs.get("parameters", "{}"))
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ParameterError(f"{whose}: attribute parameters is not a JSON object")
    return found


def comparable(curve: xr.Dataset, runs: xr.Dataset) -> None:
    """Refuse a curve of theory and runs that are not of the same students, or of students that the
    theory does not describe.

    What neither says (a curve of one's own, without attributes) is not asked.

    Raises
    ------
    ParameterError
        Naming what differs: the model, a field of the parameters, or the seeds.
    """
    for whose, data in (("curve", curve), ("runs", runs)):
        if not isinstance(data, xr.Dataset):
            raise ParameterError(f"{whose}: must be a Dataset, got {type(data).__name__}")
    if "seed" in curve.dims:
        ours, theirs = (
            np.atleast_1d(x.seed.values).tolist() if "seed" in x.coords else None
            for x in (curve, runs)
        )
        if "seed" not in runs.dims and theirs is None:
            raise ParameterError(f"curve: of {curve.sizes['seed']} seeds, the runs are one curve")
        if ours is not None and theirs is not None and sorted(ours) != sorted(theirs):
            raise ParameterError(f"curve: of seeds {_few(ours)}, the runs are of {_few(theirs)}")
        if curve.sizes["seed"] != runs.sizes.get("seed", 1):
            raise ParameterError(
                f"curve: of {curve.sizes['seed']} seeds, the runs are of {runs.sizes.get('seed', 1)}"
            )
    said, trained = _parameters(curve, "curve"), _parameters(runs, "runs")
    model = _model(runs)
    if not said or not trained or model is None:
        return
    kind = model.wing("theory").Parameters
    fields = {f.name for f in dataclasses.fields(kind) if not f.metadata.get("theory_only")}
    for name in fields.intersection(said, trained).difference(MEASURED, ("data_draw",)):
        if said[name] != trained[name]:
            raise ParameterError(
                f"{name} = {said[name]}: of the curve; the runs were trained with {trained[name]}"
            )
    if curve.attrs.get("kind") == "theory" and "assumptions" not in curve.attrs:
        known = {f.name for f in dataclasses.fields(kind)} & trained.keys()
        p = kind(**{name: trained[name] for name in known})
        scope.refuse(model.wing("theory").applies(p, runs, level=curve.attrs.get("level")))


def _few(seeds: list) -> str:
    return str(seeds) if len(seeds) <= 8 else f"{seeds[0]} to {seeds[-1]} ({len(seeds)})"


def _model(runs: xr.Dataset) -> Any:
    """The model whose students these are; None where the runs do not say, or no theory has one."""
    name = str(runs.attrs.get("model", ""))
    while name and name not in registry.TABLE:
        name = name.rpartition(".")[0]
    model = registry.TABLE.get(name)
    return model if model is not None and hasattr(model.wing("theory"), "applies") else None


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
