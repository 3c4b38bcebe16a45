"""Predicted curves of a training run: full-batch descent with the students' optimiser."""

import xarray as xr

from theory import prediction, scope, sweep, until
from theory.associative_memory.factual_recall.dynamics import flow
from theory.associative_memory.factual_recall.parameters import RECALL, Parameters


@until("t")
@scope.guard(RECALL)
@sweep.over_fields
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Predict a training run: descent by the students' optimiser without batch noise, the same for
    every seed.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, t)``; the curve is evaluated at their times.
    until : float, optional
        Length of the curve without runs, in units of ``eta * steps``; ``p.steps`` by default.

    Returns
    -------
    Dataset
        Variables of the flow over ``t``. The flow's ``accuracy`` is renamed ``probability``,
        because the students' accuracy counts correct answers.

    Raises
    ------
    ParameterError
        If the runs lack their steps or were trained with other parameters.
    """
    return prediction.descent(flow(), p, runs, until).rename(accuracy="probability")
