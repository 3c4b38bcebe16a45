"""Linear self-attention on tokens (x, y), and what is left of it without the weights that start at
zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from linear_attention.theory.parameters import Parameters
from simulate.streams import keyed

Weights = dict[str, Tensor]
# The block of a weight that may move: the last entry of the value; in the rest, what meets x.
BLOCKS = {
    "value": lambda D: (slice(D, None), slice(D, None)),
    "key_query": lambda D: (slice(D), slice(D)),
    "key": lambda D: (slice(None), slice(D)),
    "query": lambda D: (slice(None), slice(D)),
}
LONG = {"v": "value", "U": "key_query", "K": "key", "Q": "query"}


def attention(weights: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Prediction of linear self-attention: the label's place of the query's token.

    Parameters
    ----------
    weights : mapping
        ``value`` (H, D+1, D+1) with ``key_query`` of the same shape, or with ``key`` and ``query``
        (H, R, D+1).
    X : Tensor, shape (batch, D+1, N+1)
        Tokens as columns; the last is the query, with label zero. Sums run over the others.
    """
    context, query = X[..., :-1], X[..., -1]
    if "key_query" in weights:
        scores = torch.einsum("ben,hef,bf->bhn", context, weights["key_query"], query)
    else:
        keys, asked = (
            torch.einsum("hre,be...->bhr...", weights[k], x)
            for k, x in (("key", context), ("query", query))
        )
        scores = torch.einsum("bhrn,bhr->bhn", keys, asked)
    values = torch.einsum("he,ben->bhn", weights["value"][:, -1], context)
    return (scores * values).sum((1, 2)) / context.shape[-1] + query[:, -1]


def matrix(weights: Mapping[str, Tensor]) -> Tensor:
    """W of the reduced model: sum over heads of v U, or of v K^T Q."""
    if "U" in weights:
        return torch.einsum("h,hij->ij", weights["v"], weights["U"])
    return torch.einsum("h,hri,hrj->ij", weights["v"], weights["K"], weights["Q"])


def reduced(weights: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Prediction beta^T W x_q; tokens as in `attention`."""
    x, y = X[:, :-1, :-1], X[:, -1, :-1]
    return torch.einsum("bin,bn,ij,bj->b", x, y, matrix(weights), X[:, :-1, -1]) / y.shape[-1]


def embedded(weights: Weights, D: int) -> Weights:
    """Weights of the attention that hold those of the reduced model, and zeros."""
    heads, found = len(weights["v"]), {}
    for short, w in weights.items():
        name, w = LONG[short], w[:, None, None] if short == "v" else w
        whole = w.new_zeros((heads, w.shape[1] if name in ("key", "query") else D + 1, D + 1))
        whole[(slice(None), *BLOCKS[name](D))] = w
        found[name] = whole
    return found


def extracted(weights: Weights) -> Weights:
    """The part of the attention that may move, under the short names."""
    D = weights["value"].shape[-1] - 1
    found = {s: weights[n][(slice(None), *BLOCKS[n](D))] for s, n in LONG.items() if n in weights}
    return found | {"v": found["v"][:, 0, 0]}


def start(p: Parameters, seed: int) -> Weights:
    """Weights of the reduced model at t = 0, in double precision."""
    x = p.eigenvalues
    D, random = x.size, keyed(seed, 0)
    if p.attention == "separate":
        shapes = {"v": (p.H,), "K": (p.H, p.R, D), "Q": (p.H, p.R, D)}
    else:
        shapes = {"v": (p.H,), "U": (p.H, D, D)}
    drawn = {n: torch.as_tensor(random.standard_normal(s)) for n, s in shapes.items()}
    along = torch.as_tensor(x**2).diag() / float((x**4).sum()) ** 0.5  # Lambda^2, of size one
    if p.begin == "aligned":
        drawn = {n: torch.zeros_like(w) for n, w in drawn.items()}
        drawn["v"] += p.R**0.5 if p.attention == "separate" else 1
        if p.attention == "merged":
            drawn["U"] += along
        for n in {"K", "Q"} & drawn.keys():
            drawn[n].view(p.H * p.R, D).fill_diagonal_(1)
    if p.attention == "merged":  # sum over heads of ((v + u)/2)^2, u along Lambda^2, is start^2
        growing = (drawn["v"] + torch.einsum("hij,ij->h", drawn["U"], along)) / 2
        drawn = {n: w / growing.norm() for n, w in drawn.items()}
    return {n: p.start * w for n, w in drawn.items()}


def draw(p: Parameters, seed: int, step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Tokens and answers of one batch; it depends on nothing but seed and step."""
    random, x = keyed(seed, 1, step), p.eigenvalues
    points = random.standard_normal((p.batch_size, x.size, p.N + 1)) * x[:, None] ** 0.5
    labels = (random.standard_normal((p.batch_size, x.size, 1)) * points).sum(1, keepdims=True)
    X = torch.as_tensor(points).to(dtype), torch.as_tensor(labels).to(dtype)
    answer = X[1][:, 0, -1].clone()
    X[1][:, 0, -1] = 0
    return torch.cat(X, 1), answer


class Population:
    """Loss over all prompts as a function of W, and the force -(1/2) dL/dW."""

    def __init__(
        self, p: Parameters, dtype: torch.dtype = torch.float64, device: torch.device | None = None
    ) -> None:
        known = p.values()
        self.x, self.a = (
            torch.as_tensor(known[n], dtype=dtype, device=device) for n in ("lambda", "a")
        )

    def loss(self, W: Tensor) -> Tensor:
        """Mean squared error."""
        return (
            self.x.sum()
            - 2 * (self.x**2 * W.diagonal()).sum()
            + (self.a[:, None] * self.x * W**2).sum()
        )

    def force(self, W: Tensor) -> Tensor:
        """What drives the heads."""
        return (self.x**2).diag() - self.a[:, None] * self.x * W


def invariants(weights: Weights) -> Tensor:
    """What gradient flow conserves, flattened: the invariants of `merged`, or of `separate`."""
    v = weights["v"]
    if "U" in weights:
        return (
            torch.outer(v, v) - torch.einsum("gij,hij->gh", weights["U"], weights["U"])
        ).flatten()
    K, Q = weights["K"], weights["Q"]
    return torch.cat([v**2 - K.square().sum((1, 2)), (K @ K.mT - Q @ Q.mT).flatten()])


def population_rates(weights: Weights, G: Tensor) -> Weights:
    """Rates of the reduced weights under a force."""
    v = weights["v"]
    if "U" in weights:
        return {"v": torch.einsum("hij,ij->h", weights["U"], G), "U": v[:, None, None] * G}
    K, Q = weights["K"], weights["Q"]
    return {
        "v": torch.einsum("hri,hrj,ij->h", K, Q, G),
        "K": v[:, None, None] * (Q @ G.T),
        "Q": v[:, None, None] * (K @ G),
    }
