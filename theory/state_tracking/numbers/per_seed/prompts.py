"""Rewards of one student over all sequences of actions: numbers of
`theory.state_tracking.reward_prompts`.
"""

import numpy as np


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
        for t, P in enumerate(self.P):
            self.laws.append(self.laws[-1] @ P)
            true = table[self.actions[:, t, None], true]
        self.right = np.eye(N)[true]  # sequence, first state, right last state
        self.rewards = (self.laws[-1] * self.right).sum(2)  # expected, of every prompt

    @property
    def right_ones(self) -> np.ndarray:
        """Probability of the right next state, shape (steps, sequences, N)."""
        true = self.table[self.actions[:, : self.steps].T]
        return np.take_along_axis(self.P, true[..., None], 3)[..., 0]

    @property
    def visits(self) -> np.ndarray:
        """Probability of a sampled state before every step, shape (steps, sequences, N)."""
        return np.array([law.mean(1) for law in self.laws[:-1]])

    def slopes(self, gains: np.ndarray) -> np.ndarray:
        """Derivatives of the mean reward by P, the reward of every prompt times its gain."""
        worth, out = self.right * gains[..., None], np.empty_like(self.P)
        for t in reversed(range(self.steps)):
            out[t] = self.laws[t].swapaxes(1, 2) @ worth
            worth = worth @ self.P[t].swapaxes(1, 2)
        return out / self.rewards.size

    def by_weights(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives by M and attention of an objective with these derivatives by P."""
        by_logit = self.P * (slopes - (self.P * slopes).sum(3, keepdims=True))
        d_M = np.einsum("tnb,tnsr->sbr", self.weights, by_logit, optimize=True)
        by_weight = np.einsum("tnsr,sbr->tnb", by_logit, self.M, optimize=True)
        L = self.actions.shape[1]
        d_at = np.zeros((L, L))
        d_at[: self.steps] = np.einsum("tnb,njb->tj", by_weight, self.met, optimize=True)
        return d_M, d_at
