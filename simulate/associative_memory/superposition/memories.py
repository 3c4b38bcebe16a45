"""Hebbian memories of random embeddings: scores, recall, interference."""

from typing import Any

import numpy as np

from theory.associative_memory.superposition import Parameters
from theory.runtime import memory


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
    """Scores ``(N, outputs)`` of one draw of embeddings, and the correct outputs ``(N,)``."""
    answer = np.arange(p.N) % p.outputs
    e, u = unit_vectors(p.N, p.d, rng), unit_vectors(p.outputs, p.d, rng)
    return e @ hebbian(e, u, answer, weights).T @ u.T, answer


def memory_of_run(p: Parameters) -> float:
    """Peak memory of `recall` in bytes: embeddings and matrix of a draw, scores of two draws, hits
    of all draws.
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
        Arrays over draws: ``accuracy``; ``right`` and ``wrong``, scores of the first key for its
        correct output and one wrong one (independent between draws, so that their moments have
        simple standard errors); ``hits`` ``(draws, N)``.
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
    """Error per draw on Zipf data if the ``stored`` most frequent keys are stored with weight 1."""
    p = Parameters(d=d, N=keys, M=M, draws=draws)
    weights = (np.arange(keys) < stored).astype(float)
    frequency = np.arange(1, keys + 1) ** -a
    return 1 - recall(p, seed, weights)["hits"] @ (frequency / frequency.sum())
