"""One softmax head and a memory on contexts of items from a pool, written without the statement."""

from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate.learner import Descent
from simulate.streams import keyed


def contexts(p: Any, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Items of contexts in random order, and the queried ones: item i has label ``i // p.C``.

    Parameters
    ----------
    p : Parameters
        Of `theory.induction_heads.in_weights`, with C > R.
    size : int
        How many contexts.
    random : Generator
    """
    asked = random.integers(p.L * p.C, size=size)
    order = random.random((size, p.L, p.C))
    order[np.arange(size), asked // p.C, asked % p.C] = 2  # not among the others
    others = order.argsort(2)[:, :, : p.R] + p.C * np.arange(p.L)[:, None]
    copies = np.repeat(asked[:, None], p.B, 1)
    whole = np.concatenate([others.reshape(size, -1), copies], 1)
    return random.permuted(whole, axis=1), asked


class Transformer:
    """A head with score ``x S x'`` for items x and x' and read-out ``w`` of labels, and a table
    ``M`` of the label of every item with read-out ``c``.

    Parameters
    ----------
    p : Parameters
    items : Tensor, optional
        A row per item. Without it items are orthonormal, and ``S`` is ``beta`` times one.
    """

    def __init__(self, p: Any, items: Tensor | None = None) -> None:
        self.p, self.items = p, items
        score = () if items is None else (items.shape[1],) * 2
        shapes = {"S": score, "w": (), "c": (), "M": (p.L * p.C, p.L)}
        self.weights = {n: torch.zeros(s, dtype=torch.float64) for n, s in shapes.items()}
        self.weights["c"] += p.c_0
        for x in self.weights.values():
            x.requires_grad_()

    def attention(self, seen: Tensor, asked: Tensor) -> Tensor:
        """Attention of the query to every place of its context."""
        S, x = self.weights["S"], self.items
        if x is None:
            scores = S * (seen == asked[:, None])
        else:
            scores = torch.einsum("bi,ij,bpj->bp", x[asked], S, x[seen])
        return scores.softmax(1)

    def losses(self, seen: Tensor, asked: Tensor) -> Tensor:
        """Cross-entropy of the label of the queried item."""
        w, c, M = (self.weights[n] for n in "wcM")
        labels = torch.nn.functional.one_hot(seen // self.p.C, self.p.L).double()
        head = (self.attention(seen, asked)[:, :, None] * labels).sum(1)
        right = asked // self.p.C
        return -(w * head + c * M[asked]).log_softmax(1).gather(1, right[:, None])[:, 0]


def descent(p: Any, seed: int, dim: int | None = None) -> xr.Dataset:
    """Attention to the queried item, and residual, over the flow's time: on fresh contexts, with
    orthonormal items, or Gaussian ones of mean square 1 in ``dim`` dimensions. ``S`` is then a full
    matrix, and learns ``dim`` times as fast, so that its mean diagonal does as ``beta``.
    """
    random, items = keyed(seed, 0), None
    if dim is not None:
        items = torch.as_tensor(random.normal(size=(p.L * p.C, dim)) / np.sqrt(dim))
    student = Transformer(p, items)
    (S, *others) = student.weights.values()
    optimizers = [Descent([S], lr=p.eta * (dim or 1)), Descent(others, lr=p.eta)]
    curves: dict[str, list[float]] = {"attention": [], "residual": []}
    for number in range(p.steps + 1):
        drawn = contexts(p, p.batch_size, keyed(seed, 1, number))
        seen, asked = (torch.as_tensor(x) for x in drawn)
        losses = student.losses(seen, asked)
        losses.mean().backward()
        on = (student.attention(seen, asked) * (seen == asked[:, None])).sum(1)
        curves["attention"].append(float(on.detach().mean()))
        curves["residual"].append(float((1 - (-losses.detach()).exp()).mean()))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    times = p.eta * np.arange(p.steps + 1)
    return xr.Dataset({k: ("t", x) for k, x in curves.items()}, {"t": times})
