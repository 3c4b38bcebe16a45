"""Extension: layers that learn 1, 2, 4, .. hops by attention along a permutation given in the
context.

This setting is ours, as the slides give none. Position i of the context holds sigma(i), one-hot. In
layer l, position i attends, by trained scores on positions, from the thing that it points to and
copies the pointer found there; identity scores turn m hops into 2 m. Hops 2^j are read from a
trained mixture of all layers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate import training
from simulate.associative_memory.k_hop.learner import draw_permutations
from simulate.learner import Unstacked
from simulate.streams import keyed
from theory.associative_memory.k_hop.parameters import Pointers

MEANING = {
    "accuracy": "accuracy of 1, 2, 4, .. hops, 512 fresh permutations",
    "jump": "mean of the diagonal of each layer's attention on the right position",
}


def memory(p: Pointers, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes per
    number.
    """
    n = max(p.batch_size, 512)
    shapes = n * p.N**2 * (12 * p.layers + 14) + 6 * p.layers * p.N**2
    return (
        itemsize * shapes + 8 * n * p.N**2 + 8 * 3 * n * p.N + training.records(p, 2 * len(MEANING))
    )


class Learner:
    """Adam on the cross-entropy of the chosen hops, fresh permutations at every step."""

    def __init__(
        self,
        p: Pointers,
        seed: int,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.p, self.seed, self.device, self.dtype = p, seed, device, dtype
        rng = keyed(seed, 0)
        scores, mixture = (
            rng.normal(size=(p.layers, p.N, p.N)),
            rng.normal(size=(p.layers + 1, p.layers + 1)),
        )
        start = (p.spread * scores, 1 / (p.layers + 1) + p.spread * mixture, np.ones(()))
        self.weights = [
            torch.tensor(w, dtype=dtype, device=device, requires_grad=True) for w in start
        ]
        self.scores, self.mixture, self.sharpness = self.weights
        self.optimizer = torch.optim.Adam(self.weights, lr=p.eta)

    def pointers(self, sigma: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Pointers ``(n, N, N)`` before and after every layer, and the layers' attention."""
        now = torch.nn.functional.one_hot(sigma, self.p.N).to(self.dtype)
        states, attention = [now], []
        for score in self.scores:
            attention.append(torch.softmax(now @ score, dim=-1))
            now = attention[-1] @ now
            states.append(now)
        return states, attention

    def loss(self, sigma: np.ndarray) -> tuple[Tensor, Tensor]:
        """Cross-entropies and accuracies of all hops."""
        states, _ = self.pointers(torch.as_tensor(sigma, device=self.device))
        stacked, losses, right, target = torch.stack(states), [], [], sigma
        for j in range(self.p.layers + 1):
            logits = self.sharpness * torch.einsum("l,lnij->nij", self.mixture[j], stacked)
            truth = torch.as_tensor(target, device=self.device)
            losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), truth.flatten()))
            right.append((logits.argmax(-1) == truth).float().mean())
            target = np.take_along_axis(target, target, axis=1)  # doubles the number of hops
        return torch.stack(losses), torch.stack(right)

    def step(self, number: int) -> None:
        """One step on one batch."""
        sigma = draw_permutations((self.p.batch_size,), self.p.N, keyed(self.seed, 1, number))
        losses, _ = self.loss(sigma)
        self.optimizer.zero_grad()
        (losses.sum() if self.p.hops == "mixture" else losses[-1]).backward()
        self.optimizer.step()

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """All quantities in `MEANING`."""
        sigma = draw_permutations((512,), self.p.N, keyed(self.seed, 2))
        states, attention = self.pointers(torch.as_tensor(sigma, device=self.device))
        jump = [
            float((a * s.detach()).sum(-1).mean()) for a, s in zip(attention, states, strict=False)
        ]
        return {"accuracy": self.loss(sigma)[1].cpu().numpy(), "jump": np.array(jump)}

    def state(self) -> dict[str, Any]:
        """Weights and the state of the optimiser."""
        return {
            "weights": [w.detach().clone() for w in self.weights],
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        with torch.no_grad():
            for w, kept in zip(self.weights, state["weights"], strict=True):
                w.copy_(kept)
        self.optimizer.load_state_dict(state["optimizer"])


SYSTEM = training.System(
    "associative_memory.k_hop, pointers",
    Pointers,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    dimensions={"accuracy": ("task",), "jump": ("layer",)},
    default_dtype="float32",
    finite="jump",
)
