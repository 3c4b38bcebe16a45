"""Sequences from a bigram table in which triggers are followed by an output drawn per sequence."""

from dataclasses import dataclass

import numpy as np

from theory.associative_memory.trigger_task import Parameters
from theory.parameters import ParameterError

TABLE_SEED = 2025  # seed of the shipped table


@dataclass(frozen=True)
class Table:
    """Bigram statistics: ``unigram`` of shape ``(N,)``, ``bigram[i, j] = p(j | i)`` of shape
    ``(N, N)``.
    """

    unigram: np.ndarray
    bigram: np.ndarray

    def __post_init__(self) -> None:
        """Check that the table consists of probabilities.

        Raises
        ------
        ParameterError
            Naming the invalid part.
        """
        n = len(self.unigram)
        for name, array, shape in (
            ("unigram", self.unigram, (n,)),
            ("bigram", self.bigram, (n, n)),
        ):
            if array.shape != shape or not np.allclose(array.sum(-1), 1) or (array < 0).any():
                raise ParameterError(
                    f"{name}: must be probabilities of shape {shape}, rows summing to 1"
                )


def synthetic_table(N: int) -> Table:
    """Shipped table: rows drawn around a Zipf law, and the stationary unigram distribution of this
    chain.

    Zipf frequencies and about ten likely successors per token, as for letters of a language.
    """
    rng = np.random.default_rng([TABLE_SEED, N])
    zipf = 1 / np.arange(1, N + 1)
    bigram = rng.dirichlet(10 * zipf / zipf.sum() + 1e-3, size=N)
    stationary = np.full(N, 1 / N)
    for _ in range(1000):
        stationary = 0.5 * stationary + 0.5 * stationary @ bigram
    return Table(stationary / stationary.sum(), bigram)


def table_of_text(text: str) -> tuple[Table, str]:
    """Bigram table of a text with characters as tokens, and the characters in the order of the
    tokens.

    Characters are numbered by first appearance. A character without a successor continues with the
    unigram distribution.

    Raises
    ------
    ParameterError
        If the text has fewer than three different characters.
    """
    alphabet = "".join(dict.fromkeys(text))
    if len(alphabet) < 3:
        raise ParameterError(
            f"text: has {len(alphabet)} different characters, must have at least 3"
        )
    number = {c: k for k, c in enumerate(alphabet)}
    tokens = np.array([number[c] for c in text])
    unigram = np.bincount(tokens, minlength=len(alphabet)) / len(tokens)
    counts = np.zeros((len(alphabet), len(alphabet)))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    counts[counts.sum(1) == 0] = unigram
    return Table(unigram, counts / counts.sum(1, keepdims=True)), alphabet


@dataclass(frozen=True)
class Sequences:
    """Tokens ``(n, T + 1)``, triggers ``(n, K)``, their outputs ``(n, K)``, and the mask of
    predictable positions.

    ``predictable[:, t]`` is true if ``tokens[:, t]`` is a trigger that has occurred before, so that
    ``tokens[:, t+1]`` is in the context.
    """

    tokens: np.ndarray
    triggers: np.ndarray
    outputs: np.ndarray
    predictable: np.ndarray


def fixed_triggers(p: Parameters, table: Table) -> np.ndarray:
    """The K most frequent tokens."""
    return np.argsort(-table.unigram, kind="stable")[: p.K]


def sample(p: Parameters, n: int, table: Table, rng: np.random.Generator) -> Sequences:
    """Draw ``n`` sequences of T inputs and their targets.

    Raises
    ------
    ParameterError
        If a trigger has no output but itself, and self-loops are excluded.
    """
    N, rows = p.N, np.arange(n)
    if p.triggers == "fixed":
        triggers = np.tile(fixed_triggers(p, table), (n, 1))
    else:  # without replacement, with unigram weights: the K first in exponential races
        triggers = np.argsort(
            rng.exponential(size=(n, N)) / np.maximum(table.unigram, 1e-300), axis=1
        )[:, : p.K]
    if p.outputs == "uniform":
        law = np.full((n, p.K, N), 1 / N)
    else:
        law = table.bigram[triggers].copy()
    if not p.self_loops:
        law[rows[:, None], np.arange(p.K), triggers] = 0
        mass = law.sum(-1, keepdims=True)
        if not mass.all():
            raise ParameterError(
                "self_loops = False: in this table a trigger is followed by itself alone"
            )
        law /= mass
    outputs = _sample(law, rng)
    forced = np.full((n, N), -1)
    forced[rows[:, None], triggers] = outputs
    cumulative = np.cumsum(table.bigram, axis=1)
    tokens = np.empty((n, p.T + 1), dtype=np.int64)
    tokens[:, 0] = _sample(np.broadcast_to(table.unigram, (n, N)), rng)
    for t in range(p.T):
        current = tokens[:, t]
        free = np.minimum((rng.random((n, 1)) > cumulative[current]).sum(1), N - 1)
        tokens[:, t + 1] = np.where(forced[rows, current] >= 0, forced[rows, current], free)
    seen = np.zeros((n, N), dtype=bool)
    predictable = np.zeros((n, p.T), dtype=bool)
    for t in range(p.T):
        current = tokens[:, t]
        predictable[:, t] = (forced[rows, current] >= 0) & seen[rows, current]
        seen[rows, current] = True
    return Sequences(tokens, triggers, outputs, predictable)


def _sample(law: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One token per row of the last axis."""
    cumulative = np.cumsum(law, axis=-1)
    return np.minimum(
        (rng.random((*law.shape[:-1], 1)) * cumulative[..., -1:] > cumulative).sum(-1),
        law.shape[-1] - 1,
    )
