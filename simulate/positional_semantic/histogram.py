"""The histogram task of App. A: a counting task with a positional and a semantic
solution, and their stability.

A transformer with one head (no residual connection) learns how often each token of a
sequence occurs in it. Half of the embedding is reserved for tokens and half for
positions. Queries and keys first read one half only, with the rest frozen at zero. Then
all weights are unfrozen, perturbed and trained further.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simulate.training import plan
from simulate.training.learner import Member, State, Unstacked
from theory.positional_semantic.model.parameters import HistogramParameters

KINDS = ("positional", "semantic")
DATA_SEED = 42
MEANING = {
    "accuracy": "share of test positions counted right, frozen",
    "accuracy_unfrozen": "the same after unfreezing",
    "dependence": "how much attention depends on the tokens, frozen",
    "dependence_unfrozen": "the same after unfreezing",
    "attention": "attention in two test sequences, frozen",
    "attention_unfrozen": "the same after unfreezing",
    "frozen_to_unfrozen": "distance of the weights before and after unfreezing",
    "formerly_zero": "the same for entries that were frozen",
    "start_to_frozen": "distance of the weights from the start",
}
AXES = {0: (), 3: ("sequence", "query", "key")}


def sample(p: HistogramParameters) -> tuple[Tensor, Tensor]:
    """Training and test sequences of tokens, without repetitions; shapes ``(n,
    length)``.
    """
    rng = np.random.default_rng(DATA_SEED)
    every = np.unique(rng.integers(0, p.alphabet, (p.samples, p.length)), axis=0)
    every = every[rng.permutation(len(every))]
    cut = int(p.share * len(every))
    return torch.as_tensor(every[:cut]), torch.as_tensor(every[cut:])


def count(sequences: Tensor) -> Tensor:
    """How often the token at every position occurs in its sequence."""
    return (sequences[:, :, None] == sequences[:, None, :]).sum(2)


class Counter(nn.Module):
    """Embedding, one attention head with queries and keys that read a subspace,
    LayerNorm, and a two-layer network (21)-(24).
    """

    def __init__(self, p: HistogramParameters, kind: str) -> None:
        super().__init__()
        half, d = p.width // 2, p.width
        self.tokens, self.positions = (
            nn.Parameter(torch.randn(p.alphabet, d)),
            nn.Parameter(torch.randn(p.length, d)),
        )
        self.Q, self.K, self.V = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.read = nn.Sequential(
            nn.LayerNorm(d),
            nn.Linear(d, p.hidden),
            nn.ReLU(),
            nn.Linear(p.hidden, p.length + 1),
        )
        first = torch.arange(d) < half  # embedding coordinates reserved for tokens
        seen = first if kind == "semantic" else ~first
        # Initial zeros, and masks of trainable entries: tokens left, positions right, Q
        # and K one of the two.
        self.masks = {
            "tokens": first.expand(p.alphabet, d),
            "positions": (~first).expand(p.length, d),
            "Q.weight": seen.expand(d, d),
            "K.weight": seen.expand(d, d),
        }
        self.apply_masks()

    def apply_masks(self) -> None:
        """Set frozen weights to zero."""
        named = dict(self.named_parameters())
        with torch.no_grad():
            for name, mask in self.masks.items():
                named[name].mul_(mask.to(named[name]))

    def attention(self, sequences: Tensor) -> Tensor:
        """Attention matrices ``(n, length, length)``."""
        x = self.tokens[sequences] + self.positions
        return torch.softmax(
            self.Q(x) @ self.K(x).transpose(1, 2) / x.shape[-1] ** 0.5, 2
        )

    def forward(self, sequences: Tensor) -> Tensor:
        """Logits of the counts, ``(n, length, length + 1)``."""
        x = self.tokens[sequences] + self.positions
        return self.read(self.attention(sequences) @ self.V(x))


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Copy of all parameters."""
    return {k: v.detach().clone() for k, v in model.named_parameters()}


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Sum over tensors of the Euclidean distances."""
    return float(sum(torch.linalg.norm(a[k] - b[k]) for k in a))


def accuracy(model: Counter, sequences: Tensor) -> float:
    """Fraction of positions with the correct count."""
    with torch.no_grad():
        return float((model(sequences).argmax(2) == count(sequences)).float().mean())


def dependence(model: Counter, sequences: Tensor) -> float:
    """Mean standard deviation of an attention entry over sequences: zero for purely
    positional attention.
    """
    with torch.no_grad():
        return float(model.attention(sequences).std(0).mean())


class Learner(Member):
    """Both solutions of a seed, trained side by side: first with frozen weights by
    Adam, then all weights, after a perturbation, by plain gradient descent.
    """

    p: HistogramParameters

    def build(self) -> None:
        """Sequences, both students, and the order of the sequences for each."""
        p, seed, device = self.p, self.seed, self.device
        self.train, self.test = (v.to(device) for v in sample(p))
        self.target = count(self.train)
        self.models, self.orders = {}, {}
        for kind in KINDS:
            torch.manual_seed(seed)
            self.orders[kind] = torch.Generator().manual_seed(seed)
            self.models[kind] = Counter(p, kind).to(device, self.dtype)
        self.start = {kind: snapshot(model) for kind, model in self.models.items()}
        self.frozen: dict[str, dict[str, Tensor]] = {}
        self._optimize()

    def _optimize(self) -> None:
        """Create the optimisers of this phase."""
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        for kind, model in self.models.items():
            weights, eta = model.parameters(), self.p.eta
            if self.frozen:
                self.optimizers[kind] = torch.optim.SGD(weights, lr=eta)
            else:
                self.optimizers[kind] = torch.optim.Adam(
                    weights, lr=eta, betas=(0.9, 0.98), eps=1e-9
                )

    def step(self, number: int) -> None:
        """One epoch of both students;
        weights are unfrozen after the last frozen epoch.
        """
        for kind, model in self.models.items():
            optimizer = self.optimizers[kind]
            for rows in torch.randperm(
                len(self.train), generator=self.orders[kind]
            ).split(self.p.batch):
                optimizer.zero_grad(set_to_none=True)
                logits = model(self.train[rows]).flatten(0, 1)
                nn.functional.cross_entropy(
                    logits, self.target[rows].flatten()
                ).backward()
                optimizer.step()
                if not self.frozen:
                    model.apply_masks()
        if number + 1 == self.p.epochs:
            self.frozen = {kind: snapshot(model) for kind, model in self.models.items()}
            self._perturb()
            self._optimize()

    @torch.no_grad()
    def _perturb(self) -> None:
        for kind, model in self.models.items():
            for name, value in model.named_parameters():
                if name in model.masks:
                    value.add_(
                        self.p.noise
                        * torch.randn(value.shape, generator=self.orders[kind]).to(
                            value
                        )
                    )

    def state(self) -> State:
        """Weights of both, now and at unfreezing, optimiser states, and states of the
        random streams.
        """
        states = {}
        for kind, model in self.models.items():
            states[kind] = {
                "student": model.state_dict(),
                "frozen": self.frozen.get(kind, {}),
                "order": self.orders[kind].get_state(),
                "optimizer": self.optimizers[kind].state_dict(),
            }
        return states

    def load(self, state: State) -> None:
        """Restore a state."""
        self.frozen = {}
        for kind in KINDS:
            if weights := state[kind]["frozen"]:
                on_device = {name: w.to(self.device) for name, w in weights.items()}
                self.frozen[kind] = on_device
        self._optimize()
        for kind, model in self.models.items():
            model.load_state_dict(state[kind]["student"])
            self.optimizers[kind].load_state_dict(state[kind]["optimizer"])
            self.orders[kind].set_state(state[kind]["order"])

    def finish(self) -> dict[str, Any]:
        """Quantities in `MEANING` for both solutions."""
        rows = {kind: self._compare(kind) for kind in KINDS}
        measured = {}
        for name, text in MEANING.items():
            values = np.stack([rows[kind][name] for kind in KINDS])
            dims = ("kind", *AXES[values.ndim - 1])
            measured[name] = dims, values, {"long_name": text}
        return {
            "kind": list(KINDS),
            "sequences": (("sequence", "query"), self.test[:2].cpu().numpy()),
            **measured,
        }

    def _compare(self, kind: str) -> dict[str, Any]:
        model, frozen = self.models[kind], self.frozen[kind]
        row: dict[str, Any] = {}
        after = snapshot(model)
        for weights, name in ((frozen, ""), (after, "_unfrozen")):
            model.load_state_dict(weights)
            attention = model.attention(self.test[:2]).detach()
            row |= {
                f"accuracy{name}": accuracy(model, self.test),
                f"dependence{name}": dependence(model, self.test),
                f"attention{name}": attention.cpu().numpy(),
            }
        zero = {k: ~mask.to(self.device) for k, mask in model.masks.items()}

        def formerly_zero(weights: dict[str, Tensor]) -> dict[str, Tensor]:
            return {k: weights[k] * z for k, z in zero.items()}

        return row | {
            "frozen_to_unfrozen": distance(frozen, after),
            "start_to_frozen": distance(self.start[kind], frozen),
            "formerly_zero": distance(formerly_zero(frozen), formerly_zero(after)),
        }


def memory(p: HistogramParameters, itemsize: int = 4) -> float:
    """Peak memory of one seed in bytes, estimated from array shapes; all test sequences
    are evaluated at once.
    """
    n = max(p.batch, p.samples)
    sequences = p.samples * p.length * (8 * 5 + p.length)
    layers = n * p.length * (8 * p.width + 3 * p.hidden + 4 * p.length)
    weights = (
        3 * p.width**2
        + (p.alphabet + p.length + 2 * p.hidden) * p.width
        + p.hidden * p.length
    )
    return sequences + itemsize * (layers + 2 * 6 * weights)


def length(p: HistogramParameters) -> int:
    """Total number of epochs, frozen and unfrozen."""
    return p.epochs + p.unfrozen_epochs


TINY = dict(
    length=3, alphabet=3, samples=60, width=4, hidden=8, epochs=14, unfrozen_epochs=10
)
SYSTEM = plan.System(
    "positional_semantic.histogram",
    HistogramParameters,
    functools.partial(Unstacked, Learner),
    MEANING,
    memory,
    time=None,
    counter="epoch",
    length=length,
    finite="frozen_to_unfrozen",
    tiny={"": TINY},
)


def solutions(
    p: HistogramParameters,
    seed: int,
    *,
    device: str | None = None,
    progress: bool = True,
) -> dict[str, dict[str, Any]]:
    """Both solutions of one seed by kind: quantities in `MEANING` and ``sequences``.
    Trained once, then read from the store.
    """
    runs = SYSTEM.train(p, [seed], device=device, progress=progress).isel(seed=0)
    values = {}
    for kind in KINDS:
        of_kind = runs.sel(kind=kind).data_vars
        values[kind] = {str(name): v.values for name, v in of_kind.items()}
    return values
