"""Extension: layer-by-layer learning of 1, 2, 4, .. hops by attention that jumps along a permutation in the context.

A setting of ours, as the slides give none. Position i of the context holds sigma(i), one-hot. Layer l attends from
the thing that position i points to, by trained scores on positions, and takes over its pointer: identity scores turn
m hops into 2 m. Hops 2^j are read from a trained mixture of all layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate.associative_memory.k_hop.learner import draw_permutations
from simulate.associative_memory.trainer import System
from theory.associative_memory.k_hop.parameters import Pointers

MEANING = {
    "accuracy": "accuracy of 1, 2, 4, .. hops, 512 fresh permutations",
    "jump": "mean of the diagonal of each layer's attention on the right position",
}


def memory(p: Pointers) -> float:
    """Bytes at the peak of one run, from the shapes it makes."""
    n = max(p.batch_size, 512)
    return n * p.N**2 * (8 + 4 * (12 * p.layers + 14)) + 4 * 6 * p.layers * p.N**2 + 8 * 3 * n * p.N


class Learner:
    """Adam on the cross-entropy of the chosen hops, fresh permutations at every step."""

    def __init__(self, p: Pointers, seed: int) -> None:
        self.p, self.seed = p, seed
        rng = np.random.default_rng([seed, 0])
        scores, mixture = rng.normal(size=(p.layers, p.N, p.N)), rng.normal(size=(p.layers + 1, p.layers + 1))
        self.scores = torch.tensor(p.spread * scores, dtype=torch.float32, requires_grad=True)
        self.mixture = torch.tensor(1 / (p.layers + 1) + p.spread * mixture, dtype=torch.float32, requires_grad=True)
        self.sharpness = torch.ones((), requires_grad=True)
        self.weights = [self.scores, self.mixture, self.sharpness]
        self.optimizer = torch.optim.Adam(self.weights, lr=p.eta)

    def pointers(self, sigma: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Pointers ``(n, N, N)`` before and after every layer, and the layers' attention."""
        now = torch.nn.functional.one_hot(sigma, self.p.N).float()
        states, attention = [now], []
        for score in self.scores:
            attention.append(torch.softmax(now @ score, dim=-1))
            now = attention[-1] @ now
            states.append(now)
        return states, attention

    def loss(self, sigma: np.ndarray) -> tuple[Tensor, Tensor]:
        """Cross-entropies and accuracies of all hops."""
        states, _ = self.pointers(torch.as_tensor(sigma))
        stacked, losses, right, target = torch.stack(states), [], [], sigma
        for j in range(self.p.layers + 1):
            logits = self.sharpness * torch.einsum("l,lnij->nij", self.mixture[j], stacked)
            truth = torch.as_tensor(target)
            losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), truth.flatten()))
            right.append((logits.argmax(-1) == truth).float().mean())
            target = np.take_along_axis(target, target, axis=1)  # twice as many hops
        return torch.stack(losses), torch.stack(right)

    def step(self, number: int) -> None:
        """One batch, one step."""
        sigma = draw_permutations((self.p.batch_size,), self.p.N, np.random.default_rng([self.seed, 1, number]))
        losses, _ = self.loss(sigma)
        self.optimizer.zero_grad()
        (losses.sum() if self.p.hops == "mixture" else losses[-1]).backward()
        self.optimizer.step()

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """All quantities of `MEANING`."""
        sigma = draw_permutations((512,), self.p.N, np.random.default_rng([self.seed, 2]))
        states, attention = self.pointers(torch.as_tensor(sigma))
        jump = [float((a * s.detach()).sum(-1).mean()) for a, s in zip(attention, states, strict=False)]
        return {"accuracy": self.loss(sigma)[1].numpy(), "jump": np.array(jump)}

    def state(self) -> dict[str, Any]:
        """Weights and the state of the optimiser."""
        return {"weights": [w.detach().clone() for w in self.weights], "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state."""
        with torch.no_grad():
            for w, kept in zip(self.weights, state["weights"], strict=True):
                w.copy_(kept)
        self.optimizer.load_state_dict(state["optimizer"])


SYSTEM = System(
    "associative_memory.k_hop, pointers", Learner, MEANING, memory, dimensions={"accuracy": ("task",), "jump": ("layer",)}
)
