"""Rewards in place of labels: the policy gradient moves A, R and S on the orbit of supervised
training, by another clock.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.algebra import delta_sum, vanishes, written_as
from theory.equation import Equation
from theory.flow import Flow
from theory.notation import symbol
from theory.parameters import ParameterError
from theory.state_tracking import exact, logits, loss, rollout
from theory.state_tracking.dynamics import flow as supervised
from theory.state_tracking.exact import D
from theory.state_tracking.loss import MEAN_FIELD
from theory.state_tracking.scope import REWARDS
from theory.state_tracking.symbols import (
    A,
    L,
    N,
    R,
    S,
    accuracy,
    alpha,
    g,
    i,
    j,
    m,
    ref,
    t,
    z_k,
    z_kbar,
    zeta,
)

s = symbol("success", "s", "probability that the student samples the right next state")
x = symbol("excess", "x", "success beyond guessing: 0 at 1/N, 1 if always right", positive=True)
x_0 = symbol("excess_0", "x_0", "x where rewards take over", positive=True)
J = symbol("J", means="expected reward: the last state of a rollout is right", positive=True)
clock = symbol(
    "clock",
    r"\frac{\mathrm{d}\alpha_{\mathrm{sup}}}{\mathrm{d}\alpha}",
    "supervised training time that one unit of time with rewards is worth",
)
speed = symbol("speed", "v", "rate of x under supervised training at x = 0", positive=True)
G = symbol("G", means="rollouts whose mean reward is the baseline", integer=True, positive=True)
k = symbol("k", means="how many of G rollouts are right", integer=True, nonnegative=True)
horizon = symbol("horizon", r"\ell", "steps of a rollout before its reward", positive=True)
factor = symbol("gain", r"\gamma", "what a baseline or a normalisation multiplies the clock by")
REWARD = ("outcome", "step", "true")
SAMPLED = "states are sampled from the student and fed back"
BEYOND = "beyond the paper: rewards"
scatter = symbol(
    "success_variance", r"\sigma_{s}^{2}", "variance of s over rows of the data", nonnegative=True
)
MOST_GROUP = 256  # rollouts of a group whose sum over k is spelled out


@cache
def success_of_margin() -> sp.Expr:
    """Probability of the right state, exp of minus the supervised loss: what g leaves."""
    found = sp.exp(-loss.equations()["loss_of_margin"].rhs)
    written_as(1 - loss.equations()["g"].rhs, found)
    return written_as(1 / (1 + (N - 1) * sp.exp(-m)), found)


@cache
def excess() -> sp.Expr:
    """Gain of one step of the rollout recursion: what a right state keeps beyond a wrong one."""
    return written_as((N * s - 1) / (N - 1), (accuracy - rollout.UNIFORM).subs(accuracy, s))


@cache
def expected(steps: sp.Expr = L) -> sp.Expr:
    """Expected reward after some steps, by x: the rollout accuracy (18) with s for the accuracy."""
    of_s = rollout.equations()["rollout_mean"].rhs.subs(L, steps).subs(accuracy, s)
    return written_as((N - 1) / N * x**steps + 1 / N, of_s.subs(s, success()))


@cache
def success() -> sp.Expr:
    """s by x."""
    (found,) = sp.solve(excess() - x, s)
    return written_as((1 + (N - 1) * x) / N, found)


@cache
def prove_orbit() -> None:
    """All rates of the flow (15) are the derivative of the loss by the margin times a factor
    without the margin. A function of the margin alone, such as the expected reward, has the same factors.

    Raises
    ------
    ArithmeticError
        If a rate knows the margin in another way.
    """
    slope = -sp.diff(sp.log(1 / success_of_margin()), m)
    mass = loss.equations()["g"].rhs
    if not vanishes(slope - mass):
        raise ArithmeticError("the loss does not fall with the margin as g says")
    for rate in supervised("tau").rhs.values():
        if sp.diff(rate / g, g) != 0 or rate.has(m):
            raise ArithmeticError("a rate of the flow is not proportional to g")


def pace_of(objective: sp.Expr) -> sp.Expr:
    """Clock of an objective by x: its slope in the margin over that of -loss = ln s, so its slope
    in ln s.
    """
    prove_orbit()
    return objective.diff(x) * excess().diff(s) * success()


@cache
def clock_of(reward: str, steps: sp.Expr = L) -> sp.Expr:
    """Clock by x and s for each kind of reward, without baseline.

    Parameters
    ----------
    reward : {'outcome', 'step', 'true'}
        Last state right; every step right given the state before it; every state the true one
        (means over steps).
    steps : Expr
        Steps of a rollout.
    """
    if reward not in REWARD:
        raise ParameterError(f"reward = {reward!r}: must be one of {', '.join(REWARD)}")
    if reward == "outcome":
        found = pace_of(expected(steps))
        return _by_excess(found, steps * x ** (steps - 1))
    if reward == "step":
        return _by_excess(pace_of(success()), sp.S.One)
    one = expected(t).diff(x) * excess().diff(s)
    shape = written_as(t * x ** (t - 1), one)
    return sp.Sum(shape, (t, 1, steps)) / steps * s


def _by_excess(found: sp.Expr, shape: sp.Expr) -> sp.Expr:
    """A clock as a function of x times s."""
    written_as(shape * success(), found)
    return shape * s


@cache
def scatter_gain() -> sp.Expr:
    """Rows differ in s. Labels push a row by 1 - s, rewards by s (1 - s) times what the other steps
    of its rollout give, on average: means of a polynomial of degree two.
    """
    off = sp.Symbol("off", real=True)  # s of a row less the mean: mean 0, mean square `scatter`

    def mean(value: sp.Expr) -> sp.Expr:
        c = sp.Poly(sp.expand(value), off)
        return c.coeff_monomial(1) + c.coeff_monomial(off**2) * scatter

    slope = success_of_margin().diff(m)
    row = s * (1 - s)
    written_as(row.subs(s, success_of_margin()), slope)
    pushed = mean(row.subs(s, s + off)) / mean((1 - s).subs(s, s + off))
    return written_as(1 - scatter / (s * (1 - s)), pushed / (row / (1 - s)))


@cache
def baseline_gain() -> sp.Expr:
    """Mean of sum_j (delta_ij - 1/G) R_j over the score of rollout i: only the own reward is
    correlated with it.
    """
    own = delta_sum(sp.KroneckerDelta(i, j) * (sp.KroneckerDelta(i, j) - 1 / G), (j, 1, G))
    return written_as(1 - 1 / G, own)


@cache
def normalised_gain() -> sp.Expr:
    """Rewards less their mean, over their standard deviation in the group. The mean score of a
    right rollout is grad J / J, that of a wrong one -grad J / (1 - J).
    """
    share = k / G
    spread = sp.sqrt(share * (1 - share))
    mean_score = share * (1 - share) / spread / J + (1 - share) * share / spread / (1 - J)
    chance = sp.binomial(G, k) * J**k * (1 - J) ** (G - k)
    value = written_as(spread / (J * (1 - J)), mean_score)
    return sp.Sum(chance * value, (k, 1, G - 1))  # all alike: no advantage


@cache
def normalised_limit() -> sp.Expr:
    """The share of a large group is J."""
    of_share = sp.sqrt(J * (1 - J)) / (J * (1 - J))
    return written_as(1 / sp.sqrt(J * (1 - J)), of_share)


@cache
def speed_of_excess() -> sp.Expr:
    """dx/dalpha of supervised training at the start of an orbit, R = S = zeta = 0."""
    mean = logits.equations()
    margin = loss.equations()["margin"].rhs.subs(z_kbar, mean["logit_other"].rhs)
    margin = margin.subs(z_k, mean["logit_correct"].rhs)
    rates = supervised("tau").rhs
    moving = sum(margin.diff(q) * rates[q] for q in (A, R, S))
    by_margin = excess().diff(s) * success_of_margin().diff(m)
    start = {R: 0, S: 0, zeta: 0}
    found = (by_margin * moving).subs(g, loss.equations()["g"].rhs).subs(m, 0).subs(start)
    return sp.factor(found)


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
    (found,) = sp.solve(sp.powsimp(after) - 1, x)
    return written_as(horizon / (horizon + 1), found)


@cache
def best_horizon() -> sp.Expr:
    """Horizon of the fastest clock, taken as a real number."""
    (found,) = sp.solve(sp.simplify(sp.diff(clock_of("outcome", horizon), horizon) / s), horizon)
    return written_as(-1 / sp.log(x), found)


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


def gain(size: int, normalised: bool) -> sp.Expr:
    """Factor of the clock from a baseline, or from a normalisation, over ``size`` rollouts; a large
    group is taken as infinite.
    """
    if not normalised:
        return baseline_gain().subs(G, size)
    if size > MOST_GROUP:
        return normalised_limit()
    summed = normalised_gain()
    return sp.Add(*(summed.function.subs({G: size, k: n}) for n in range(1, size)))


@cache
def full_clock(
    reward: str = "outcome",
    size: int | None = None,
    normalised: bool = False,
    steps: int | None = None,
) -> sp.Expr:
    """Clock as a function of s alone, with baseline or normalisation.

    Parameters
    ----------
    reward : {'outcome', 'step', 'true'}
        As for `clock_of`.
    size : int, optional
        Rollouts that share a baseline; without it, no baseline.
    normalised : bool
        Whether rewards are divided by their standard deviation over the group.
    steps : int, optional
        Steps of a rollout, if not L.
    """
    length = L if steps is None else sp.Integer(steps)
    plain = clock_of(reward, length)
    if size is None:
        return plain.subs(x, excess())
    if normalised and reward != "outcome":
        raise ParameterError("normalised = True: must be false unless reward = outcome")
    return (plain * gain(size, normalised).subs(J, expected(length))).subs(x, excess())


@cache
def flow(
    reward: str = "outcome",
    size: int | None = None,
    normalised: bool = False,
    steps: int | None = None,
) -> Flow:
    """Flow (15) of A, R and S under rewards: supervised rates times the clock; arguments as for
    `full_clock`.
    """
    base = supervised("tau")
    timed = full_clock(reward, size, normalised, steps).subs(s, 1 - g)
    if steps is None and timed.has(sp.Sum):
        raise ParameterError(f"steps = None: must be a number for reward = {reward!r}")
    return Flow(
        name=f"state_tracking, reward: {reward}",
        time=alpha,
        rhs={q: timed.doit() * rate for q, rate in base.rhs.items()},
        initial=base.initial,
        reference=ref(BEYOND),
        status="closure",
        assumptions=(*base.assumptions, SAMPLED, *rollout_assumptions()),
        where=base.where,
        observables={**base.observables, "success": 1 - g},
        scope=REWARDS,
    )


def rollout_assumptions() -> tuple[str, ...]:
    """What the rollout accuracy (18) assumes."""
    return rollout.equations()["rollout_mean"].assumptions


@cache
def equations() -> dict[str, Equation]:
    """Success, expected reward, clocks of the kinds of reward, times and switches."""
    closure = (MEAN_FIELD, SAMPLED, *rollout_assumptions())
    iid = ("rollouts independent", "R_i the reward of rollout i")
    small = ("x small", "start at R = S = zeta = 0")

    def waiting() -> sp.Expr:
        density = exact.equations()["alpha_of_D"].rhs
        (inner,) = density.atoms(sp.Integral)
        timed = sp.Integral(inner.function / sp.Function("c")(exact.x), *inner.limits)
        return density.subs(inner, timed)

    found = [
        Equation("success", s, success_of_margin, ref(BEYOND), "closure", (MEAN_FIELD,)),
        Equation("excess", x, excess, ref("gain of the recursion (84)"), "exact"),
        Equation("expected_reward", J, expected, ref("Eq. (18), sampled"), "closure", closure),
        Equation(
            "rewards_clock", clock, lambda: clock_of("outcome"), ref(BEYOND), "closure", closure
        ),
        Equation(
            "rewards_clock_step",
            clock,
            lambda: clock_of("step"),
            ref(BEYOND + ", one per step, given the state before"),
            "closure",
            closure,
        ),
        Equation(
            "rewards_clock_true",
            clock,
            lambda: clock_of("true"),
            ref(BEYOND + ", one per step, for the true state"),
            "closure",
            closure,
        ),
        Equation(
            "rewards_from_scratch",
            clock,
            lambda: clock_of("outcome").subs(L, 1 + L).subs(x, 0),
            ref(BEYOND + ": at guessing, two steps or more"),
            "closure",
            (*closure, "L + 1 steps, L >= 1"),
        ),
        Equation(
            "rewards_time",
            sp.Function("alpha")(D),
            waiting,
            ref(BEYOND + ": quadrature on the orbit"),
            "closure",
            (*closure, "c(D) is the clock on the orbit"),
        ),
        Equation("rewards_speed", speed, speed_of_excess, ref(BEYOND), "closure", small),
        Equation(
            "rewards_wait",
            alpha,
            lambda: wait()[0],
            ref(BEYOND),
            "leading order",
            (*small, "L > 2"),
        ),
        Equation(
            "rewards_wait_2",
            alpha,
            lambda: wait()[1],
            ref(BEYOND),
            "leading order",
            (*small, "L = 2"),
        ),
        Equation(
            "rewards_even",
            s,
            even_success,
            ref(BEYOND + ": from here on they are faster per step"),
            "leading order",
            (*closure, "N large"),
        ),
        Equation(
            "scatter_gain",
            factor,
            scatter_gain,
            ref(BEYOND + ": rows with different s, leading correction"),
            "closure",
            ("rows of a rollout independent of each other", SAMPLED),
        ),
        Equation("baseline_gain", factor, baseline_gain, ref(BEYOND), "exact", iid),
        Equation(
            "normalised_gain",
            factor,
            normalised_gain,
            ref(BEYOND + ", GRPO"),
            "closure",
            (*iid, "every prompt has the expected reward J"),
        ),
        Equation(
            "normalised_gain_limit",
            factor,
            normalised_limit,
            ref(BEYOND + ", GRPO"),
            "leading order",
            (*iid, "G large"),
        ),
        Equation(
            "next_horizon",
            x,
            next_horizon,
            ref(BEYOND + ": curriculum, when to roll out one step more"),
            "closure",
            closure,
        ),
        Equation(
            "best_horizon",
            horizon,
            best_horizon,
            ref(BEYOND + ": curriculum"),
            "closure",
            (*closure, "as a real number"),
        ),
    ]
    return {e.name: e for e in found}
