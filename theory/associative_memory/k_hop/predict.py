"""Predicted curves of a training run of softmax kernels, by stage of the curriculum."""

import numpy as np
import sympy as sp
import xarray as xr

from theory import Allowed, number, prediction, scope, sweep, until
from theory.associative_memory.k_hop.overlaps import STAGE, flow
from theory.associative_memory.k_hop.parameters import Parameters
from theory.associative_memory.k_hop.scope import KERNEL_LEARNERS


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
    overlaps, stage = np.full((len(times), p.k), p.m_0), np.zeros(len(times), int)
    state, begun, hops = [p.m_0] * p.k, 0.0, 1 if p.curriculum else p.k
    while True:
        system, left = flow(hops, "softmax"), times[-1] - begun
        given = {"N": p.N, **{f"m_{j}_0": x for j, x in enumerate(state[:hops], 1)}}
        goal = {"end": sp.Mul(*system.state) - STAGE} if hops < p.k else None
        end = float(system.solve(given, at=[0.0], events=goal, t=left).end) if goal else np.nan
        here = times >= begun
        at = np.append(times[here & ~(times > begun + end)] - begun, left if np.isnan(end) else end)
        path = system.solve(given, at=at, t=left)
        now = np.flatnonzero(here)[: len(at) - 1]
        overlaps[now] = state
        for j, q in enumerate(system.state):
            overlaps[now, j] = path[q.name].values[:-1]
            state[j] = float(path[q.name][-1])
        stage[now] = hops
        if np.isnan(end) or end >= left:
            break
        begun, hops = begun + end, hops + 1
    product = overlaps.prod(1)
    return xr.Dataset(
        {
            "overlap": (("t", "hop"), overlaps),
            "product": ("t", product),
            "hops": ("t", stage),
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
