"""Times under rewards, derived: the wait after pretraining, where rewards become faster
than labels, how many steps to roll out, and where a penalty stops students.
"""

import sympy as sp

from rewards.clocks import (
    MEAN_FIELD,
    PENALISED,
    clock,
    divergence,
    drag,
    excess,
    horizon,
    odds,
    outcome_clock,
    penalty,
    s,
    step_divergence,
    success_of_margin,
    x,
)
from rewards.declared import BEYOND, Chapter
from theory import factored, proved, symbol, vanishes, written_as
from theory.state_tracking.dynamics import flow as supervised
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.symbols import A, N, R, S, alpha, g, m, zeta

FROM_ZERO = ("x small", "start at R = S = zeta = 0")
LEADING = "leading order"
CURRICULUM = BEYOND + ": curriculum"

x_0 = symbol("excess_0", "x_0", "x where rewards take over", positive=True)
speed = symbol(
    "speed", "v", "rate of x under supervised training at x = 0", positive=True
)
fold = symbol("fold", means="slope of the balance: 0 where the way on opens", real=True)

TIMES, PENALTIES = Chapter(), Chapter()
equations, penalty_equations = TIMES.equations, PENALTIES.equations


@TIMES.equation(speed, BEYOND, *FROM_ZERO)
def rewards_speed() -> sp.Expr:
    """dx/dalpha of supervised training at the start of an orbit, R = S = zeta = 0."""
    margin, rates = mean_field.margin_of_state(), supervised("tau").rhs
    moving = sum(margin.diff(q) * rates[q] for q in (A, R, S))
    by_margin = excess().diff(s) * success_of_margin().diff(m)
    rate = (by_margin * moving).subs(g, mean_field.equations()["g"].rhs)
    return sp.factor(rate.subs({m: 0, R: 0, S: 0, zeta: 0}))


def slow_clock(steps: sp.Expr) -> sp.Expr:
    """Rate of x under rewards while x is small."""
    return outcome_clock(steps).subs(s, 1 / N) * speed


@TIMES.equation(alpha, BEYOND, *FROM_ZERO, "three steps or more", status=LEADING)
def rewards_wait() -> sp.Expr:
    """Time with rewards while x is small."""
    lag = sp.Symbol("lag", positive=True)  # steps less 2
    inverse = sp.Integral(1 / slow_clock(lag + 2), (x, x_0, sp.oo)).doit()
    form = N / (horizon * (horizon - 2) * speed * x_0 ** (horizon - 2))
    return written_as(form, inverse.subs(lag, horizon - 2))


@TIMES.equation(alpha, BEYOND, *FROM_ZERO, "two steps", status=LEADING)
def rewards_wait_2() -> sp.Expr:
    """The same of rollouts of two steps: a logarithm."""
    inverse = sp.Integral(1 / slow_clock(sp.Integer(2)), (x, x_0, 1)).doit()
    return written_as(N / (2 * speed) * sp.log(1 / x_0), inverse)


@TIMES.equation(
    s,
    BEYOND + ": from here on they are faster per step",
    "N large",
    status=LEADING,
    rollouts=True,
)
def rewards_even() -> sp.Expr:
    """s at which a step with rewards is worth a supervised one. For many states x is
    s.
    """
    size = sp.Symbol("size", positive=True)
    value = sp.Symbol("s", positive=True)
    many = sp.limit(excess().subs(N, size), size, sp.oo)
    worth = outcome_clock().subs(x, many).subs(s, value)
    form = horizon ** (-1 / horizon)
    written_as(sp.S.One, sp.powsimp(worth.subs(value, form), force=True))
    return form


@TIMES.equation(x, CURRICULUM + ", when to roll out one step more", rollouts=True)
def next_horizon() -> sp.Expr:
    """x at which the clocks of rollouts of this length and one step more are equal."""
    gained = sp.powsimp(outcome_clock(horizon + 1) / outcome_clock(horizon))
    (root,) = sp.solve(gained - 1, x)
    return written_as(horizon / (horizon + 1), root)


# A penalty on the divergence from the policy that rewards took over from

PENALTIES.equation(divergence, PENALISED, MEAN_FIELD, name="divergence")(
    step_divergence
)


@PENALTIES.equation(clock, PENALISED, rollouts=True)
def penalty_clock() -> sp.Expr:
    """Clock of the reward for the last state less the penalty, without a baseline."""
    paid = outcome_clock().subs(x, excess())
    form = horizon * s * (excess() ** (horizon - 1) - penalty * odds())
    return written_as(form, paid - penalty * drag())


@PENALTIES.equation(penalty, PENALISED + ": stops students at s", rollouts=True)
def penalty_balance() -> sp.Expr:
    """Weight of the penalty at which the clock is 0."""
    (weight,) = sp.solve(penalty_clock(), penalty)
    return written_as(excess() ** (horizon - 1) / odds(), weight)


@PENALTIES.equation(fold, PENALISED + ": 0 at the critical weight", rollouts=True)
def penalty_opening() -> sp.Expr:
    """Slope of the balance by s, over the balance and the slope of log-odds."""
    derivative = sp.diff(sp.log(penalty_balance()), s) / sp.diff(odds(), s)
    rising = (horizon - 1) * N * s * (1 - s) / (N * s - 1)
    form = rising - 1 / odds()
    gap = sp.expand_log(derivative - form, force=True)
    proved(vanishes(factored(gap)), "the slope of the balance is another one")
    return form
