"""A two-layer attention-only transformer with several heads."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from theory.induction_heads.text import Parameters


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
        q, k = self.split(x @ self.query.T), self.split(x @ self.key.T)
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
