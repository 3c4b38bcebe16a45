"""A penalty on the divergence from the policy that rewards took over from: where it stops students,
and the weight above which they stay near where they began.
"""

from functools import cache

import sympy as sp

from theory import Equation, proved, symbol, table, vanishes, written_as
from theory.state_tracking.loss import MEAN_FIELD
from theory.state_tracking.reward_paths import penalty
from theory.state_tracking.rewards import (
    BEYOND,
    SAMPLED,
    clock,
    excess,
    expected,
    pace_of,
    rollout_assumptions,
    s,
    x,
)
from theory.state_tracking.symbols import L, N, ref

s_0 = symbol("success_0", "s_0", "s where rewards took over", positive=True)
divergence = symbol("divergence", "d", "divergence of a step from the policy that took over")
fold = symbol("fold", means="slope of the balance: 0 where the way on opens", real=True)


@cache
def step_divergence() -> sp.Expr:
    """Divergence of a step: of the right state, and of N - 1 wrong ones that are alike."""
    wrong = [(1 - value) / (N - 1) for value in (s, s_0)]
    every = s * sp.log(s / s_0) + (N - 1) * wrong[0] * sp.log(sp.cancel(wrong[0] / wrong[1]))
    return written_as(s * sp.log(s / s_0) + (1 - s) * sp.log((1 - s) / (1 - s_0)), every)


@cache
def odds() -> sp.Expr:
    """Slope of the divergence: how much log-odds have risen."""
    form = sp.log(s / (1 - s)) - sp.log(s_0 / (1 - s_0))
    derivative = sp.expand_log(step_divergence().diff(s), force=True)
    proved(
        vanishes(sp.expand_log(form, force=True) - derivative),
        "the slope of the divergence is not the rise of log-odds",
    )
    return form


@cache
def drag(steps: sp.Expr = L) -> sp.Expr:
    """Clock of the divergence of all steps: it has the margin alone in it, as rewards have."""
    return steps * odds() * s


@cache
def penalised_clock() -> sp.Expr:
    """Clock of the reward for the last state less the penalty."""
    whole = pace_of(expected()).subs(x, excess()) - penalty * drag()
    form = L * s * (excess() ** (L - 1) - penalty * odds())
    proved(vanishes(sp.simplify(whole - form)), "the clock with a penalty is another one")
    return form


@cache
def balance() -> sp.Expr:
    """Weight of the penalty that stops students at s: the clock is 0."""
    (weight,) = sp.solve(penalised_clock(), penalty)
    return written_as(excess() ** (L - 1) / odds(), weight)


@cache
def opening() -> sp.Expr:
    """Slope of the balance by s, over the balance and the slope of log-odds."""
    derivative = sp.diff(sp.log(balance()), s) / sp.diff(odds(), s)
    form = (L - 1) * N * s * (1 - s) / (N * s - 1) - 1 / odds()
    proved(
        vanishes(sp.simplify(sp.expand_log(derivative - form, force=True))),
        "the slope of the balance is another one",
    )
    return form


@cache
def equations() -> dict[str, Equation]:
    """Divergence, clock with a penalty, where it stops, and where the way on opens."""
    closure = (MEAN_FIELD, SAMPLED, *rollout_assumptions())
    said = BEYOND + ", with a penalty"
    return table(
        ref,
        status="closure",
        divergence=(divergence, step_divergence, said, MEAN_FIELD),
        penalty_clock=(clock, penalised_clock, said, *closure),
        penalty_balance=(penalty, balance, said + ": stops students at s", *closure),
        penalty_opening=(fold, opening, said + ": 0 at the critical weight", *closure),
    )
