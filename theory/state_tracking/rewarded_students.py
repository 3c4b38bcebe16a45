"""Fixed-disorder theory of single students under rewards: supervised until the theory's own success
reaches ``p.pretrain`` at a measurement, then by the slope of the expected reward over the pairs of
sampled and true state (`theory.state_tracking.reward_paths`), without visiting a rollout. Before
attention has emerged, and where groups are normalised, over all prompts (`reward_paths.Prompts`),
if these can be listed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import softmax

from theory import numeric, scope
from theory.state_tracking import rewards
from theory.state_tracking.fourth_order import FourthOrder
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.reward_paths import Prompts
from theory.state_tracking.scope import listable

# Attention from which on steps of a rollout are independent: gradients of tiny students, with all
# sequences listed, agree to 4% at 0.90, to 0.7% at 0.97, and to a quarter at 0.64.
ATTENTIVE = 0.9
SURE = 1e-9  # from 0 and 1: expected rewards at which gains are taken


@dataclass(frozen=True)
class Kernels:
    """Mean probabilities ``P[i, s, a, r]`` of the next state of one student, and what they are made
    of: the softmax of mean logits, covariances of entries, what scatter adds to logits.
    """

    M: np.ndarray
    at: np.ndarray
    C: np.ndarray
    plain: np.ndarray
    tilt: np.ndarray
    P: np.ndarray

    @classmethod
    def of(cls, M: np.ndarray, at: np.ndarray) -> Kernels:
        """Kernels of matrices ``(s, a, r)`` and attention ``(i, j)``."""
        on_right, mean = np.diag(at), M.mean(1)
        T = (at**2).sum(1) - on_right**2
        C = np.einsum("sar,saq->srq", M - mean[:, None], M - mean[:, None]) / M.shape[1]
        share = on_right[:, None, None, None]
        plain = softmax(share * M + (1 - share) * mean[:, None], -1)
        tilt = np.einsum("srr->sr", C)[:, None] - 2 * plain @ C
        return cls(M, at, C, plain, tilt, softmax(_logits(plain) + _half(T) * tilt, -1))

    def slopes(self, G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives by M and attention of an objective whose derivative by P is G."""
        M = self.M
        pi = self.at
        plain = self.plain
        on_right = np.diag(self.at)
        d = M.shape[1]
        mean = M.mean(1)
        half = _half((pi**2).sum(1) - on_right**2)
        by_logit = _through(self.P, G)
        scaled = half * by_logit
        by_mean = by_logit + _through(plain, -2 * scaled @ self.C)
        by_C = -2 * np.einsum("isar,isaq->srq", plain, scaled)
        by_C[:, np.arange(M.shape[2]), np.arange(M.shape[2])] += scaled.sum((0, 2))
        share = on_right[:, None, None, None]
        d_M = (share * by_mean).sum(0) + ((1 - share) * by_mean).sum((0, 2))[:, None] / d
        by_x = (M - mean[:, None]) @ (by_C + by_C.swapaxes(1, 2)) / d
        by_T = (by_logit * self.tilt).sum((1, 2, 3)) / 2
        d_at = (by_mean * mean[:, None]).sum((1, 2, 3))[:, None] + 2 * pi * by_T[:, None]
        d_at[np.arange(len(pi)), np.arange(len(pi))] = (by_mean * M).sum((1, 2, 3))
        return d_M + by_x - by_x.mean(1, keepdims=True), d_at


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

    @property
    def reward(self) -> float:
        """Probability that the last state is right."""
        return float(np.trace(self.laws[-1]))

    @property
    def visits(self) -> np.ndarray:
        """Probability of a sampled state before every step, shape (steps, N)."""
        return np.array([x.sum(1) for x in self.laws[:-1]])

    def slopes(self, reward: str) -> np.ndarray:
        """Derivatives of the mean reward by P, shape (steps, N, d_g, N)."""
        steps, (d, size) = len(self.P), self.table.shape
        if reward == "step":
            right = (self.table.T[..., None] == np.arange(size)).astype(float)
            return self.visits[:, :, None, None] * right / (d * steps)
        of_true = np.eye(size) / steps if reward == "true" else np.zeros((size, size))
        worth = of_true if reward == "true" else np.eye(size)
        out = np.empty_like(self.P)
        for t in reversed(range(steps)):
            led = worth.T[self.table].transpose(1, 0, 2).reshape(size, -1)  # true state before
            out[t] = (self.laws[t] @ led).reshape(out[t].shape) / d
            worth = self.P[t].reshape(size, -1) @ led.T / d + of_true
        return out


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

    def kernels(self, b: int) -> Kernels:
        """Kernels of one student."""
        pi = self.attention.forward(*(w[b : b + 1] for w in self.state[:2]))[0]
        return Kernels.of(self.state[2][b], pi)

    def policy(self, b: int) -> tuple[float, float, float]:
        """Success of one student, its variance over rows, and the expected reward."""
        if self.listed[b]:
            prompts = self.prompts(b)
            right, reward = prompts.right_ones, prompts.rewards.mean()
        else:
            P = self.kernels(b).P[: self.steps]
            right = (P * self.teachers[b]).sum(3)
            reward = Paths(P, self.given.teachers[b]).reward
        return float(right.mean()), float(right.var()), float(reward)

    def prompts(self, b: int) -> Prompts:
        """All prompts of one student."""
        pi = self.attention.forward(*(w[b : b + 1] for w in self.state[:2]))[0]
        return Prompts(self.state[2][b], pi, self.given.teachers[b], self.steps)

    def _take_over(self, now: np.ndarray) -> None:
        for b in np.flatnonzero(now & ~self.rewarded).tolist():
            kernels, p = self.kernels(b), self.p
            A = float(np.diag(kernels.at).mean())
            alike = A >= ATTENTIVE and not (p.normalised and p.group)
            if p.reward == "outcome" and not alike and listable(p):
                self.listed[b], self.old[b] = True, self.prompts(b).P
                continue
            if p.reward != "step" and A < ATTENTIVE:
                scope.refuse(
                    [
                        f"pretrain = {self.p.pretrain:g}: attention of student {b} is {A:.2f} where "
                        f"rewards take over, must be at least {ATTENTIVE} for independent steps"
                    ]
                )
            self.old[b] = kernels.P[: self.steps]
        self.rewarded |= now

    def room(self, epoch: int) -> tuple[int, bool]:
        """Largest length of a stride from this epoch, which ends at the next measurement, where
        rewards may take over; and whether they have just taken over, at this epoch.
        """
        if self.rewarded.all():
            return sys.maxsize, False
        every, before = self.p.eval_every, self.rewarded.sum()
        if epoch % every == 0:
            right = [self.policy(b)[0] for b in range(len(self.rewarded))]
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
            d_M, d_at = self._listed_slopes(b) if self.listed[b] else self._slopes(b)
            heads = W_Q[b : b + 1], W_K[b : b + 1]
            d_q, d_k = self.attention.backward(*heads, self.attention.forward(*heads), -d_at[None])
            for x, slope in zip(slopes, (d_q[0], d_k[0], -d_M), strict=True):
                x[b] = slope
        return slopes

    def _slopes(self, b: int) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the objective of one student by M and attention."""
        kernels = self.kernels(b)
        G = np.zeros_like(kernels.P)
        G[: self.steps] = self.objective(b, kernels.P[: self.steps])
        return kernels.slopes(G)

    def _listed_slopes(self, b: int) -> tuple[np.ndarray, np.ndarray]:
        """The same, over all prompts."""
        p, prompts = self.p, self.prompts(b)
        size = p.group or p.rollouts
        # A group of one prompt has a reward of its own; of all rollouts, the mean over prompts.
        baseline = (
            prompts.rewards if p.group else np.full_like(prompts.rewards, prompts.rewards.mean())
        )
        gains = _gain(size, p.normalised)(size, baseline.clip(SURE, 1 - SURE)) + 0 * baseline
        G = prompts.slopes(gains)
        if p.kl:
            ratio = np.log(prompts.P) - np.log(self.old[b])
            G -= p.kl / len(prompts.actions) * prompts.visits[..., None] * ratio
        return prompts.by_weights(G)

    def objective(self, b: int, P: np.ndarray) -> np.ndarray:
        """Slope of the objective of one student by its mean probabilities."""
        p, paths = self.p, Paths(P, self.given.teachers[b])
        size = p.group or p.rollouts
        objective = _gain(size, p.normalised)(size, paths.reward) * paths.slopes(p.reward)
        if p.kl:
            ratio = np.log(P) - np.log(self.old[b])
            objective -= p.kl / p.d_g * paths.visits[:, :, None, None] * ratio
        return objective

    def observe(self) -> dict[str, np.ndarray]:
        """As `FixedDisorder.observe`; with success, its variance over rows, the expected reward,
        and whether rewards train.
        """
        each = np.array([self.policy(b) for b in range(len(self.rewarded))])
        measured = dict(
            zip(("success", "success_variance", "expected_reward"), each.T, strict=True)
        )
        return super().observe() | measured | {"rewarded": self.rewarded.astype(float)}


@cache
def _gain(size: int, normalised: bool) -> Any:
    form = rewards.gain(size, normalised)
    return numeric.function(form, (rewards.G, rewards.J))


def _half(T: np.ndarray) -> np.ndarray:
    return T[:, None, None, None] / 2


def _logits(probability: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(probability, np.finfo(float).tiny))


def _through(P: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Slope by the logits of a softmax from that by its probabilities."""
    return P * (slope - (P * slope).sum(-1, keepdims=True))
