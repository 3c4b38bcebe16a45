"""The dense linear layer trained on the same data (Eqs. 17-18)."""

from __future__ import annotations

import numpy as np
import torch

from simulate.positional_semantic import task
from theory.positional_semantic import Parameters

RIDGE = 1e-4  # as in the paper's runs; without effect as d grows
ADAM = {"lr": 0.5, "steps": 200}


def fit_linear(p: Parameters, seed: int, method: str = "exact") -> dict[str, float]:
    """Weights and half test error of ``f(x) = W x`` fitted to the training sentences of a seed.

    ``exact`` solves the normal equations; ``adam`` descends from the identity as the paper does.
    """
    teacher, data = task.draw(p, seed)
    test = task.make(p, task.draw_sentences(p, p.n_test, task.streams(seed)["test"]), teacher, torch.float64)
    T, gram = data.target.numpy(), data.gram_tt.numpy()
    cross, square = np.einsum("nab,nbc->ac", T, gram), gram.sum(0) + RIDGE * np.eye(2)
    W = np.linalg.solve(square, cross.T).T
    if method == "adam":
        weight = torch.eye(2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([weight], lr=ADAM["lr"])
        a, b = torch.as_tensor(square), torch.as_tensor(cross)
        for _ in range(int(ADAM["steps"])):
            optimizer.zero_grad()
            loss = ((weight @ a * weight).sum() / 2 - (weight * b).sum()) / p.n
            loss.backward()
            optimizer.step()
        W = weight.detach().numpy()
    gap = test.target.numpy() - W
    error = np.einsum("nab,nbc,nac->n", gap, test.gram_tt.numpy(), gap).mean()
    return {"W_12": float(W[0, 1]), "W_21": float(W[1, 0]), "W_11": float(W[0, 0]), "W_22": float(W[1, 1]),
            "half_test": float(error / 2)}  # fmt: skip
