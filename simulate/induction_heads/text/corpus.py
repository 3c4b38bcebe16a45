"""Real text as windows of characters."""

from __future__ import annotations

import codecs
import contextlib
import functools
import hashlib
import importlib
import io
import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np

from theory.induction_heads.text import Parameters
from theory.parameters import ParameterError

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
