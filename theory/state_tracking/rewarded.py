"""When rewards take over: times and switches for the table and figure of ``theory.onset`` with
``--set reward=outcome``.
"""

from typing import Any

import numpy as np
import xarray as xr

from theory.onset import Onset, tabulated
from theory.state_tracking import reward_gains, reward_penalty, reward_times, rewards
from theory.state_tracking.numbers import inversion
from theory.state_tracking.numbers import rewards as numbers
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.symbols import L, N

SHOWN = (
    "N",
    "L",
    "d_g",
    "d_h",
    "eta",
    "reward",
    "pretrain",
    "rollouts",
    "group",
    "normalised",
    "kl",
)
TIMES = ("alpha_pretrained", "alpha_half_supervised", "alpha_half", "alpha_half_best")
ABSENT = dict.fromkeys((*TIMES, "success_even", "success_even_rollout"), "never")
ABSENT["penalty_critical"] = "none: s falls continuously"


def halfway(p: Parameters) -> float:
    """s of an expected reward half way from guessing to certainty after L steps: x^L = 1/2."""
    x = numbers.HALF ** (1 / p.L)
    return float(rewards.success().subs({rewards.x: x, N: p.N}))


def fastest_horizon(p: Parameters, s: float) -> int:
    """Steps of a rollout, up to L, with the fastest clock at s."""
    x = (p.N * s - 1) / (p.N - 1)
    edge = reward_times.next_horizon()  # one step more pays from here on
    return 1 + sum(x > float(edge.subs(rewards.horizon, n)) for n in range(1, p.L))


def onset(p: Parameters, until: float | None = None) -> Onset:
    """Numbers and curves under rewards.

    Parameters
    ----------
    p : Parameters
        Parameters with a reward.
    until : float, optional
        Length of the curves in alpha; until s is half way from `halfway` to 1 by default.
    """
    half, pretrained = halfway(p), numbers.time_of(p, p.pretrain)
    free = p.replace(kl=0.0)
    begun = float(numbers.success(p, 0.0)[0]) if pretrained == 0 else p.pretrain
    even, labelled = numbers.best_switch(free), numbers.time_of(p, half)
    best_time = labelled
    if even < 1:
        best_time = numbers.rewards_time(free.replace(pretrain=even), half)
    time, stall = numbers.rewards_time(p, half), numbers.reward_stall(p)
    notes = []
    if not np.isfinite(time) and np.isfinite(labelled):
        guesses = (
            f"s = {begun:.4g} where rewards take over: no student learns from rewards of guesses; "
            "set pretrain above 1/N"
        )
        stopped = f"the penalty kl = {p.kl:g} stops students before success_half"
        notes.append(stopped if p.kl and stall > begun else guesses)
    return tabulated(
        {
            "clock_start": (
                float(numbers.clock(p)(begun)),
                "supervised time that a unit of time is worth where rewards take over",
            ),
            "success_even": (
                even,
                "s from which on a step with rewards is worth more than a supervised one",
            ),
            "success_even_large": (
                float(reward_times.even_success().subs(L, p.L)),
                "the same for a last reward without baseline, N large: L^(-1/L)",
            ),
            "success_even_rollout": (
                numbers.best_switch(free, p.rollouts / p.n_train),
                "the same per sequence, a rollout against a training sequence",
            ),
            "success_half": (
                half,
                "s at which expected rewards are half way from guessing to certainty",
            ),
            "alpha_pretrained": (pretrained, "time at which rewards take over"),
            "alpha_half_supervised": (
                labelled,
                "time of success_half by supervised training alone",
            ),
            "alpha_half": (time, "time of success_half with rewards from alpha_pretrained on"),
            "alpha_half_best": (
                best_time,
                "the least such time, switching at success_even, without a penalty",
            ),
            "horizon_start": (
                fastest_horizon(p, begun),
                "steps of a rollout with the fastest clock where rewards take over",
            ),
            "success_stall": (stall, "s at which the penalty kl stops students"),
            "penalty_critical": (
                numbers.critical_penalty(p),
                "weight of the penalty above which they stay near where they began",
            ),
        },
        curves=lambda: curves(p, until),
        equations=lambda: [
            *rewards.equations().values(),
            *reward_gains.equations().values(),
            *reward_times.equations().values(),
            *reward_penalty.equations().values(),
        ],
        plot=draw,
        absent=ABSENT,
        notes=notes,
        setting={name: v for name, v in p.as_dict().items() if name in SHOWN and v},
    )


def curves(p: Parameters, end: float | None) -> dict[str, xr.Dataset]:
    """Supervised training, and rewards after pretraining, over alpha."""
    level = (1 + halfway(p)) / 2
    rewarded = numbers.curve(p, level)
    last = float(rewarded.alpha[-1]) if end is None else end
    plain = inversion.states(p.values(), times := np.linspace(0, last, 401))
    data = {q: ("alpha", np.ravel(v)) for q, v in plain.items()}
    data["success"] = ("alpha", numbers.success(p, times))
    supervised = xr.Dataset(data, coords={"alpha": times})
    return {"supervised": supervised, "rewards": rewarded.sel(alpha=slice(None, last))}


def draw(result: Onset, axes: Any) -> None:
    """The clocks (left: s over time) and the orbit (right: A over R)."""
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    left, right = axes
    drawn, begun = result.curves(), result.numbers["alpha_pretrained"]
    styles = {"supervised": ("C0", "-", "supervised"), "rewards": ("C1", "--", "rewards")}
    for name, (colour, dash, words) in styles.items():
        left.plot(drawn[name].alpha, drawn[name].success, color=colour, ls=dash, label=words)
        right.plot(drawn[name].R, drawn[name].A, color=colour, ls=dash, label=words)
    if begun > 0:
        left.axvline(begun, color="0.6", lw=0.8, label="rewards take over")
    left.set(
        xlabel=r"training time $\alpha$ = epochs / $(d_g N)$",
        ylabel="probability $s$ of the right state",
        ylim=(0, 1.02),
    )
    right.set(xlabel="overlap $R$ with the own teacher", ylabel="attention $A$", ylim=(0, 1.05))
    for axis in axes:
        plotting.below(axis)
