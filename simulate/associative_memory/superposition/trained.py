"""Trained memories: a matrix or an MLP between fixed random embeddings, and their capacity."""

from collections.abc import Callable

import numpy as np
import torch

from simulate.associative_memory.superposition.memories import unit_vectors

GOAL = 0.99  # accuracy required for keys to count as stored


def train_linear(N: int, d: int, seed: int, steps: int = 4096, eta: float = 1000.0) -> float:
    """Best recall accuracy of a matrix trained by full-batch Adam on the cross-entropy, f =
    identity.

    The learning rate is the authors': scores of unit vectors are O(1) only for weights far above 1.
    """
    rng = np.random.default_rng([seed, N, d])
    e, u = (torch.tensor(unit_vectors(N, d, rng), dtype=torch.float32) for _ in "eu")
    W = torch.zeros(d, d, requires_grad=True)
    return _descend([W], lambda: e @ W.T @ u.T, torch.arange(N), steps, eta)


def train_mlp(
    N: int,
    d: int,
    width: int,
    seed: int,
    outputs: int | None = None,
    steps: int = 2000,
    eta: float = 0.03,
) -> float:
    """Best recall accuracy of ``V^T relu(U e + b)`` trained by full-batch Adam with ``outputs``
    classes (default: one per key).
    """
    rng = np.random.default_rng([seed, N, d, width])
    classes = outputs or N
    e, u = (torch.tensor(unit_vectors(n, d, rng), dtype=torch.float32) for n in (N, classes))
    U, V = (
        torch.tensor(
            rng.normal(size=(width, d)) / np.sqrt(s), dtype=torch.float32, requires_grad=True
        )
        for s in (d, width)
    )
    b = torch.zeros(width, requires_grad=True)
    return _descend(
        [U, V, b], lambda: torch.relu(e @ U.T + b) @ V @ u.T, torch.arange(N) % classes, steps, eta
    )


def _descend(
    weights: list[torch.Tensor],
    logits: Callable[[], torch.Tensor],
    answer: torch.Tensor,
    steps: int,
    eta: float,
) -> float:
    optimizer, best = torch.optim.Adam(weights, lr=eta), 0.0
    for _ in range(steps):
        predicted = logits()
        best = max(best, float((predicted.argmax(1) == answer).double().mean()))
        if best >= GOAL:
            break
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(predicted, answer).backward()
        optimizer.step()
    return best


def capacity(accuracy: Callable[[int], float], low: int, high: int, tolerance: float = 0.02) -> int:
    """Largest number of keys with an accuracy of at least `GOAL`, by bisection to a relative
    tolerance.

    Returns ``low - 1`` or ``high`` if the answer lies outside the bracket.
    """
    if accuracy(low) < GOAL:
        return low - 1
    if accuracy(high) >= GOAL:
        return high
    while high - low > max(1, tolerance * low):
        middle = (low + high) // 2
        low, high = (middle, high) if accuracy(middle) >= GOAL else (low, middle)
    return low
