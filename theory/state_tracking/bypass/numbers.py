"""Times of the two stages as numbers, along the exact flow."""

from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from theory import Limit, ParameterError, Scope, numeric, scope, sweep
from theory.state_tracking.bypass.statement import N, b, d_g, stated
from theory.statement import kept

HALF = 0.5  # of attention; of the way of the guess
RUNS = 100.0, 1e3, 1e4  # lengths of runs that look for their end, in units of N d_g
LARGEST_N = 10**5  # where they find it in seconds
ACCURACY = 1e-9

SCOPE = Scope(
    "the flow with a bypass",
    "gradient descent in small steps from zero, teachers that lead to different states",
    (
        Limit("N", "at most 10^5 states", lambda p, runs: p.N <= LARGEST_N),
        Limit("d_g", "at least 2 and below N", lambda p, runs: 2 <= p.d_g < p.N, reads=("N",)),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
    enters=("b",),
)  # fmt: skip
applies = scope.applies({"emergence": SCOPE})


@cache
def compiled() -> Any:
    """Rates of the order parameters, then attention and the mass on states that are led to."""
    flow = kept.derived(stated).flow
    shown = [*flow.rhs.values(), flow.observables["A"], flow.observables["possible"]]
    return numeric.function(shown, [*flow.state, N, d_g, b])


def crossing(p: Any, shown: int, level: float) -> float:
    """First time at which what `compiled` shows last (-1) or last but one (-2) is at a level."""
    number = len(kept.derived(stated).flow.state)

    def event(t: float, y: np.ndarray) -> float:
        return float(compiled()(*y, p.N, p.d_g, p.b)[shown]) - level

    event.terminal = True  # type: ignore[attr-defined]
    for end in np.multiply(RUNS, p.N * p.d_g):
        path = solve_ivp(
            lambda t, y: compiled()(*y, p.N, p.d_g, p.b)[:number],
            (0, end),
            np.zeros(number),
            method="LSODA",
            events=event,
            rtol=ACCURACY,
            atol=ACCURACY / p.N,
        )
        if path.t_events[0].size:
            return float(path.t_events[0][0])
    raise ParameterError(f"N = {p.N}, d_g = {p.d_g}, b = {p.b:g}: not reached by t = {end:g}")


@scope.guard(SCOPE)
@sweep.over_fields
def emergence_time(p: Any) -> float:
    """Time at which half of the attention is on the right action.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    return crossing(p, -2, HALF)


@scope.guard(SCOPE)
@sweep.over_fields
def guess_time(p: Any) -> float:
    """Time at which the mass on states that are led to has gone half of its way, from d_g/N to
    1.
    """
    return crossing(p, -1, (1 + p.d_g / p.N) * HALF)


TIMES = {
    "T_guess": (guess_time, "time at which the guess from the state is half made"),
    "T_A": (emergence_time, "time at which A is 1/2"),
}
