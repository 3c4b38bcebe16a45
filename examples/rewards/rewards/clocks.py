"""Rewards in place of labels: the policy gradient moves A, R and S on the orbit of
supervised training, by another clock.
"""

from functools import cache
from typing import Any

import sympy as sp

from rewards.declared import BEYOND, SAMPLED, Chapter, rollout_assumptions
from theory import (
    Flow,
    ParameterError,
    Scope,
    delta_sum,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.state_tracking import rollout
from theory.state_tracking.dynamics import flow as supervised
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.mean_field import MEAN_FIELD
from theory.state_tracking.model.symbols import (
    A,
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
)
from theory.state_tracking.model.symbols import L as LENGTH

REWARD = ("outcome", "step")
BY_MARGIN = "slope of the objective over that of ln s, both by the margin"
PENALISED = BEYOND + ", with a penalty"
IID = ("rollouts independent", "R_i the reward of rollout i")
MOST_GROUP = 256  # rollouts of a group whose sum over k is spelled out

s = symbol("success", "s", "probability that the student samples the right next state")
x = symbol(
    "excess", "x", "success beyond guessing: 0 at 1/N, 1 if always right", positive=True
)
J = symbol(
    "J", means="expected reward: the last state of a rollout is right", positive=True
)
horizon = symbol(
    "horizon", r"\ell", "steps of a rollout before its reward", positive=True
)
clock = symbol(
    "clock",
    r"\frac{\mathrm{d}\alpha_{\mathrm{sup}}}{\mathrm{d}\alpha}",
    "supervised training time that one unit of time with rewards is worth",
)
G = symbol(
    "G", means="rollouts whose mean reward is the baseline", integer=True, positive=True
)
k = symbol(
    "k", means="how many of G rollouts are right", integer=True, nonnegative=True
)
factor = symbol(
    "gain", r"\gamma", "what a baseline or a normalisation multiplies the clock by"
)
scatter = symbol(
    "success_variance",
    r"\sigma_{s}^{2}",
    "variance of s over rows of the data",
    nonnegative=True,
)
penalty = symbol(
    "penalty", r"\beta", "weight of the divergence from the policy that took over"
)
s_0 = symbol("success_0", "s_0", "s where rewards took over", positive=True)
divergence = symbol(
    "divergence", "d", "divergence of a step from the policy that took over"
)

CLOCKS, GAINS = Chapter(), Chapter()
equations, gain_equations = CLOCKS.equations, GAINS.equations


# Success, expected reward, and the clock of each kind of reward


@CLOCKS.equation(s, BEYOND, MEAN_FIELD, name="success")
def success_of_margin() -> sp.Expr:
    """Probability of the right state, exp(-loss) = 1 - g."""
    probability = sp.exp(-mean_field.equations()["loss_of_margin"].rhs)
    written_as(1 - mean_field.equations()["g"].rhs, probability)
    return written_as(1 / (1 + (N - 1) * sp.exp(-m)), probability)


@CLOCKS.equation(x, "beyond Eq. (84): gain of the recursion", status="exact")
def excess() -> sp.Expr:
    """Gain of one step of the rollout recursion: accuracy after a right state minus
    that after a wrong one.
    """
    difference = accuracy - rollout.UNIFORM
    return written_as((N * s - 1) / (N - 1), difference.subs(accuracy, s))


@cache
def success_of_excess() -> sp.Expr:
    """s by x."""
    (solution,) = sp.solve(excess() - x, s)
    return written_as((1 + (N - 1) * x) / N, solution)


@CLOCKS.equation(J, "beyond Eq. (18): states are sampled", rollouts=True)
def expected_reward(steps: sp.Expr = horizon) -> sp.Expr:
    """Expected reward after some steps: the rollout accuracy (18) with s for the
    accuracy.
    """
    of_accuracy = rollout.equations()["rollout_mean"].rhs
    of_s = of_accuracy.subs(LENGTH, steps).subs(accuracy, s)
    return written_as((N - 1) / N * x**steps + 1 / N, of_s.subs(s, success_of_excess()))


@cache
def prove_orbit() -> None:
    """Prove that one orbit serves all functions of the margin.

    Each rate of the flow (15) is the derivative of the loss by the margin times a
    factor without the margin. A function of the margin alone, such as the expected
    reward, has the same factors.

    Raises
    ------
    ArithmeticError
        If a rate depends on the margin in another way.
    """
    slope = -sp.diff(sp.log(1 / success_of_margin()), m)
    mass = mean_field.equations()["g"].rhs
    proved(vanishes(slope - mass), "the loss does not fall with the margin as g says")
    for rate in supervised("tau").rhs.values():
        proportional = sp.diff(rate / g, g) == 0
        proved(
            proportional and not rate.has(m),
            "a rate of the flow is not proportional to g",
        )


def pace_of(objective: sp.Expr) -> sp.Expr:
    """Clock of an objective that is given by x: its slope in ln s, which is its slope
    in the margin over that of minus the loss.
    """
    prove_orbit()
    return objective.diff(x) * excess().diff(s) * success_of_excess()


@CLOCKS.equation(clock, BEYOND, BY_MARGIN, name="rewards_clock", rollouts=True)
def outcome_clock(steps: sp.Expr = horizon) -> sp.Expr:
    """Clock of a reward for the last state."""
    form = steps * x ** (steps - 1)
    written_as(form * success_of_excess(), pace_of(expected_reward(steps)))
    return form * s


@CLOCKS.equation(
    clock,
    BEYOND + ", one per step, given the state before",
    BY_MARGIN,
    name="rewards_clock_step",
    rollouts=True,
)
def step_clock() -> sp.Expr:
    """Clock of the mean reward over steps, each right given the state before it."""
    written_as(success_of_excess(), pace_of(success_of_excess()))
    return s


@CLOCKS.equation(
    clock, BEYOND + ": at guessing", "two steps or more: L + 1, L >= 1", rollouts=True
)
def rewards_from_scratch() -> sp.Expr:
    """Clock at x = 0."""
    return outcome_clock(1 + LENGTH).subs(x, 0)


def clock_of(reward: str, steps: sp.Expr = horizon) -> sp.Expr:
    """Clock by x and s of a kind of reward, without a baseline.

    Parameters
    ----------
    reward : {'outcome', 'step'}
        Last state right; or every step right given the state before it (mean over
        steps).
    steps : Expr
        Steps of a rollout.
    """
    if reward not in REWARD:
        raise ParameterError(f"reward = {reward!r}: must be one of {', '.join(REWARD)}")
    return outcome_clock(steps) if reward == "outcome" else step_clock()


# What a baseline, a normalisation, and rows that differ in their success do to a clock


@GAINS.equation(
    factor,
    BEYOND + ": rows with different s, leading correction",
    "rows of a rollout independent of each other",
    SAMPLED,
)
def scatter_gain() -> sp.Expr:
    """Labels push a row by 1 - s, rewards by s (1 - s) times what the other steps of
    its rollout give, on average. Both are polynomials of degree two in s.
    """
    off = sp.Symbol("off", real=True)  # s of a row less the mean

    def mean(value: sp.Expr) -> sp.Expr:
        """Mean over rows: `off` has mean 0 and mean square `scatter`."""
        return sp.expand(value).subs(off**2, scatter).subs(off, 0)

    by_rewards, by_labels = s * (1 - s), 1 - s
    slope = success_of_margin().diff(m)
    written_as(by_rewards.subs(s, success_of_margin()), slope)
    alike = by_rewards / by_labels
    apart = mean(by_rewards.subs(s, s + off)) / mean(by_labels.subs(s, s + off))
    return written_as(1 - scatter / (s * (1 - s)), apart / alike)


@GAINS.equation(factor, BEYOND, *IID, status="exact")
def baseline_gain() -> sp.Expr:
    """Mean of sum_j (delta_ij - 1/G) R_j times the score of rollout i: only the own
    reward is correlated with it.
    """
    own = sp.KroneckerDelta(i, j)
    return written_as(1 - 1 / G, delta_sum(own * (own - 1 / G), (j, 1, G)))


@GAINS.equation(
    factor, BEYOND + ", GRPO", *IID, "every prompt has the expected reward J"
)
def normalised_gain() -> sp.Expr:
    """Rewards less their mean, over their standard deviation in the group. The mean
    score of a right rollout is grad J / J, that of a wrong one -grad J / (1 - J).
    """
    share = k / G
    spread = sp.sqrt(share * (1 - share))
    of_right = share * (1 - share) / spread / J
    of_wrong = (1 - share) * share / spread / (1 - J)
    value = written_as(spread / (J * (1 - J)), of_right + of_wrong)
    chance = sp.binomial(G, k) * J**k * (1 - J) ** (G - k)
    return sp.Sum(chance * value, (k, 1, G - 1))  # rewards all alike: no advantage


@GAINS.equation(factor, BEYOND + ", GRPO", *IID, "G large", status="leading order")
def normalised_gain_limit() -> sp.Expr:
    """The share of right rollouts in a large group is J."""
    of_share = sp.sqrt(J * (1 - J)) / (J * (1 - J))
    return written_as(1 / sp.sqrt(J * (1 - J)), of_share)


def gain(size: Any, normalised: bool) -> sp.Expr:
    """Factor of the clock from a baseline or a normalisation over ``size`` rollouts; a
    large normalised group is taken as infinite.
    """
    if not normalised:
        return baseline_gain().subs(G, size)
    if size > MOST_GROUP:
        return normalised_gain_limit()
    of_count = normalised_gain().function.subs(G, size)
    return sp.Add(*(of_count.subs(k, count) for count in range(1, size)))


# A penalty on the divergence from the policy that rewards took over from


@cache
def step_divergence() -> sp.Expr:
    """Divergence of a step: of the right state, and of N - 1 wrong ones that are
    alike.
    """
    wrong, wrong_0 = ((1 - value) / (N - 1) for value in (s, s_0))
    of_right = s * sp.log(s / s_0)
    of_wrong = (N - 1) * wrong * sp.log(sp.cancel(wrong / wrong_0))
    form = of_right + (1 - s) * sp.log((1 - s) / (1 - s_0))
    return written_as(form, of_right + of_wrong)


@cache
def odds() -> sp.Expr:
    """Slope of the divergence by s: how much the log-odds have risen."""
    form = sp.log(s / (1 - s)) - sp.log(s_0 / (1 - s_0))
    derivative = sp.expand_log(step_divergence().diff(s), force=True)
    proved(
        vanishes(sp.expand_log(form, force=True) - derivative),
        "the slope of the divergence is not the rise of log-odds",
    )
    return form


def drag(steps: sp.Expr = horizon) -> sp.Expr:
    """Clock of the divergence of all steps, which depends on the margin alone."""
    return steps * odds() * s


# The flow


@cache
def full_clock(
    reward: str = "outcome",
    normalised: bool = False,
    size: Any = G,
    steps: Any = horizon,
) -> sp.Expr:
    """Clock as a function of s alone, with baseline or normalisation and penalty.

    Parameters
    ----------
    reward : {'outcome', 'step'}
        As for `clock_of`.
    normalised : bool
        Whether rewards are divided by their standard deviation over the group.
    size : int or Symbol
        Rollouts that share a baseline; a number if ``normalised``.
    steps : int or Symbol
        Steps of a rollout.
    """
    if normalised and reward != "outcome":
        raise ParameterError("normalised = True: must be False unless reward = outcome")
    steps = sp.sympify(steps)
    paid = clock_of(reward, steps) * gain(size, normalised)
    paid = paid.subs(J, expected_reward(steps)).subs(x, excess())
    return paid - penalty * drag(steps)


def state_at_take_over() -> dict[sp.Symbol, sp.Symbol]:
    """A, R and S where rewards take over: where a flow under rewards starts."""
    words = "where rewards take over"
    return {q: symbol(f"{q.name}_1", means=f"{q.name} {words}") for q in (A, R, S)}


@cache
def flow(reward: str, scope: Scope) -> Flow:
    """Flow (15) under rewards without normalisation: supervised rates times the clock.
    Its time begins where rewards take over.

    Parameters
    ----------
    reward : {'outcome', 'step'}
        As for `clock_of`.
    scope : Scope
        Which students it describes.
    """
    labelled = supervised("tau")
    pace = full_clock(reward).subs(s, 1 - g)
    return Flow(
        name=f"state_tracking, reward: {reward}",
        time=alpha,
        rhs={q: pace * rate for q, rate in labelled.rhs.items()},
        initial=state_at_take_over(),
        reference=ref(BEYOND),
        status="closure",
        assumptions=(*labelled.assumptions, SAMPLED, *rollout_assumptions()),
        where=labelled.where,
        observables={**labelled.observables, "success": 1 - g},
        scope=scope,
        clock="epochs / (d_g N) since rewards took over",
    )
