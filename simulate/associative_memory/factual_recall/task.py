"""The fact-lookup task: fact table, sequences, and token counts, on which a linear student
depends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from theory.associative_memory.factual_recall import Parameters


def fact_table(p: Parameters) -> np.ndarray:
    """Answers ``a*(s, r) = r D + floor(s D / S)``, shape ``(S, R)``: every answer has S/D
    subjects.
    """
    return np.arange(p.R) * p.D + (np.arange(p.S)[:, None] * p.D) // p.S


@dataclass(frozen=True)
class Batch:
    """Sequences given by subject, relation, answer (each ``(n,)``) and the counts of noise tokens
    ``(n, noise)``.
    """

    subject: np.ndarray
    relation: np.ndarray
    answer: np.ndarray
    noise: np.ndarray

    def counts(self, p: Parameters) -> np.ndarray:
        """Occurrences of every token, shape ``(n, vocabulary)``: subjects, relations, noise,
        end.
        """
        out = np.zeros((len(self.subject), p.vocabulary), dtype=np.float32)
        rows = np.arange(len(out))
        out[rows, self.subject] = 1
        out[rows, p.S + self.relation] = 1
        out[:, p.S + p.R : -1] = self.noise
        out[:, -1] = 1
        return out


def sample(p: Parameters, n: int, table: np.ndarray, rng: np.random.Generator) -> Batch:
    """Draw ``n`` sequences as counts; a linear student without positional encoding does not depend
    on the order of tokens.
    """
    subject, relation = rng.integers(p.S, size=n), rng.integers(p.R, size=n)
    noise = rng.multinomial(p.T - 3, np.full(p.noise_tokens, 1 / p.noise_tokens), size=n)
    return Batch(subject, relation, table[subject, relation], noise)


def draw_sequences(
    p: Parameters, n: int, table: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Token sequences ``(n, T)`` and answers ``(n,)``.

    The subject is at a uniform position among the first T-1, the relation at another one, noise
    elsewhere, and the end token last.
    """
    tokens = rng.integers(p.noise_tokens, size=(n, p.T)) + p.S + p.R
    subject, relation = rng.integers(p.S, size=n), rng.integers(p.R, size=n)
    places = rng.integers(p.T - 1, size=n)
    other = (places + rng.integers(1, p.T - 1, size=n)) % (p.T - 1)
    rows = np.arange(n)
    tokens[rows, places], tokens[rows, other] = subject, p.S + relation
    tokens[:, -1] = p.vocabulary - 1
    return tokens, table[subject, relation]


def token_counts(p: Parameters, tokens: np.ndarray) -> np.ndarray:
    """Occurrences of every token in given sequences, shape ``(n, vocabulary)``."""
    out = np.zeros((len(tokens), p.vocabulary), dtype=np.float32)
    np.add.at(out, (np.arange(len(tokens))[:, None], tokens), 1)
    return out
