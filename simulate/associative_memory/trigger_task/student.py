"""Students of the trigger task: three trained matrices on frozen embeddings, and a full
transformer.
"""

import numpy as np
import torch
from torch import Tensor, nn

from theory.associative_memory.trigger_task import Parameters

EMBEDDING_STD = 1.0
TRAINED = ("W_O2", "W_K2", "W_K1")


class Simplified(nn.Module):
    """Two attention layers on frozen random embeddings; only ``W_K1``, ``W_K2`` and ``W_O2`` are
    trained.

    ``W_Q = 1``, without normalisation and feed-forward part. Embeddings are standard normal, frozen
    maps have entries of variance 1/d, and attention scores are divided by sqrt(d). Trained matrices
    start at zero, so that attention starts uniform.

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
        self.register_buffer("mask", torch.triu(torch.full((p.T, p.T), -torch.inf), diagonal=1))

    def attend(self, x: Tensor, W: Tensor) -> Tensor:
        """Causal attention ``(n, T, T)`` with queries x and keys W x."""
        scores = (x @ W) @ x.transpose(1, 2) / self.p.d**0.5
        return torch.softmax(scores + self.mask, dim=-1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(n, T, N)`` of tokens ``(n, T)``."""
        x = self.tokens[tokens] + self.positions
        x = x + self.attend(x, self.W_K1) @ x @ self.W_OV1.T
        x = x + self.attend(x, self.W_K2) @ (x @ self.W_V2.T) @ self.W_O2.T
        return x @ self.unembedding.T

    @torch.no_grad()
    def probes(self, triggers: Tensor) -> dict[str, float]:
        """Fraction of correct recalls of the three target memories.

        ``W_O2``: from every token's value to its output vector. ``W_K2``: from every fixed trigger
        to its remapped self, among the triggers. ``W_K1``: from every position to the previous one,
        among all positions.
        """
        e, position = self.tokens, self.positions
        of_values = (self.unembedding @ self.W_O2 @ self.W_V2 @ e.T).argmax(0)
        remapped = e[triggers] @ self.W_OV1.T
        of_triggers = (e[triggers] @ self.W_K2 @ remapped.T).argmax(1)
        of_positions = (position[1:] @ self.W_K1 @ position.T).argmax(1)

        def right(recalled: Tensor, n: int) -> float:
            return float((recalled == torch.arange(n, device=recalled.device)).double().mean())

        early = self.p.T // 2
        return {
            "probe_W_O2": right(of_values, self.p.N),
            "probe_W_K2": right(of_triggers, len(triggers)),
            "probe_W_K1": right(of_positions, self.p.T - 1),
            "probe_W_K1_early": right(of_positions[:early], early),
        }


class Transformer(nn.Module):
    """Pre-norm transformer with learned positions, one head and an MLP of width 2 d per layer."""

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
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        """Residual stream after the block."""
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.norm_2(x))
