"""Times and effective context lengths as numbers."""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import Limit, Scope, numeric, scope, sweep
from theory.associative_memory import ramp
from theory.induction_heads.bursty import emergence
from theory.induction_heads.bursty.emergence import alpha, beta, gamma
from theory.induction_heads.bursty.statement import B, N, stated
from theory.statement import kept

THETA = 0.5  # of Theorem 2

SCOPE = Scope(
    "burst_time",
    "gradient descent in small steps from zero, three numbers",
    (
        Limit("N", "at least 16", lambda p, runs: p.N >= 16),
        Limit("B", "at most sqrt(N/2)", lambda p, runs: 2 * p.B**2 <= p.N, reads=("N",)),
    ),
    free=("eta", "steps", "eval_every", "batch_size"),
)  # fmt: skip
applies = scope.applies({"emergence": SCOPE})


@cache
def compiled() -> list[Any]:
    """Beta of alpha, rate of alpha at the best gamma, delay; at (alpha, N, B).

    The loss is a polynomial of second degree in gamma, so that all three come from the flow.
    """
    loss = kept.derived(stated).loss
    square, linear = sp.diff(loss, gamma, 2) / 2, sp.diff(loss, gamma).subs(gamma, 0)
    root = sp.sqrt(emergence.law())
    best = -linear / square / 2
    slope = -sp.diff(square, alpha) * best**2 - sp.diff(linear, alpha) * best
    return [
        numeric.function(x, (*more, N, B))
        for x, more in ((root, (alpha,)), (slope, (alpha, beta)), (emergence.delay(), ()))
    ]


@scope.guard(SCOPE)
@sweep.over_fields
def emergence_time(p: Any) -> float:
    """Time at which alpha is 1/2: `burst_time`, with the rate of the exact flow on its path.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    of_alpha, slope, delay = compiled()

    def slowness(x: np.ndarray) -> np.ndarray:
        return 1 / slope(x, of_alpha(x, p.N, p.B), p.N, p.B)

    return ramp.over_root(slowness, THETA) + float(delay(p.N, p.B))


@scope.guard(SCOPE)
@sweep.over_fields
def effective_length(p: Any) -> float:
    """Effective context length, `burst_effective_length` at threshold 1/2."""
    equation = emergence.equations()["burst_effective_length"]
    return float(equation.evaluate({"N": p.N, "B": p.B, "theta": THETA}))


NUMBERS = {
    "T_alpha": (emergence_time, "time at which alpha is 1/2"),
    "N_eff": (effective_length, "context length at which one right pair takes as long"),
}
