"""Students of the trigger task: three trained matrices on frozen embeddings, and a full
transformer.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from theory.associative_memory.trigger_task import Parameters
from theory.call.refusal import ParameterError

# Sequences from a bigram table in which triggers are followed by an output drawn per
# sequence

TABLE_SEED = 2025  # seed of the shipped table


@dataclass(frozen=True)
class Table:
    """Bigram statistics: ``unigram`` of shape ``(N,)``, ``bigram[i, j] = p(j | i)`` of
    shape ``(N, N)``.
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
            if (
                array.shape != shape
                or not np.allclose(array.sum(-1), 1)
                or (array < 0).any()
            ):
                raise ParameterError(
                    f"{name}: must be probabilities of shape {shape}, rows summing to 1"
                )


def synthetic_table(N: int) -> Table:
    """Shipped table: rows drawn around a Zipf law, and the stationary unigram
    distribution of this chain.

    Zipf frequencies and about ten likely successors per token, as for letters of a
    language.
    """
    rng = np.random.default_rng([TABLE_SEED, N])
    zipf = 1 / np.arange(1, N + 1)
    bigram = rng.dirichlet(10 * zipf / zipf.sum() + 1e-3, size=N)
    stationary = np.full(N, 1 / N)
    for _ in range(1000):
        stationary = 0.5 * stationary + 0.5 * stationary @ bigram
    return Table(stationary / stationary.sum(), bigram)


def table_of_text(text: str) -> tuple[Table, str]:
    """Bigram table of a text with characters as tokens, and the characters in the order
    of the tokens.

    Characters are numbered by first appearance. A character without a successor
    continues with the unigram distribution.

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
    """Tokens ``(n, T + 1)``, triggers ``(n, K)``, their outputs ``(n, K)``, and the
    mask of predictable positions.

    ``predictable[:, t]`` is true if ``tokens[:, t]`` is a trigger that has occurred
    before, so that ``tokens[:, t+1]`` is in the context.
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
                "self_loops = False: in this table a trigger is followed by itself"
                " alone"
            )
        law /= mass
    outputs = _sample(law, rng)
    forced = np.full((n, N), -1)
    forced[rows[:, None], triggers] = outputs
    cumulative = np.cumsum(table.bigram, axis=1)
    tokens = np.empty((n, p.T + 1), dtype=np.int64)
    tokens[:, 0] = _sample(np.broadcast_to(table.unigram, (n, N)), rng)
    seen = np.zeros((n, N), dtype=bool)
    predictable = np.zeros((n, p.T), dtype=bool)
    for t in range(p.T):
        current = tokens[:, t]
        free = np.minimum((rng.random((n, 1)) > cumulative[current]).sum(1), N - 1)
        follows = forced[rows, current]
        tokens[:, t + 1] = np.where(follows >= 0, follows, free)
        predictable[:, t] = (follows >= 0) & seen[rows, current]
        seen[rows, current] = True
    return Sequences(tokens, triggers, outputs, predictable)


def _sample(law: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One token per row of the last axis."""
    cumulative = np.cumsum(law, axis=-1)
    return np.minimum(
        (rng.random((*law.shape[:-1], 1)) * cumulative[..., -1:] > cumulative).sum(-1),
        law.shape[-1] - 1,
    )


EMBEDDING_STD = 1.0
TRAINED = ("W_O2", "W_K2", "W_K1")


class Simplified(nn.Module):
    """Two attention layers on frozen random embeddings; only ``W_K1``, ``W_K2`` and
    ``W_O2`` are trained.

    ``W_Q = 1``, without normalisation and feed-forward part. Embeddings are standard
    normal, frozen maps have entries of variance 1/d, and attention scores are divided
    by sqrt(d). Trained matrices start at zero, so that attention starts uniform.

    Parameters
    ----------
    p : Parameters
        Sizes.
    rng : numpy Generator
        Random generator for the frozen parts.
    """

    tokens: Tensor
    positions: Tensor
    unembedding: Tensor
    W_OV1: Tensor
    W_V2: Tensor
    mask: Tensor
    W_K1: nn.Parameter
    W_K2: nn.Parameter
    W_O2: nn.Parameter

    def __init__(self, p: Parameters, rng: np.random.Generator) -> None:
        super().__init__()
        d = p.d
        self.p = p
        for name, shape, scale in (
            ("tokens", (p.N, d), 1),
            ("positions", (p.T, d), 1),
            ("unembedding", (p.N, d), d**-0.5),
            ("W_OV1", (d, d), d**-0.5),
            ("W_V2", (d, d), d**-0.5),
        ):
            self.register_buffer(
                name, torch.tensor(scale * rng.normal(size=shape), dtype=torch.float32)
            )
        for name in TRAINED:
            self.register_parameter(name, nn.Parameter(torch.zeros(d, d)))
        self.register_buffer(
            "mask", torch.triu(torch.full((p.T, p.T), -torch.inf), diagonal=1)
        )

    def attend(self, x: Tensor, W: Tensor) -> Tensor:
        """Causal attention ``(n, T, T)`` with queries x and keys W x."""
        return torch.softmax(
            (x @ W) @ x.transpose(1, 2) / self.p.d**0.5 + self.mask, dim=-1
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(n, T, N)`` of tokens ``(n, T)``."""
        x = self.tokens[tokens] + self.positions
        x = x + self.attend(x, self.W_K1) @ x @ self.W_OV1.T
        x = x + self.attend(x, self.W_K2) @ (x @ self.W_V2.T) @ self.W_O2.T
        return x @ self.unembedding.T

    @torch.no_grad()
    def probes(self, triggers: Tensor) -> dict[str, Tensor]:
        """Fraction of correct recalls of the three target memories.

        ``W_O2``: from every token's value to its output vector. ``W_K2``: from every
        fixed trigger to its remapped self, among the triggers. ``W_K1``: from every
        position to the previous one, among all positions.
        """
        e, position = self.tokens, self.positions
        of_values = (self.unembedding @ self.W_O2 @ self.W_V2 @ e.T).argmax(0)
        of_triggers = (e[triggers] @ self.W_K2 @ (e[triggers] @ self.W_OV1.T).T).argmax(
            1
        )
        of_positions = (position[1:] @ self.W_K1 @ position.T).argmax(1)

        def right(recalled: Tensor, n: int) -> Tensor:
            return (recalled == torch.arange(n, device=recalled.device)).double().mean()

        early = self.p.T // 2
        return {
            "probe_W_O2": right(of_values, self.p.N),
            "probe_W_K2": right(of_triggers, len(triggers)),
            "probe_W_K1": right(of_positions, self.p.T - 1),
            "probe_W_K1_early": right(of_positions[:early], early),
        }


class Transformer(nn.Module):
    """Pre-norm transformer with learned positions, one head and an MLP of width 2 d per
    layer.
    """

    def __init__(self, p: Parameters) -> None:
        super().__init__()
        self.p = p
        self.tokens, self.positions = nn.Embedding(p.N, p.d), nn.Embedding(p.T, p.d)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)
        self.blocks = nn.ModuleList(Block(p.d) for _ in range(p.layers))
        self.norm, self.head = nn.LayerNorm(p.d), nn.Linear(p.d, p.N, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(n, T, N)`` of tokens ``(n, T)``."""
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    """Attention, then an MLP, each on a normalised residual stream."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = (
            nn.Linear(d, 3 * d, bias=False),
            nn.Linear(d, d, bias=False),
        )
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        """Residual stream after the block."""
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        x = x + self.out(
            nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        )
        return x + self.mlp(self.norm_2(x))
