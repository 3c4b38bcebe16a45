"""Times under rewards: the wait after pretraining, when rewards are faster than labels, how
many steps to roll out; the penalty weight that stops students.
"""

from functools import cache

import sympy as sp

from theory import Equations, proved, symbol, table, vanishes, written_as
from theory.state_tracking import exact, mean_field
from theory.state_tracking.dynamics import flow as supervised
from theory.state_tracking.exact import D
from theory.state_tracking.mean_field import MEAN_FIELD
from theory.state_tracking.reward_paths import penalty
from theory.state_tracking.rewards import (
    BEYOND,
    SAMPLED,
    clock,
    clock_of,
    excess,
    expected,
    horizon,
    pace_of,
    rollout_assumptions,
    s,
    success_of_margin,
    x,
)
from theory.state_tracking.symbols import A, L, N, R, S, alpha, g, m, ref, zeta

x_0 = symbol("excess_0", "x_0", "x where rewards take over", positive=True)
speed = symbol("speed", "v", "rate of x under supervised training at x = 0", positive=True)


@cache
def speed_of_excess() -> sp.Expr:
    """dx/dalpha of supervised training at the start of an orbit, R = S = zeta = 0."""
    margin = mean_field.margin_of_state()
    rates = supervised("tau").rhs
    moving = sum(margin.diff(q) * rates[q] for q in (A, R, S))
    by_margin = excess().diff(s) * success_of_margin().diff(m)
    start = {R: 0, S: 0, zeta: 0}
    speed = (by_margin * moving).subs(g, mean_field.equations()["g"].rhs).subs(m, 0).subs(start)
    return sp.factor(speed)


@cache
def wait() -> tuple[sp.Expr, sp.Expr]:
    """Time with rewards while x is small, where x grows as v times the clock: (L > 2, L = 2)."""
    lag = sp.Symbol("lag", positive=True)  # L - 2
    slow = clock_of("outcome").subs(s, 1 / N) * speed
    inverse = sp.Integral(1 / slow.subs(L, lag + 2), (x, x_0, sp.oo)).doit()
    long = written_as(N / (L * (L - 2) * speed * x_0 ** (L - 2)), inverse.subs(lag, L - 2))
    short = sp.Integral(1 / slow.subs(L, 2), (x, x_0, 1)).doit()
    return long, written_as(N / (2 * speed) * sp.log(1 / x_0), short)


@cache
def next_horizon() -> sp.Expr:
    """x at which rollouts of one step more are as fast: the clocks of both are equal."""
    after = clock_of("outcome", horizon + 1) / clock_of("outcome", horizon)
    (roots,) = sp.solve(sp.powsimp(after) - 1, x)
    return written_as(horizon / (horizon + 1), roots)


@cache
def best_horizon() -> sp.Expr:
    """Horizon of the fastest clock, taken as a real number."""
    (roots,) = sp.solve(sp.simplify(sp.diff(clock_of("outcome", horizon), horizon) / s), horizon)
    return written_as(-1 / sp.log(x), roots)


@cache
def even_success() -> sp.Expr:
    """s at which a step with rewards is worth a supervised one, for many states, where x -> s."""
    size = sp.Symbol("size", positive=True)
    many = sp.limit(excess().subs(N, size), size, sp.oo)
    value = sp.Symbol("s", positive=True)
    worth = clock_of("outcome").subs(x, many).subs(s, value)
    form = L ** (-1 / L)
    written_as(sp.S.One, sp.powsimp(worth.subs(value, form), force=True))
    return form


@cache
def equations() -> Equations:
    """Waits, switches and horizons."""
    closure = (MEAN_FIELD, SAMPLED, *rollout_assumptions())
    small = ("x small", "start at R = S = zeta = 0")

    def waiting() -> sp.Expr:
        density = exact.equations()["alpha_of_D"].rhs
        (inner,) = density.atoms(sp.Integral)
        timed = sp.Integral(inner.function / sp.Function("c")(exact.x), *inner.limits)
        return density.subs(inner, timed)

    return table(
        ref,
        status="closure",
        rewards_time=(
            sp.Function("alpha")(D),
            waiting,
            BEYOND + ": quadrature on the orbit",
            *closure,
            "c(D) is the clock on the orbit",
        ),
        rewards_speed=(speed, speed_of_excess, BEYOND, *small),
        rewards_wait=(alpha, lambda: wait()[0], BEYOND, "leading order", *small, "L > 2"),
        rewards_wait_2=(alpha, lambda: wait()[1], BEYOND, "leading order", *small, "L = 2"),
        rewards_even=(
            s,
            even_success,
            BEYOND + ": from here on they are faster per step",
            "leading order",
            *closure,
            "N large",
        ),
        next_horizon=(
            x,
            next_horizon,
            BEYOND + ": curriculum, when to roll out one step more",
            *closure,
        ),
        best_horizon=(horizon, best_horizon, BEYOND + ": curriculum", *closure, "as a real number"),
    )


# A penalty on the divergence from the policy that rewards took over from

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
def penalty_equations() -> Equations:
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
