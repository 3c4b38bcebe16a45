"""Two softmax layers on sequences of in-context Markov chains, written without the statement."""

from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate.learner import Descent
from simulate.streams import keyed


def drawn(p: Any, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Chains: the symbol of every state, and the permutation of states."""
    symbols = random.random((size, p.k)).argsort(1)[:, : p.m]
    return symbols, random.random((size, p.m)).argsort(1)


def sequences(
    p: Any, symbols: np.ndarray, after: np.ndarray, length: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences of symbols, probabilities of the symbol that follows, and last states.

    Parameters
    ----------
    p : Parameters
        Of `theory.induction_heads.markov`.
    symbols, after : ndarray
        Chains, as `drawn` makes them.
    length : int
        Of a sequence.
    random : Generator
    """
    size, rows = len(symbols), np.arange(len(symbols))
    states = random.integers(p.m, size=(size, length))
    follows = random.random((size, length)) < p.rho
    for n in range(1, length):
        next_states = after[rows, states[:, n - 1]]
        states[:, n] = np.where(follows[:, n], next_states, states[:, n])
    chances = np.zeros((size, p.k + p.U))
    np.put_along_axis(chances, symbols, (1 - p.rho) / p.m, 1)
    chances[rows, symbols[rows, after[rows, states[:, -1]]]] += p.rho
    return np.take_along_axis(symbols, states, 1), chances, states[:, -1]


class Transformer:
    """First layer: softmax over lags with scores ``v``. Second layer: softmax over tokens, with
    score ``W`` between the last token and the first layer's output. Output: ``c`` times the
    attended token.

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
            n: torch.zeros(s, dtype=torch.float64, requires_grad=True) for n, s in shapes.items()
        }
        self.weights: dict[str, Tensor] = made

    def losses(self, tokens: Tensor, chances: Tensor) -> Tensor:
        """Cross-entropy of the token after the last."""
        v, W, c = (self.weights[n] for n in "vWc")
        first, read = int(self.lags[-1]), W[tokens[:, -1]].gather(1, tokens)
        places = torch.arange(first, tokens.shape[1])[:, None] - self.lags
        scores = read[:, places] @ v.softmax(0)
        attention = scores.softmax(1)
        seen = torch.zeros(len(tokens), self.p.k + self.p.U, dtype=torch.float64)
        logits = c * seen.scatter_add(1, tokens[:, first:], attention)
        return -(chances * logits.log_softmax(1)).sum(1)


def descent(p: Any, length: int, gap: int, seed: int) -> xr.Dataset:
    """Attention of the first layer to the previous token, over the flow's time, while a student is
    trained from zero on fresh sequences with ``length`` tokens in reach of all lags.
    """
    student = Transformer(p, gap)
    optimizer, attention = Descent(student.weights.values(), lr=p.eta), []
    for number in range(p.steps + 1):
        attention.append(float(student.weights["v"].detach().softmax(0)[0]))
        random, whole = keyed(seed, number), length + int(student.lags[-1])
        tokens, chances, _ = sequences(p, *drawn(p, p.batch_size, random), whole, random)
        optimizer.zero_grad()
        student.losses(torch.as_tensor(tokens), torch.as_tensor(chances)).mean().backward()
        optimizer.step()
    return xr.Dataset({"attention_first": ("t", attention)}, {"t": p.eta * np.arange(p.steps + 1)})
