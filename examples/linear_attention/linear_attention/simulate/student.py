"""Linear self-attention on tokens (x, y), and the reduced model without the weights that
stay zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from linear_attention.theory.parameters import Parameters
from simulate.streams import keyed

Weights = dict[str, Tensor]
LONG = {"v": "value", "U": "key_query", "K": "key", "Q": "query"}


def block(name: str, D: int) -> tuple[slice, ...]:
    """Slice of the entries that can become nonzero in a weight of all heads: the last entry of the
    value, and the x block of the others.
    """
    last, first = slice(D, None), slice(D)
    return slice(None), *{"value": (last, last), "key_query": (first, first)}.get(
        name, (slice(None), first)
    )


def attention(weights: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Prediction of linear self-attention: the label entry of the query's output token.

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
        keys = torch.einsum("hre,ben->bhrn", weights["key"], context)
        scores = torch.einsum("bhrn,hrf,bf->bhn", keys, weights["query"], query)
    values = torch.einsum("he,ben->bhn", weights["value"][:, -1], context)
    return (scores * values).sum((1, 2)) / context.shape[-1] + query[:, -1]


def matrix(weights: Mapping[str, Tensor]) -> Tensor:
    """W of the reduced model: sum over heads of v U, or of v K^T Q."""
    if "U" in weights:
        return torch.tensordot(weights["v"], weights["U"], 1)
    valued = weights["v"][:, None, None] * weights["K"]
    return valued.flatten(0, 1).T @ weights["Q"].flatten(0, 1)


def reduced(weights: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Prediction beta^T W x_q; tokens as in `attention`."""
    x, y = X[:, :-1, :-1], X[:, -1, :-1]
    return torch.einsum("bin,bn,ij,bj->b", x, y, matrix(weights), X[:, :-1, -1]) / y.shape[-1]


def embedded(weights: Weights, D: int) -> Weights:
    """Weights of the full attention for given weights of the reduced model, zero elsewhere."""
    found = {}
    for short, w in weights.items():
        w, rows = (
            (w[:, None, None], D + 1)
            if short == "v"
            else (w, D + 1 if short == "U" else w.shape[1])
        )
        found[LONG[short]] = w.new_zeros((len(w), rows, D + 1))
        found[LONG[short]][block(LONG[short], D)] = w
    return found


def extracted(weights: Weights) -> Weights:
    """Weights of the reduced model from those of the full attention."""
    D = weights["value"].shape[-1] - 1
    found = {s: weights[n][block(n, D)] for s, n in LONG.items() if n in weights}
    return found | {"v": found["v"][:, 0, 0]}


def start(p: Parameters, seed: int) -> Weights:
    """Weights of the reduced model at t = 0, in double precision."""
    x, random, merged = p.eigenvalues, keyed(seed, 0), p.attention == "merged"
    D, rows = x.size, (p.H, p.R, x.size)
    shapes = {"v": (p.H,), **({"U": (p.H, D, D)} if merged else {"K": rows, "Q": rows})}
    drawn = {n: torch.as_tensor(random.standard_normal(s)) for n, s in shapes.items()}
    along = torch.as_tensor(x**2).diag() / float((x**4).sum()) ** 0.5  # Lambda^2, normalised
    if p.begin == "aligned":
        diagonal = torch.eye(p.H * p.R, D, dtype=torch.float64).view(rows)
        drawn = {
            n: along.expand(w.shape) if merged else diagonal for n, w in drawn.items() if n != "v"
        }
        drawn["v"] = torch.full((p.H,), 1.0 if merged else p.R**0.5, dtype=torch.float64)
    if merged:  # sum over heads of ((v + u)/2)^2, u along Lambda^2, is start^2
        growing = (drawn["v"] + torch.einsum("hij,ij->h", drawn["U"], along)) / 2
        drawn = {n: w / growing.norm() for n, w in drawn.items()}
    return {n: p.start * drawn[n] for n in shapes}


def tokens(inputs: np.ndarray, teacher: np.ndarray) -> tuple[Tensor, Tensor]:
    """Tokens and answers of prompts with inputs (batch, D, N+1) and teachers (batch, D, 1)."""
    X = torch.as_tensor(np.concatenate([inputs, (teacher * inputs).sum(1, keepdims=True)], 1))
    answers = X[:, -1, -1].clone()
    X[:, -1, -1] = 0
    return X, answers


def sample(p: Parameters, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Tokens and answers of one batch, which depends only on seed and step."""
    random, x = keyed(seed, 1, step), p.eigenvalues
    inputs = random.standard_normal((p.batch_size, x.size, p.N + 1)) * x[:, None] ** 0.5
    return tokens(inputs, random.standard_normal((p.batch_size, x.size, 1)))


def population(p: Parameters) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """Population loss (over all prompts) of reduced weights."""
    x, a = (torch.tensor(p.values()[n]) for n in ("lambda", "a"))
    quadratic, linear = a[:, None] * x, 2 * (x**2).diag()

    def loss(weights: Mapping[str, Tensor]) -> Tensor:
        W = matrix(weights)
        return x.sum().to(W) + ((quadratic.to(W) * W - linear.to(W)) * W).sum()

    return loss


def final(p: Parameters) -> Tensor:
    """W_dd at the minimum."""
    known = p.values()
    return torch.tensor(known["lambda"] / known["a"])


def invariants(weights: Weights) -> Tensor:
    """Conserved quantities of gradient flow, flattened: the invariants of `merged` or of
    `separate`.
    """
    v = weights["v"]
    if "U" in weights:
        U = weights["U"].flatten(1)
        return (torch.outer(v, v) - U @ U.T).flatten()
    K, Q = weights["K"], weights["Q"]
    return torch.cat([v**2 - K.square().sum((1, 2)), (K @ K.mT - Q @ Q.mT).flatten()])
