"""Sentences, teacher and target; the attention layer, its empirical risk, and initial
weights (Eqs. 1-3, 15, 16).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate.training.streams import spawned
from theory.positional_semantic import Parameters

# Sentences, teacher and target (Eqs. 1, 16)

STREAMS = ("teacher", "train", "test", "initialisation")


def streams(seed: int) -> dict[str, np.random.Generator]:
    """Independent random streams of a seed, one per purpose."""
    return spawned(seed, STREAMS)


def positional_encoding(d: int) -> np.ndarray:
    """``p_1 = -p_2 = 1/sqrt(d)`` in every entry, norm one; shape ``(2, d)``."""
    p = np.full(d, d**-0.5)
    return np.stack([p, -p])


def draw_teacher(p: Parameters, rng: np.random.Generator) -> np.ndarray:
    """Teacher weights Q*, shape ``(d,)``.

    ``normalised`` sets the norm to sqrt(d) and the overlap with p to zero, their limits
    for large d, which removes most of the variation between seeds.
    """
    teacher = rng.standard_normal(p.d)
    if p.teacher == "normalised":
        teacher -= teacher.mean()
        teacher *= np.sqrt(p.d) / np.linalg.norm(teacher)
    return teacher


def value_teacher(p: Parameters, teacher: np.ndarray) -> np.ndarray:
    """Teacher V* of low-rank values, shape ``(d, value_rank)``: orthogonal columns of
    norm sqrt(d), orthogonal to p and Q*. Tokens are isotropic, so that only these
    overlaps matter.
    """
    given = np.stack([np.ones(p.d), teacher, *np.eye(p.d)[: p.value_rank]], 1)
    return np.linalg.qr(given)[0][:, 2:] * np.sqrt(p.d)


def draw_sentences(p: Parameters, n: int, rng: np.random.Generator) -> np.ndarray:
    """Tokens ``x``, shape ``(n, 2, d)``, variance sigma^2; the second may be correlated
    with the first.
    """
    x = rng.standard_normal((n, 2, p.d), dtype=np.float32)
    if p.correlation:
        x[:, 1] = p.correlation * x[:, 0] + np.sqrt(1 - p.correlation**2) * x[:, 1]
    x *= p.sigma
    return x


def target_attention(p: Parameters, x: np.ndarray, teacher: np.ndarray) -> np.ndarray:
    """Target matrix T (16) of every sentence, shape ``(n, 2, 2)``; the teacher acts on
    x without p.
    """
    h = np.asarray(x @ (teacher / np.sqrt(p.d)).astype(x.dtype), float)
    scores = h[:, :, None] * h[:, None, :]
    scores -= scores.max(2, keepdims=True)
    weights = np.exp(scores)
    return (1 - p.omega) * weights / weights.sum(2, keepdims=True) + p.omega * p.A


@dataclass(frozen=True)
class Data:
    """Sentences with their targets and Gram matrices.

    Attributes
    ----------
    tokens : Tensor, shape (n, 2, d)
        ``x + p``, the student's input.
    target : Tensor, shape (n, 2, 2)
        Target attention T.
    gram_tt, gram_ts, gram_ss : Tensor, shape (n, 2, 2)
        ``x x^T/d``, ``x (x+p)^T/d`` and ``(x+p)(x+p)^T/d``. With these the squared
        error of a student without a value matrix needs no sum over d.
    labels : Tensor, shape (n, 2, k)
        ``T x V*/sqrt(d)``, fitted in place of ``T x`` by a student with k columns of
        values.
    """

    tokens: Tensor
    target: Tensor
    gram_tt: Tensor
    gram_ts: Tensor
    gram_ss: Tensor
    labels: Tensor

    @property
    def y(self) -> Tensor:
        """Target outputs ``T x``, shape ``(n, 2, d)``."""
        return self.target @ (
            self.tokens
            - torch.as_tensor(positional_encoding(self.tokens.shape[-1])).to(
                self.tokens
            )
        )

    def to(self, *given: Any) -> Data:
        """Copy on a device, of a precision, or both."""
        return Data(*(v.to(*given) for v in vars(self).values()))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens by sqrt(d), shape ``(n, 2, d)``, and entries (1,2) and (2,1) of the
        target.
        """
        target = self.target.double().numpy()
        tokens = self.tokens.double().numpy() / np.sqrt(self.tokens.shape[-1])
        return tokens, np.stack([target[:, 0, 1], target[:, 1, 0]])

    def idealised(self, sigma: float) -> Data:
        """Copy with Gram matrices at their limit, sigma^2 times the identity (40)."""
        limit = sigma**2 * torch.eye(2).to(self.gram_tt).expand_as(self.gram_tt)
        return Data(self.tokens, self.target, limit, limit, limit, self.labels)


def make(p: Parameters, x: np.ndarray, teacher: np.ndarray, dtype: torch.dtype) -> Data:
    """Data of given sentences."""
    x = x.astype(np.float64 if dtype == torch.float64 else np.float32, copy=False)
    target = target_attention(p, x, teacher)
    tokens = x + positional_encoding(p.d).astype(x.dtype)
    grams = [
        np.einsum("nld,nkd->nlk", a, b, dtype=float, optimize=True) / p.d
        for a, b in ((x, x), (x, tokens), (tokens, tokens))
    ]
    labels = target @ (x @ value_teacher(p, teacher).astype(x.dtype)) / np.sqrt(p.d)
    return Data(
        *(torch.as_tensor(v).to(dtype) for v in (tokens, target, *grams, labels))
    )


def sample(
    p: Parameters, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[np.ndarray, Data]:
    """Teacher and training data of a seed."""
    stream = streams(seed)
    teacher = draw_teacher(p, stream["teacher"])
    return teacher, make(p, draw_sentences(p, p.n, stream["train"]), teacher, dtype)


Weights = dict[str, Tensor]


class Student(torch.nn.Module):
    """Plain reference module: ``softmax((x+p) Q K^T (x+p)^T / d) (x+p) W`` with ``K =
    Q`` and ``W = 1`` by default, or ``W = V/sqrt(d)``.

    Parameters
    ----------
    weights : dict of Tensor
        ``Q`` of shape ``(d, rank)``, and ``K`` (untied), ``W`` (value matrix) or ``V``
        (low-rank values, ``(d, value_rank)``) if trained.
    heads : bool
        Whether every column of Q is a head, and the attention their mean.
    """

    def __init__(self, weights: Weights, heads: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.weights = torch.nn.ParameterDict(
            {k: torch.nn.Parameter(v.clone()) for k, v in weights.items()}
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs for ``tokens = x + p`` of shape ``(n, 2, d)``."""
        Q = self.weights["Q"]
        K = self.weights["K" if "K" in self.weights else "Q"]
        pairs = zip(
            *(w.T[:, :, None] if self.heads else w[None] for w in (Q, K)), strict=True
        )
        each = [
            torch.softmax(
                tokens @ q @ k.T @ tokens.transpose(1, 2) / tokens.shape[-1], dim=2
            )
            for q, k in pairs
        ]
        values = tokens @ self.weights["W"] if "W" in self.weights else tokens
        if "V" in self.weights:
            values = tokens @ self.weights["V"] / np.sqrt(tokens.shape[-1])
        return torch.stack(each).mean(0) @ values

    def objective(self, tokens: Tensor, y: Tensor, lam: float) -> Tensor:
        """Empirical risk (3): sum over sentences of ``|y - f|^2/(2d)``, or of ``|y -
        f|^2/2`` of labels of low rank, plus ``lambda/2`` times all squared weights.
        """
        ridge = sum(w.square().sum() for w in self.weights.values())
        scale = 1 if "V" in self.weights else tokens.shape[-1]
        return (y - self(tokens)).square().sum() / (2 * scale) + lam / 2 * ridge


class Problem:
    """Empirical risks of a batch of runs, by batched matrix products.

    Runs may differ in their number of sentences; shorter ones are padded with
    zero-weight sentences. Without a value matrix the error is a function of the fields
    ``(x+p) Q/sqrt(d)`` and of Gram matrices, so that a step costs two products with the
    tokens. With ``heads`` every column of Q is a head.
    """

    def __init__(self, data: list[Data], lam: float, heads: bool = False) -> None:
        self.lam, self.heads = lam, heads
        self.d = data[0].tokens.shape[-1]
        longest = max(len(d.target) for d in data)

        def stack(name: str) -> Tensor:
            parts = [getattr(d, name) for d in data]
            if len(parts) == 1:
                return parts[0][None]
            out = parts[0].new_zeros(len(parts), longest, *parts[0].shape[1:])
            for k, part in enumerate(parts):
                out[k, : len(part)] = part
            return out

        self.tokens, self.target, self.labels = map(
            stack, ("tokens", "target", "labels")
        )
        self.tt, self.ts, self.ss = stack("gram_tt"), stack("gram_ts"), stack("gram_ss")
        self.constant = (
            torch.einsum("rnab,rnbc,rnac->r", self.target, self.tt, self.target) / 2
        )
        self.cross = self.target @ self.ts
        # Kept only for the value matrix, which requires the outputs.
        self.rows = self.tokens.flatten(1, 2)

    def fields(self, Q: Tensor) -> Tensor:
        """``(x+p) Q/sqrt(d)`` for weights of shape ``(run, d, rank)``; shape
        ``(run, n, 2, rank)``.
        """
        return torch.bmm(self.rows, Q).unflatten(1, (-1, 2)) / np.sqrt(self.d)

    def attention(self, weights: Weights) -> Tensor:
        """Attention matrices, shape ``(run, n, 2, 2)``."""
        h = self.fields(weights["Q"])
        k = self.fields(weights["K"]) if "K" in weights else h
        if self.heads:
            return torch.softmax(h[:, :, :, None] * k[:, :, None], dim=3).mean(4)
        return torch.softmax(h @ k.transpose(2, 3), dim=3)

    def errors(self, weights: Weights) -> Tensor:
        """Sum over sentences of ``|y - f|^2/(2d)`` of every run; of low rank ``|y -
        f|^2/2``.
        """
        S = self.attention(weights)
        if "V" in weights:  # padded sentences have zero tokens and labels
            return (self.labels - S @ self.fields(weights["V"])).square().sum(
                (1, 2, 3)
            ) / 2
        if "W" not in weights:
            # Padded sentences have zero Gram matrices and targets.
            return self.constant + ((S @ self.ss / 2 - self.cross) * S).sum((1, 2, 3))
        shift = torch.as_tensor(positional_encoding(self.d)).to(self.tokens)
        real = (self.target.sum((2, 3)) > 0)[:, :, None, None]
        y = self.target @ (self.tokens - shift)
        out = S @ torch.bmm(self.rows, weights["W"]).unflatten(1, (-1, 2))
        return ((y - out) * real).square().sum((1, 2, 3)) / (2 * self.d)

    def objective(self, weights: Weights) -> Tensor:
        """Empirical risk (3) of every run, shape ``(run,)``."""
        ridge = sum(w.square().sum((1, 2)) for w in weights.values())
        return self.errors(weights) + self.lam / 2 * ridge

    def gradient(self, weights: Weights) -> tuple[Tensor, Weights]:
        """Objective and its gradient with respect to every weight."""
        leaves = {k: v.detach().requires_grad_() for k, v in weights.items()}
        value = self.objective(leaves)
        slopes = torch.autograd.grad(value.sum(), list(leaves.values()))
        return value.detach(), dict(zip(leaves, slopes, strict=True))


def initial_weights(
    p: Parameters, teacher: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Initial weights: ``Q`` of shape ``(d, rank)``, and ``K``, ``W`` or ``V`` if
    trained.

    Semantic: the teacher, of norm sqrt(d). Positional: ``1/sqrt(d)`` in every entry,
    norm one, which is close to the origin. Random: 0.1 times normal. For the
    extensions, which the paper's code leaves open, an untied K starts like Q, a value
    matrix at the identity, and values of low rank at their teacher.
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
            Q = Q + 0.01 * np.linalg.norm(Q[:, 0]) / np.sqrt(p.d) * rng.standard_normal(
                Q.shape
            )
    out = {"Q": Q}
    if not p.tied:
        out["K"] = (
            0.1 * rng.standard_normal((p.d, p.rank))
            if p.start == "random"
            else Q.copy()
        )
    if p.value:
        out["W"] = np.eye(p.d)
    if p.value_rank:
        size = p.d, p.value_rank
        drawn = p.start == "random"
        out["V"] = (
            0.1 * rng.standard_normal(size) if drawn else value_teacher(p, teacher)
        )
    return out
