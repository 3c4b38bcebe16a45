"""A standard transformer: learned embeddings, softmax heads that see all earlier tokens, MLPs, a
residual stream.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from simulate.state_tracking.student import rotate
from theory.state_tracking.standard import StandardParameters


class Seen(NamedTuple):
    """Attention and predictions of a student at every state, heads of all blocks one after the
    other; attention without intervention.

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

    def __init__(self, p: StandardParameters) -> None:
        super().__init__()
        self.p = p
        width = p.heads * p.d_h
        self.query, self.key, self.value = (
            nn.Linear(p.d_model, width, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(width, p.d_model, bias=False)
        rotary = torch.tensor(p.frequencies) if p.positions == "rope" else torch.empty(0)
        self.register_buffer("omega", rotary, persistent=False)

    def forward(self, x: Tensor, redirect: Tensor | None, first: int) -> tuple[Tensor, Tensor]:
        """Output from place ``first`` on, and the attention of states before it is redirected."""
        n, length, _ = x.shape
        split = (n, -1, self.p.heads, self.p.d_h)
        q = self.query(x[:, first:]).view(split).transpose(1, 2)
        k, v = (f(x).view(split).transpose(1, 2) for f in (self.key, self.value))
        if self.p.positions == "rope":
            angle = (torch.arange(length, device=x.device)[:, None] * self.omega).to(x.dtype)
            q, k = rotate(q, angle[first:]), rotate(k, angle)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)[first:]
        scores = (q @ k.transpose(2, 3) / math.sqrt(self.p.d_h)).masked_fill(later, -math.inf)
        weights = scores.softmax(-1)
        before, seen = weights.split([self.p.L - first, length - self.p.L], 2)
        if redirect is not None:
            on_actions = seen[..., : self.p.L].sum(-1, keepdim=True) * redirect
            moved = torch.cat([on_actions, seen[..., self.p.L :]], -1)
            weights = torch.cat([before, moved], 2)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), seen


class MLP(nn.Module):
    """Two layers with a GELU between, or three with a gate."""

    def __init__(self, p: StandardParameters) -> None:
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


def normalised(p: StandardParameters) -> nn.Module:
    """LayerNorm, or the identity."""
    return nn.LayerNorm(p.d_model) if p.norm else nn.Identity()


class Block(nn.Module):
    """Attention, then an MLP, each added to the residual stream."""

    def __init__(self, p: StandardParameters) -> None:
        super().__init__()
        self.norm_1, self.heads = normalised(p), Heads(p)
        self.norm_2, self.mlp = normalised(p), MLP(p)

    def forward(self, x: Tensor, redirect: Tensor | None, first: int) -> tuple[Tensor, Tensor]:
        """The stream from place ``first`` on, and the attention of states before it is
        redirected.
        """
        out, seen = self.heads(self.norm_1(x), redirect, first)
        x = x[:, first:] + out
        return x + self.mlp(self.norm_2(x)), seen


class Transformer(nn.Module):
    """Blocks of attention and MLP on a residual stream; torch's own initialisation."""

    def __init__(self, p: StandardParameters) -> None:
        super().__init__()
        self.p = p
        self.tokens = nn.Embedding(p.d_g + p.N, p.d_model)
        self.places = nn.Embedding(2 * p.L, p.d_model) if p.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(p) for _ in range(p.blocks))
        self.norm = normalised(p)
        self.out = nn.Linear(p.d_model, p.N)

    def forward(self, actions: Tensor, states: Tensor, redirect: Tensor | None = None) -> Seen:
        """Logits of the next states under teacher forcing, with the attention.

        Parameters
        ----------
        actions : Tensor, shape (n, L)
            Actions 0..d_g-1.
        states : Tensor, shape (n, T)
            States s_0 .. s_{T-1}, 0..N-1.
        redirect : Tensor, shape (T, L), optional
            Intervention: how, at each step, every head distributes over the actions what it pays to
            them in total. What it pays to states stays.
        """
        x = self.tokens(torch.cat([actions, states + self.p.d_g], 1))
        if self.places is not None:
            x = x + self.places.weight[: x.shape[1]]
        seen, L = [], self.p.L
        for number, block in enumerate(self.blocks, 1):  # of the last, nobody asks actions
            x, attention = block(x, redirect, L if number == len(self.blocks) else 0)
            seen.append(attention)
        paid = torch.cat(seen, 1)
        itself = paid[..., L:].diagonal(dim1=2, dim2=3)
        return Seen(self.out(self.norm(x)), paid[..., :L], itself)


def drawn(p: StandardParameters, seed: int) -> Transformer:
    """A transformer with initial weights from a seed; torch's own random state is left as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(p)
