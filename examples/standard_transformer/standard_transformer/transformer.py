"""A standard transformer: blocks of causal softmax heads and an MLP on a residual
stream.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from simulate.state_tracking.student import rotate
from standard_transformer.theory import Parameters


class Seen(NamedTuple):
    """Attention and predictions of a student at every state, heads of all blocks one
    after the other; attention without intervention.

    Attributes
    ----------
    logits : Tensor, shape (n, T, N)
        Of the next states.
    attention : Tensor, shape (n, heads, T, L)
        On the actions.
    itself : Tensor, shape (n, heads, T)
        Of a state on itself.
    """

    logits: Tensor
    attention: Tensor
    itself: Tensor


class Heads(nn.Module):
    """Causal softmax attention of several heads, without biases."""

    omega: Tensor

    def __init__(self, p: Parameters) -> None:
        super().__init__()
        self.p = p
        width = p.heads * p.d_h
        self.query = nn.Linear(p.d_model, width, bias=False)
        self.key = nn.Linear(p.d_model, width, bias=False)
        self.value = nn.Linear(p.d_model, width, bias=False)
        self.out = nn.Linear(width, p.d_model, bias=False)
        rotary = torch.tensor(p.frequencies if p.positions == "rope" else [])
        self.register_buffer("omega", rotary, persistent=False)

    def by_head(self, x: Tensor) -> Tensor:
        """Split the last axis into heads: ``(n, heads, length, d_h)``."""
        return x.view(len(x), -1, self.p.heads, self.p.d_h).transpose(1, 2)

    def weights(self, x: Tensor, first: int) -> Tensor:
        """Attention of the places from ``first`` on."""
        length = x.shape[1]
        q, k = self.by_head(self.query(x[:, first:])), self.by_head(self.key(x))
        if self.p.positions == "rope":
            places = torch.arange(length, device=x.device)
            angle = (places[:, None] * self.omega).to(x.dtype)
            q, k = rotate(q, angle[first:]), rotate(k, angle)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.p.d_h)
        later = torch.ones_like(scores, dtype=torch.bool).triu(1 + first)
        return scores.masked_fill(later, -math.inf).softmax(-1)

    def forward(
        self, x: Tensor, redirect: Tensor | None, first: int
    ) -> tuple[Tensor, Tensor]:
        """Output from place ``first`` on, and the attention of states before it is
        redirected.
        """
        L = self.p.L
        weights = self.weights(x, first)
        before, seen = weights[:, :, : L - first], weights[:, :, L - first :]
        if redirect is not None:
            on_actions = seen[..., :L].sum(-1, keepdim=True) * redirect
            moved = torch.cat([on_actions, seen[..., L:]], -1)
            weights = torch.cat([before, moved], 2)
        mixed = weights @ self.by_head(self.value(x))
        return self.out(mixed.transpose(1, 2).flatten(2)), seen


class MLP(nn.Module):
    """Two layers with a GELU between, or three with a gate."""

    def __init__(self, p: Parameters) -> None:
        super().__init__()
        self.up = nn.Linear(p.d_model, p.d_ff)
        self.gate = nn.Linear(p.d_model, p.d_ff) if p.mlp == "glu" else None
        self.down = nn.Linear(p.d_ff, p.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Output to be added to the residual stream."""
        up = self.up(x)
        if self.gate is None:
            return self.down(nn.functional.gelu(up))
        return self.down(up * nn.functional.gelu(self.gate(x)))


def normalised(p: Parameters) -> nn.Module:
    """LayerNorm, or the identity."""
    return nn.LayerNorm(p.d_model) if p.norm else nn.Identity()


class Block(nn.Module):
    """Attention, then an MLP, each added to the residual stream."""

    def __init__(self, p: Parameters) -> None:
        super().__init__()
        self.norm_1, self.heads = normalised(p), Heads(p)
        self.norm_2, self.mlp = normalised(p), MLP(p)

    def forward(
        self, x: Tensor, redirect: Tensor | None, first: int
    ) -> tuple[Tensor, Tensor]:
        """The stream from place ``first`` on, and the attention of states before it is
        redirected.
        """
        out, seen = self.heads(self.norm_1(x), redirect, first)
        x = x[:, first:] + out
        return x + self.mlp(self.norm_2(x)), seen


class Transformer(nn.Module):
    """Blocks of attention and MLP on a residual stream; torch's own initialisation."""

    def __init__(self, p: Parameters) -> None:
        super().__init__()
        self.p = p
        self.tokens = nn.Embedding(p.d_g + p.N, p.d_model)
        learned = p.positions == "learned"
        self.places = nn.Embedding(2 * p.L, p.d_model) if learned else None
        self.blocks = nn.ModuleList(Block(p) for _ in range(p.blocks))
        self.norm = normalised(p)
        self.out = nn.Linear(p.d_model, p.N)

    def forward(
        self, actions: Tensor, states: Tensor, redirect: Tensor | None = None
    ) -> Seen:
        """Logits of the next states under teacher forcing, with the attention.

        Parameters
        ----------
        actions : Tensor, shape (n, L)
            Actions 0..d_g-1.
        states : Tensor, shape (n, T)
            States s_0 .. s_{T-1}, 0..N-1.
        redirect : Tensor, shape (T, L), optional
            Intervention: how, at each step, every head distributes over the actions
            what it pays to them in total. What it pays to states stays.
        """
        x = self.tokens(torch.cat([actions, states + self.p.d_g], 1))
        if self.places is not None:
            x = x + self.places.weight[: x.shape[1]]
        seen, L = [], self.p.L
        for number, block in enumerate(self.blocks, 1):
            last = number == self.p.blocks  # whose output at actions nobody reads
            x, attention = block(x, redirect, L if last else 0)
            seen.append(attention)
        paid = torch.cat(seen, 1)
        itself = paid[..., L:].diagonal(dim1=2, dim2=3)
        return Seen(self.out(self.norm(x)), paid[..., :L], itself)


def drawn(p: Parameters, seed: int) -> Transformer:
    """A transformer with initial weights from a seed; torch's own random state is left
    as it is.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(p)
