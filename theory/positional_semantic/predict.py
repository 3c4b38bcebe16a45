"""Prediction of informed descent in the limit of infinite d."""

from collections.abc import Callable

import xarray as xr

from theory import prediction, scope, sweep
from theory.positional_semantic.numbers.branches import curve
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import DESCENT, FREE

SHARED = ["q", "m", "theta", "train_loss", "test_mse_half"]  # variables that the students have, too


@scope.guard(DESCENT)
@sweep.over_fields
def predict(p: Parameters, runs: xr.Dataset | None = None) -> xr.Dataset:
    """Predict order parameters, training loss and test error at the end of informed descent.

    Informed descent stays in its initial well; therefore the local branch of the proximal operator
    is used for any ``p.prox``.

    Parameters
    ----------
    p : Parameters
        Parameters of the training; ``p.start`` is its initial condition.
    runs : Dataset, optional
        Students. If they have the sample complexity ``alpha`` as a dimension, so has the result.

    Returns
    -------
    Dataset
        ``q``, ``m``, ``theta`` (absolute values), ``train_loss`` and ``test_mse_half``; NaN if the
        branch does not exist.

    Raises
    ------
    ParameterError
        For a start on neither branch, an extension that the theory does not cover, a missing alpha,
        or runs trained with other parameters.
    """
    return over_alpha(
        p, runs, lambda alphas: curve(p.replace(prox="local"), p.start, alphas)[SHARED]
    )


def over_alpha(
    p: Parameters, runs: xr.Dataset | None, ends: Callable[[list[float]], xr.Dataset]
) -> xr.Dataset:
    """Ends of descent at the sample complexities of runs, or at that of the parameters.

    Parameters
    ----------
    ends : callable
        ``ends(alphas)``: the prediction over ``alpha``.

    Raises
    ------
    ParameterError
        For runs trained with other parameters.
    """
    swept = runs is not None and "alpha" in runs.dims
    if runs is not None:
        prediction.check_runs(p, runs, (), free=(*FREE, *(["alpha"] if swept else [])))
    if runs is not None and swept:
        return ends(runs.alpha.values.tolist())
    return ends([p.complexity]).isel(alpha=0, drop=True)
