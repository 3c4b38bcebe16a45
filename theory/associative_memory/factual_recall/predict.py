"""Predicted curves of a training run: full-batch descent with the students' optimiser."""

import numpy as np
import xarray as xr

from theory import prediction, scope, sweep, until
from theory.associative_memory.factual_recall.dynamics import flow
from theory.associative_memory.factual_recall.parameters import RECALL, Parameters, optimiser


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
    steps, times = prediction.clock(p, runs, until)
    how, last = optimiser(runs), int(np.max(steps[-1]))
    length = last if how is None else max(last, p.steps)  # a schedule knows the length of the run
    curves = lambda: flow().descend(p, p.eta, length, optimizer=how)  # noqa: E731
    curve = prediction.finite(p, lambda: curves().isel(t=steps))
    return curve.rename(accuracy="probability").assign_coords(t=times, step=("t", steps))
