"""Rewards in place of labels: the policy gradient moves A, R and S on the orbit of supervised
training, by another clock.
"""

from functools import cache

import sympy as sp

from theory import (
    Equations,
    Flow,
    ParameterError,
    delta_sum,
    proved,
    symbol,
    table,
    vanishes,
    written_as,
)
from theory.state_tracking import mean_field, rollout
from theory.state_tracking.dynamics import flow as supervised
from theory.state_tracking.mean_field import MEAN_FIELD
from theory.state_tracking.scope import REWARDS
from theory.state_tracking.symbols import L, N, accuracy, alpha, g, i, j, m, ref, t

s = symbol("success", "s", "probability that the student samples the right next state")
x = symbol("excess", "x", "success beyond guessing: 0 at 1/N, 1 if always right", positive=True)
J = symbol("J", means="expected reward: the last state of a rollout is right", positive=True)
clock = symbol(
    "clock",
    r"\frac{\mathrm{d}\alpha_{\mathrm{sup}}}{\mathrm{d}\alpha}",
    "supervised training time that one unit of time with rewards is worth",
)
horizon = symbol("horizon", r"\ell", "steps of a rollout before its reward", positive=True)
REWARD = ("outcome", "step", "true")
SAMPLED = "states are sampled from the student and fed back"
BEYOND = "beyond the paper: rewards"


@cache
def success_of_margin() -> sp.Expr:
    """Probability of the right state, exp(-loss) = 1 - g."""
    probability = sp.exp(-mean_field.equations()["loss_of_margin"].rhs)
    written_as(1 - mean_field.equations()["g"].rhs, probability)
    return written_as(1 / (1 + (N - 1) * sp.exp(-m)), probability)


@cache
def excess() -> sp.Expr:
    """Gain of one step of the rollout recursion: accuracy after a right state minus that after a
    wrong one.
    """
    return written_as((N * s - 1) / (N - 1), (accuracy - rollout.UNIFORM).subs(accuracy, s))


@cache
def expected(steps: sp.Expr = L) -> sp.Expr:
    """Expected reward after some steps, by x: the rollout accuracy (18) with s for the accuracy."""
    of_s = rollout.equations()["rollout_mean"].rhs.subs(L, steps).subs(accuracy, s)
    return written_as((N - 1) / N * x**steps + 1 / N, of_s.subs(s, success()))


@cache
def success() -> sp.Expr:
    """s by x."""
    (solutions,) = sp.solve(excess() - x, s)
    return written_as((1 + (N - 1) * x) / N, solutions)


@cache
def prove_orbit() -> None:
    """All rates of the flow (15) are the derivative of the loss by the margin times a factor
    without the margin. A function of the margin alone, such as the expected reward, has the
    same factors.

    Raises
    ------
    ArithmeticError
        If a rate depends on the margin in another way.
    """
    slope = -sp.diff(sp.log(1 / success_of_margin()), m)
    mass = mean_field.equations()["g"].rhs
    proved(vanishes(slope - mass), "the loss does not fall with the margin as g says")
    for rate in supervised("tau").rhs.values():
        proved(
            sp.diff(rate / g, g) == 0 and not rate.has(m),
            "a rate of the flow is not proportional to g",
        )


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
        clocks = pace_of(expected(steps))
        return _by_excess(clocks, steps * x ** (steps - 1))
    if reward == "step":
        return _by_excess(pace_of(success()), sp.S.One)
    one = expected(t).diff(x) * excess().diff(s)
    shape = written_as(t * x ** (t - 1), one)
    return sp.Sum(shape, (t, 1, steps)) / steps * s


def _by_excess(derived: sp.Expr, shape: sp.Expr) -> sp.Expr:
    """A clock as a function of x times s."""
    written_as(shape * success(), derived)
    return shape * s


def rollout_assumptions() -> tuple[str, ...]:
    """Assumptions of the rollout accuracy (18)."""
    return rollout.equations()["rollout_mean"].assumptions


@cache
def equations() -> Equations:
    """Success, expected reward, and clocks of the kinds of reward."""
    closure = (MEAN_FIELD, SAMPLED, *rollout_assumptions())
    return table(
        ref,
        status="closure",
        success=(s, success_of_margin, BEYOND, MEAN_FIELD),
        excess=(x, excess, "beyond Eq. (84): gain of the recursion", "exact"),
        expected_reward=(J, expected, "beyond Eq. (18): states are sampled", *closure),
        rewards_clock=(clock, lambda: clock_of("outcome"), BEYOND, *closure),
        rewards_clock_step=(
            clock,
            lambda: clock_of("step"),
            BEYOND + ", one per step, given the state before",
            *closure,
        ),
        rewards_clock_true=(
            clock,
            lambda: clock_of("true"),
            BEYOND + ", one per step, for the true state",
            *closure,
        ),
        rewards_from_scratch=(
            clock,
            lambda: clock_of("outcome").subs(L, 1 + L).subs(x, 0),
            BEYOND + ": at guessing, two steps or more",
            *closure,
            "L + 1 steps, L >= 1",
        ),
    )


# Factors of the clock of rewards from a baseline, from a normalisation, and from rows that
# differ in their success

G = symbol("G", means="rollouts whose mean reward is the baseline", integer=True, positive=True)
k = symbol("k", means="how many of G rollouts are right", integer=True, nonnegative=True)
factor = symbol("gain", r"\gamma", "what a baseline or a normalisation multiplies the clock by")
scatter = symbol(
    "success_variance", r"\sigma_{s}^{2}", "variance of s over rows of the data", nonnegative=True
)
MOST_GROUP = 256  # rollouts of a group whose sum over k is spelled out


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
    correlated = delta_sum(sp.KroneckerDelta(i, j) * (sp.KroneckerDelta(i, j) - 1 / G), (j, 1, G))
    return written_as(1 - 1 / G, correlated)


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


@cache
def gain_equations() -> Equations:
    """Factors of the clock."""
    iid = ("rollouts independent", "R_i the reward of rollout i")
    return table(
        ref,
        status="closure",
        scatter_gain=(
            factor,
            scatter_gain,
            BEYOND + ": rows with different s, leading correction",
            "rows of a rollout independent of each other",
            SAMPLED,
        ),
        baseline_gain=(factor, baseline_gain, BEYOND, "exact", *iid),
        normalised_gain=(
            factor,
            normalised_gain,
            BEYOND + ", GRPO",
            *iid,
            "every prompt has the expected reward J",
        ),
        normalised_gain_limit=(
            factor,
            normalised_limit,
            BEYOND + ", GRPO",
            "leading order",
            *iid,
            "G large",
        ),
    )
