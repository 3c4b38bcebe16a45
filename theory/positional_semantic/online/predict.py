"""Prediction of one-pass students in the limit of many dimensions."""

import xarray as xr

from theory import prediction, scope, sweep, until
from theory.positional_semantic.online.dynamics import flow_of
from theory.positional_semantic.online.parameters import Parameters
from theory.positional_semantic.online.scope import ANY, RUN


@until("t")
@scope.guard(ANY)
@sweep.over_fields
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Curves of ``q``, ``m``, ``theta`` and the loss: all seeds have one.

    Parameters
    ----------
    p : Parameters
        Parameters of the training.
    runs : Dataset, optional
        Students, whose times are used; else those at which students with these parameters measure.
    until : float, optional
        Length of the curve without runs, in ``t`` (also ``t=``); by default that of ``p.steps``.

    Returns
    -------
    Dataset
        Over ``t``.
    """
    if runs is not None:
        prediction.check_runs(p, runs, ("t",), free=RUN)
        times = runs.t.values
    else:
        p = p.run_to(until)
        times = p.eta / p.d * prediction.evaluations(p.steps, p.eval_every)
    return flow_of(p).solve(p, at=times, t=float(times[-1]))
