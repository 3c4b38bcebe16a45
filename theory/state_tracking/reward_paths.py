"""Rewards of one student: the law of the pair of sampled and true state along rollouts, the
expected reward, and its slope by every transition probability. No margin and no mean over students
enters.

Given the actions, sampled and true state move together. The other actions of a sequence move the
probabilities of a step, too; their mean is taken step by step, for every state, step and right
action (`theory.state_tracking.fixed_disorder`), so that steps are independent given the pair.
"""

from functools import cache

import sympy as sp

from theory import Equation, array, delta_gradient, delta_sum, proved, symbol, table
from theory.state_tracking.reward_gains import scatter
from theory.state_tracking.rewards import J, horizon
from theory.state_tracking.rewards import s as success
from theory.state_tracking.symbols import L, M_star, N, a, b, d_g, k, p, q, r, ref, s, t

BEYOND = "beyond the paper: rewards of one student"
ONE_BY_ONE = "mean over the other actions of a sequence taken step by step"

law = array("pair_law", "Q", "probability of a sampled and a true state after steps of a rollout")
value = array("pair_value", "V", "expected reward, given sampled and true state after some steps")
moves = array("transition", "P", "mean probability of a next state: step, right action, to, from")
slope = array("reward_slope", "G", "derivative of an objective by a transition probability")
visits = array("visits", r"\varrho", "probability of a sampled state after steps of a rollout")
old = array("transition_old", r"P^{0}", "the same where rewards took over")
penalty = symbol("penalty", r"\beta", "weight of the divergence from the policy that took over")
into, out = (sp.Symbol(x, integer=True, positive=True) for x in ("into", "out"))
PAIRS = ((s, 1, N), (p, 1, N))
ACTIONS = (a, 1, d_g)


def pair_step() -> sp.Expr:
    """Law of sampled state r and true state q after a step: actions are uniform."""
    return sp.Sum(moves[t, a, r, s] * M_star[a, q, p] * law[t, s, p], *PAIRS, ACTIONS) / d_g


def reward_from() -> sp.Expr:
    """Expected reward from step t on: the value of the next state."""
    summed, factor = pair_step() * d_g, 1 / d_g
    inner = summed.function * value[t + 1, r, q]
    return factor * sp.Sum(inner, *summed.limits, (r, 1, N), (q, 1, N))


def pair_value() -> sp.Expr:
    """Value of a pair: derivative of the expected reward with respect to its probability."""
    derivative = delta_gradient(reward_from(), law[t, into, out])
    return derivative.xreplace({into: s, out: p})


def reward_slope() -> sp.Expr:
    """Slope of the expected reward by the probability of moving from s to r by action b at t."""
    derivative = delta_gradient(reward_from(), moves[t, b, into, out])
    return derivative.xreplace({into: r, out: s})


def step_slope() -> sp.Expr:
    """The same of one reward per step, right given the state before, which is taken as given."""
    gained = moves[t, a, r, s] * M_star[a, r, s] * visits[t, s]
    mean = sp.Sum(gained, (s, 1, N), (r, 1, N), ACTIONS) / (d_g * horizon)
    return delta_gradient(mean, moves[t, b, into, out]).xreplace({into: r, out: s})


def divergence_slope() -> sp.Expr:
    """Slope of minus penalty times the divergence of a step from the old policy, in the states that
    are visited; a constant over next states drops out of the softmax.
    """
    one, entry = sp.Symbol("one", positive=True), moves[t, a, r, s]
    by_entry = sp.diff(one * sp.log(one / old[t, a, r, s]), one).xreplace({one: entry})
    constant = by_entry.xreplace({entry: old[t, a, r, s]})
    proved(not constant.has(r), "what drops out depends on the next state")
    return -penalty / d_g * visits[t, s] * (by_entry - constant).xreplace({a: b})


@cache
def equations() -> dict[str, Equation]:
    """Laws of pairs, expected reward, slopes, and the scatter of s over rows."""
    to_right = sp.Sum(moves[t, a, r, s] * M_star[a, r, s], (r, 1, N))
    rows, count = ((s, 1, N), ACTIONS, (t, 0, L - 1)), N * d_g * L
    start = delta_sum(sp.KroneckerDelta(s, p) * sp.KroneckerDelta(s, k), (k, 1, N)) / N
    return table(
        ref(BEYOND),
        status="leading order",
        pair_start=(law[0, s, p], start, "exact", "first state uniform and known"),
        pair_law=(law[t + 1, r, q], pair_step(), ONE_BY_ONE),
        visits=(visits[t, s], sp.Sum(law[t, s, p], (p, 1, N)), "exact"),
        expected_reward_pairs=(J, sp.Sum(law[horizon, s, s], (s, 1, N)), ONE_BY_ONE),
        value_last=(value[horizon, s, p], sp.KroneckerDelta(s, p), "exact", "outcome reward"),
        pair_value=(value[t, s, p], pair_value, ONE_BY_ONE),
        reward_slope=(slope[t, b, r, s], reward_slope, ONE_BY_ONE),
        step_slope=(slope[t, b, r, s], step_slope, "reward per step", ONE_BY_ONE),
        divergence_slope=(slope[t, b, r, s], divergence_slope, "penalty", ONE_BY_ONE),
        mean_success=(success, sp.Sum(to_right, *rows) / count, ONE_BY_ONE),
        success_scatter=(
            scatter,
            sp.Sum((to_right - success) ** 2, *rows) / count,
            ONE_BY_ONE,
            "scatter by the other actions left out",
        ),
    )
