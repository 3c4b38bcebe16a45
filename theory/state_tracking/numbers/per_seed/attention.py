"""Softmax of rotary logits and its derivative, vectorised over seeds."""

import numpy as np

from theory.runtime import memory
from theory.state_tracking.parameters import Parameters


def _memory(p: Parameters) -> float:
    """Bytes of the rotary tables, while they are made."""
    return 24.0 * p.L**2 * p.d_h


class Attention:
    """Attention matrices (B, L, L) from keys and queries (B, d_h), and their backward pass."""

    def __init__(self, p: Parameters) -> None:
        memory.require(_memory, p, "attention of all positions")
        steps = np.arange(p.L)
        angle = (steps[None, :] - steps[:, None] - p.L)[..., None] * p.frequencies
        self.tables = np.stack([np.cos(angle), np.sin(angle)]).reshape(2, p.L**2, -1) / np.sqrt(
            p.d_h
        )
        self.L = p.L

    def forward(self, W_Q: np.ndarray, W_K: np.ndarray) -> np.ndarray:
        """Softmax of the rotary logits."""
        q1, q2, k1, k2 = W_Q[:, 0::2], W_Q[:, 1::2], W_K[:, 0::2], W_K[:, 1::2]
        l = (q1 * k1 + q2 * k2) @ self.tables[0].T + (q2 * k1 - q1 * k2) @ self.tables[1].T
        l = l.reshape(-1, self.L, self.L)
        weight = np.exp(l - l.max(2, keepdims=True))
        return weight / weight.sum(2, keepdims=True)

    def backward(
        self, W_Q: np.ndarray, W_K: np.ndarray, at: np.ndarray, force: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradients with respect to W_Q and W_K from those with respect to the attention
        entries.
        """
        d_l = (at * (force - (at * force).sum(2, keepdims=True))).reshape(len(at), -1)
        even, odd = d_l @ self.tables[0], d_l @ self.tables[1]
        q1, q2, k1, k2 = W_Q[:, 0::2], W_Q[:, 1::2], W_K[:, 0::2], W_K[:, 1::2]
        d_q = np.stack([even * k1 - odd * k2, even * k2 + odd * k1], 2)
        d_k = np.stack([even * q1 + odd * q2, even * q2 - odd * q1], 2)
        return d_q.reshape(W_Q.shape), d_k.reshape(W_K.shape)
