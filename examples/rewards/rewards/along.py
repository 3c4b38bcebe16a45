"""Times and curves under rewards: quadratures over the orbit of supervised training."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize import brentq, minimize_scalar

from rewards import clocks, orbit
from rewards.parameters import SCOPE, UNPENALISED, Parameters
from theory import Allowed, ParameterError, gauss_legendre, number
from theory.call.scope import pointwise
from theory.numbers.numeric import function

PANELS, NODES = 64, 20
ROUNDING = 1e-12  # of the clock at x = 0
MOST_ODDS = 30.0  # rise of log-odds up to which a penalty is looked for
HALF = 0.5  # of the expected reward between guessing and certainty
Curve = Callable[[Any], Any]  # a function of s


def clock(p: Parameters) -> Curve:
    """Clock as a function of s."""
    of_s = _compiled(p.reward, p.normalised, p.baseline_size, p.rollout_steps)
    return lambda s: of_s(np.asarray(s, float), p.N, p.kl, p.begun)


@cache
def _compiled(reward: str, normalised: bool, size: int, steps: int) -> Any:
    form = clocks.full_clock(reward, normalised, size, steps)
    return function(form, [clocks.s, clocks.N, clocks.penalty, clocks.s_0])


def waited(p: Parameters, edges: np.ndarray) -> np.ndarray:
    """Time with rewards between given times of supervised training on the same orbit;
    infinite if the clock stands still or runs backwards.
    """
    nodes, weights = gauss_legendre(NODES, -1, 1)
    half = np.diff(edges)[:, None] / 2
    supervised = edges[:-1, None] + half * (1 + nodes)
    s = orbit.success(p.labels.values(), supervised.ravel())
    pace = clock(p)(s).reshape(supervised.shape)
    with np.errstate(divide="ignore"):
        pieces = (half * weights / pace).sum(1)
    forwards = (pace > 0).all(1)
    passed = np.cumsum(np.where(forwards, pieces, np.inf))
    return np.concatenate([[0.0], passed])


def panels(start: float, stop: float) -> np.ndarray:
    """Edges between two times, denser where the clock is slow."""
    if start > 0:
        return np.geomspace(start, stop, PANELS + 1)
    return stop * np.linspace(0, 1, PANELS + 1) ** 2


def first_root(of: Curve, levels: np.ndarray) -> float:
    """First of increasing levels from which on a function is not negative, to rounding;
    NaN if it is everywhere.
    """
    reached = np.flatnonzero(of(levels) >= 0)
    if not reached.size:
        return np.nan
    first = int(reached[0])
    if first == 0:
        return float(levels[0])
    return float(brentq(of, *levels[first - 1 : first + 1], xtol=1e-15))


def _levels(p: Parameters) -> np.ndarray:
    """Values of s above that at which rewards take over, dense at both ends."""
    risen = np.geomspace(1e-6, MOST_ODDS, 20001)
    odds = np.log(p.begun / (1 - p.begun)) + risen
    return 1 / (1 + np.exp(-odds))


@pointwise(SCOPE)
def rewards_time(p: Parameters, level: float) -> float:
    """Training time at which s, the probability of the right next state, reaches a
    level: supervised until ``p.pretrain``, then by rewards.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    level : float
        Value of s, inside (1/N, 1).

    Returns
    -------
    float
        Time in alpha; infinite if it is never reached, as from scratch with a reward
        for the last of several steps.

    Raises
    ------
    ParameterError
        For a level that no training starts below.
    """
    level = number("level", level, Allowed(above=1 / p.N, below=1))
    numbers = p.labels.values()
    begun = orbit.time_of(numbers, min(p.pretrain, level))
    end = orbit.time_of(numbers, level)
    if end <= begun or not np.isfinite(end):
        return end
    stands_still = (
        begun == 0 and not clock(p)(orbit.success(numbers, 0.0))[0] > ROUNDING
    )
    if stands_still:
        return np.inf
    return begun + float(waited(p, panels(begun, end))[-1])


@pointwise(UNPENALISED)
def best_switch(p: Parameters, cost: float = 1.0) -> float:
    """Value of s above which a step with rewards is worth more than supervised steps of
    the same cost. Students that switch there reach every larger s first.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    cost : float
        Cost of a step with rewards, in supervised steps: 1 per step; ``p.rollouts /
        p.n_train`` by the number of sequences.

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


@pointwise(SCOPE)
def reward_stall(p: Parameters) -> float:
    """Value of s at which the penalty ``p.kl`` stops students; 1 without a penalty.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    """
    if p.kl == 0:
        return 1.0
    pace, levels = clock(p), _levels(p)
    if pace(p.begun) > 0:
        levels = np.append(p.begun, levels)
    found = first_root(lambda s: -pace(s), levels)
    if np.isnan(found):
        return 1.0
    return p.begun if found == levels[0] else found


@pointwise(SCOPE)
def critical_penalty(p: Parameters) -> float:
    """Weight of the penalty above which students stay near ``p.pretrain``: there the
    value of s at which they stop jumps.

    Parameters
    ----------
    p : Parameters
        Model parameters; their own ``kl`` does not enter.

    Returns
    -------
    float
        NaN if there is no jump: then that value falls continuously with the weight.
    """
    levels = _levels(p)
    free, held = (clock(p.replace(kl=weight)) for weight in (0.0, 1.0))

    def stopping(s: Any) -> Any:
        """Weight of the penalty that stops students at s."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return free(s) / (free(s) - held(s))

    rising = np.diff(stopping(levels)) > 0
    if not rising.any() or not free(levels[0]) > ROUNDING:
        return np.nan
    lowest = int(np.argmax(rising))
    around = (levels[max(lowest - 1, 0)], levels[lowest + 1])
    minimum = minimize_scalar(
        stopping, bounds=around, method="bounded", options={"xatol": 1e-12}
    )
    return float(minimum.fun)


@pointwise(SCOPE)
def curve(p: Parameters, level: float = 0.9) -> xr.Dataset:
    """A, R, S, s and the clock over training time, supervised first, then by rewards,
    until s reaches a level; at the same R they are those of supervised training.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    level : float
        Value of s where it ends.
    """
    numbers = p.labels.values()
    begun = orbit.time_of(numbers, min(p.pretrain, level))
    end = orbit.time_of(numbers, level)
    if not np.isfinite(end):
        raise ParameterError(f"level = {level:g}: s never gets there")
    before = np.linspace(0, begun, 200, endpoint=False) if begun else np.array([])
    edges = alpha = np.array([end])  # where rewards do not take over before
    if end > begun:
        edges = panels(begun, end)
        alpha = begun + waited(p, edges)
    reached = np.isfinite(alpha)
    supervised = np.concatenate([before, edges[reached]])
    along = orbit.states(numbers, supervised)
    along["clock"] = clock(p)(along["success"])
    along["supervised_alpha"] = supervised
    return xr.Dataset(
        {name: ("alpha", values) for name, values in along.items()},
        coords={"alpha": np.concatenate([before, alpha[reached]])},
        attrs={"kind": "theory", "status": "closure", "parameters": p.as_json()},
    )


def halfway(p: Parameters) -> float:
    """s of an expected reward half way from guessing to certainty: x to the power of
    the steps is 1/2.
    """
    x = HALF ** (1 / p.rollout_steps)
    return float(clocks.success_of_excess().subs({clocks.x: x, clocks.N: p.N}))
