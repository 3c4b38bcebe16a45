"""State tracking with rewards after pretraining: flow, equations, and when students
have learned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from rewards import along, clocks, orbit, times
from rewards.along import (
    best_switch,
    critical_penalty,
    curve,
    reward_stall,
    rewards_time,
)
from rewards.parameters import SCOPE, USED, Parameters, flow_scope
from theory import Flow, Onset, of_onset, until
from theory.call import scope
from theory.dynamics.catalogue import cache, catalogue
from theory.dynamics.onset import tabulated

__all__ = [
    "Parameters",
    "applies",
    "best_switch",
    "critical_penalty",
    "curve",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "reward_stall",
    "rewards_time",
    "sections",
]
applies = scope.applies({"rewards": SCOPE})
SHOWN = ("N", "L", "d_g", "d_h", "eta", *USED)
NEVER = "never"
ABSENT = {
    "alpha_pretrained": NEVER,
    "alpha_half_supervised": NEVER,
    "alpha_half": NEVER,
    "alpha_half_best": NEVER,
    "success_even": NEVER,
    "success_even_rollout": NEVER,
    "penalty_critical": "none: s falls continuously",
}
GUESSES = (
    "s = {begun:.4g} where rewards take over: no student learns from rewards of"
    " guesses; set pretrain above 1/N"
)
STOPPED = "the penalty kl = {kl:g} stops students before success_half"


@cache
def flow() -> Flow:
    """Flow under a reward for the last state, from where rewards take over."""
    return clocks.flow("outcome", flow_scope("outcome"))


@cache
def step_flow() -> Flow:
    """Flow under a reward per step, from where rewards take over."""
    return clocks.flow("step", flow_scope("step"))


flows, sections, equations = catalogue(
    {
        "Clocks": [clocks.equations],
        "Baselines and normalisation": [clocks.gain_equations],
        "Times": [times.equations],
        "A penalty on the divergence": [times.penalty_equations],
        "Flow": [flow],
    },
    flow,
    step_flow,
)


@until("alpha")
@scope.pointwise(SCOPE)
def onset(p: Parameters, until: float | None = None) -> Onset:
    """When students have learned, with rewards after pretraining and without.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    until : float, optional
        Length of the curves in alpha (also ``alpha=``); by default until s is half way
        from ``success_half`` to 1.

    Returns
    -------
    Onset
        Times in alpha of an expected reward half way from guessing to certainty, the
        clock, where rewards become faster than labels, and where a penalty stops them.
    """
    numbers, free = p.labels.values(), p.replace(kl=0.0)
    half, pretrained = along.halfway(p), orbit.time_of(numbers, p.pretrain)
    begun = p.pretrain if pretrained else float(orbit.success(numbers, 0.0)[0])
    even, labelled = best_switch(free), orbit.time_of(numbers, half)
    best = labelled
    if even < 1:
        best = rewards_time(free.replace(pretrain=even), half)
    time, stall = rewards_time(p, half), reward_stall(p)
    per_rollout = best_switch(free, p.rollouts / p.n_train)
    rows: dict[str, tuple[Any, ...]] = {
        "clock_start": (
            float(along.clock(p)(begun)),
            "supervised time that a unit of time is worth where rewards take over",
        ),
        "success_even": (
            even,
            "s from which on a step with rewards is worth more than a supervised one",
        ),
        "success_even_rollout": (
            per_rollout,
            "the same per sequence, a rollout against a training sequence",
        ),
        "success_half": (
            half,
            "s at which expected rewards are half way from guessing to certainty",
        ),
        "alpha_pretrained": (pretrained, "time at which rewards take over", "alpha"),
        "alpha_half_supervised": (
            labelled,
            "time of success_half by supervised training alone",
            "alpha",
        ),
        "alpha_half": (
            time,
            "time of success_half with rewards from alpha_pretrained on",
            "alpha",
        ),
        "alpha_half_best": (
            best,
            "the least such time, switching at success_even, without a penalty",
            "alpha",
        ),
        "success_stall": (stall, "s at which the penalty kl stops students"),
        "penalty_critical": (
            critical_penalty(p),
            "weight of the penalty above which they stay near where they began",
        ),
    }
    notes = []
    if not np.isfinite(time) and np.isfinite(labelled):
        stopped = p.kl and stall > begun
        notes.append((STOPPED if stopped else GUESSES).format(begun=begun, kl=p.kl))
    return tabulated(
        rows,
        curves=lambda: curves(p, until),
        equations=lambda: list(equations().values()),
        absent=ABSENT,
        notes=notes,
        setting={name: v for name, v in p.as_dict().items() if name in SHOWN and v},
    )


emergence_times = of_onset(onset)


def curves(p: Parameters, end: float | None) -> dict[str, xr.Dataset]:
    """Supervised training, and rewards after pretraining, over alpha."""
    rewarded = curve(p, (1 + along.halfway(p)) / 2)
    last = float(rewarded.alpha[-1]) if end is None else end
    at = np.linspace(0, last, 401)
    labelled = orbit.states(p.labels.values(), at)
    supervised = xr.Dataset(
        {name: ("alpha", values) for name, values in labelled.items()},
        coords={"alpha": at},
    )
    shown = rewarded[[*labelled]].sel(alpha=slice(None, last))
    return {"labels": supervised, "labels, then rewards": shown}
