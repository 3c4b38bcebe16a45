"""Times under rewards: quadratures over the orbit of supervised training."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr
from scipy.optimize import brentq, minimize_scalar

from theory import Allowed, ParameterError, gauss_legendre, number, numeric, scope, sweep
from theory.onset import Onset, tabulated
from theory.state_tracking import inversion, reward_times, rewards
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.quadrature import Points
from theory.state_tracking.reward_paths import penalty
from theory.state_tracking.scope import REWARDS, UNPENALISED
from theory.state_tracking.symbols import L, N, m

PANELS, NODES = 64, 20
ROUNDING = 1e-12  # of the clock at x = 0
LONGEST = 1e9  # supervised time up to which a level is looked for
MOST_ODDS = 30.0  # rise of log-odds up to which a penalty is looked for
HALF = 0.5  # of the expected reward between guessing and certainty


def clock(p: Parameters) -> Callable[[Any], Any]:
    """Clock as a function of s for the reward, baseline and horizon of some parameters."""
    if p.reward == "none":
        raise ParameterError(
            "reward = 'none': must be outcome, step or true; try p.replace(reward='outcome')"
        )
    size = p.group or p.rollouts
    begun = max(p.pretrain, 1 / p.N)
    compiled = _compiled(p.reward, size, p.normalised, p.horizon or p.L)
    return lambda s: compiled(np.asarray(s, float), p.N, p.L, p.kl, begun)


@functools.cache
def _compiled(reward: str, size: int, normalised: bool, steps: int) -> Any:
    free = rewards.full_clock(reward, size, normalised, steps).doit()
    held = penalty * reward_times.drag(sp.Integer(steps))
    return numeric.function(free - held, (rewards.s, N, L, penalty, reward_times.s_0))


def success(p: Parameters, alpha: Any) -> np.ndarray:
    """Probability s of the right next state at given times of supervised training."""
    along = inversion.states(p.values(), np.atleast_1d(alpha))
    margin = Points.of(p.values())[:, None].margin(along["A"], along["R"] - along["S"], along["S"])
    return np.ravel(rewards.equations()["success"].lambdify(m, N)(margin, p.N))


def time_of(p: Parameters, level: float) -> float:
    """Supervised time at which s reaches a level; 0 if it starts there, infinite if never."""
    low, high = 0.0, 1.0
    if success(p, 0.0)[0] >= level:
        return 0.0
    while success(p, high)[0] < level:
        low, high = high, 2 * high
        if high > LONGEST:
            return np.inf
    return float(brentq(lambda t: success(p, t)[0] - level, low, high, xtol=4e-15 * high))


def waited(p: Parameters, edges: np.ndarray) -> np.ndarray:
    """Time with rewards between given times of supervised training on the same orbit; infinite if
    the clock stands still or runs backwards.
    """
    nodes, weights = gauss_legendre(NODES, -1, 1)
    half = np.diff(edges)[:, None] / 2
    times = edges[:-1, None] + half * (1 + nodes)
    pace = clock(p)(success(p, times.ravel())).reshape(times.shape)
    with np.errstate(divide="ignore"):
        parts = np.where((pace > 0).all(1), (half * weights / pace).sum(1), np.inf)
    return np.concatenate([[0.0], np.cumsum(parts)])


def panels(start: float, stop: float) -> np.ndarray:
    """Edges between two times, denser where the clock is slow."""
    if start > 0:
        return np.geomspace(start, stop, PANELS + 1)
    return stop * np.linspace(0, 1, PANELS + 1) ** 2


def first_root(of: Callable[[Any], Any], levels: np.ndarray) -> float:
    """First of increasing levels from which on a function is not negative, to rounding; NaN if it
    is everywhere.
    """
    reached = np.flatnonzero(of(levels) >= 0)
    if not reached.size:
        return np.nan
    first = int(reached[0])
    return float(brentq(of, *levels[first - 1 : first + 1], xtol=1e-15) if first else levels[0])


@scope.guard(REWARDS)
@sweep.over_fields
def rewards_time(p: Parameters, level: float) -> float:
    """Training time at which s, the probability of the right next state, reaches a level:
    supervised until ``p.pretrain``, then by rewards.

    Parameters
    ----------
    p : Parameters
        Parameters with a reward.
    level : float
        Value of s, inside (1/N, 1).

    Returns
    -------
    float
        Time in alpha; infinite if it is never reached, as from scratch with a reward for the last
        of several steps.

    Raises
    ------
    ParameterError
        For a level that no training starts below, or without a reward.
    """
    level = number("level", level, Allowed(above=1 / p.N, below=1))
    begun = time_of(p, min(p.pretrain, level))
    end = time_of(p, level)
    if end <= begun or not np.isfinite(end):
        return end
    if begun == 0 and not clock(p)(success(p, 0.0))[0] > ROUNDING:
        return np.inf
    return begun + float(waited(p, panels(begun, end))[-1])


@scope.guard(UNPENALISED)
@sweep.over_fields
def best_switch(p: Parameters, cost: float = 1.0) -> float:
    """Value of s above which a step with rewards is worth more than supervised steps of the same
    cost. Students that switch there reach every larger s first.

    Parameters
    ----------
    p : Parameters
        Parameters with a reward.
    cost : float
        Cost of a step with rewards, in supervised steps: 1 per step; ``p.rollouts / p.n_train`` by
        the number of sequences.

    Returns
    -------
    float
        NaN if rewards are never worth it, 1/N if always.
    """
    cost = number("cost", cost, Allowed(above=0))
    pace = clock(p)
    levels = 1 / p.N + (1 - 1 / p.N) * np.linspace(0, 1, 4001)[1:-1]
    found = first_root(lambda s: pace(s) - cost, levels)
    return 1 / p.N if found == levels[0] else found


@scope.guard(REWARDS)
@sweep.over_fields
def reward_stall(p: Parameters) -> float:
    """Value of s at which the penalty ``p.kl`` stops students that began at ``p.pretrain``.

    Parameters
    ----------
    p : Parameters
        Parameters with a reward.

    Returns
    -------
    float
        1 without a penalty.
    """
    levels, pace = _levels(p), clock(p)
    if p.kl == 0:
        return 1.0
    begun = max(p.pretrain, 1 / p.N)
    found = first_root(lambda s: -pace(s), np.append(begun, levels) if pace(begun) > 0 else levels)
    if np.isnan(found):
        return 1.0
    return begun if found == levels[0] else found


@scope.guard(REWARDS)
@sweep.over_fields
def critical_penalty(p: Parameters) -> float:
    """Weight of the penalty above which students stay near ``p.pretrain``: there the value of s at
    which they stop jumps.

    Parameters
    ----------
    p : Parameters
        Parameters with a reward; their own ``kl`` does not enter.

    Returns
    -------
    float
        NaN if there is no jump: then that value falls continuously with the weight.
    """
    levels = _levels(p)
    free = clock(p.replace(kl=0.0))
    held = clock(p.replace(kl=1.0))

    def stopping(s: Any) -> Any:
        """Weight of the penalty that stops students at s."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return free(s) / (free(s) - held(s))

    rising = np.diff(stopping(levels)) > 0
    if not rising.any() or not free(levels[0]) > ROUNDING:
        return np.nan
    lowest = int(np.argmax(rising))
    around = (levels[max(lowest - 1, 0)], levels[lowest + 1])
    minimum = minimize_scalar(stopping, bounds=around, method="bounded", options={"xatol": 1e-12})
    return float(minimum.fun)


def _levels(p: Parameters) -> np.ndarray:
    """Values of s above that at which rewards take over, dense at both ends."""
    begun = max(p.pretrain, 1 / p.N)
    odds = np.log(begun / (1 - begun)) + np.geomspace(1e-6, MOST_ODDS, 20001)
    return 1 / (1 + np.exp(-odds))


@scope.guard(REWARDS)
def curve(p: Parameters, level: float = 0.9) -> xr.Dataset:
    """A, R, S, s and the clock over training time, supervised first, then by rewards, until s
    reaches a level; at the same R they are those of supervised training.
    """
    begun = time_of(p, min(p.pretrain, level))
    end = time_of(p, level)
    if not np.isfinite(end):
        raise ParameterError(f"level = {level:g}: s never gets there")
    before = np.linspace(0, begun, 200, endpoint=False) if begun else np.array([])
    edges = alpha = np.array([end])  # where rewards do not take over before
    if end > begun:
        edges = panels(begun, end)
        alpha = begun + waited(p, edges)
    kept = np.isfinite(alpha)
    sup = np.concatenate([before, edges[kept]])
    along = inversion.states(p.values(), sup)
    s = success(p, sup)
    data = {q: np.ravel(v) for q, v in along.items()} | {"success": s, "clock": clock(p)(s)}
    return xr.Dataset(
        {q: ("alpha", v) for q, v in data.items()} | {"supervised_alpha": ("alpha", sup)},
        coords={"alpha": np.concatenate([before, alpha[kept]])},
        attrs={"kind": "theory", "status": "closure", "parameters": p.as_json()},
    )


# When rewards take over

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
    x = HALF ** (1 / p.L)
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
    half, pretrained = halfway(p), time_of(p, p.pretrain)
    free = p.replace(kl=0.0)
    begun = float(success(p, 0.0)[0]) if pretrained == 0 else p.pretrain
    even, labelled = best_switch(free), time_of(p, half)
    best_time = labelled
    if even < 1:
        best_time = rewards_time(free.replace(pretrain=even), half)
    time, stall = rewards_time(p, half), reward_stall(p)
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
                float(clock(p)(begun)),
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
                best_switch(free, p.rollouts / p.n_train),
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
                critical_penalty(p),
                "weight of the penalty above which they stay near where they began",
            ),
        },
        curves=lambda: curves(p, until),
        equations=lambda: [
            *rewards.equations().values(),
            *rewards.gain_equations().values(),
            *reward_times.equations().values(),
            *reward_times.penalty_equations().values(),
        ],
        plot=draw,
        absent=ABSENT,
        notes=notes,
        setting={name: v for name, v in p.as_dict().items() if name in SHOWN and v},
    )


def curves(p: Parameters, end: float | None) -> dict[str, xr.Dataset]:
    """Supervised training, and rewards after pretraining, over alpha."""
    level = (1 + halfway(p)) / 2
    rewarded = curve(p, level)
    last = float(rewarded.alpha[-1]) if end is None else end
    plain = inversion.states(p.values(), times := np.linspace(0, last, 401))
    data = {q: ("alpha", np.ravel(v)) for q, v in plain.items()}
    data["success"] = ("alpha", success(p, times))
    supervised = xr.Dataset(data, coords={"alpha": times})
    return {"supervised": supervised, "rewards": rewarded.sel(alpha=slice(None, last))}


def draw(result: Onset, axes: Any) -> None:
    """The clocks (left: s over time) and the orbit (right: A over R)."""
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    left, right = axes
    drawn = result.curves()
    begun = result.numbers["alpha_pretrained"]
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
