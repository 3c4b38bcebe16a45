"""Rewards of one student, prompt by prompt: the actions of a sequence and its first state. All
steps of a rollout see the same actions, so that given the prompt they are independent exactly; the
expected reward of a prompt and its slope follow from its own probabilities. Where all sequences can
be listed, nothing else is needed, before attention emerges and where groups are normalised, too.
"""

from functools import cache

import sympy as sp

from theory.algebra import delta_gradient, delta_sum
from theory.equation import Equation, table
from theory.notation import array
from theory.state_tracking.definitions import pi
from theory.state_tracking.reward_paths import into, out
from theory.state_tracking.rewards import horizon
from theory.state_tracking.symbols import L, M, N, c, d_g, j, n, q, r, ref, s, t

BEYOND = "beyond the paper: rewards of one student, prompt by prompt"

action = array("prompt_action", "a", "action of a sequence at a place", integer=True)
last = array(
    "prompt_last", "y", "right last state of a prompt: sequence, first state", integer=True
)
logit = array("prompt_logit", "z", "logit of a next state: sequence, step, to, from")
moves = array("prompt_move", "P", "probability of a next state: sequence, step, to, from")
law = array("prompt_law", "u", "probability of a sampled state: sequence, first state, step, state")
value = array("prompt_value", "v", "expected reward of a prompt, given the sampled state at a step")
reward = array("prompt_reward", "J", "expected reward of a prompt: sequence, first state")
gain = array("prompt_gain", "g", "gain of a group by baseline and normalisation, at its prompt's J")
slope = array("prompt_slope", "G", "derivative of the objective by the probability of a next state")
first = sp.Symbol("p", integer=True, positive=True)  # first state


def step() -> sp.Expr:
    """Probability of state r after a step."""
    return sp.Sum(moves[n, t, r, s] * law[n, first, t, s], (s, 1, N))


def reward_from_law() -> sp.Expr:
    """Expected reward by the law after t steps."""
    inner = moves[n, t, r, s] * law[n, first, t, s] * value[n, first, t + 1, r]
    return sp.Sum(inner, (s, 1, N), (r, 1, N))


def weighted() -> sp.Expr:
    """Slope of the mean over first states, every prompt with its gain; a gain is held, as the
    sampled advantages of a step are.
    """
    by_move = delta_gradient(reward_from_law(), moves[n, t, into, out]).xreplace({into: r, out: s})
    return sp.Sum(gain[n, first] * by_move, (first, 1, N)) / (N * d_g**L)


@cache
def equations() -> dict[str, Equation]:
    """Logits and laws of a prompt, its expected reward, and the slope of the objective."""
    at_action = delta_sum(sp.KroneckerDelta(c, action[n, j]) * M[c, r, s], (c, 1, d_g))
    chosen = at_action.xreplace({c: action[n, j]})
    by_law = delta_gradient(reward_from_law(), law[n, first, t, into]).xreplace({into: s})
    soft = sp.exp(logit[n, t, r, s]) / sp.Sum(sp.exp(logit[n, t, q, s]), (q, 1, N))
    return table(
        ref(BEYOND),
        status="exact",
        prompt_logit=(logit[n, t, r, s], sp.Sum(pi[t, j] * chosen, (j, 1, L))),
        prompt_move=(moves[n, t, r, s], soft),
        prompt_law=(law[n, first, t + 1, r], step()),
        prompt_reward=(reward[n, first], law[n, first, horizon, last[n, first]]),
        prompt_value=(value[n, first, t, s], by_law),
        prompt_slope=(slope[n, t, r, s], weighted()),
    )
