"""Rewards in place of labels: the policy gradient moves A, R and S on the orbit of supervised
training, by another clock.
"""

from functools import cache

import sympy as sp

from theory import Equation, ParameterError, proved, symbol, table, vanishes, written_as
from theory.state_tracking import loss, rollout
from theory.state_tracking.dynamics import flow as supervised
from theory.state_tracking.loss import MEAN_FIELD
from theory.state_tracking.symbols import L, N, accuracy, g, m, ref, t

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
    """Probability of the right state, exp of minus the supervised loss: what g leaves."""
    probability = sp.exp(-loss.equations()["loss_of_margin"].rhs)
    written_as(1 - loss.equations()["g"].rhs, probability)
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
    mass = loss.equations()["g"].rhs
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
def equations() -> dict[str, Equation]:
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
