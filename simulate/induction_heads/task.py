"""Task: item-label pairs with positional codes, followed by one of the items as query (Sec.
3.2).
"""

from typing import NamedTuple

import torch

from simulate.streams import of_torch
from theory.induction_heads import Parameters

STREAMS = ("train", "test", "initialisation")


class Batch(NamedTuple):
    """Sequences ``X`` of shape (batch, 2N+1, 2D), targets ``y`` (batch, D), and queried pairs ``q``
    (batch,), counted from 0.
    """

    X: torch.Tensor
    y: torch.Tensor
    q: torch.Tensor


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """Random stream for a seed, purpose and step, so that a resumed run draws the same numbers as
    an uninterrupted one.
    """
    return of_torch(seed, STREAMS.index(stream), step)


def swap(x: torch.Tensor) -> torch.Tensor:
    """Multiply row vectors by M: exchange the halves of the last axis."""
    return torch.roll(x, x.shape[-1] // 2, -1)


def haar(shape: tuple[int, int, int], random: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Orthonormal rows, uniform over all frames: (batch, rows, dimension)."""
    batch, rows, dimension = shape
    frame, upper = torch.linalg.qr(
        torch.randn(batch, dimension, rows, generator=random, dtype=dtype)
    )
    return (frame * upper.diagonal(dim1=1, dim2=2).sign()[:, None]).transpose(1, 2)


def orthonormal(
    p: Parameters, size: int, random: torch.Generator, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Items, labels and codes such that all tokens are orthonormal, and so are all codes and
    swapped codes together.

    A code is half in the +1 and half in the -1 eigenspace of M, (f + g)/sqrt(2): then p M = (f -
    g)/sqrt(2).
    """
    D, N = p.dimension, p.N
    tokens = haar((size, 2 * N, D), random, dtype)
    plus, minus = (haar((size, N, D // 2), random, dtype) for _ in range(2))
    codes = torch.cat([plus + minus, plus - minus], -1) / 2
    return tokens[:, :N], tokens[:, N:], codes


def assemble(
    items: torch.Tensor, labels: torch.Tensor, codes: torch.Tensor, q: torch.Tensor
) -> Batch:
    """Sequence of Eqs. (3)-(4) from items, labels and codes of shape (batch, N, D)."""
    batch, N, D = items.shape
    pairs = torch.stack([torch.cat([items, codes], -1), torch.cat([labels, swap(codes)], -1)], 2)
    each = torch.arange(batch)
    query = torch.cat([items[each, q], torch.zeros_like(items[:, 0])], -1)
    return Batch(
        torch.cat([pairs.reshape(batch, 2 * N, 2 * D), query[:, None]], 1), labels[each, q], q
    )


def sample(
    p: Parameters,
    random: torch.Generator,
    size: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """Draw sequences from the distribution selected in ``p`` (Eq. (5), or Assumptions 7 and 8); the
    last ``p.B`` pairs are one pair.
    """
    size = size or p.batch_size
    if p.data == "orthonormal":
        items, labels, codes = orthonormal(p, size, random, dtype)
    else:
        items, labels, codes = torch.randn(3, size, p.N, p.dimension, generator=random, dtype=dtype)
    for tokens in (items, labels):
        tokens[:, p.N - p.B :] = tokens[:, -1:].clone()
    q = {
        "uniform": lambda: torch.randint(p.N, (size,), generator=random),
        "last": lambda: torch.full((size,), p.N - 1),
        "each": lambda: torch.arange(size) % p.N,
    }[p.query]()
    return assemble(items, labels, codes, q)


def scale(p: Parameters) -> float:
    """Mean of |y|^2: the loss of predicting zero, by which recorded losses are divided."""
    return 1.0 if p.data == "orthonormal" else float(p.dimension)
