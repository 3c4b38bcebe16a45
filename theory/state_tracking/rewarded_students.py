"""Fixed-disorder theory of single students under rewards: supervised until the theory's own success
reaches ``p.pretrain`` at a measurement, then by the slope of the expected reward over the pairs of
sampled and true state (`theory.state_tracking.reward_paths`), without visiting a rollout. Before
attention has emerged, and where groups are normalised, over all prompts (`reward_paths.Prompts`),
if these can be listed.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
from scipy.special import softmax

from theory import numeric, scope
from theory.state_tracking import rewards
from theory.state_tracking.fourth_order import FourthOrder
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.reward_paths import Prompts, through
from theory.state_tracking.scope import listable

# Attention from which on steps of a rollout are independent: gradients of tiny students, with all
# sequences listed, agree to 4% at 0.90, to 0.7% at 0.97, and to a quarter at 0.64.
ATTENTIVE = 0.9
SURE = 1e-9  # from 0 and 1: expected rewards at which gains are taken


class Paths:
    """Laws and values of pairs along rollouts of one student.

    Parameters
    ----------
    P : ndarray, shape (steps, N, d_g, N)
        Mean probabilities of the next state.
    table : ndarray, shape (d_g, N)
        The teachers.
    """

    def __init__(self, P: np.ndarray, table: np.ndarray) -> None:
        self.P, self.table = P, table
        size, back = P.shape[1], np.argsort(table, axis=1)
        self.laws = [np.eye(size) / size]
        for step in P:
            moved = np.tensordot(step, self.laws[-1], (0, 0))  # action, next state, true state
            index = np.broadcast_to(back[:, None], moved.shape)
            self.laws.append(np.take_along_axis(moved, index, 2).mean(0))
        self.rewards = np.trace(self.laws[-1])  # probability that the last state is right
        self.right_ones = np.take_along_axis(P, table.T[None, ..., None], 3)[..., 0]

    @property
    def visits(self) -> np.ndarray:
        """Probability of a sampled state and an action before every step, (steps, N, d_g)."""
        d = len(self.table)
        return np.array([x.sum(1, keepdims=True) / d + np.zeros(d) for x in self.laws[:-1]])

    def slopes(self, reward: str) -> np.ndarray:
        """Derivatives of the mean reward by P, shape (steps, N, d_g, N)."""
        steps, (d, size) = len(self.P), self.table.shape
        if reward == "step":
            right = (self.table.T[..., None] == np.arange(size)).astype(float)
            return self.visits[..., None] * right / steps
        of_true = np.eye(size) / steps if reward == "true" else np.zeros((size, size))
        worth = of_true if reward == "true" else np.eye(size)
        out = np.empty_like(self.P)
        for t in reversed(range(steps)):
            led = worth.T[self.table].transpose(1, 0, 2).reshape(size, -1)  # true state before
            out[t] = (self.laws[t] @ led).reshape(out[t].shape) / d
            worth = self.P[t].reshape(size, -1) @ led.T / d + of_true
        return out


class Kernels(Paths):
    """Paths by the mean over the other actions of a sequence, to second order in the scatter of
    logits, of which there are infinitely many sequences.

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
        self.M, self.at, own = M, at[:steps], np.diag(at)[:steps]
        mean = M.mean(1, keepdims=True)
        self.share = own[:, None, None, None]
        self.half = ((self.at**2).sum(1) - own**2)[:, None, None, None] / 2
        self.mean, self.apart = mean, M - mean
        self.C = self.apart.swapaxes(1, 2) @ self.apart / M.shape[1]
        logits = self.share * M + (1 - self.share) * mean
        self.plain = softmax(logits, -1)
        self.tilt = np.einsum("srr->sr", self.C)[:, None] - 2 * self.plain @ self.C
        super().__init__(softmax(logits + self.half * self.tilt, -1), table)

    def by_weights(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives by M and attention of an objective with these derivatives by P."""
        _, d, N = self.M.shape
        by_logit = through(self.P, slopes)
        scaled = self.half * by_logit
        by_mean = by_logit + through(self.plain, -2 * scaled @ self.C)
        by_C = -2 * np.einsum("isar,isaq->srq", self.plain, scaled)
        by_C[:, np.arange(N), np.arange(N)] += scaled.sum((0, 2))
        by_x = self.apart @ (by_C + by_C.swapaxes(1, 2)) / d
        by_x += ((1 - self.share) * by_mean).sum((0, 2))[:, None] / d - by_x.mean(1, keepdims=True)
        d_M = (self.share * by_mean).sum(0) + by_x
        by_T = (by_logit * self.tilt).sum((1, 2, 3))[:, None] / 2
        d_at = np.zeros((self.at.shape[1],) * 2)
        steps = np.arange(len(self.at))
        d_at[steps] = (by_mean * self.mean).sum((1, 2, 3))[:, None] + 2 * self.at * by_T
        d_at[steps, steps] = (by_mean * self.M).sum((1, 2, 3))
        return d_M, d_at


class Rewarded(FourthOrder):
    """Students with a reward. State per seed: W_Q, W_K and M; rewards take over seed by seed.

    Parameters
    ----------
    p, start, given, accuracies
        As for `FixedDisorder`; ``p`` with a reward.
    """

    def __init__(
        self, p: Parameters, start: Start, given: Realisation, accuracies: bool = True
    ) -> None:
        super().__init__(p, start, given, accuracies)
        self.steps = p.horizon or p.L
        self.listed = np.zeros(len(given.teachers), bool)
        self.old: dict[int, np.ndarray] = {}  # by student: probabilities where rewards took over
        self.rewarded = np.zeros(len(given.teachers), bool)
        self._take_over(np.full(len(self.rewarded), p.pretrain == 0))

    def _attends(self, b: int) -> np.ndarray:
        return self.attention.forward(*(w[b : b + 1] for w in self.state[:2]))[0]

    def rollouts(self, b: int) -> Kernels | Prompts:
        """Rollouts of one student: of all prompts, where they are listed."""
        kind = Prompts if self.listed[b] else Kernels
        return kind(self.state[2][b], self._attends(b), self.given.teachers[b], self.steps)

    def _policy(self, b: int) -> tuple[float, float, float]:
        """Success of one student, its variance over rows, and the expected reward."""
        held = self.rollouts(b)
        return held.right_ones.mean(), held.right_ones.var(), held.rewards.mean()

    def _take_over(self, now: np.ndarray) -> None:
        p = self.p
        for b in np.flatnonzero(now & ~self.rewarded).tolist():
            A = float(np.diag(self._attends(b)).mean())
            alike = A >= ATTENTIVE and not (p.normalised and p.group)
            self.listed[b] = p.reward == "outcome" and not alike and listable(p)
            if p.reward != "step" and A < ATTENTIVE and not self.listed[b]:
                scope.refuse(
                    [
                        f"pretrain = {p.pretrain:g}: attention of student {b} is {A:.2f} where "
                        f"rewards take over, must be at least {ATTENTIVE} for independent steps"
                    ]
                )
            self.old[b] = self.rollouts(b).P
        self.rewarded |= now

    def room(self, epoch: int) -> tuple[int, bool]:
        """Largest length of a stride from this epoch, which ends at the next measurement, where
        rewards may take over; and whether they have just taken over, at this epoch.
        """
        if self.rewarded.all():
            return sys.maxsize, False
        every, before = self.p.eval_every, self.rewarded.sum()
        if epoch % every == 0:
            right = [self._policy(b)[0] for b in range(len(self.rewarded))]
            self._take_over(np.array(right) >= self.p.pretrain)
        return every - epoch % every, bool(self.rewarded.sum() > before)

    def gradients(self) -> list[np.ndarray]:
        """Derivatives of the loss, or minus those of the objective under rewards, by the state."""
        if not self.rewarded.any():
            return super().gradients()
        slopes = [np.zeros_like(x) for x in self.state]
        if not self.rewarded.all():
            slopes = super().gradients()
        W_Q, W_K, _ = self.state
        for b in np.flatnonzero(self.rewarded).tolist():
            d_M, d_at = self._slopes(b)
            heads = W_Q[b : b + 1], W_K[b : b + 1]
            d_q, d_k = self.attention.backward(*heads, self.attention.forward(*heads), -d_at[None])
            for x, slope in zip(slopes, (d_q[0], d_k[0], -d_M), strict=True):
                x[b] = slope
        return slopes

    def _slopes(self, b: int) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the objective of one student by M and attention."""
        p, held = self.p, self.rollouts(b)
        size = p.group or p.rollouts
        # A group of one prompt has a reward of its own; of all rollouts, the mean over prompts.
        baseline = held.rewards if p.group else held.rewards.mean()
        gain = _gain(size, p.normalised)(size, np.clip(baseline, SURE, 1 - SURE))
        G = held.slopes(gain) if isinstance(held, Prompts) else gain * held.slopes(p.reward)
        if p.kl:
            ratio = np.log(held.P) - np.log(self.old[b])
            G -= p.kl * held.visits[..., None] * ratio
        return held.by_weights(G)

    def observe(self) -> dict[str, np.ndarray]:
        """As `FixedDisorder.observe`; with success, its variance over rows, the expected reward,
        and whether rewards train.
        """
        each = np.array([self._policy(b) for b in range(len(self.rewarded))])
        measured = dict(
            zip(("success", "success_variance", "expected_reward"), each.T, strict=True)
        )
        return super().observe() | measured | {"rewarded": self.rewarded.astype(float)}


@cache
def _gain(size: int, normalised: bool) -> Any:
    form = rewards.gain(size, normalised)
    return numeric.function(form, (rewards.G, rewards.J))
