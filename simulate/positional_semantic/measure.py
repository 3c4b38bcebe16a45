"""Measurements of a trained student, with the theory's names and units."""

from __future__ import annotations

import numpy as np
import torch

from simulate.positional_semantic import task
from simulate.positional_semantic.student import Problem, Weights
from theory.positional_semantic import Parameters

MEANING = {
    "q": "sigma^2 |Q|^2/d",
    "m": "overlap with the positional encoding, |p_1.Q|/sqrt(d), root sum of squares over columns",
    "theta": "overlap with the teacher, sigma^2 |Q.Q*|/d, root sum of squares over columns",
    "train_loss": "empirical risk (3) divided by d",
    "test_mse_half": "half of E|y - f|^2/d on fresh sentences (of low-rank labels E|y - f|^2)",
    "gradient": "norm of the gradient of the risk divided by sqrt(d)",
}
TEST_BLOCK = 4000  # sentences at a time


def measure(
    p: Parameters, weights: Weights, teacher: np.ndarray, objective: float, gradient: float
) -> dict[str, float]:
    """Overlaps and losses of one run; ``weights`` without the run axis."""
    Q = weights["Q"].double().cpu().numpy()
    return {
        "q": p.sigma**2 * float((Q**2).sum()) / p.d,
        "m": float(np.linalg.norm(Q.sum(0))) / p.d,
        "theta": p.sigma**2 * float(np.linalg.norm(teacher @ Q)) / p.d,
        "train_loss": objective / p.d,
        "gradient": gradient / np.sqrt(p.d),
    }


def test_error(
    p: Parameters, weights: Weights, teacher: np.ndarray, rng: np.random.Generator
) -> float:
    """Half of the mean squared error per dimension on ``n_test`` fresh sentences."""
    total, left = 0.0, p.n_test
    like = weights["Q"]
    while left:
        n = min(left, TEST_BLOCK)
        data = task.make(p, task.draw_sentences(p, n, rng), teacher, like.dtype)
        data = task.Data(*(v.to(like.device) for v in vars(data).values()))
        with torch.no_grad():
            total += float(
                Problem([data], p.lam, p.heads).errors({k: v[None] for k, v in weights.items()})[0]
            )
        left -= n
    return total / p.n_test
