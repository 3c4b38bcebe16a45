"""The histogram task of App. A: one counting task, a positional and a semantic solution, and whether they last.

A transformer with one head (no residual connection) learns how often each token of a sequence occurs in it. With half
of the embedding reserved for tokens and half for positions, queries and keys read one half only while the
rest is frozen at zero. Then everything is unfrozen, perturbed and trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from simulate import device as devices
from theory.parameters import BaseParameters, ParameterError, parameter

KINDS = ("positional", "semantic")
DATA_SEED = 42


@dataclass(frozen=True)
class HistogramParameters(BaseParameters):
    """Sizes and training settings of the counting task (cui2024, App. A); `paper` has the published ones."""

    length: int = parameter(6, "tokens per sequence", low=2)
    alphabet: int = parameter(8, "different tokens", low=2)
    samples: int = parameter(4000, "sequences drawn, before repetitions are dropped", low=10)
    share: float = parameter(0.7, "of the sequences trained on", above=0, high=0.99)
    width: int = parameter(32, "embedding dimension", low=4, multiple_of=2)
    hidden: int = parameter(128, "hidden units", low=1)
    epochs: int = parameter(60, "frozen training", low=1)
    unfrozen_epochs: int = parameter(20, "training after unfreezing", low=0)
    eta: float = parameter(1e-3, "learning rate, Adam frozen and SGD unfrozen", above=0)
    batch: int = parameter(32, "sequences per step", low=1)
    noise: float = parameter(1e-3, "perturbation when unfreezing", low=0)

    @classmethod
    def paper(cls) -> Self:
        """Published sizes: an hour per seed and solution on a CPU."""
        return cls(length=10, alphabet=15, samples=50000, width=64, epochs=200, unfrozen_epochs=100)


def draw(p: HistogramParameters) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and test sequences of tokens, without repetitions; shapes ``(n, length)``."""
    rng = np.random.default_rng(DATA_SEED)
    every = np.unique(rng.integers(0, p.alphabet, (p.samples, p.length)), axis=0)
    every = every[rng.permutation(len(every))]
    cut = int(p.share * len(every))
    return torch.as_tensor(every[:cut]), torch.as_tensor(every[cut:])


def count(sequences: torch.Tensor) -> torch.Tensor:
    """How often the token at every position occurs in its sequence."""
    return (sequences[:, :, None] == sequences[:, None, :]).sum(2)


class Counter(nn.Module):
    """Embedding, one attention head whose queries and keys read a subspace, LayerNorm, two-layer network (21)-(24)."""

    def __init__(self, p: HistogramParameters, kind: str) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ParameterError(f"kind = {kind!r}: must be one of {', '.join(KINDS)}")
        half, d = p.width // 2, p.width
        self.tokens, self.positions = nn.Parameter(torch.randn(p.alphabet, d)), nn.Parameter(torch.randn(p.length, d))
        self.Q, self.K, self.V = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.read = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, p.hidden), nn.ReLU(), nn.Linear(p.hidden, p.length + 1))
        first = torch.arange(d) < half  # coordinates of the tokens
        seen = first if kind == "semantic" else ~first
        # Zeros at the start, and masks of what may move: tokens left, positions right, Q and K one of the two.
        self.masks = {"tokens": first.expand(p.alphabet, d), "positions": (~first).expand(p.length, d),
                      "Q.weight": seen.expand(d, d), "K.weight": seen.expand(d, d)}  # fmt: skip
        self.apply_masks()

    def apply_masks(self) -> None:
        """Set what is frozen to zero."""
        named = dict(self.named_parameters())
        with torch.no_grad():
            for name, mask in self.masks.items():
                named[name].mul_(mask.to(named[name]))

    def attention(self, sequences: torch.Tensor) -> torch.Tensor:
        """Attention matrices ``(n, length, length)``."""
        x = self.tokens[sequences] + self.positions
        return torch.softmax(self.Q(x) @ self.K(x).transpose(1, 2) / x.shape[-1] ** 0.5, 2)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Logits of the counts, ``(n, length, length + 1)``."""
        x = self.tokens[sequences] + self.positions
        return self.read(self.attention(sequences) @ self.V(x))


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copy of all parameters."""
    return {k: v.detach().clone() for k, v in model.named_parameters()}


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Sum over tensors of the Euclidean distances."""
    return float(sum(torch.linalg.norm(a[k] - b[k]) for k in a))


def accuracy(model: Counter, sequences: torch.Tensor) -> float:
    """Share of positions counted right."""
    with torch.no_grad():
        return float((model(sequences).argmax(2) == count(sequences)).float().mean())


def dependence(model: Counter, sequences: torch.Tensor) -> float:
    """Mean standard deviation of an attention entry over sequences: zero for purely positional attention."""
    with torch.no_grad():
        return float(model.attention(sequences).std(0).mean())


def fit(model: Counter, optimizer: torch.optim.Optimizer, data: torch.Tensor, p: HistogramParameters, epochs: int,
        rng: torch.Generator, frozen: bool, bar: Any) -> None:  # fmt: skip
    """Train in place; with ``frozen`` the masks are applied after every step."""
    target = count(data)
    for _ in range(epochs):
        for rows in torch.randperm(len(data), generator=rng).split(p.batch):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(data[rows]).flatten(0, 1), target[rows].flatten())
            loss.backward()
            optimizer.step()
            if frozen:
                model.apply_masks()
        bar.update()


def memory(p: HistogramParameters) -> float:
    """Bytes at the peak of one solution, from the shapes it makes: all test sequences are evaluated at once."""
    n = max(p.batch, p.samples)
    sequences = p.samples * p.length * (8 * 5 + p.length)
    layers = n * p.length * (8 * p.width + 3 * p.hidden + 4 * p.length) * 4
    return sequences + layers + 4 * 6 * (3 * p.width**2 + (p.alphabet + p.length + 2 * p.hidden) * p.width + p.hidden * p.length)


def solutions(p: HistogramParameters, seed: int, *, device: str | None = None,
              progress: bool = True) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Both solutions of one seed: accuracies, distances of Table 1, and attention matrices before and after unfreezing.

    Returns
    -------
    dict
        Per kind: ``accuracy`` and ``accuracy_unfrozen`` on test sequences, ``frozen_to_unfrozen``,
        ``formerly_zero`` (the same for entries that were frozen), ``start_to_frozen``, ``dependence`` and
        ``dependence_unfrozen`` (how much attention depends on the tokens), ``attention`` and
        ``attention_unfrozen`` for two test sequences, ``sequences``.
    """
    where = devices.find(device)
    devices.require(memory, p, where)
    train, test = (v.to(where) for v in draw(p))
    found = {}
    with tqdm(total=2 * (p.epochs + p.unfrozen_epochs), desc="histogram", unit="epoch", disable=not progress) as bar:
        for kind in KINDS:
            torch.manual_seed(seed)
            rng = torch.Generator().manual_seed(seed)
            model = Counter(p, kind).to(where)
            start = snapshot(model)
            adam = torch.optim.Adam(model.parameters(), lr=p.eta, betas=(0.9, 0.98), eps=1e-9)
            fit(model, adam, train, p, p.epochs, rng, True, bar)
            frozen = snapshot(model)
            row: dict[str, Any] = {"accuracy": accuracy(model, test), "dependence": dependence(model, test),
                                   "attention": model.attention(test[:2]).detach().cpu().numpy()}  # fmt: skip
            with torch.no_grad():
                for name, value in model.named_parameters():
                    if name in model.masks:
                        value.add_(p.noise * torch.randn(value.shape, generator=rng).to(value))
            fit(model, torch.optim.SGD(model.parameters(), lr=p.eta), train, p, p.unfrozen_epochs, rng, False, bar)
            after = snapshot(model)
            zero = {k: ~model.masks[k].to(where) for k in model.masks}
            row |= {"accuracy_unfrozen": accuracy(model, test), "dependence_unfrozen": dependence(model, test),
                    "attention_unfrozen": model.attention(test[:2]).detach().cpu().numpy(),
                    "frozen_to_unfrozen": distance(frozen, after), "start_to_frozen": distance(start, frozen),
                    "formerly_zero": distance({k: frozen[k] * z for k, z in zero.items()},
                                              {k: after[k] * z for k, z in zero.items()}),
                    "sequences": test[:2].cpu().numpy()}  # fmt: skip
            found[kind] = row
    return found
