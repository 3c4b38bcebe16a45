"""Predicted curves of a training run of softmax kernels, by stage of the curriculum."""

import numpy as np
import xarray as xr

from theory import Allowed, number, prediction, scope, sweep, until
from theory.associative_memory.k_hop.numbers import starting_at, time_of_product
from theory.associative_memory.k_hop.overlaps import STAGE, flow
from theory.associative_memory.k_hop.parameters import KERNEL_LEARNERS, Parameters


@until("t")
@scope.guard(KERNEL_LEARNERS)
@sweep.over_fields
def predict(
    p: Parameters, runs: xr.Dataset | None = None, *, until: float | None = None
) -> xr.Dataset:
    """Predict a training run: flow of the overlaps of softmax kernels without batch noise, the same
    for every seed.

    Parameters
    ----------
    p : Parameters
        Parameters of the training run.
    runs : Dataset, optional
        Students over ``(seed, t)``; the curve is evaluated at their times.
    until : float, optional
        Length of the curve without runs, in ``t = eta * steps`` (also ``t=``); by default
        that of ``p.steps``.

    Returns
    -------
    Dataset
        ``overlap`` over ``(t, hop)``; ``product``, ``hops`` (number in training) and ``accuracy``
        over ``t``.

    Raises
    ------
    ParameterError
        If the runs lack their times or were trained with other parameters.
    """
    if runs is None:
        end = p.eta * p.steps if until is None else number("until", until, Allowed(above=0))
        times = np.linspace(0, end, 601)
    else:
        prediction.check_runs(p, runs, ("t",), free=("batch_size",))
        times = runs.t.values.astype(float)
    overlaps, trained = np.full((len(times), p.k), p.m_0), np.zeros(len(times), int)
    state, begun, hops = [p.m_0] * p.k, 0.0, 1 if p.curriculum else p.k
    while True:
        system, left, start = flow(hops, "softmax"), times[-1] - begun, starting_at(p, state[:hops])
        end = time_of_product(system, start, STAGE, left) if hops < p.k else np.nan
        later = times >= begun
        inside = times[later & ~(times > begun + end)] - begun  # times of this stage
        path = system.solve(start, at=np.append(inside, left if np.isnan(end) else end), t=left)
        now = np.flatnonzero(later)[: len(inside)]
        overlaps[now], trained[now] = state, hops
        for j, q in enumerate(system.state):
            overlaps[now, j] = path[q.name].values[:-1]
            state[j] = float(path[q.name][-1])
        if np.isnan(end) or end >= left:
            break
        begun, hops = begun + end, hops + 1
    product = overlaps.prod(1)
    return xr.Dataset(
        {
            "overlap": (("t", "hop"), overlaps),
            "product": ("t", product),
            "hops": ("t", trained),
            "accuracy": ("t", 1 / p.N + (1 - 1 / p.N) * product),
        },
        coords={"t": times},
        attrs={
            "kind": "theory",
            "reference": system.reference,
            "status": system.status,
            "parameters": p.as_json(),
        },
    )
