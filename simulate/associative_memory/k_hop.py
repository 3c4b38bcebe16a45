"""Kernel learners of k-fold composition, with and without curriculum; attention that
jumps along pointers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate.training import plan
from simulate.training.learner import Member, Module, Unstacked
from simulate.training.streams import keyed
from theory.associative_memory.k_hop import Parameters
from theory.associative_memory.k_hop.overlaps import STAGE, Pointers

# The k-hop task and its kernel learner, with softmax kernels in place of the hidden
# permutations

MEANING = {
    "product": "product of the overlaps of all k kernels",
    "overlap": "overlap of every kernel with its permutation",
    "hops": "number of hops in training",
    "accuracy": "probability of the right answer on k hops, 4096 fresh samples",
}


def draw_permutations(
    shape: tuple[int, ...], N: int, rng: np.random.Generator
) -> np.ndarray:
    """Uniform permutations, shape ``(*shape, N)``."""
    return rng.permuted(np.broadcast_to(np.arange(N), (*shape, N)), axis=-1)


def answer(hidden: np.ndarray, given: np.ndarray, start: np.ndarray) -> np.ndarray:
    """``sigma_k pi_k ... sigma_1 pi_1 (x)`` for hidden ``(k, N)``, given ``(n, k, N)``
    and start ``(n,)``.
    """
    current, rows = start, np.arange(len(start))
    for j in range(len(hidden)):
        current = given[rows, j, hidden[j, current]]
    return current


def apply(kernels: Tensor, given: Tensor, start: Tensor) -> Tensor:
    """Distribution over answers ``(n, N)`` of kernels ``(k, N, N)``, columns summing to
    one.
    """
    v = torch.nn.functional.one_hot(start, kernels.shape[1]).to(kernels.dtype)
    for j, kernel in enumerate(kernels):
        moved = v @ kernel.T
        v = torch.zeros_like(moved).scatter(1, given[:, j], moved)
    return v


def memory(p: Parameters, itemsize: int = 8) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per number.
    """
    n = max(p.batch_size, 4096)
    return (
        (8 * n * p.k * p.N * 4)
        + itemsize * (6 * p.k * p.N**2 + n * p.N * 4 * (p.k + 1))
        + plan.records(p, 2 * len(MEANING))
    )


class Learner(Member):
    """Online gradient ascent on the probability of the correct answer; hop by hop with
    ``p.curriculum``.

    As in the theory, kernels start with overlap m_0 with their permutations and are
    otherwise uniform.
    """

    p: Parameters
    dtype = torch.float64

    def build(self) -> None:
        """Hidden permutations, and kernels near them."""
        p = self.p
        self.hidden = draw_permutations((p.k,), p.N, keyed(self.seed, 0))
        one_hot = np.eye(p.N)[:, self.hidden].transpose(1, 0, 2)  # [j, pi_j(x), x] = 1
        self.matrices = torch.tensor(one_hot, dtype=self.dtype, device=self.device)
        self.logits = (p.m_0 * self.matrices + (1 - p.m_0) / p.N).log().requires_grad_()
        self.hops = 1 if p.curriculum else p.k

    def kernels(self) -> Tensor:
        """Kernels ``(k, N, N)``."""
        return torch.softmax(self.logits, dim=1)

    def overlaps(self) -> Tensor:
        """Overlaps ``(tr(pi^T A) - 1)/(N - 1)``, shape ``(k,)``."""
        return ((self.matrices * self.kernels().detach()).sum((1, 2)) - 1) / (
            self.p.N - 1
        )

    def sample(
        self, n: int, hops: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Given permutations, starting points and correct answers."""
        given = draw_permutations((n, hops), self.p.N, rng)
        start = rng.integers(self.p.N, size=n)
        right = answer(self.hidden[:hops], given, start)
        return tuple(
            torch.as_tensor(v, device=self.device) for v in (given, start, right)
        )  # type: ignore[return-value]

    def step(self, number: int) -> None:
        """One step on one batch. A stage of the curriculum ends when the product of its
        overlaps reaches `STAGE`.
        """
        if self.hops < self.p.k and self.overlaps()[: self.hops].prod() >= STAGE:
            self.hops += 1
        given, start, right = self.sample(
            self.p.batch_size, self.hops, keyed(self.seed, 1, number)
        )
        chance = (
            apply(self.kernels()[: self.hops], given, start)
            .gather(1, right[:, None])
            .mean()
        )
        (slope,) = torch.autograd.grad(chance, self.logits)
        with torch.no_grad():
            self.logits += self.p.eta * slope

    def measure(self) -> dict[str, Any]:
        """All quantities in `MEANING`."""
        overlap = self.overlaps()
        given, start, right = self.sample(4096, self.p.k, keyed(self.seed, 2))
        with torch.no_grad():
            chance = (
                apply(self.kernels(), given, start).gather(1, right[:, None]).mean()
            )
        return {
            "product": overlap.prod(),
            "overlap": overlap,
            "hops": self.hops,
            "accuracy": chance,
        }

    def state(self) -> dict[str, Any]:
        """Logits and stage."""
        return {"logits": self.logits.detach().clone(), "hops": torch.tensor(self.hops)}

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.logits, self.hops = state["logits"].to(self.device), int(state["hops"])
        self.logits.requires_grad_()


SYSTEM = plan.System(
    "associative_memory.k_hop",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    dimensions={"overlap": ("hop",)},
    default_dtype="float64",
    finite="product",
    tiny={"": dict(N=3, k=2, batch_size=8, curriculum=True, **plan.FEW_STEPS)},
)


# Pointers (our setting; the slides give none)
#
# Position i of the context holds sigma(i), one-hot. In layer l, position i attends, by
# trained scores, from the thing it points to and copies the pointer found there;
# identity scores turn m hops into 2 m. 2^j hops are read from a trained mixture of all
# layers.

POINTER_MEANING = {
    "accuracy": "accuracy of 1, 2, 4, .. hops, 512 fresh permutations",
    "jump": "mean of the diagonal of each layer's attention on the right position",
}


def pointer_memory(p: Pointers, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per number.
    """
    n = max(p.batch_size, 512)
    return (
        itemsize * (n * p.N**2 * (12 * p.layers + 14) + 6 * p.layers * p.N**2)
        + 8 * n * p.N**2
        + 8 * 3 * n * p.N
        + plan.records(p, 2 * len(POINTER_MEANING))
    )


class PointerLearner(Module):
    """Adam on the cross-entropy of the chosen hops,
    fresh permutations at every step.
    """

    p: Pointers

    def build(self) -> None:
        """Scores near zero, and a mixture near the mean of all layers."""
        p, rng, heads = self.p, keyed(self.seed, 0), self.p.layers + 1
        start = {
            "scores": p.spread * rng.normal(size=(p.layers, p.N, p.N)),
            "mixture": 1 / heads + p.spread * rng.normal(size=(heads, heads)),
            "sharpness": np.ones(()),
        }
        weights = {name: torch.tensor(w, dtype=self.dtype) for name, w in start.items()}
        self.student = torch.nn.ParameterDict(weights).to(self.device)
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=p.eta)

    def pointers(self, sigma: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Pointers ``(n, N, N)`` before and after every layer, and the layers'
        attention.
        """
        now = torch.nn.functional.one_hot(sigma, self.p.N).to(self.dtype)
        states, attention = [now], []
        for score in self.student["scores"]:
            attention.append(torch.softmax(now @ score, dim=-1))
            now = attention[-1] @ now
            states.append(now)
        return states, attention

    def on(self, sigma: np.ndarray) -> tuple[Tensor, Tensor]:
        """Cross-entropies and accuracies of all hops."""
        states, _ = self.pointers(torch.as_tensor(sigma, device=self.device))
        stacked, losses, right = torch.stack(states), [], []
        target = torch.as_tensor(sigma, device=self.device)
        for mixture in self.student["mixture"]:
            logits = self.student["sharpness"] * torch.einsum(
                "l,lnij->nij", mixture, stacked
            )
            losses.append(
                torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), target.flatten()
                )
            )
            right.append((logits.argmax(-1) == target).float().mean())
            target = target.gather(1, target)  # doubles the number of hops
        return torch.stack(losses), torch.stack(right)

    def loss(self, number: int) -> Tensor:
        """Cross-entropy of the chosen hops on one batch."""
        sigma = draw_permutations(
            (self.p.batch_size,), self.p.N, keyed(self.seed, 1, number)
        )
        losses, _ = self.on(sigma)
        return losses.sum() if self.p.hops == "mixture" else losses[-1]

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """All quantities in `MEANING`."""
        sigma = draw_permutations((512,), self.p.N, keyed(self.seed, 2))
        states, attention = self.pointers(torch.as_tensor(sigma, device=self.device))
        jump = [(a * s).sum(-1).mean() for a, s in zip(attention, states, strict=False)]
        return {"accuracy": self.on(sigma)[1], "jump": torch.stack(jump)}


POINTERS = plan.System(
    "associative_memory.k_hop, pointers",
    Pointers,
    partial(Unstacked, PointerLearner),
    POINTER_MEANING,
    pointer_memory,
    dimensions={"accuracy": ("task",), "jump": ("layer",)},
    default_dtype="float32",
    finite="jump",
    tiny={"": dict(N=3, layers=1, batch_size=4, **plan.FEW_STEPS)},
)


train = SYSTEM.train
train_pointers = POINTERS.train
