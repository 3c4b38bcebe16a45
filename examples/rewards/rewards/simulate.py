"""Students that learn from rewards of their own rollouts, from scratch or after
supervised training: REINFORCE with the mean reward of a batch or of a group as
baseline, GRPO, a reward per step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewards.parameters import Parameters
from simulate.state_tracking import SYSTEMS as SUPERVISED
from simulate.state_tracking import learner as supervised
from simulate.state_tracking.gradients import Attention
from simulate.state_tracking.measure import MEANING
from simulate.training.learner import Unstacked
from simulate.training.streams import keyed

ROLLOUTS = 5  # purpose of random numbers, beside those of supervised training
TESTED_AT_ONCE = 256  # test sequences whose transition probabilities are held at a time
INDEX = 8  # bytes
REWARDED = {
    "success": "mean probability of the right next state, test set",
    "success_variance": "variance of that probability over rows",
    "expected_reward": (
        "probability that the last state of a sampled rollout is right, test set"
    ),
    "rewarded": "1 from the first step with rewards on",
}


@dataclass(frozen=True)
class Prompts:
    """What a step's rollouts start from; those of a group stand together.

    Attributes
    ----------
    actions : Tensor, shape (rollouts, L)
        Actions.
    first : Tensor, shape (rollouts,)
        First states.
    uniform : Tensor, shape (rollouts, steps)
        Random numbers that sample the states.
    """

    actions: Tensor
    first: Tensor
    uniform: Tensor


@dataclass(frozen=True)
class Rollouts:
    """Sampled states ``(rollouts, steps + 1)`` with the probabilities of all next
    states by step, each ``(rollouts, N)``.
    """

    states: Tensor
    probabilities: list[Tensor]


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes: that of supervised training, and of rollouts."""
    rolled = p.rollouts * p.L * (6 * p.N * itemsize + 6 * INDEX)
    tested = min(TESTED_AT_ONCE, p.n_test) * p.N**2 * 2 * (p.L + 2) * 8
    return supervised.memory(p.labels, itemsize) + rolled + tested


def by_state(M: Tensor) -> Tensor:
    """M by current state, action and next state."""
    return M[0].detach().permute(2, 0, 1).contiguous()


def mixed(pi: Tensor, columns: Tensor, now: Tensor, actions: Tensor) -> Tensor:
    """Logits of a step ``(rollouts, N)`` from its attention and the current states."""
    return torch.einsum("j,njr->nr", pi, columns[now[:, None], actions])


class Student:
    """One student: supervised until its mean probability of the right state has reached
    ``p.pretrain`` at a measurement, then by policy gradient on fresh prompts.

    Parameters
    ----------
    p, seed, device, dtype
        As for supervised training.
    """

    def __init__(
        self, p: Parameters, seed: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.p, self.seed = p, seed
        self.labelled = supervised.Learner(p.labels, [seed], device, dtype)
        self.weights = self.labelled.students
        self.attention = Attention(p.labels, dtype, device)
        teachers = np.asarray(self.labelled.permutations[0])
        self.table = torch.as_tensor(teachers, device=device)
        self.rewarded = p.pretrain == 0
        self.old = self.copied()

    def copied(self) -> dict[str, Tensor]:
        """Copy of the weights."""
        named = self.weights.named_parameters()
        return {name: weight.detach().clone() for name, weight in named}

    def step(self, number: int) -> None:
        """One epoch of supervised training, or one step of ascent on rewards."""
        if not self.rewarded and number % self.p.eval_every == 0:
            self.rewarded = self.policy()["success"] >= self.p.pretrain
            self.old = self.copied()
        if self.rewarded:
            self.ascend(self.prompts(number))
            self.labelled.optimizer.step()
        else:
            self.labelled.step(number)

    def prompts(self, number: int) -> Prompts:
        """Prompts of a step."""
        p, device = self.p, self.table.device
        rng = keyed(self.seed, ROLLOUTS, number)
        size = p.group or 1
        different = p.rollouts // size
        actions = rng.integers(p.d_g, size=(different, p.L)).repeat(size, axis=0)
        first = rng.integers(p.N, size=different).repeat(size)
        uniform = rng.random((p.rollouts, p.rollout_steps))
        drawn = (actions, first, uniform)
        return Prompts(*(torch.as_tensor(x, device=device) for x in drawn))

    @torch.no_grad()
    def rolled_out(self, prompts: Prompts) -> Rollouts:
        """Sample states step by step, each fed back."""
        columns = by_state(self.weights.M)
        pi = self.attention.forward(self.weights.W_Q, self.weights.W_K)[0]
        states, probabilities = [prompts.first], []
        for t in range(self.p.rollout_steps):
            logits = mixed(pi[t], columns, states[-1], prompts.actions)
            chances = torch.softmax(logits, 1)
            passed = chances.double().cumsum(1) < prompts.uniform[:, t, None]
            states.append(passed.sum(1).clamp(max=self.p.N - 1))
            probabilities.append(chances)
        return Rollouts(torch.stack(states, 1), probabilities)

    def rewards(self, actions: Tensor, states: Tensor) -> Tensor:
        """Reward that is still to come after each sampled state, shape ``(rollouts,
        steps)``.
        """
        steps, true = self.p.rollout_steps, states[:, 0]
        if self.p.reward == "step":
            asked = self.table[actions[:, :steps], states[:, :-1]]
            return (states[:, 1:] == asked).double() / steps
        for t in range(steps):
            true = self.table[actions[:, t], true]
        won = (states[:, -1] == true).double()
        return won[:, None].expand(-1, steps)

    def advantages(self, actions: Tensor, states: Tensor) -> Tensor:
        """Advantage of every sampled state, shape ``(rollouts, steps)``: its rewards
        less their mean over the group (or over all rollouts), over their standard
        deviation if asked.
        """
        steps = self.p.rollout_steps
        to_come = self.rewards(actions, states)
        grouped = to_come.reshape(-1, self.p.baseline_size, steps)
        centred = grouped - grouped.mean(1, keepdim=True)
        if self.p.normalised:
            spread = centred.square().mean(1, keepdim=True).sqrt()
            zero = torch.zeros_like(centred)
            centred = torch.where(spread > 0, centred / spread, zero)
        return centred.reshape(-1, steps)

    @torch.no_grad()
    def ascend(self, prompts: Prompts) -> None:
        """Set ``.grad`` to minus the policy gradient of the mean reward."""
        p, W_Q, W_K, M = self.p, self.weights.W_Q, self.weights.W_K, self.weights.M
        rollouts, actions = self.rolled_out(prompts), prompts.actions
        columns, pi = by_state(M), self.attention.forward(W_Q, W_K)
        advantage = self.advantages(actions, rollouts.states).to(columns)
        d_pi, d_columns = torch.zeros_like(pi), torch.zeros_like(columns)
        by_row = d_columns.view(-1, p.N)  # a row per state and action
        everyone = torch.arange(p.rollouts)
        for t, chances in enumerate(rollouts.probabilities):
            now, following = rollouts.states[:, t], rollouts.states[:, t + 1]
            error = chances.clone()
            error[everyone, following] -= 1
            error *= advantage[:, t, None] / p.rollouts
            if p.kl:
                slope = self.divergence_slope(t, chances, now, actions)
                error += p.kl * slope / p.rollouts
            read = columns[now[:, None], actions]
            d_pi[0, t] = torch.einsum("nr,njr->j", error, read)
            for j in range(p.L):
                row = now * p.d_g + actions[:, j]
                by_row.index_add_(0, row, error, alpha=float(pi[0, t, j]))
        W_Q.grad, W_K.grad = self.attention.backward(W_Q, W_K, pi, d_pi)
        M.grad = d_columns.permute(1, 2, 0)[None].contiguous()

    def divergence_slope(
        self, t: int, chances: Tensor, now: Tensor, actions: Tensor
    ) -> Tensor:
        """Slope by logits of the divergence of a step from the policy that rewards took
        over from.
        """
        pi = self.attention.forward(self.old["W_Q"], self.old["W_K"])[0]
        logits = mixed(pi[t], by_state(self.old["M"]), now, actions)
        ratio = chances.log() - torch.log_softmax(logits, 1)
        return chances * (ratio - (chances * ratio).sum(1, keepdim=True))

    @torch.no_grad()
    def policy(self) -> dict[str, float]:
        """Mean and variance of the probability of the right next state, given the right
        one, and expected reward of the last state, on the test set; no states are
        sampled.
        """
        p, steps = self.p, self.p.rollout_steps
        pi = self.attention.forward(self.weights.W_Q, self.weights.W_K)[0].double()
        columns = by_state(self.weights.M).double()
        parts = (data[0].split(TESTED_AT_ONCE) for data in self.labelled.test_data)
        right, reward = [], 0.0
        for actions, path in zip(*parts, strict=True):
            everyone = torch.arange(len(actions))
            law = torch.zeros(len(actions), p.N).to(columns)
            law[everyone, path[:, 0]] = 1
            read = columns[:, actions]  # state, sequence, place, next state
            for t in range(steps):
                logits = torch.einsum("j,snjr->nsr", pi[t], read)
                moves = torch.softmax(logits, 2)
                right.append(moves[everyone, path[:, t], path[:, t + 1]])
                law = torch.einsum("ns,nsr->nr", law, moves)
            reward += float(law[everyone, path[:, steps]].sum())
        every = torch.cat(right)
        return {
            "success": float(every.mean()),
            "success_variance": float(every.var(correction=0)),
            "expected_reward": reward / p.n_test,
        }

    def measure(self) -> dict[str, Any]:
        """Quantities in `MEANING` and `REWARDED`."""
        measured = self.labelled.measure()
        first = {name: values[0] for name, values in measured.items()}
        return {**first, **self.policy(), "rewarded": float(self.rewarded)}

    def state(self) -> dict[str, Any]:
        """Weights, whether rewards have taken over, and from which policy."""
        policy = {"old": self.old} if self.p.kl else {}
        return {**self.labelled.state(0), "rewarded": self.rewarded, **policy}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.labelled.load([state])
        self.rewarded = bool(state["rewarded"])
        self.old = state.get("old", self.old)

    def finish(self) -> dict[str, Any]:
        """Final results, as of supervised training."""
        return self.labelled.finish(0)


SYSTEM = replace(
    SUPERVISED["student"],
    name="rewards",
    parameters=Parameters,
    make=partial(Unstacked, Student),
    meaning={**MEANING, **REWARDED},
    memory=memory,
    clock=None,
    stack=1,
    identity=lambda p: {},
    data=None,
    displayed=("A", "R", "S", *REWARDED, "rollout_accuracy"),
)
SYSTEMS = {"student": SYSTEM}
train = SYSTEM.train
