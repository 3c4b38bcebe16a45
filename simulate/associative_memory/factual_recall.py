"""Students of the fact-lookup task: linear attention trained by stochastic gradient
descent.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor, nn

from simulate.training import optimisers, plan
from simulate.training.learner import Member, Unstacked
from simulate.training.streams import keyed
from theory.associative_memory.factual_recall import Parameters
from theory.dynamics.optimisers import Optimiser

# The fact-lookup task


def fact_table(p: Parameters) -> np.ndarray:
    """Answers ``a*(s, r) = r D + floor(s D / S)``, shape ``(S, R)``: every answer has
    S/D subjects.
    """
    return np.arange(p.R) * p.D + (np.arange(p.S)[:, None] * p.D) // p.S


def sample(
    p: Parameters, n: int, table: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``n`` sequences as occurrences of every token ``(n, vocabulary)``: subjects,
    relations, noise, end; and their answers ``(n,)``. A linear student without
    positional encoding does not depend on the order of tokens.
    """
    subject, relation, rows = (
        rng.integers(p.S, size=n),
        rng.integers(p.R, size=n),
        np.arange(n),
    )
    counts = np.ones((n, p.vocabulary), dtype=np.float32)
    counts[:, : p.S + p.R] = 0
    counts[rows, subject] = counts[rows, p.S + relation] = 1
    noise = np.full(p.noise_tokens, 1 / p.noise_tokens)
    counts[:, p.S + p.R : -1] = rng.multinomial(p.T - 3, noise, size=n)
    return counts, table[subject, relation]


def draw_sequences(
    p: Parameters, n: int, table: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Token sequences ``(n, T)`` and answers ``(n,)``.

    The subject is at a uniform position among the first T-1, the relation at another
    one, noise elsewhere, and the end token last.
    """
    tokens = rng.integers(p.noise_tokens, size=(n, p.T)) + p.S + p.R
    subject = rng.integers(p.S, size=n)
    relation = rng.integers(p.R, size=n)
    places = rng.integers(p.T - 1, size=n)
    other = (places + rng.integers(1, p.T - 1, size=n)) % (p.T - 1)
    rows = np.arange(n)
    tokens[rows, places], tokens[rows, other] = subject, p.S + relation
    tokens[:, -1] = p.vocabulary - 1
    return tokens, table[subject, relation]


def token_counts(p: Parameters, tokens: np.ndarray) -> np.ndarray:
    """Occurrences of every token in given sequences, shape ``(n, vocabulary)``."""
    return (tokens[:, :, None] == np.arange(p.vocabulary)).sum(1)


# Linear attention from the end token over one-hot tokens

MEANING = {
    "loss": "cross-entropy over all facts, noise averaged",
    "loss_relation": "-ln of the probability of the right relation's answers",
    "loss_subject": "loss - loss_relation: right answer among those of the relation",
    "accuracy": "right answer most probable, over all facts",
    "accuracy_relation": "probability of the right relation's answers",
    "w_r": "attention on relations, mean",
    "w_s": "attention on subjects, mean",
    "delta_r": "value gain of a relation's answers over all others, mean",
    "delta_s": "value gain of a subject's answers over all others, mean",
    "noise_spread": (
        "standard deviation of noise and end rows of V over answers: frozen by theory"
    ),
    "conserved_relation": "w_r^2 - c delta_r^2, epsilon^2 by theory",
    "conserved_subject": "w_s^2 - c delta_s^2",
}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per weight.
    """
    table = 8 * p.vocabulary * p.answers  # values: stored, gradient, double precision
    batch = p.batch_size * (
        16 * p.noise_tokens + 12 * p.vocabulary + 16 * p.answers + 64
    )
    facts = p.S * p.R * p.answers * 8 * 6  # logits of all facts, measured together
    return (4 * table + batch + facts) * itemsize / 4 + plan.records(
        p, 2 * len(MEANING)
    )


class LinearAttention(nn.Module):
    """``logit_a = sum_t w(z_t) V(z_t, a)``, all weights equal to epsilon at the start.

    Parameters
    ----------
    p : Parameters
        Sizes.
    dtype : torch.dtype
        Precision.
    """

    def __init__(self, p: Parameters, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.p = p
        self.w = nn.Parameter(torch.full((p.vocabulary,), p.epsilon, dtype=dtype))
        self.V = nn.Parameter(
            torch.full((p.vocabulary, p.answers), p.epsilon, dtype=dtype)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(n, answers)`` of sequences ``(n, T)``."""
        return (self.w[tokens][..., None] * self.V[tokens]).sum(1)


class Learner(Member):
    """Stochastic gradient descent on token counts,
    with hand-written gradients (NumPy).
    """

    p: Parameters

    def build(
        self, table: np.ndarray | None = None, optimizer: Optimiser | None = None
    ) -> None:
        """Answers ``(S, R)``, by default the balanced table; by default gradient
        descent.
        """
        p = self.p
        self.table = fact_table(p) if table is None else table
        self.w, self.V = (
            np.full(shape, p.epsilon, dtype=str(self.dtype).removeprefix("torch."))
            for shape in (p.vocabulary, (p.vocabulary, p.answers))
        )
        self.moves = optimisers.Moves(optimizer, p.eta, p.steps) if optimizer else None

    def step(self, number: int) -> None:
        """One batch, one descent step."""
        batch = sample(self.p, self.p.batch_size, self.table, keyed(self.seed, number))
        d_w, d_V = self.gradient(*batch)
        if self.moves:
            self.w, self.V = self.moves([self.w, self.V], [d_w, d_V])
            return
        self.w -= self.p.eta * d_w
        self.V -= self.p.eta * d_V

    def gradient(
        self, counts: np.ndarray, answer: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradients of w and V of the mean cross-entropy."""
        error = scipy.special.softmax((counts * self.w) @ self.V, 1)
        error[np.arange(len(answer)), answer] -= 1
        error /= len(answer)
        summed = counts.T @ error  # (vocabulary, answers)
        return (summed * self.V).sum(1), summed * self.w[:, None]

    def measure(self) -> dict[str, Any]:
        """All quantities in `MEANING`; noise tokens enter with their mean count."""
        p, w, V = self.p, self.w.astype(float), self.V.astype(float)
        subject, relation = (x.ravel() for x in np.indices((p.S, p.R)))
        answer = self.table[subject, relation]
        rows = np.arange(len(answer))
        noise = (
            w[p.S + p.R : -1] @ V[p.S + p.R : -1] * (p.T - 3) / p.noise_tokens
            + w[-1] * V[-1]
        )
        logits = (
            w[subject, None] * V[subject]
            + w[p.S + relation, None] * V[p.S + relation]
            + noise
        )
        probability = scipy.special.softmax(logits, 1)
        block = probability.reshape(-1, p.R, p.D).sum(2)[rows, relation]
        loss = -np.log(probability[rows, answer]).mean()
        of_relation = -np.log(block).mean()
        of_s, of_r, noisy = np.split(V, [p.S, p.S + p.R])
        same = np.eye(p.R, dtype=bool).repeat(p.D, 1)
        hit = (self.table[:, :, None] == np.arange(p.answers)).any(1)
        delta_r = of_r[same].mean() - of_r[~same].mean()
        delta_s = of_s[hit].mean() - of_s[~hit].mean()
        w_r, w_s = w[p.S : p.S + p.R].mean(), w[: p.S].mean()
        c_r, c_s = p.D * (p.R - 1) / p.R, p.R * (p.D - 1) / p.D
        return {
            "loss": loss,
            "loss_relation": of_relation,
            "loss_subject": loss - of_relation,
            "accuracy": (logits.argmax(1) == answer).mean(),
            "accuracy_relation": block.mean(),
            "w_r": w_r,
            "w_s": w_s,
            "delta_r": delta_r,
            "delta_s": delta_s,
            "noise_spread": noisy.std(1).mean(),
            "conserved_relation": w_r**2 - c_r * delta_r**2,
            "conserved_subject": w_s**2 - c_s * delta_s**2,
        }

    def state(self) -> dict[str, Any]:
        """Weights."""
        weights = {"w": torch.tensor(self.w), "V": torch.tensor(self.V)}
        return weights | (self.moves.state() if self.moves else {})

    def load(self, state: dict[str, Any]) -> None:
        """Set the weights."""
        self.w, self.V = state["w"].numpy().copy(), state["V"].numpy().copy()
        if self.moves:
            self.moves.load(state)


def identity(p: Parameters, optimizer: Optimiser | None = None) -> dict[str, Any]:
    """What identifies a run beside its parameters."""
    return optimisers.identity(optimizer)


SYSTEM = plan.System(
    "associative_memory.factual_recall",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    default_dtype="float32",
    devices=("cpu",),
    identity=identity,
    tiny={"": dict(batch_size=16, **plan.FEW_STEPS)},
)


train = SYSTEM.train
