"""Hebbian and trained memories between random embeddings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from theory.associative_memory.superposition import Parameters
from theory.runtime import memory

# Hebbian memories of random embeddings


def unit_vectors(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors uniform on the sphere, shape ``(n, d)``."""
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def hebbian(
    e: np.ndarray, u: np.ndarray, answer: np.ndarray, weights: np.ndarray | float = 1.0
) -> np.ndarray:
    """Matrix ``sum_x q(x) u_f(x) e_x^T``, shape ``(d, d)``."""
    return (u[answer] * np.broadcast_to(weights, len(e))[:, None]).T @ e


def scores(
    p: Parameters, rng: np.random.Generator, weights: np.ndarray | float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Scores ``(N, outputs)`` of one draw of embeddings, and the correct outputs
    ``(N,)``.
    """
    answer = np.arange(p.N) % p.outputs
    e = unit_vectors(p.N, p.d, rng)
    u = unit_vectors(p.outputs, p.d, rng)
    return e @ hebbian(e, u, answer, weights).T @ u.T, answer


def memory_of_run(p: Parameters) -> float:
    """Peak memory of `recall` in bytes: embeddings and matrix of a draw, scores of two
    draws, hits of all draws.
    """
    return 8 * (
        3 * (p.N + p.outputs) * p.d + 2 * p.N * p.d + 2 * p.d**2 + 2 * p.N * p.outputs
    ) + p.draws * (2 * p.N + 64)


def recall(
    p: Parameters, seed: int = 0, weights: np.ndarray | float = 1.0
) -> dict[str, np.ndarray]:
    """Recall in many draws of the embeddings.

    Parameters
    ----------
    p : Parameters
        Sizes and number of draws.
    seed : int
        Seed of all embeddings.
    weights : ndarray or float
        Weight q of every stored key.

    Returns
    -------
    dict
        Arrays over draws: ``accuracy``; ``right`` and ``wrong``, scores of the first
        key for its correct output and one wrong one (independent between draws, so that
        their moments have simple standard errors); ``hits`` ``(draws, N)``.
    """
    memory.require(memory_of_run, p, "recall")
    out: dict[str, list[Any]] = {"accuracy": [], "right": [], "wrong": [], "hits": []}
    for rng in np.random.default_rng(seed).spawn(p.draws):
        s, answer = scores(p, rng, weights)
        hits = s.argmax(1) == answer
        out["accuracy"].append(hits.mean())
        out["hits"].append(hits)
        out["right"].append(s[0, 0])
        out["wrong"].append(s[0, 1])
    return {name: np.array(values) for name, values in out.items()}


def zipf_error(
    d: int, a: float, keys: int, M: int, stored: int, draws: int, seed: int = 0
) -> np.ndarray:
    """Error per draw on Zipf data if the ``stored`` most frequent keys are stored with
    weight 1.
    """
    p = Parameters(d=d, N=keys, M=M, draws=draws)
    weights = (np.arange(keys) < stored).astype(float)
    frequency = np.arange(1, keys + 1) ** -a
    return 1 - recall(p, seed, weights)["hits"] @ (frequency / frequency.sum())


# Trained memories

GOAL = 0.99  # accuracy required for keys to count as stored


def train_linear(
    N: int, d: int, seed: int, steps: int = 4096, eta: float = 1000.0
) -> float:
    """Best recall accuracy of a matrix trained by full-batch Adam on the cross-entropy,
    f = identity.

    The learning rate is the authors': scores of unit vectors are O(1) only for weights
    far above 1.
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
    """Best recall accuracy of ``V^T relu(U e + b)`` trained by full-batch Adam with
    ``outputs`` classes (default: one per key).
    """
    rng = np.random.default_rng([seed, N, d, width])
    classes = outputs or N
    e, u = (
        torch.tensor(unit_vectors(n, d, rng), dtype=torch.float32) for n in (N, classes)
    )
    U, V = (
        torch.tensor(
            rng.normal(size=(width, d)) / np.sqrt(s),
            dtype=torch.float32,
            requires_grad=True,
        )
        for s in (d, width)
    )
    b = torch.zeros(width, requires_grad=True)
    return _descend(
        [U, V, b],
        lambda: torch.relu(e @ U.T + b) @ V @ u.T,
        torch.arange(N) % classes,
        steps,
        eta,
    )


def _descend(
    weights: list[Tensor],
    logits: Callable[[], Tensor],
    answer: Tensor,
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


def capacity(
    accuracy: Callable[[int], float], low: int, high: int, tolerance: float = 0.02
) -> int:
    """Largest number of keys with an accuracy of at least `GOAL`, by bisection to a
    relative tolerance.

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
