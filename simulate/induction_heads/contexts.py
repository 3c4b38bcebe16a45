"""Students of contexts of other kinds, written without statements: Markov chains, right
pairs at any places, a pool of items; and the perceptron of Nguyen and Reddy.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from simulate.induction_heads import student as task
from simulate.induction_heads.student import Constrained, squared_error
from simulate.training.learner import Descent
from simulate.training.streams import keyed
from theory.induction_heads import Parameters


def descend(
    at: Callable[[int], tuple[Tensor, Mapping[str, Tensor]]],
    optimizers: list[Descent],
    steps: int,
    step: float,
) -> xr.Dataset:
    """Curves over the flow's time, while all optimisers descend a loss.

    Parameters
    ----------
    at : callable
        Loss, and numbers to be recorded, before a step of a given number.
    optimizers : list of Descent
    steps : int
    step : float
        Time of a step.
    """
    curves = defaultdict(list)
    for number in range(steps + 1):
        loss, numbers = at(number)
        for name, value in numbers.items():
            curves[name].append(float(value.detach()))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return xr.Dataset(
        {k: ("t", x) for k, x in curves.items()}, {"t": step * np.arange(steps + 1)}
    )


# Two softmax layers on sequences of in-context Markov chains


def draw_chains(
    p: Any, size: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Random chains: symbol of every state, and the state after it;
    both (size, p.m).
    """
    return random.random((size, p.k)).argsort(1)[:, : p.m], random.random(
        (size, p.m)
    ).argsort(1)


def chain_sequences(
    p: Any,
    symbols: np.ndarray,
    after: np.ndarray,
    length: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences of symbols, probabilities of the symbol that follows, and last states.

    Parameters
    ----------
    p : Parameters
        Of `theory.induction_heads.markov`.
    symbols, after : ndarray
        Chains, as `draw_chains` makes them.
    length : int
        Of a sequence.
    random : Generator
    """
    size, rows = len(symbols), np.arange(len(symbols))
    states = random.integers(p.m, size=(size, length))
    follows = random.random((size, length)) < p.rho
    for n in range(1, length):
        states[:, n] = np.where(
            follows[:, n], after[rows, states[:, n - 1]], states[:, n]
        )
    chances = np.zeros((size, p.k + p.U))
    np.put_along_axis(chances, symbols, (1 - p.rho) / p.m, 1)
    chances[rows, symbols[rows, after[rows, states[:, -1]]]] += p.rho
    return np.take_along_axis(symbols, states, 1), chances, states[:, -1]


class ChainTransformer:
    """First layer: softmax over lags with scores ``v``. Second layer: softmax over
    tokens, with score ``W`` between the last token and the first layer's output.
    Output: ``c`` times the attended token.

    Parameters
    ----------
    p : Parameters
    gap : int
        Tokens between two lags after the first, which is 1.
    """

    def __init__(self, p: Any, gap: int) -> None:
        self.p, self.lags = p, 1 + gap * torch.arange(p.D)
        shapes = {"v": (p.D,), "W": (p.k, p.k), "c": ()}
        made = {
            n: torch.zeros(s, dtype=torch.float64, requires_grad=True)
            for n, s in shapes.items()
        }
        self.weights: dict[str, Tensor] = made

    def losses(self, tokens: Tensor, chances: Tensor) -> Tensor:
        """Cross-entropy of the token after the last."""
        v, W, c = (self.weights[n] for n in "vWc")
        first = int(self.lags[-1])
        read = W[tokens[:, -1]].gather(1, tokens)
        places = torch.arange(first, tokens.shape[1])[:, None] - self.lags
        attention = (read[:, places] @ v.softmax(0)).softmax(1)
        seen = torch.zeros(len(tokens), self.p.k + self.p.U, dtype=torch.float64)
        logits = c * seen.scatter_add(1, tokens[:, first:], attention)
        return -(chances * logits.log_softmax(1)).sum(1)


def chain_descent(p: Any, length: int, gap: int, seed: int) -> xr.Dataset:
    """Attention of the first layer to the previous token, over the flow's time, while a
    student is trained from zero on fresh sequences with ``length`` tokens in reach of
    all lags.
    """
    student = ChainTransformer(p, gap)

    def at(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        random = keyed(seed, number)
        whole = length + int(student.lags[-1])
        tokens, chances, _ = chain_sequences(
            p, *draw_chains(p, p.batch_size, random), whole, random
        )
        losses = student.losses(torch.as_tensor(tokens), torch.as_tensor(chances))
        return losses.mean(), {"attention_first": student.weights["v"].softmax(0)[0]}

    return descend(at, [Descent(student.weights.values(), lr=p.eta)], p.steps, p.eta)


def burst_sequences(
    p: Parameters, right: np.ndarray, random: torch.Generator
) -> task.Batch:
    """One orthonormal sequence for each row of ``right``, whose ones are the queried
    pair.
    """
    items, labels, codes = task.orthonormal(p, len(right), random, torch.float64)
    last = torch.as_tensor([int(np.flatnonzero(row)[-1]) for row in right])
    each = torch.arange(len(right))
    where = torch.as_tensor(right, dtype=torch.bool)[:, :, None]
    items, labels = (
        torch.where(where, x[each, last][:, None], x) for x in (items, labels)
    )
    return task.batch_of(items, labels, codes, last)


def burst_descent(
    p: Parameters, right: np.ndarray, chances: np.ndarray, seed: int, step: float
) -> xr.Dataset:
    """Alpha of three numbers from zero, in steps of the flow's time on the mean loss
    over contexts: ``right`` has a row for each, 1 where the queried pair stands, and
    ``chances`` its probability.

    The loss of a context does not depend on the tokens, so that one sequence of each
    suffices.
    """
    student = Constrained(p.dimension, p.mask, torch.float64)
    batch = burst_sequences(p, right, task.generator(seed, "train"))
    # Roots, as they multiply residuals.
    share = torch.as_tensor(np.sqrt(chances * len(chances)))[:, None]

    def at(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        loss = squared_error(share * student(batch.X), share * batch.y, "sum")
        return loss, {"alpha": student.theta[0]}

    return descend(at, [Descent(student.parameters(), lr=step)], p.steps, step)


# The memory of Nguyen and Reddy (arXiv:2412.00104, their published code)

# Of items; residual at which a run ends (it starts at 1/2); most steps.
DIMENSION, LEFT, MOST = 63, 2e-3, 50_000


def perceptron_clocks(
    items: int, width: int = 128, seed: int = 0, eta: float = 0.5
) -> dict[str, float]:
    """Clock of a perceptron on ``items`` Gaussian items with two labels, by full-batch
    descent.

    Parameters
    ----------
    items, width, seed : int
    eta : float
        Length of steps, the unit of time.

    Returns
    -------
    dict
        Integral of the residual until it is half of its start (``half``), and until it
        is `LEFT` (``whole``). Beyond that the integral grows very slowly: the late
        residual of a network homogeneous of degree 3 is 1/(t (ln t)^{4/3}) (Lyu and Li
        2019, arXiv:1906.05890).

    Raises
    ------
    ArithmeticError
        If the items are not learnt.
    """
    random = task.generator(seed, "initialisation")
    x = torch.randn(items, DIMENSION, generator=random) / DIMENSION**0.5
    y = torch.arange(items) % 2 * 2.0 - 1
    layers = [
        nn.Linear(m, n) for m, n in ((DIMENSION, width), (width, width), (width, 1))
    ]
    for layer in layers:
        for weight in (layer.weight.data, layer.bias.data):
            weight.uniform_(-1, 1, generator=random).div_(layer.in_features**0.5)
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    descent = torch.optim.SGD(net.parameters(), lr=eta)
    residual = [0.5]
    while residual[-1] > LEFT:
        if len(residual) > MOST:
            raise ArithmeticError(f"{items} items are not learnt by a width of {width}")
        descent.zero_grad()
        right = net(x)[:, 0] * y
        logsigmoid(right).mean().neg().backward()
        descent.step()
        residual.append(float(torch.sigmoid(-right.detach()).mean()))
    left = np.array(residual[1:])
    return {
        "whole": float(eta * left.sum()),
        "half": float(eta * left[: int(np.argmax(left < 0.25))].sum()),
    }


# One softmax head and a memory on contexts of items from a pool, written without the
# statement


def contexts(
    p: Any, size: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Items of contexts in random order, and the queried ones: item i has label ``i //
    p.C``.

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
    whole = np.concatenate(
        [others.reshape(size, -1), np.repeat(asked[:, None], p.B, 1)], 1
    )
    return random.permuted(whole, axis=1), asked


class PoolTransformer:
    """A head with score ``x S x'`` for items x and x' and read-out ``w`` of labels, and
    a table ``M`` of the label of every item with read-out ``c``.

    Parameters
    ----------
    p : Parameters
    items : Tensor, optional
        A row per item. Without it items are orthonormal, and ``S`` is ``beta`` times
        one.
    """

    def __init__(self, p: Any, items: Tensor | None = None) -> None:
        self.p, self.items = p, items
        score = () if items is None else (items.shape[1],) * 2
        shapes = {"S": score, "w": (), "c": (), "M": (p.L * p.C, p.L)}
        self.weights = {
            n: torch.zeros(s, dtype=torch.float64) for n, s in shapes.items()
        }
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


def pool_descent(p: Any, seed: int, dim: int | None = None) -> xr.Dataset:
    """Attention to the queried item, and residual, over the flow's time: on fresh
    contexts, with orthonormal items, or Gaussian ones of mean square 1 in ``dim``
    dimensions. ``S`` is then a full matrix, and learns ``dim`` times as fast, so that
    its mean diagonal does as ``beta``.
    """
    random, items = keyed(seed, 0), None
    if dim is not None:
        items = torch.as_tensor(random.normal(size=(p.L * p.C, dim)) / np.sqrt(dim))
    student = PoolTransformer(p, items)
    (S, *others) = student.weights.values()
    optimizers = [Descent([S], lr=p.eta * (dim or 1)), Descent(others, lr=p.eta)]

    def at(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        seen, asked = map(
            torch.as_tensor, contexts(p, p.batch_size, keyed(seed, 1, number))
        )
        losses = student.losses(seen, asked)
        on = (student.attention(seen, asked) * (seen == asked[:, None])).sum(1)
        return losses.mean(), {
            "attention": on.mean(),
            "residual": (1 - (-losses).exp()).mean(),
        }

    return descend(at, optimizers, p.steps, p.eta)
