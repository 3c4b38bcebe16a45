"""Students of in-context linear regression: linear self-attention on tokens (x, y), and
the reduced model, without the weights that stay zero, on prompts or under its
population gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linear_attention.parameters import Parameters
from simulate.training import plan
from simulate.training.gradient_flow import rates
from simulate.training.learner import Unstacked
from simulate.training.streams import keyed

Weights = dict[str, Tensor]
LONG = {"v": "value", "U": "key_query", "K": "key", "Q": "query"}
MEANING = {
    "loss": "mean squared error over all prompts of beta^T W x_q",
    "learned": (
        "W_dd over its final value, per eigenvector of Lambda, largest eigenvalue first"
    ),
    "rest": "norm of W off its diagonal",
    "others": (
        "largest size of the weights that start at zero; zero in the reduced model"
    ),
    "invariant": "conserved quantities of gradient flow",
}


def attention(weights: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Prediction of linear self-attention: the label entry of the query's output token.

    Parameters
    ----------
    weights : mapping
        ``value`` (H, D+1, D+1) with ``key_query`` of the same shape, or with ``key``
        and ``query`` (H, R, D+1).
    X : Tensor, shape (batch, D+1, N+1)
        Tokens as columns; the last is the query, with label zero. Sums run over the
        others.
    """
    context, query = X[..., :-1], X[..., -1]
    if "key_query" in weights:
        scores = torch.einsum("ben,hef,bf->bhn", context, weights["key_query"], query)
    else:
        keys = torch.einsum("hre,ben->bhrn", weights["key"], context)
        scores = torch.einsum("bhrn,hrf,bf->bhn", keys, weights["query"], query)
    values = torch.einsum("he,ben->bhn", weights["value"][:, -1], context)
    return (scores * values).sum((1, 2)) / context.shape[-1] + query[:, -1]


def block(name: str, D: int) -> tuple[slice, ...]:
    """Entries that can become nonzero in a weight of all heads: the last entry of the
    value, and the x block of the others.
    """
    last, first = slice(D, None), slice(D)
    place = {"v": (last, last), "U": (first, first)}.get(name, (slice(None), first))
    return slice(None), *place


def embedded(weights: Weights, D: int) -> Weights:
    """Weights of the full attention for given weights of the reduced model, zero
    elsewhere.
    """
    weights_of = {}
    for name, w in weights.items():
        rows = w.shape[1] if name in "KQ" else D + 1
        whole = weights_of[LONG[name]] = w.new_zeros((len(w), rows, D + 1))
        whole[block(name, D)] = w[:, None, None] if name == "v" else w
    return weights_of


def extracted(weights: Weights) -> Weights:
    """Weights of the reduced model from those of the full attention."""
    D = weights["value"].shape[-1] - 1
    reduced = {s: weights[n][block(s, D)] for s, n in LONG.items() if n in weights}
    return reduced | {"v": reduced["v"][:, 0, 0]}


def matrix(weights: Mapping[str, Tensor]) -> Tensor:
    """W of the reduced model: sum over heads of v U, or of v K^T Q."""
    if "U" in weights:
        return torch.tensordot(weights["v"], weights["U"], 1)
    return (weights["v"][:, None, None] * weights["K"]).flatten(0, 1).T @ weights[
        "Q"
    ].flatten(0, 1)


def start(p: Parameters, seed: int) -> Weights:
    """Weights of the reduced model at t = 0, in double precision."""
    x = p.eigenvalues
    random = keyed(seed, 0)
    merged = p.attention == "merged"
    D, rows = x.size, (p.H, p.R, x.size)
    shapes = {"v": (p.H,), **({"U": (p.H, D, D)} if merged else {"K": rows, "Q": rows})}
    drawn = {n: torch.as_tensor(random.standard_normal(s)) for n, s in shapes.items()}
    along = torch.as_tensor(x**2).diag() / (x**4).sum() ** 0.5  # Lambda^2, normalised
    if p.begin == "aligned":
        one = (
            along if merged else torch.eye(p.H * p.R, D, dtype=torch.float64).view(rows)
        )
        drawn = {n: one.expand(s) for n, s in shapes.items() if n != "v"}
        drawn["v"] = torch.full(
            (p.H,), 1.0 if merged else p.R**0.5, dtype=torch.float64
        )
    if merged:  # sum over heads of ((v + u)/2)^2, u along Lambda^2, is start^2
        growing = (drawn["v"] + torch.einsum("hij,ij->h", drawn["U"], along)) / 2
        drawn = {n: w / growing.norm() for n, w in drawn.items()}
    return {n: p.start * drawn[n] for n in shapes}


def tokens(inputs: np.ndarray, teacher: np.ndarray) -> tuple[Tensor, Tensor]:
    """Tokens and answers of prompts with inputs (batch, D, N+1) and teachers (batch, D,
    1).
    """
    X = torch.as_tensor(
        np.concatenate([inputs, (teacher * inputs).sum(1, keepdims=True)], 1)
    )
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


def invariants(weights: Mapping[str, Tensor]) -> Weights:
    """Conserved quantities of gradient flow, by name of the equation."""
    v = weights["v"]
    if "U" in weights:
        U = weights["U"].flatten(1)
        return {"merged_invariant": torch.outer(v, v) - U @ U.T}
    K, Q = weights["K"], weights["Q"]
    return {
        "separate_norm": v**2 - K.square().sum((1, 2)),
        "separate_rows": K @ K.mT - Q @ Q.mT,
    }


class Student:
    """One student, trained by descent on half the loss, so that time is eta * steps."""

    def __init__(
        self, p: Parameters, seed: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.p, self.seed, self.device, self.dtype = p, seed, device, dtype
        self.population, self.final, self.D = (
            population(p),
            final(p),
            p.eigenvalues.size,
        )
        begun = start(p, seed)
        begun = embedded(begun, self.D) if p.student == "tokens" else begun
        self.weights = {n: w.to(device, dtype) for n, w in begun.items()}

    def step(self, number: int) -> None:
        """One step of descent."""
        loss = self.population
        if self.p.student != "population":
            X, y = (
                x.to(self.device, self.dtype) for x in sample(self.p, self.seed, number)
            )
            whole = (
                (lambda w: w)
                if self.p.student == "tokens"
                else partial(embedded, D=self.D)
            )
            loss = lambda weights: (y - attention(whole(weights), X)).square().mean()
        _, moved = rates(lambda weights: loss(weights) / 2, self.weights)
        self.weights = {n: w + self.p.eta * moved[n] for n, w in self.weights.items()}

    def measure(self) -> dict[str, Any]:
        """Quantities in `MEANING`."""
        small, others = self.weights, torch.zeros(())
        if self.p.student == "tokens":
            small = extracted(self.weights)
            zeroed = embedded(small, self.D)
            others = torch.stack(
                [(w - zeroed[n]).abs().max() for n, w in self.weights.items()]
            )
        W = matrix(small)
        return {
            "loss": self.population(small),
            "learned": W.diagonal() / self.final.to(W),
            "rest": (W - W.diag().diag()).norm(),
            "others": others.max(),
            "invariant": torch.cat([x.flatten() for x in invariants(small).values()]),
        }

    def state(self) -> Weights:
        """The weights."""
        return self.weights

    def load(self, state: Weights) -> None:
        """Set the weights."""
        self.weights = {n: w.to(self.device) for n, w in state.items()}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes."""
    D, drawn = p.eigenvalues.size, p.student != "population"
    prompts = drawn * p.batch_size * (p.N + 1) * (D + 1 + p.H * (p.R + 2))
    weights = p.H * (D + 1) * max(D + 1, 2 * p.R) + D**2
    recorded = plan.records(p, 4 + D + p.H * (p.H + p.R**2))
    return 8 * 6 * prompts + 12 * itemsize * weights + recorded


SYSTEM = plan.System(
    "linear_attention",
    Parameters,
    partial(Unstacked, Student),
    MEANING,
    memory,
    dimensions={"learned": ("direction",), "invariant": ("pair",)},
    default_dtype="float64",
)
TINY = dict(spectrum="1.2,0.6", N=3, H=2, start=0.2, batch_size=8, **plan.FEW_STEPS)
SYSTEMS = {
    "merged": replace(
        SYSTEM,
        settings={"attention": "merged"},
        tiny={
            "": dict(TINY, student="tokens"),
            "reduced": dict(TINY, student="reduced"),
        },
    ),
    "separate": replace(
        SYSTEM,
        settings={"attention": "separate"},
        tiny={"": dict(TINY, student="tokens"), "population": TINY},
    ),
}
train = SYSTEM.train
