"""Sentences, teacher and target of the positional-semantic task (Eqs. 1, 16)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from simulate.streams import spawned
from theory.positional_semantic import Parameters

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

    ``normalised`` sets the norm to sqrt(d) and the overlap with p to zero, their limits for large
    d, which removes most of the variation between seeds.
    """
    teacher = rng.standard_normal(p.d)
    if p.teacher == "normalised":
        teacher -= teacher.mean()
        teacher *= np.sqrt(p.d) / np.linalg.norm(teacher)
    return teacher


def value_teacher(p: Parameters, teacher: np.ndarray) -> np.ndarray:
    """Teacher V* of low-rank values, shape ``(d, value_rank)``: orthogonal columns of norm sqrt(d),
    orthogonal to p and Q*. Tokens are isotropic, so that only these overlaps matter.
    """
    given = np.stack([np.ones(p.d), teacher, *np.eye(p.d)[: p.value_rank]], 1)
    return np.linalg.qr(given)[0][:, 2:] * np.sqrt(p.d)


def draw_sentences(p: Parameters, n: int, rng: np.random.Generator) -> np.ndarray:
    """Tokens ``x``, shape ``(n, 2, d)``, variance sigma^2; the second may be correlated with the
    first.
    """
    x = rng.standard_normal((n, 2, p.d), dtype=np.float32)
    if p.correlation:
        x[:, 1] = p.correlation * x[:, 0] + np.sqrt(1 - p.correlation**2) * x[:, 1]
    x *= p.sigma
    return x


def target_attention(p: Parameters, x: np.ndarray, teacher: np.ndarray) -> np.ndarray:
    """Target matrix T (16) of every sentence, shape ``(n, 2, 2)``; the teacher acts on x
    without p.
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
        ``x x^T/d``, ``x (x+p)^T/d`` and ``(x+p)(x+p)^T/d``. With these the squared error of a
        student without a value matrix needs no sum over d.
    labels : Tensor, shape (n, 2, k)
        ``T x V*/sqrt(d)``, fitted in place of ``T x`` by a student with k columns of values.
    """

    tokens: torch.Tensor
    target: torch.Tensor
    gram_tt: torch.Tensor
    gram_ts: torch.Tensor
    gram_ss: torch.Tensor
    labels: torch.Tensor

    @property
    def y(self) -> torch.Tensor:
        """Target outputs ``T x``, shape ``(n, 2, d)``."""
        return self.target @ (
            self.tokens
            - torch.as_tensor(positional_encoding(self.tokens.shape[-1])).to(self.tokens)
        )

    def idealised(self, sigma: float) -> Data:
        """Copy with Gram matrices at their limit, sigma^2 times the identity (40)."""
        limit = sigma**2 * torch.eye(2).to(self.gram_tt).expand_as(self.gram_tt)
        return Data(self.tokens, self.target, limit, limit, limit, self.labels)


def make(p: Parameters, x: np.ndarray, teacher: np.ndarray, dtype: torch.dtype) -> Data:
    """Data of given sentences."""
    x = x.astype(np.float64 if dtype == torch.float64 else np.float32, copy=False)
    target = target_attention(p, x, teacher)
    shift = positional_encoding(p.d).astype(x.dtype)
    tokens = x + shift
    grams = [
        np.einsum("nld,nkd->nlk", a, b, dtype=float, optimize=True) / p.d
        for a, b in ((x, x), (x, tokens), (tokens, tokens))
    ]
    labels = target @ (x @ value_teacher(p, teacher).astype(x.dtype)) / np.sqrt(p.d)
    return Data(*(torch.as_tensor(v).to(dtype) for v in (tokens, target, *grams, labels)))


def sample(p: Parameters, seed: int, dtype: torch.dtype = torch.float64) -> tuple[np.ndarray, Data]:
    """Teacher and training data of a seed."""
    stream = streams(seed)
    teacher = draw_teacher(p, stream["teacher"])
    return teacher, make(p, draw_sentences(p, p.n, stream["train"]), teacher, dtype)
