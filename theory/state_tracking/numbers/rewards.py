"""Times under rewards: quadratures over the orbit of supervised training."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr
from scipy.optimize import brentq, minimize_scalar

from theory import Allowed, ParameterError, gauss_legendre, number, numeric, scope, sweep
from theory.state_tracking import reward_gains, reward_penalty, rewards
from theory.state_tracking.numbers import inversion
from theory.state_tracking.numbers.quadrature import Points
from theory.state_tracking.parameters import Parameters
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
    size, begun = p.group or p.rollouts, max(p.pretrain, 1 / p.N)
    compiled = _compiled(p.reward, size, p.normalised, p.horizon or p.L)
    return lambda s: compiled(np.asarray(s, float), p.N, p.L, p.kl, begun)


@functools.cache
def _compiled(reward: str, size: int, normalised: bool, steps: int) -> Any:
    free = reward_gains.full_clock(reward, size, normalised, steps).doit()
    held = penalty * reward_penalty.drag(sp.Integer(steps))
    return numeric.function(free - held, (rewards.s, N, L, penalty, reward_penalty.s_0))


@functools.cache
def _success() -> Any:
    return numeric.function(rewards.equations()["success"].rhs, (m, N))


def success(p: Parameters, alpha: Any) -> np.ndarray:
    """Probability s of the right next state at given times of supervised training."""
    along = inversion.states(p.values(), np.atleast_1d(alpha))
    margin = Points.of(p.values())[:, None].margin(along["A"], along["R"] - along["S"], along["S"])
    return np.ravel(_success()(margin, p.N))


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
    begun, end = time_of(p, min(p.pretrain, level)), time_of(p, level)
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
    cost, pace = number("cost", cost, Allowed(above=0)), clock(p)
    levels = 1 / p.N + (1 - 1 / p.N) * np.linspace(0, 1, 4001)[1:-1]
    worth = pace(levels) >= cost
    if not worth.any():
        return np.nan
    first = int(np.argmax(worth))
    if first == 0:
        return 1 / p.N
    return float(brentq(lambda s: pace(s) - cost, levels[first - 1], levels[first], xtol=1e-14))


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
    stopped = pace(levels) <= 0
    if not stopped.any():
        return 1.0
    first = int(np.argmax(stopped))
    low = max(p.pretrain, 1 / p.N) if first == 0 else levels[first - 1]
    return float(brentq(pace, low, levels[first], xtol=1e-15)) if pace(low) > 0 else low


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
    levels, free, held = _levels(p), clock(p.replace(kl=0.0)), clock(p.replace(kl=1.0))

    def stopping(s: Any) -> Any:
        """Weight of the penalty that stops students at s."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return free(s) / (free(s) - held(s))

    rising = np.diff(stopping(levels)) > 0
    if not rising.any() or not free(levels[0]) > ROUNDING:
        return np.nan
    lowest = int(np.argmax(rising))  # never the first: the weight falls from infinity
    around = (levels[lowest - 1], levels[lowest + 1])
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
    begun, end = time_of(p, min(p.pretrain, level)), time_of(p, level)
    if not np.isfinite(end):
        raise ParameterError(f"level = {level:g}: s never gets there")
    before = np.linspace(0, begun, 200, endpoint=False) if begun else np.array([])
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
