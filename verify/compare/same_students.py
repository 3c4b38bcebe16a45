"""Whether a theory curve and runs belong to the same students, and the theory describes
these.
"""

import dataclasses
from typing import Any

import numpy as np
import xarray as xr

from theory.call import scope
from theory.call.refusal import ParameterError
from theory.dynamics.prediction import MEASURED, parameters_of
from theory.models import registry


def are_datasets(curve: Any, runs: Any) -> None:
    """Raise an error unless both are."""
    for whose, data in (("curve", curve), ("runs", runs)):
        if not isinstance(data, xr.Dataset):
            raise ParameterError(
                f"{whose}: must be a Dataset, got {type(data).__name__}; of a file"
                " verify.compare.tables.read makes one, of arrays"
                " verify.compare.tables.arrays"
            )


def check_curve(curve: xr.Dataset, runs: xr.Dataset) -> None:
    """Raise an error unless a theory curve and runs belong to the same students and the
    theory describes these.

    Only attributes that both datasets have are compared; a curve without attributes is
    accepted.

    Raises
    ------
    ParameterError
        Naming the field of the parameters that differs, the seeds, or the broken
        assumption.
    """
    are_datasets(curve, runs)
    if runs.attrs.get("kind") == "theory" != curve.attrs.get("kind"):
        raise ParameterError(
            "the arguments are swapped: it is compare(curve, runs), and"
            " emergence_times(runs, curve)"
        )
    if "seed" in curve.dims:
        ours, theirs = (
            np.atleast_1d(x.seed.values).tolist() if "seed" in x.coords else None
            for x in (curve, runs)
        )
        if "seed" not in runs.dims and theirs is None:
            raise ParameterError(
                f"curve: of {curve.sizes['seed']} seeds, the runs are one curve"
            )
        if ours is not None and theirs is not None and {*ours} != {*theirs}:
            raise ParameterError(
                f"curve: of seeds {_few(ours)}, the runs are of {_few(theirs)}"
            )
        if curve.sizes["seed"] != runs.sizes.get("seed", 1):
            raise ParameterError(
                f"curve: of {curve.sizes['seed']} seeds, the runs are of"
                f" {runs.sizes.get('seed', 1)}"
            )
    said = parameters_of(curve, "curve")
    trained = parameters_of(runs, "runs")
    if swept := [str(d) for d in runs.dims if d in said and d not in curve.dims]:
        several = (
            f"the runs are of several {', '.join(swept)}: pick one:"
            f" runs.sel({swept[0]}=...)"
        )
        raise ParameterError(f"curve: of {swept[0]} = {said[swept[0]]}, {several}")
    model = _model(runs)
    if not said or not trained or model is None:
        return
    kind = model.wing("theory").Parameters
    said, trained = kind.filled(said), kind.filled(trained)
    fields = {
        f.name for f in dataclasses.fields(kind) if not f.metadata.get("theory_only")
    }
    for name in fields.intersection(said, trained).difference(MEASURED, ("data_draw",)):
        if said[name] != trained[name]:
            raise ParameterError(
                f"{name} = {said[name]}: of the curve; the runs were trained with"
                f" {trained[name]}"
            )
    if curve.attrs.get("kind") == "theory" and "assumptions" not in curve.attrs:
        known = {f.name for f in dataclasses.fields(kind)} & trained.keys()
        p = kind(**{name: trained[name] for name in known})
        scope.refuse(
            model.wing("theory").applies(p, runs, level=curve.attrs.get("level"))
        )


def _few(seeds: list) -> str:
    return (
        str(seeds) if len(seeds) <= 8 else f"{seeds[0]} to {seeds[-1]} ({len(seeds)})"
    )


def _model(runs: xr.Dataset) -> Any:
    """Model of these students; None if the runs do not name one or the model has no
    scope.
    """
    model = registry.named(str(runs.attrs.get("model", "")))
    return (
        model
        if model is not None and hasattr(model.wing("theory"), "applies")
        else None
    )
