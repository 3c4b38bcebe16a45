"""A standard two-layer attention-only character model on real text."""

from __future__ import annotations

import codecs
import contextlib
import functools
import hashlib
import importlib
import io
import math
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simulate import training
from simulate.learner import Module, Unstacked, losses
from simulate.streams import keyed, of_torch
from theory.induction_heads.text import Parameters
from theory.parameters import ParameterError

# Real text as windows of characters

# Of CPython 3.11.7's topics: the shipped ensembles were trained on these.
DIGEST = "37d06970fc926e60"
HELD_OUT = 0.1  # of the text, its end


def digest(text: str) -> str:
    """Digest of a text, under which its runs are stored."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def read(name: str) -> str:
    """One of the texts that come with Python.

    The help topics differ between versions of Python. If they are not those of the shipped
    ensembles, a warning says so, and their students are stored under another digest.
    """
    if name == "zen":
        with contextlib.redirect_stdout(io.StringIO()):
            return codecs.decode(importlib.import_module("this").s, "rot13")
    topics = importlib.import_module("pydoc_data.topics").topics
    text = "".join(topics[key] for key in sorted(topics))
    if digest(text) != DIGEST:
        warnings.warn(
            f"text = 'topics': this Python's has digest {digest(text)}, the shipped students' has "
            f"{DIGEST}; same kind of text, other students",
            stacklevel=2,
        )
    return text


@dataclass(frozen=True)
class Corpus:
    """Characters of a text as tokens 0 (the most frequent) .. V - 1 (all that are rare)."""

    train: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, text: str, vocabulary: int, context: int) -> Corpus:
        """Cut a text, the end of which is held out.

        Raises
        ------
        ParameterError
            If the held-out end is not longer than a window.
        """
        common = [c for c, _ in sorted(Counter(text).items(), key=lambda x: (-x[1], x[0]))]
        place = {c: n for n, c in enumerate(common[: vocabulary - 1])}
        tokens = np.array([place.get(c, vocabulary - 1) for c in text])
        kept = len(tokens) - int(HELD_OUT * len(tokens))
        if len(tokens) - kept <= context + 1:
            raise ParameterError(
                f"text: has {len(text)} characters, must have more than {10 * (context + 2)} for context = {context}"
            )
        return cls(tokens[:kept], tokens[kept:])


def windows(
    p: Parameters, tokens: np.ndarray, size: int, random: np.random.Generator
) -> np.ndarray:
    """Windows of ``context + 1`` characters, drawn as `Parameters` say; the last character is a
    target only.
    """
    length = p.context + 1
    piece = min(p.piece or length, length)
    starts = random.integers(len(tokens) - piece + 1, size=(size, -(-length // piece)))
    drawn = tokens[starts[:, :, None] + np.arange(piece)].reshape(size, -1)[:, :length]
    again = random.random(size) < p.repeats
    period = random.integers(max(p.context // 4, 1), p.context // 2 + 1, size=size)
    period[~again] = length
    return np.take_along_axis(drawn, np.arange(length) % period[:, None], 1)


def twice(p: Parameters, tokens: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Test windows that show a segment of the text, half a context long, twice."""
    half = p.context // 2
    starts = random.integers(len(tokens) - half + 1, size=(p.n_test, 1))
    return np.tile(tokens[starts + np.arange(half)], 2)


def random_twice(p: Parameters, random: np.random.Generator) -> np.ndarray:
    """The same with characters drawn at random, all different where there are enough."""
    half = p.context // 2
    rounds = -(-half // p.vocabulary)
    drawn = random.random((p.n_test, rounds, p.vocabulary)).argsort(2).reshape(p.n_test, -1)
    return np.tile(drawn[:, :half], 2)


# Scores of heads


def previous(attention: Tensor) -> Tensor:
    """Mean attention on the character before, by head; attention of shape (n, heads, T, T)."""
    return attention.diagonal(-1, 2, 3).mean((0, 2))


def prefix(attention: Tensor, half: int, known: int = 0) -> Tensor:
    """Prefix-matching score (Olsson et al. 2022, arXiv:2209.11895), by head.

    On a segment of ``half`` characters shown twice: mean attention of a character, the second time,
    on the one that followed it the first time. The first ``known`` of the second showing are left
    out.
    """
    back = half - 1  # from the second showing of a character to the first one of its successor
    return attention.diagonal(-back, 2, 3)[..., 1 + known :].mean((0, 2))


def copying(circuit: Tensor) -> np.ndarray:
    """Copying score (Elhage et al. 2021): sum of the eigenvalues of a head's map from attended
    token to logits, over the sum of their absolute values. 1: the attended token becomes more
    likely; -1: less likely. Weights that overflowed have none.
    """
    entries = circuit.detach().cpu().double().numpy()
    if not np.isfinite(entries).all():
        return np.full(entries.shape[:-2], np.nan)
    values = np.linalg.eigvals(entries)
    return values.sum(-1).real / np.maximum(np.abs(values).sum(-1), np.finfo(float).tiny)


# A two-layer attention-only transformer with several heads


class Layer(nn.Module):
    """Causal softmax heads, added to the residual stream; no biases, no normalisation."""

    query: nn.Parameter
    key: nn.Parameter
    value: nn.Parameter
    out: nn.Parameter

    def __init__(self, p: Parameters, random: torch.Generator) -> None:
        super().__init__()
        self.heads = p.heads
        for name in ("query", "key", "value", "out"):
            made = torch.randn(p.D, p.D, generator=random) / math.sqrt(p.D)
            setattr(self, name, nn.Parameter(made))

    def split(self, x: Tensor) -> Tensor:
        """Split the last axis into heads: (n, heads, T, D / heads)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attention(self, x: Tensor) -> Tensor:
        """Attention weights, shape (n, heads, query, key)."""
        q = self.split(x @ self.query.T)
        k = self.split(x @ self.key.T)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        return scores.masked_fill(later, -math.inf).softmax(-1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The stream, and the attention."""
        paid = self.attention(x)
        read = (paid @ self.split(x @ self.value.T)).transpose(1, 2).flatten(2)
        return x + read @ self.out.T, paid


class Transformer(nn.Module):
    """Learned token and position embeddings, two layers, linear output."""

    def __init__(self, p: Parameters, random: torch.Generator) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(p.vocabulary, p.D, generator=random))
        self.places = nn.Parameter(torch.randn(p.context, p.D, generator=random))
        self.layers = nn.ModuleList(Layer(p, random) for _ in range(2))
        self.readout = nn.Parameter(
            torch.randn(p.vocabulary, p.D, generator=random) / math.sqrt(p.D)
        )

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits after every character, and the attention of both layers."""
        x = self.tokens[tokens] + self.places[: tokens.shape[1]]
        seen = []
        for layer in self.layers:
            x, paid = layer(x)
            seen.append(paid)
        return x @ self.readout.T, seen

    def copies(self) -> Tensor:
        """Contribution of each head of the second layer to the logit of every token (row) when it
        attends to one (column): shape (heads, V, V).
        """
        second: Any = self.layers[1]
        value = second.value.unflatten(0, (second.heads, -1))
        out = second.out.unflatten(1, (second.heads, -1)).transpose(0, 1)
        return self.readout @ out @ value @ self.tokens.T


# Training of the character model, measured by loss and by scores of its heads

KNOWN = 4  # characters after which a showing can be recognised; a third of that in short contexts
MEANING = {
    "loss": "cross-entropy on text not trained on (nats per character)",
    "loss_first": "the same on a segment's first showing",
    "loss_second": "the same on its second showing",
    "previous": "attention on the character before, best head of layer 1",
    "prefix": "prefix-matching score on text shown twice, best head of layer 2",
    "prefix_random": "the same on random characters shown twice",
    "copying": "copying score of the head with the best prefix matching",
}


class Learner(Module):
    """One character model; the windows of every step are drawn from (seed, step)."""

    p: Parameters

    def build(self, text: str | None = None) -> None:
        """A text of the user in place of that which the parameters name, if given."""
        p, seed = self.p, self.seed
        self.corpus = Corpus.of(read(p.text) if text is None else text, p.vocabulary, p.context)
        self.student = Transformer(p, of_torch(seed, 0)).to(self.device, self.dtype)
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=p.eta)
        held, random = self.corpus.test, keyed(seed, 1)
        self.test = self._put(windows(p.replace(repeats=0.0, piece=None), held, p.n_test, random))
        self.twice = self._put(twice(p, held, random))
        self.random = self._put(random_twice(p, random))

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array, device=self.device)

    def loss(self, number: int) -> Tensor:
        """Cross-entropy on fresh windows."""
        drawn = windows(self.p, self.corpus.train, self.p.batch_size, keyed(self.seed, 2, number))
        tokens = self._put(drawn)
        return losses(self.student(tokens[:, :-1])[0], tokens).mean()

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Quantities in `MEANING`."""
        half = self.p.context // 2
        known = min(KNOWN, half // 3)
        logits, (first, second) = self.student(self.twice)
        losses_ = losses(logits, self.twice)
        best = prefix(second, half, known)
        _, (_, other) = self.student(self.random)
        copied = copying(self.student.copies()[int(best.argmax())])
        return {
            "loss": losses(self.student(self.test[:, :-1])[0], self.test).mean(),
            "loss_first": losses_[:, known : half - 1].mean(),
            "loss_second": losses_[:, half + known :].mean(),
            "previous": previous(first).max(),
            "prefix": best.max(),
            "prefix_random": prefix(other, half).max(),
            "copying": copied,
        }


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes per
    weight.
    """
    rows, length = max(p.batch_size, p.n_test), p.context
    stream = rows * length * p.D
    paid = rows * p.heads * length**2
    weights = (2 * p.vocabulary + length + 8 * p.D) * p.D + p.heads * p.vocabulary**2
    logits = rows * length * p.vocabulary
    text = 2 * 8 * 500_000  # tokens, and while they are cut
    return (
        itemsize * (20 * stream + 9 * paid + 6 * weights + 5 * logits)
        + text
        + (8 * 4 * rows * (length + 1) * 2)
        + 16 * 4 * p.vocabulary**2
        + training.records(p, len(MEANING))
    )


def identity(p: Parameters) -> dict[str, Any]:
    """Digest of the text, which differs between versions of Python."""
    return {"digest": digest(read(p.text))}


def on_text(p: Parameters, text: str) -> tuple[Parameters, training.System]:
    """Parameters and system for a text of the user; runs are stored under its digest."""
    Corpus.of(text, p.vocabulary, p.context)
    return p, replace(
        SYSTEM,
        name=f"{SYSTEM.name}, text {digest(text)}",
        make=partial(Unstacked, partial(Learner, text=text)),
        identity=lambda p: {"digest": digest(text)},
    )


SYSTEM = training.System(
    "induction_heads.text",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    default_dtype="float32",
    identity=identity,
    text=on_text,
)
train = SYSTEM.train
