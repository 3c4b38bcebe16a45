"""Numbers along the orbit of supervised training: success, and the time at which it
reaches a level.
"""

from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import brentq

from rewards.clocks import success_of_margin
from theory.numbers.numeric import function
from theory.state_tracking import inversion
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.symbols import A, N, R, S, d_g, m, zeta

LONGEST = 1e9  # supervised time up to which a level is looked for
PRECISION = 4e-15  # of a time, relative


@cache
def _success() -> Any:
    """Success by the order parameters and sizes."""
    of_state = success_of_margin().subs(m, mean_field.margin_of_state())
    return function(of_state, [A, R, S, N, d_g, zeta])


def states(numbers: Any, alpha: Any) -> dict[str, np.ndarray]:
    """A, R, S and success at given times of supervised training.

    Parameters
    ----------
    numbers : mapping
        Sizes and starts by symbol name, ``p.values()``.
    alpha : array_like
        Times.
    """
    along = inversion.states(numbers, np.atleast_1d(alpha))
    found = {name: np.ravel(values) for name, values in along.items()}
    sizes = (numbers[name] for name in ("N", "d_g", "zeta"))
    found["success"] = _success()(found["A"], found["R"], found["S"], *sizes)
    return found


def success(numbers: Any, alpha: Any) -> np.ndarray:
    """Probability s of the right next state at given times of supervised training."""
    return states(numbers, alpha)["success"]


def time_of(numbers: Any, level: float) -> float:
    """Supervised time at which s reaches a level: 0 if it starts there, infinite if it
    never does.
    """
    low, high = 0.0, 1.0
    if success(numbers, 0.0)[0] >= level:
        return 0.0
    while success(numbers, high)[0] < level:
        low, high = high, 2 * high
        if high > LONGEST:
            return np.inf

    def gap(time: float) -> float:
        return success(numbers, time)[0] - level

    return float(brentq(gap, low, high, xtol=PRECISION * high))
