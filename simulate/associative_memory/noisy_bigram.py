"""One gradient step on noisy bigrams, and a model with both paths for ablation."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from simulate.training import plan
from simulate.training.learner import Descent, Module, Unstacked
from simulate.training.streams import keyed
from theory.associative_memory.noisy_bigram import Parameters
from theory.runtime import memory as memory_module

# The noisy bigram task

MEANING = {
    "loss": "cross-entropy, 4096 fresh samples",
    "p_noise": "mean probability of the noise token",
    "attention": "attention on the token after the trigger",
    "in_context": "part of the samples whose prediction is the clean answer",
    "distributional": "part of the samples whose prediction is the noise token",
    "in_context_ablated": "the same without the feed-forward path",
    "distributional_ablated": "noise token predicted without the feed-forward path",
}
CUTS = (
    1.0,
    0.98,
    0.96,
    0.94,
    0.92,
    0.9,
    0.85,
    0.8,
    0.6,
    0.4,
    0.2,
    0.0,
)  # fractions of the feed-forward path that are kept


def sample(
    p: Parameters, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Context ``(n, T)`` with the clean answer at index 0, clean answers ``(n,)``,
    labels ``(n,)``; noise is N.

    The order does not matter; the answer is distinguished by the trigger before it.
    """
    context = rng.integers(p.N, size=(n, p.T))
    label = np.where(rng.random(n) < p.a, p.N, context[:, 0])
    return context, context[:, 0], label


def one_step(p: Parameters, seed: int = 0) -> dict[str, np.ndarray]:
    """One gradient step from zero weights on ``draws`` data sets of n samples,
    attention uniform.

    Returns
    -------
    dict
        Arrays over draws: ``feed_forward``, whether the noise token has strictly the
        largest logit; ``value``, fraction of the tokens z for which W_V[k, z], with k
        among the N answers, is largest at k = z, ties broken evenly. The noise token's
        row, which has most of the samples, is excluded.
    """
    memory_module.require(memory_of_one_step, p, "one gradient step")
    results: dict[str, list[float]] = {"feed_forward": [], "value": []}
    for rng in np.random.default_rng(seed).spawn(p.draws):
        context, _, label = sample(p, p.n, rng)
        counts = np.bincount(label, minlength=p.N + 1)
        results["feed_forward"].append(float(counts[p.N] > counts[: p.N].max()))
        # W_V = eta (C - column sums / (N + 1)) / (n T), C[k, z] counting tokens z under
        # label k: within a column the order of entries is that of C.
        index = (label[:, None] * p.N + context).ravel()
        counted = np.bincount(index, minlength=(p.N + 1) * p.N).reshape(p.N + 1, p.N)[
            : p.N
        ]
        best = counted == counted.max(0)
        results["value"].append((best.diagonal() / best.sum(0)).mean())
    return {name: np.array(v) for name, v in results.items()}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run of the ablated model in bytes, estimated from array
    shapes; ``itemsize`` bytes per number.
    """
    n = max(p.batch_size, 4096)
    return (
        itemsize * (4 * (p.N + 1) * p.N + n * 8 * (p.N + 1))
        + n * 8 * 3 * p.T
        + plan.records(p, 2 * len(MEANING))
    )


def memory_of_one_step(p: Parameters) -> float:
    """Peak memory of `one_step` in bytes: contexts and their counts under every label,
    one data set at a time.
    """
    return 8 * p.n * (3 * p.T + 4) + 8 * 3 * (p.N + 1) * p.N + 16 * p.draws


class Learner(Module):
    """Model with the feed-forward row of the trigger, a value matrix, and an attention
    score on the token after the trigger.

    Tokens of the context are one-hot. The query is always the trigger, so that the
    feed-forward path is a single row.
    """

    p: Parameters

    def build(self) -> None:
        """All weights are zero."""
        N = self.p.N
        shapes = {"feed_forward": (N + 1,), "value": (N + 1, N), "score": ()}
        weights = {
            name: torch.zeros(shape, dtype=self.dtype) for name, shape in shapes.items()
        }
        self.student = torch.nn.ParameterDict(weights).to(self.device)
        self.optimizer = Descent(self.student.parameters(), lr=self.p.eta)

    def logits(self, context: Tensor, keep: float = 1.0) -> Tensor:
        """Logits ``(n, N + 1)`` with a fraction of the feed-forward path kept."""
        score, value = self.student["score"], self.student["value"]
        attention = torch.softmax(
            torch.cat([score[None], score.new_zeros(self.p.T - 1)]), 0
        )
        seen = value.new_zeros(len(context), self.p.N)
        seen = seen.scatter_add(1, context, attention.expand(len(context), -1))
        return keep * self.student["feed_forward"] + seen @ value.T

    def sample(self, n: int, purpose: int, *step: int) -> tuple[Tensor, ...]:
        """Contexts, clean answers and labels from a random stream, on the device."""
        return tuple(
            torch.as_tensor(v, device=self.device)
            for v in sample(self.p, n, keyed(self.seed, purpose, *step))
        )

    def loss(self, number: int) -> Tensor:
        """Cross-entropy of one batch."""
        context, _, label = self.sample(self.p.batch_size, 1, number)
        return cross_entropy(self.logits(context), label)

    @torch.no_grad()
    def predictions(self, keep: float) -> tuple[Tensor, Tensor]:
        """Fractions of the samples predicted as clean answer and as noise token."""
        context, clean, _ = self.sample(4096, 2)
        best = self.logits(context, keep).argmax(1)
        return (best == clean).double().mean(), (best == self.p.N).double().mean()

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """All quantities in `MEANING`."""
        context, _, label = self.sample(4096, 2)
        logits = self.logits(context)
        score = self.student["score"].double().exp()
        whole, cut = self.predictions(1.0), self.predictions(0.0)
        return {
            "loss": cross_entropy(logits, label),
            "p_noise": torch.softmax(logits, 1)[:, -1].mean(),
            "attention": score / (score + self.p.T - 1),
            "in_context": whole[0],
            "distributional": whole[1],
            "in_context_ablated": cut[0],
            "distributional_ablated": cut[1],
        }


SYSTEM = plan.System(
    "associative_memory.noisy_bigram",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    default_dtype="float32",
    tiny={"": dict(N=8, batch_size=4, **plan.FEW_STEPS)},
)


train = SYSTEM.train
