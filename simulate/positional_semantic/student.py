"""The attention layer, its empirical risk, and initial weights (Eqs. 2, 3, 15)."""

from __future__ import annotations

import numpy as np
import torch

from simulate.positional_semantic.task import Data, positional_encoding, value_teacher
from theory.positional_semantic import Parameters

Weights = dict[str, torch.Tensor]


class Student(torch.nn.Module):
    """Plain reference module: ``softmax((x+p) Q K^T (x+p)^T / d) (x+p) W`` with ``K = Q`` and
    ``W = 1`` by default, or ``W = V/sqrt(d)``.

    Parameters
    ----------
    weights : dict of Tensor
        ``Q`` of shape ``(d, rank)``, and ``K`` (untied), ``W`` (value matrix) or ``V`` (low-rank
        values, ``(d, value_rank)``) if trained.
    heads : bool
        Whether every column of Q is a head, and the attention their mean.
    """

    def __init__(self, weights: Weights, heads: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.weights = torch.nn.ParameterDict(
            {k: torch.nn.Parameter(v.clone()) for k, v in weights.items()}
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Outputs for ``tokens = x + p`` of shape ``(n, 2, d)``."""
        Q = self.weights["Q"]
        K = self.weights["K" if "K" in self.weights else "Q"]
        pairs = zip(*(w.T[:, :, None] if self.heads else w[None] for w in (Q, K)), strict=True)
        each = [
            torch.softmax(tokens @ q @ k.T @ tokens.transpose(1, 2) / tokens.shape[-1], dim=2)
            for q, k in pairs
        ]
        values = tokens @ self.weights["W"] if "W" in self.weights else tokens
        if "V" in self.weights:
            values = tokens @ self.weights["V"] / np.sqrt(tokens.shape[-1])
        return torch.stack(each).mean(0) @ values

    def objective(self, tokens: torch.Tensor, y: torch.Tensor, lam: float) -> torch.Tensor:
        """Empirical risk (3): sum over sentences of ``|y - f|^2/(2d)``, or of ``|y - f|^2/2`` of
        labels of low rank, plus ``lambda/2`` times all squared weights.
        """
        ridge = sum(w.square().sum() for w in self.weights.values())
        scale = 1 if "V" in self.weights else tokens.shape[-1]
        return (y - self(tokens)).square().sum() / (2 * scale) + lam / 2 * ridge


class Problem:
    """Empirical risks of a batch of runs, by batched matrix products.

    Runs may differ in their number of sentences; shorter ones are padded with zero-weight
    sentences. Without a value matrix the error is a function of the fields ``(x+p) Q/sqrt(d)`` and
    of Gram matrices, so that a step costs two products with the tokens. With ``heads`` every column
    of Q is a head.
    """

    def __init__(self, data: list[Data], lam: float, heads: bool = False) -> None:
        self.lam, self.heads = lam, heads
        self.d = data[0].tokens.shape[-1]
        longest = max(len(d.target) for d in data)

        def stack(name: str) -> torch.Tensor:
            parts = [getattr(d, name) for d in data]
            if len(parts) == 1:
                return parts[0][None]
            out = parts[0].new_zeros(len(parts), longest, *parts[0].shape[1:])
            for k, part in enumerate(parts):
                out[k, : len(part)] = part
            return out

        self.tokens, self.target, self.labels = map(stack, ("tokens", "target", "labels"))
        self.tt, self.ts, self.ss = stack("gram_tt"), stack("gram_ts"), stack("gram_ss")
        self.constant = torch.einsum("rnab,rnbc,rnac->r", self.target, self.tt, self.target) / 2
        self.cross = self.target @ self.ts
        # Kept only for the value matrix, which requires the outputs.
        self.rows = self.tokens.flatten(1, 2)

    def fields(self, Q: torch.Tensor) -> torch.Tensor:
        """``(x+p) Q/sqrt(d)`` for weights of shape ``(run, d, rank)``; shape
        ``(run, n, 2, rank)``.
        """
        return torch.bmm(self.rows, Q).unflatten(1, (-1, 2)) / np.sqrt(self.d)

    def attention(self, weights: Weights) -> torch.Tensor:
        """Attention matrices, shape ``(run, n, 2, 2)``."""
        h = self.fields(weights["Q"])
        k = self.fields(weights["K"]) if "K" in weights else h
        if self.heads:
            return torch.softmax(h[:, :, :, None] * k[:, :, None], dim=3).mean(4)
        return torch.softmax(h @ k.transpose(2, 3), dim=3)

    def errors(self, weights: Weights) -> torch.Tensor:
        """Sum over sentences of ``|y - f|^2/(2d)`` of every run; of low rank ``|y - f|^2/2``."""
        S = self.attention(weights)
        if "V" in weights:  # padded sentences have zero tokens and labels
            gap = self.labels - S @ self.fields(weights["V"])
            return gap.square().sum((1, 2, 3)) / 2
        if "W" not in weights:
            # Padded sentences have zero Gram matrices and targets.
            return self.constant + ((S @ self.ss / 2 - self.cross) * S).sum((1, 2, 3))
        shift = torch.as_tensor(positional_encoding(self.d)).to(self.tokens)
        real = (self.target.sum((2, 3)) > 0)[:, :, None, None]
        y = self.target @ (self.tokens - shift)
        out = S @ torch.bmm(self.rows, weights["W"]).unflatten(1, (-1, 2))
        return ((y - out) * real).square().sum((1, 2, 3)) / (2 * self.d)

    def objective(self, weights: Weights) -> torch.Tensor:
        """Empirical risk (3) of every run, shape ``(run,)``."""
        ridge = sum(w.square().sum((1, 2)) for w in weights.values())
        return self.errors(weights) + self.lam / 2 * ridge

    def gradient(self, weights: Weights) -> tuple[torch.Tensor, Weights]:
        """Objective and its gradient with respect to every weight."""
        leaves = {k: v.detach().requires_grad_() for k, v in weights.items()}
        value = self.objective(leaves)
        slopes = torch.autograd.grad(value.sum(), list(leaves.values()))
        return value.detach(), dict(zip(leaves, slopes, strict=True))


def initial_weights(
    p: Parameters, teacher: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Initial weights: ``Q`` of shape ``(d, rank)``, and ``K``, ``W`` or ``V`` if trained.

    Semantic: the teacher, of norm sqrt(d). Positional: ``1/sqrt(d)`` in every entry, norm one,
    which is close to the origin. Random: 0.1 times normal. For the extensions, which the paper's
    code leaves open, an untied K starts like Q, a value matrix at the identity, and values of low
    rank at their teacher.
    """
    semantic, positional = teacher, np.full(p.d, p.d**-0.5)
    columns = {
        "semantic": [semantic] * p.rank,
        "positional": [positional] * p.rank,
        "mixed": [semantic, positional],
        "random": None,
    }[p.start]
    if columns is None:
        Q = 0.1 * rng.standard_normal((p.d, p.rank))
    else:
        Q = np.stack(columns, 1)
        if p.rank > 1 and p.start != "mixed":
            # Equal columns would stay equal.
            Q = Q + 0.01 * np.linalg.norm(Q[:, 0]) / np.sqrt(p.d) * rng.standard_normal(Q.shape)
    out = {"Q": Q}
    if not p.tied:
        out["K"] = 0.1 * rng.standard_normal((p.d, p.rank)) if p.start == "random" else Q.copy()
    if p.value:
        out["W"] = np.eye(p.d)
    if p.value_rank:
        size = p.d, p.value_rank
        drawn = p.start == "random"
        out["V"] = 0.1 * rng.standard_normal(size) if drawn else value_teacher(p, teacher)
    return out
