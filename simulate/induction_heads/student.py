"""Task of item-label pairs (Sec. 3.2), and students: the disentangled transformer with
all weights, in 19 directions, or with alpha_3, beta_2, gamma_3 only (Sec. 3.1).
"""

import functools
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from simulate.training.streams import of_torch
from theory.induction_heads import Parameters, structure

# Task

STREAMS = ("train", "test", "initialisation")


class Batch(NamedTuple):
    """Sequences ``X`` of shape (batch, 2N+1, 2D), targets ``y`` (batch, D), and queried
    pairs ``q`` (batch,), counted from 0.
    """

    X: Tensor
    y: Tensor
    q: Tensor


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """Random stream for a seed, purpose and step, so that a resumed run draws the same
    numbers as an uninterrupted one.
    """
    return of_torch(seed, STREAMS.index(stream), step)


def swap(x: Tensor) -> Tensor:
    """Multiply row vectors by M: exchange the halves of the last axis."""
    return torch.roll(x, x.shape[-1] // 2, -1)


def haar(
    shape: tuple[int, int, int], random: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """Orthonormal rows, uniform over all frames: (batch, rows, dimension)."""
    batch, rows, dimension = shape
    frame, upper = torch.linalg.qr(
        torch.randn(batch, dimension, rows, generator=random, dtype=dtype)
    )
    return (frame * upper.diagonal(dim1=1, dim2=2).sign()[:, None]).transpose(1, 2)


def orthonormal(
    p: Parameters, size: int, random: torch.Generator, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Items, labels and codes such that all tokens are orthonormal, and so are all
    codes and swapped codes together.

    A code is half in the +1 and half in the -1 eigenspace of M, (f + g)/sqrt(2): then p
    M = (f - g)/sqrt(2).
    """
    D, N = p.dimension, p.N
    tokens = haar((size, 2 * N, D), random, dtype)
    plus, minus = (haar((size, N, D // 2), random, dtype) for _ in range(2))
    return tokens[:, :N], tokens[:, N:], torch.cat([plus + minus, plus - minus], -1) / 2


def batch_of(items: Tensor, labels: Tensor, codes: Tensor, q: Tensor) -> Batch:
    """Sequence of Eqs. (3)-(4) from items, labels and codes of shape (batch, N, D)."""
    batch, N, D = items.shape
    pairs = torch.stack(
        [torch.cat([items, codes], -1), torch.cat([labels, swap(codes)], -1)], 2
    )
    each = torch.arange(batch)
    query = torch.cat([items[each, q], torch.zeros_like(items[:, 0])], -1)
    return Batch(
        torch.cat([pairs.reshape(batch, 2 * N, 2 * D), query[:, None]], 1),
        labels[each, q],
        q,
    )


def sample(
    p: Parameters,
    random: torch.Generator,
    size: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """Draw sequences from the distribution selected in ``p`` (Eq. (5), or Assumptions 7
    and 8); the last ``p.B`` pairs are one pair.
    """
    size = size or p.batch_size
    if p.data == "orthonormal":
        items, labels, codes = orthonormal(p, size, random, dtype)
    else:
        items, labels, codes = torch.randn(
            3, size, p.N, p.dimension, generator=random, dtype=dtype
        )
    for tokens in (items, labels):
        tokens[:, p.N - p.B :] = tokens[:, -1:].clone()
    q = {
        "uniform": lambda: torch.randint(p.N, (size,), generator=random),
        "last": lambda: torch.full((size,), p.N - 1),
        "each": lambda: torch.arange(size) % p.N,
    }[p.query]()
    return batch_of(items, labels, codes, q)


def scale(p: Parameters) -> float:
    """Mean of |y|^2: the loss of predicting zero,
    by which recorded losses are divided.
    """
    return 1.0 if p.data == "orthonormal" else float(p.dimension)


PSEUDO = structure.pseudo_parameters()
NAMES = tuple(p.name for p in PSEUDO)
THREE = tuple(structure.HEAD.values())


def attention(scores: Tensor, mask: str) -> Tensor:
    """Row softmax over earlier positions, including the position itself if ``mask`` is
    inclusive.

    With the strict mask the first row has nothing to attend to and is set to zero.
    ``scores`` holds the last rows of the square matrix of scores.
    """
    rows, columns = scores.shape[-2:]
    row = torch.arange(columns - rows, columns, device=scores.device)[:, None]
    column = torch.arange(columns, device=scores.device)
    seen = column <= row if mask == "inclusive" else column < row
    return (
        torch.softmax(scores.masked_fill(~seen, torch.finfo(scores.dtype).min), -1)
        * seen
    )


class Student(nn.Module):
    """Disentangled transformer (1): two attention layers that append their output to
    their input, and one linear layer.

    The loss depends on the query's row only, so that the second layer is evaluated for
    that row.
    """

    def __init__(
        self, D: int, mask: str = "strict", dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.D, self.mask = D, mask
        self.W1 = nn.Parameter(torch.zeros(2 * D, 2 * D, dtype=dtype))
        self.W2 = nn.Parameter(torch.zeros(4 * D, 4 * D, dtype=dtype))
        self.W3 = nn.Parameter(torch.zeros(8 * D, D, dtype=dtype))

    def forward(self, X: Tensor) -> Tensor:
        """Prediction z at the query for sequences (batch, 2N+1, 2D)."""
        U = torch.cat(
            [X, attention(X @ self.W1 @ X.transpose(1, 2), self.mask) @ X], -1
        )
        last = U[:, -1:]
        second = attention(last @ self.W2 @ U.transpose(1, 2), self.mask)
        return (torch.cat([last, second @ U], -1) @ self.W3)[:, 0]

    def weights(self) -> dict[str, Tensor]:
        """The three matrices by name."""
        return {"W1": self.W1, "W2": self.W2, "W3": self.W3}


class Nineteen(nn.Module):
    """The same network with all weights in the 19 directions of Theorem 1.

    On orthonormal data every inner product is fixed, so that the loss does not depend
    on the draw. If every pair is queried once, gradient descent equals the population
    descent of all weights.
    """

    names: ClassVar[tuple[str, ...]] = NAMES

    def __init__(
        self, D: int, mask: str = "strict", dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.D, self.mask = D, mask
        self.theta = nn.Parameter(torch.zeros(len(self.names), dtype=dtype))

    def forward(self, X: Tensor) -> Tensor:
        """Prediction z at the query for sequences (batch, 2N+1, 2D)."""
        value = dict(zip(self.names, self.theta.unbind(), strict=True))

        def summed(matrix: str, term: Callable[[structure.Pseudo], Tensor]) -> Tensor:
            used = (p for p in PSEUDO if p.matrix == matrix and p.name in value)
            return functools.reduce(torch.add, (value[p.name] * term(p) for p in used))

        def other(p: structure.Pseudo, x: Tensor) -> Tensor:
            return (swap(x) if p.kernel == "M" else x).transpose(1, 2)

        halves = X[..., : self.D], X[..., self.D :]  # token and position
        scores = summed("W1", lambda p: halves[p.row] @ other(p, halves[p.column]))
        first = attention(scores, self.mask)

        @functools.cache
        def U(block: int) -> Tensor:
            return halves[block] if block < 2 else first @ halves[block - 2]

        scores = summed("W2", lambda p: U(p.row)[:, -1:] @ other(p, U(p.column)))
        second = attention(scores, self.mask)
        rows = summed(
            "W3", lambda p: U(p.row)[:, -1:] if p.row < 4 else second @ U(p.row - 4)
        )
        return rows[:, 0]

    def weights(self) -> dict[str, Tensor]:
        """The three matrices by name."""
        return assemble(
            dict(zip(self.names, self.theta, strict=True)), self.D, self.theta.dtype
        )


class Constrained(Nineteen):
    """The same network with all weights zero except the blocks alpha M, beta I and
    gamma I.
    """

    names = THREE


def squared_error(z: Tensor, y: Tensor, reduction: str) -> Tensor:
    """Squared error averaged over the batch; ``mean`` or ``sum`` over the D
    coordinates.
    """
    each = (z - y).square()
    return each.mean() if reduction == "mean" else each.sum(-1).mean()


def kernel(kind: str, D: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The matrix I or M that a pseudo-parameter multiplies."""
    eye = torch.eye(D, dtype=dtype)
    return eye if kind == "I" else swap(eye)


def assemble(
    values: Mapping[str, Tensor | float], D: int, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Matrices W1, W2, W3 for the given pseudo-parameters, with all others zero (Eqs.
    (6)-(8)), on the same device.
    """
    device = next((v.device for v in values.values() if isinstance(v, Tensor)), None)
    matrices = {}
    for name, (rows, columns) in structure.BLOCKS.items():
        blocks = [
            [torch.zeros(D, D, dtype=dtype, device=device) for _ in columns]
            for _ in rows
        ]
        for pseudo in PSEUDO:
            if pseudo.matrix == name and pseudo.name in values:
                add = values[pseudo.name] * kernel(pseudo.kernel, D, dtype).to(device)
                blocks[pseudo.row][pseudo.column] = (
                    blocks[pseudo.row][pseudo.column] + add
                )
        matrices[name] = torch.cat([torch.cat(row, 1) for row in blocks], 0)
    return matrices


def project(weights: Mapping[str, Tensor]) -> Tensor:
    """The 19 pseudo-parameters of three matrices: inner products of blocks with I or M,
    divided by D.
    """
    D = weights["W3"].shape[1]

    def along(pseudo: structure.Pseudo) -> Tensor:
        rows, columns = (slice(n * D, (n + 1) * D) for n in (pseudo.row, pseudo.column))
        block = weights[pseudo.matrix][rows, columns]
        return (block if pseudo.kernel == "I" else swap(block)).diagonal().sum() / D

    return torch.stack([along(pseudo) for pseudo in PSEUDO])  # <B, M> = tr(B M)


def residual(weights: Mapping[str, Tensor]) -> Tensor:
    """Norm of the weights outside the 19 directions, relative to the norm of all
    weights (0 for zero weights).
    """
    D, dtype = weights["W3"].shape[1], weights["W3"].dtype
    inside = assemble(dict(zip(NAMES, project(weights), strict=True)), D, dtype)
    out = torch.stack(
        [(weights[k] - inside[k].to(weights[k].device)).square().sum() for k in weights]
    ).sum()
    whole = torch.stack([w.square().sum() for w in weights.values()]).sum()
    return torch.sqrt(out / whole) if whole > 0 else torch.zeros((), dtype=dtype)
