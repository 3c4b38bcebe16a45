"""Students: the disentangled transformer with all weights, in 19 directions, or with alpha_3,
beta_2, gamma_3 only (Sec. 3.1).
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn

from simulate.induction_heads.task import swap
from theory.induction_heads import structure

PSEUDO = structure.pseudo_parameters()
NAMES = tuple(p.name for p in PSEUDO)
THREE = tuple(structure.HEAD.values())


def attention(scores: torch.Tensor, mask: str) -> torch.Tensor:
    """Row softmax over earlier positions, including the position itself if ``mask`` is inclusive.

    With the strict mask the first row has nothing to attend to and is set to zero. ``scores`` holds
    the last rows of the square matrix of scores.
    """
    rows, columns = scores.shape[-2:]
    row = torch.arange(columns - rows, columns, device=scores.device)[:, None]
    column = torch.arange(columns, device=scores.device)
    seen = column <= row if mask == "inclusive" else column < row
    return torch.softmax(scores.masked_fill(~seen, torch.finfo(scores.dtype).min), -1) * seen


class Student(nn.Module):
    """Disentangled transformer (1): two attention layers that append their output to their input,
    and one linear layer.

    The loss depends on the query's row only, so that the second layer is evaluated for that row.
    """

    def __init__(self, D: int, mask: str = "strict", dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.D, self.mask = D, mask
        self.W1 = nn.Parameter(torch.zeros(2 * D, 2 * D, dtype=dtype))
        self.W2 = nn.Parameter(torch.zeros(4 * D, 4 * D, dtype=dtype))
        self.W3 = nn.Parameter(torch.zeros(8 * D, D, dtype=dtype))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Prediction z at the query for sequences (batch, 2N+1, 2D)."""
        first = attention(X @ self.W1 @ X.transpose(1, 2), self.mask)
        U = torch.cat([X, first @ X], -1)
        last = U[:, -1:]
        second = attention(last @ self.W2 @ U.transpose(1, 2), self.mask)
        return (torch.cat([last, second @ U], -1) @ self.W3)[:, 0]

    def weights(self) -> dict[str, torch.Tensor]:
        """The three matrices by name."""
        return {"W1": self.W1, "W2": self.W2, "W3": self.W3}


class Nineteen(nn.Module):
    """The same network with all weights in the 19 directions of Theorem 1.

    On orthonormal data every inner product is fixed, so that the loss does not depend on the draw.
    If every pair is queried once, gradient descent equals the population descent of all weights.
    """

    names: ClassVar[tuple[str, ...]] = NAMES

    def __init__(self, D: int, mask: str = "strict", dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.D, self.mask = D, mask
        self.theta = nn.Parameter(torch.zeros(len(self.names), dtype=dtype))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Prediction z at the query for sequences (batch, 2N+1, 2D)."""
        value = dict(zip(NAMES, self.theta, strict=True))
        token, position = X[..., : self.D], X[..., self.D :]
        first = attention(
            self._bilinear("W1", [token, position], [token, position], value), self.mask
        )
        U = [token, position, first @ token, first @ position]
        last = [u[:, -1:] for u in U]
        second = attention(self._bilinear("W2", last, U, value), self.mask)
        V = [*last, *(second @ u for u in U)]
        return torch.stack([value[p.name] * V[p.row] for p in PSEUDO if p.matrix == "W3"]).sum(0)[
            :, 0
        ]

    @staticmethod
    def _bilinear(
        matrix: str,
        left: list[torch.Tensor],
        right: list[torch.Tensor],
        value: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        terms = (
            value[p.name]
            * left[p.row]
            @ (swap(right[p.column]) if p.kernel == "M" else right[p.column]).transpose(1, 2)
            for p in PSEUDO
            if p.matrix == matrix
        )
        return torch.stack(list(terms)).sum(0)

    def weights(self) -> dict[str, torch.Tensor]:
        """The three matrices by name."""
        return assemble(dict(zip(self.names, self.theta, strict=True)), self.D, self.theta.dtype)


class Constrained(Nineteen):
    """The same network with all weights zero except the blocks alpha M, beta I and gamma I.

    Only the nonzero blocks are multiplied.
    """

    names = THREE

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Prediction z at the query for sequences (batch, 2N+1, 2D)."""
        alpha, beta, gamma = self.theta
        token, position = X[..., : self.D], X[..., self.D :]
        first = attention(alpha * swap(position) @ position.transpose(1, 2), self.mask)
        scores = beta * token[:, -1:] @ (first @ token).transpose(1, 2)
        return gamma * (attention(scores, self.mask) @ token)[:, 0]


def squared_error(z: torch.Tensor, y: torch.Tensor, reduction: str) -> torch.Tensor:
    """Squared error averaged over the batch; ``mean`` or ``sum`` over the D coordinates."""
    each = (z - y).square()
    return each.mean() if reduction == "mean" else each.sum(-1).mean()


def kernel(kind: str, D: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The matrix I or M that a pseudo-parameter multiplies."""
    eye = torch.eye(D, dtype=dtype)
    return eye if kind == "I" else swap(eye)


def assemble(
    values: Mapping[str, torch.Tensor | float], D: int, dtype: torch.dtype = torch.float64
) -> dict[str, torch.Tensor]:
    """Matrices W1, W2, W3 for the given pseudo-parameters, with all others zero (Eqs. (6)-(8)), on
    the same device.
    """
    device = next((v.device for v in values.values() if isinstance(v, torch.Tensor)), None)
    matrices = {}
    for name, (rows, columns) in structure.BLOCKS.items():
        blocks = [[torch.zeros(D, D, dtype=dtype, device=device) for _ in columns] for _ in rows]
        for pseudo in PSEUDO:
            if pseudo.matrix == name and pseudo.name in values:
                add = values[pseudo.name] * kernel(pseudo.kernel, D, dtype).to(device)
                blocks[pseudo.row][pseudo.column] = blocks[pseudo.row][pseudo.column] + add
        matrices[name] = torch.cat([torch.cat(row, 1) for row in blocks], 0)
    return matrices


def project(weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The 19 pseudo-parameters of three matrices: inner products of blocks with I or M, divided by
    D.
    """
    D = weights["W3"].shape[1]

    def along(pseudo: structure.Pseudo) -> torch.Tensor:
        rows, columns = (slice(n * D, (n + 1) * D) for n in (pseudo.row, pseudo.column))
        block = weights[pseudo.matrix][rows, columns]
        return (block if pseudo.kernel == "I" else swap(block)).diagonal().sum() / D

    return torch.stack([along(pseudo) for pseudo in PSEUDO])  # <B, M> = tr(B M)


def residual(weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Norm of the weights outside the 19 directions, relative to the norm of all weights (0 for
    zero weights).
    """
    D, dtype = weights["W3"].shape[1], weights["W3"].dtype
    inside = assemble(dict(zip(NAMES, project(weights), strict=True)), D, dtype)
    out = torch.stack(
        [(weights[k] - inside[k].to(weights[k].device)).square().sum() for k in weights]
    ).sum()
    whole = torch.stack([w.square().sum() for w in weights.values()]).sum()
    return torch.sqrt(out / whole) if whole > 0 else torch.zeros((), dtype=dtype)
