"""The curves of a training run: full-batch descent with the students' step."""

from __future__ import annotations

import numpy as np
import xarray as xr

from theory import prediction, sweep
from theory.associative_memory.factual_recall.numbers import descend
from theory.associative_memory.factual_recall.parameters import Parameters


@sweep.over_fields
def predict(p: Parameters, runs: xr.Dataset | None = None, *, t: float | None = None) -> xr.Dataset:
    """Descent without the noise of batches; every seed starts alike.

    Parameters
    ----------
    p : Parameters
        What was trained, or is to be.
    runs : Dataset, optional
        Students over ``(seed, t)``: at their evaluations.
    t : float, optional
        Length of the curve without runs, in units of ``eta * steps``; ``p.steps`` by default.

    Returns
    -------
    Dataset
        Variables of the flow over ``t``. Its ``accuracy`` is called ``probability`` here, as the
        students' accuracy counts answers.

    Raises
    ------
    ParameterError
        If the runs lack their steps or were trained with other parameters.
    """
    if runs is None:
        p = p.run_to(t)
        steps = np.unique(np.append(np.arange(0, p.steps, p.eval_every), p.steps))
        at = p.eta * steps
    else:
        prediction.held(p, runs, ("t", "step"), free=("batch_size",))
        steps, at = runs.step.values, runs.t.values
    curve = descend(p, int(steps[-1])).isel(t=steps).rename(accuracy="probability")
    return curve.assign_coords(t=at, step=("t", steps))
