"""The k-hop task and its kernel learner, with softmax kernels in place of the hidden
permutations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate import training
from simulate.learner import Unstacked
from simulate.streams import keyed
from theory.associative_memory.k_hop import Parameters
from theory.associative_memory.k_hop.overlaps import STAGE

MEANING = {
    "product": "product of the overlaps of all k kernels",
    "overlap": "overlap of every kernel with its permutation",
    "hops": "number of hops in training",
    "accuracy": "probability of the right answer on k hops, 4096 fresh samples",
}


def draw_permutations(shape: tuple[int, ...], N: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform permutations, shape ``(*shape, N)``."""
    return rng.permuted(np.broadcast_to(np.arange(N), (*shape, N)), axis=-1)


def answer(hidden: np.ndarray, given: np.ndarray, start: np.ndarray) -> np.ndarray:
    """``sigma_k pi_k ... sigma_1 pi_1 (x)`` for hidden ``(k, N)``, given ``(n, k, N)`` and start
    ``(n,)``.
    """
    current, rows = start, np.arange(len(start))
    for j in range(len(hidden)):
        current = given[rows, j, hidden[j, current]]
    return current


def apply(kernels: Tensor, given: Tensor, start: Tensor) -> Tensor:
    """Distribution over answers ``(n, N)`` of kernels ``(k, N, N)``, columns summing to one."""
    v = torch.nn.functional.one_hot(start, kernels.shape[1]).to(kernels.dtype)
    for j, kernel in enumerate(kernels):
        moved = v @ kernel.T
        v = torch.zeros_like(moved).scatter(1, given[:, j], moved)
    return v


def memory(p: Parameters, itemsize: int = 8) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes per
    number.
    """
    n = max(p.batch_size, 4096)
    integers = 8 * n * p.k * p.N * 4
    return (
        integers
        + itemsize * (6 * p.k * p.N**2 + n * p.N * 4 * (p.k + 1))
        + training.records(p, 2 * len(MEANING))
    )


class Learner:
    """Online gradient ascent on the probability of the correct answer; hop by hop with
    ``p.curriculum``.

    As in the theory, kernels start with overlap m_0 with their permutations and are otherwise
    uniform.
    """

    def __init__(
        self,
        p: Parameters,
        seed: int,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.p, self.seed, self.device = p, seed, device
        self.hidden = draw_permutations((p.k,), p.N, keyed(seed, 0))
        self.matrices = torch.tensor(
            np.eye(p.N)[:, self.hidden].transpose(1, 0, 2), dtype=dtype, device=device
        )  # [j, pi_j(x), x] = 1
        start = p.m_0 * self.matrices + (1 - p.m_0) / p.N
        self.logits = start.log().requires_grad_()
        self.hops = 1 if p.curriculum else p.k

    def kernels(self) -> Tensor:
        """Kernels ``(k, N, N)``."""
        return torch.softmax(self.logits, dim=1)

    def overlaps(self) -> Tensor:
        """Overlaps ``(tr(pi^T A) - 1)/(N - 1)``, shape ``(k,)``."""
        return ((self.matrices * self.kernels().detach()).sum((1, 2)) - 1) / (self.p.N - 1)

    def sample(self, n: int, hops: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Given permutations, starting points and correct answers."""
        given = draw_permutations((n, hops), self.p.N, rng)
        start = rng.integers(self.p.N, size=n)
        right = answer(self.hidden[:hops], given, start)
        return tuple(torch.as_tensor(v, device=self.device) for v in (given, start, right))  # type: ignore[return-value]

    def step(self, number: int) -> None:
        """One step on one batch. A stage of the curriculum ends when the product of its overlaps
        reaches `STAGE`.
        """
        if (
            self.p.curriculum
            and self.hops < self.p.k
            and float(self.overlaps()[: self.hops].prod()) >= STAGE
        ):
            self.hops += 1
        given, start, right = self.sample(self.p.batch_size, self.hops, keyed(self.seed, 1, number))
        chance = apply(self.kernels()[: self.hops], given, start).gather(1, right[:, None]).mean()
        (slope,) = torch.autograd.grad(chance, self.logits)
        with torch.no_grad():
            self.logits += self.p.eta * slope

    def measure(self) -> dict[str, Any]:
        """All quantities in `MEANING`."""
        overlap = self.overlaps()
        given, start, right = self.sample(4096, self.p.k, keyed(self.seed, 2))
        with torch.no_grad():
            chance = apply(self.kernels(), given, start).gather(1, right[:, None]).mean()
        return {
            "product": float(overlap.prod()),
            "overlap": overlap.cpu().numpy(),
            "hops": self.hops,
            "accuracy": float(chance),
        }

    def state(self) -> dict[str, Any]:
        """Logits and stage."""
        return {"logits": self.logits.detach().clone(), "hops": torch.tensor(self.hops)}

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.logits, self.hops = (
            state["logits"].to(self.device).requires_grad_(),
            int(state["hops"]),
        )


SYSTEM = training.System(
    "associative_memory.k_hop",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    dimensions={"overlap": ("hop",)},
    default_dtype="float64",
    finite="product",
)
