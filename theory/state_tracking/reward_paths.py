"""Rewards of one student: the law of the pair of sampled and true state along rollouts, the
expected reward, and its slope by every transition probability. No margin and no mean over students
enters.

Given the actions, sampled and true state move together. The other actions of a sequence move the
probabilities of a step, too; their mean is taken step by step, for every state, step and right
action (`theory.state_tracking.fixed_disorder`), so that steps are independent given the pair.
"""

from functools import cache

import numpy as np
import sympy as sp

from theory import Equations, array, delta_gradient, delta_sum, proved, symbol, table
from theory.state_tracking.definitions import pi
from theory.state_tracking.rewards import J, horizon, scatter
from theory.state_tracking.rewards import s as success
from theory.state_tracking.symbols import L, M, M_star, N, a, b, c, d_g, j, k, n, p, q, r, ref, s, t

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
    one = sp.Symbol("one", positive=True)
    entry = moves[t, a, r, s]
    by_entry = sp.diff(one * sp.log(one / old[t, a, r, s]), one).xreplace({one: entry})
    constant = by_entry.xreplace({entry: old[t, a, r, s]})
    proved(not constant.has(r), "what drops out depends on the next state")
    return -penalty / d_g * visits[t, s] * (by_entry - constant).xreplace({a: b})


@cache
def equations() -> Equations:
    """Laws of pairs, expected reward, slopes, and the scatter of s over rows."""
    to_right = sp.Sum(moves[t, a, r, s] * M_star[a, r, s], (r, 1, N))
    rows = ((s, 1, N), ACTIONS, (t, 0, L - 1))
    count = N * d_g * L
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


# Rewards of one student, prompt by prompt
#
# A prompt is the actions of a sequence and its first state. All steps of a rollout see the same
# actions, so that given the prompt they are exactly independent. Where all sequences can be
# listed this holds before attention emerges, and for normalised groups, too.

PROMPT_BY_PROMPT = "beyond the paper: rewards of one student, prompt by prompt"

action = array("prompt_action", "a", "action of a sequence at a place", integer=True)
last = array(
    "prompt_last", "y", "right last state of a prompt: sequence, first state", integer=True
)
logit = array("prompt_logit", "z", "logit of a next state: sequence, step, to, from")
prompt_moves = array("prompt_move", "P", "probability of a next state: sequence, step, to, from")
prompt_law = array(
    "prompt_law", "u", "probability of a sampled state: sequence, first state, step, state"
)
prompt_value = array(
    "prompt_value", "v", "expected reward of a prompt, given the sampled state at a step"
)
reward = array("prompt_reward", "J", "expected reward of a prompt: sequence, first state")
gain = array("prompt_gain", "g", "gain of a group by baseline and normalisation, at its prompt's J")
prompt_slope = array(
    "prompt_slope", "G", "derivative of the objective by the probability of a next state"
)
first = sp.Symbol("p", integer=True, positive=True)  # first state


def step() -> sp.Expr:
    """Probability of state r after a step."""
    return sp.Sum(prompt_moves[n, t, r, s] * prompt_law[n, first, t, s], (s, 1, N))


def reward_from_law() -> sp.Expr:
    """Expected reward by the law after t steps."""
    inner = prompt_moves[n, t, r, s] * prompt_law[n, first, t, s] * prompt_value[n, first, t + 1, r]
    return sp.Sum(inner, (s, 1, N), (r, 1, N))


def weighted() -> sp.Expr:
    """Slope of the mean over first states, every prompt with its gain; a gain is held, as the
    sampled advantages of a step are.
    """
    by_move = delta_gradient(reward_from_law(), prompt_moves[n, t, into, out]).xreplace(
        {into: r, out: s}
    )
    return sp.Sum(gain[n, first] * by_move, (first, 1, N)) / (N * d_g**L)


@cache
def prompt_equations() -> Equations:
    """Logits and laws of a prompt, its expected reward, and the slope of the objective."""
    at_action = delta_sum(sp.KroneckerDelta(c, action[n, j]) * M[c, r, s], (c, 1, d_g))
    chosen = at_action.xreplace({c: action[n, j]})
    by_law = delta_gradient(reward_from_law(), prompt_law[n, first, t, into]).xreplace({into: s})
    soft = sp.exp(logit[n, t, r, s]) / sp.Sum(sp.exp(logit[n, t, q, s]), (q, 1, N))
    return table(
        ref(PROMPT_BY_PROMPT),
        status="exact",
        prompt_logit=(logit[n, t, r, s], sp.Sum(pi[t, j] * chosen, (j, 1, L))),
        prompt_move=(prompt_moves[n, t, r, s], soft),
        prompt_law=(prompt_law[n, first, t + 1, r], step()),
        prompt_reward=(reward[n, first], prompt_law[n, first, horizon, last[n, first]]),
        prompt_value=(prompt_value[n, first, t, s], by_law),
        prompt_slope=(prompt_slope[n, t, r, s], weighted()),
    )


# Rewards of one student over all sequences of actions


def through(P: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Derivatives by the logits of a softmax from those by its probabilities."""
    return P * (slopes - (P * slopes).sum(-1, keepdims=True))


class Prompts:
    """All sequences of actions, every first state, and the probabilities of one student.

    Parameters
    ----------
    M : ndarray, shape (N, d_g, N)
        Weights by state, action and next state.
    at : ndarray, shape (L, L)
        Attention.
    table : ndarray, shape (d_g, N)
        The teachers.
    steps : int
        Steps of a rollout.
    """

    def __init__(self, M: np.ndarray, at: np.ndarray, table: np.ndarray, steps: int) -> None:
        self.M, self.table, self.steps = M, table, steps
        (d, N), L = table.shape, len(at)
        self.actions = np.indices((d,) * L).reshape(L, -1).T
        self.met = np.eye(d)[self.actions]  # sequence, place, action
        weights = np.einsum("tj,njb->tnb", at[:steps], self.met, optimize=True)
        self.weights = weights.reshape(steps, -1, d)
        z = np.einsum("tnb,sbr->tnsr", self.weights, M, optimize=True)
        e = np.exp(z - z.max(3, keepdims=True))
        self.P = e / e.sum(3, keepdims=True)
        self.laws = [np.broadcast_to(np.eye(N), (len(self.actions), N, N))]
        true = np.broadcast_to(np.arange(N), (len(self.actions), N))
        for step, P in enumerate(self.P):
            self.laws.append(self.laws[-1] @ P)
            true = table[self.actions[:, step, None], true]
        self.right = np.eye(N)[true]  # sequence, first state, right last state
        self.rewards = (self.laws[-1] * self.right).sum(2)  # expected, of every prompt

    @property
    def right_ones(self) -> np.ndarray:
        """Probability of the right next state, shape (steps, sequences, N)."""
        true = self.table[self.actions[:, : self.steps].T]
        return np.take_along_axis(self.P, true[..., None], 3)[..., 0]

    @property
    def visits(self) -> np.ndarray:
        """Probability of a sequence and a sampled state by step, (steps, sequences, N)."""
        return np.array([law.mean(1) / len(law) for law in self.laws[:-1]])

    def slopes(self, gains: np.ndarray | float) -> np.ndarray:
        """Derivatives of the mean reward by P, the reward of every prompt times its gain."""
        worth = self.right * np.asarray(gains)[..., None]
        out = np.empty_like(self.P)
        for step in reversed(range(self.steps)):
            out[step] = self.laws[step].swapaxes(1, 2) @ worth
            worth = worth @ self.P[step].swapaxes(1, 2)
        return out / self.rewards.size

    def by_weights(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives by M and attention of an objective with these derivatives by P."""
        by_logit = through(self.P, slopes)
        d_M = np.einsum("tnb,tnsr->sbr", self.weights, by_logit, optimize=True)
        by_weight = np.einsum("tnsr,sbr->tnb", by_logit, self.M, optimize=True)
        L = self.actions.shape[1]
        d_at = np.zeros((L, L))
        d_at[: self.steps] = np.einsum("tnb,njb->tj", by_weight, self.met, optimize=True)
        return d_M, d_at
