"""What informed descents arrive at, in the limit of infinite d."""

from __future__ import annotations

import xarray as xr

from theory import prediction, scope, sweep
from theory.positional_semantic.numbers.branches import curve
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import DESCENT, HOW

SHARED = ["q", "m", "theta", "train_loss", "test_mse_half"]  # with the students


@scope.guard(DESCENT)
@sweep.over_fields
def predict(p: Parameters, runs: xr.Dataset | None = None) -> xr.Dataset:
    """Order parameters, training loss and test error where descent from the student's start ends.

    Informed descent stays in the well it starts in, so the local minimiser of the envelope is taken
    whatever ``p.prox`` says.

    Parameters
    ----------
    p : Parameters
        What was trained; ``p.start`` says from where.
    runs : Dataset, optional
        Students; where they have the sample complexity ``alpha`` as a dimension, so has the result.

    Returns
    -------
    Dataset
        ``q``, ``m``, ``theta`` (sizes), ``train_loss`` and ``test_mse_half``; NaN where the branch
        does not exist.

    Raises
    ------
    ParameterError
        For a start that is on neither branch, an extension the theory does not cover, a missing
        alpha, or runs that were trained with other parameters.
    """
    swept = runs is not None and "alpha" in runs.dims
    if runs is not None:
        prediction.held(p, runs, (), free=(*HOW, *(["alpha"] if swept else [])))
    alphas = runs.alpha.values if runs is not None and swept else [p.complexity]
    found = curve(p.replace(prox="local"), p.start, alphas)[SHARED]
    return found if swept else found.isel(alpha=0)
