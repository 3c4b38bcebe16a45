"""The curves of a training run: full-batch descent with the students' step."""

from __future__ import annotations

import xarray as xr

from theory import prediction, scope, sweep
from theory.associative_memory.factual_recall.dynamics import flow
from theory.associative_memory.factual_recall.parameters import Parameters
from theory.associative_memory.factual_recall.scope import RECALL


@scope.guard(RECALL)
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
    steps, at = prediction.clock(p, runs, t, p.eta)
    curve = flow().descend(p, p.eta, int(steps[-1])).isel(t=steps).rename(accuracy="probability")
    return curve.assign_coords(t=at, step=("t", steps))
