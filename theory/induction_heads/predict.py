"""Emergence times for Parameters, and predicted curves of a training run."""

import xarray as xr

from theory import prediction, scope, sweep, until
from theory.induction_heads.numbers import all_weights
from theory.induction_heads.numbers.all_weights_loss import NAMES
from theory.induction_heads.parameters import Parameters
from theory.induction_heads.scope import ALL, DESCENT
from theory.induction_heads.structure import HEAD


@scope.guard(ALL)
@sweep.over_fields
def all_weights_times(p: Parameters) -> dict[str, float]:
    """Emergence times with all weights trained, for the data, query and mask of ``p``.

    Exact for orthonormal data. On Gaussian data to leading order in 1/D, i.e. without fluctuations
    of inner products. Times in ``t``, keys as in `all_weights.times`; infinite if not reached
    before the drop.
    """
    speed, pace = all_weights.rates(p.data, p.dimension)
    times = all_weights.times(p.N, p.query, p.mask, right=p.B, speed=speed)
    return {name: value / pace for name, value in times.items()}


@until("t")
@scope.guard(DESCENT)
@sweep.over_fields
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Predict a training run: population gradient descent of all weights with the students' step,
    starting from zero for every seed.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, t)``; the curve is evaluated at their times.
    until : float, optional
        Length of the curve without runs, in ``t`` (also ``t=``); ``p.steps`` by default.

    Returns
    -------
    Dataset
        ``alpha``, ``beta``, ``gamma`` and ``loss`` over ``t`` (unit-rate flow on the summed loss).

    Raises
    ------
    ParameterError
        If the closed flow does not apply (data not orthonormal, every pair queried in turn, fewer
        weights), or if the runs were trained with other parameters.
    """
    steps, clock = prediction.clock(p, runs, until)
    of = all_weights.loss_of(p.N, p.query, p.mask, p.B)

    def follow() -> xr.Dataset:
        whole = all_weights.euler(p.N, p.query, p.mask, p.time_per_step, int(steps[-1]), p.B)
        path = whole[steps]
        losses = [of(x)[0] for x in path]
        curves = {short: ("t", path[:, NAMES.index(full)]) for short, full in HEAD.items()}
        return xr.Dataset(curves | {"loss": ("t", losses)}, {"t": clock, "step": ("t", steps)})

    return prediction.finite(p, follow).assign_attrs(
        kind="theory",
        reference="beyond musat2025: descent of the flow of all weights",
        status="exact",
        parameters=p.as_json(),
    )
