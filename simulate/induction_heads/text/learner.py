"""Training of the character model, measured by loss and by scores of its heads."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from simulate import training
from simulate.induction_heads.text import corpus, scores
from simulate.induction_heads.text.transformer import Transformer
from simulate.learner import Module, Unstacked
from simulate.streams import keyed, of_torch
from theory.induction_heads.text import Parameters

KNOWN = 4  # characters after which a showing can be recognised; a third of that in short contexts
MEANING = {
    "loss": "cross-entropy on text not trained on (nats per character)",
    "loss_first": "the same on a segment's first showing",
    "loss_second": "the same on its second showing",
    "previous": "attention on the character before, best head of layer 1",
    "prefix": "prefix-matching score on text shown twice, best head of layer 2",
    "prefix_random": "the same on random characters shown twice",
    "copying": "copying score of the head with the best prefix matching",
}


class Learner(Module):
    """One character model; the windows of every step are drawn from (seed, step)."""

    def __init__(
        self,
        p: Parameters,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        text: str | None = None,
    ) -> None:
        self.p, self.seed, self.device = p, seed, device
        content = corpus.read(p.text) if text is None else text
        self.corpus = corpus.Corpus.of(content, p.vocabulary, p.context)
        self.student = Transformer(p, of_torch(seed, 0)).to(device, dtype)
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=p.eta)
        held, random = self.corpus.test, keyed(seed, 1)
        plain = p.replace(repeats=0.0, piece=None)
        self.test = self._put(corpus.windows(plain, held, p.n_test, random))
        self.twice = self._put(corpus.twice(p, held, random))
        self.random = self._put(corpus.random_twice(p, random))

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array, device=self.device)

    def step(self, number: int) -> None:
        """One step of Adam on fresh windows."""
        random = keyed(self.seed, 2, number)
        drawn = corpus.windows(self.p, self.corpus.train, self.p.batch_size, random)
        tokens = self._put(drawn)
        self.optimizer.zero_grad()
        scores.losses(self.student(tokens[:, :-1])[0], tokens).mean().backward()
        self.optimizer.step()

    @torch.no_grad()
    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `MEANING`."""
        half = self.p.context // 2
        known = min(KNOWN, half // 3)
        logits, (first, second) = self.student(self.twice)
        losses, best = scores.losses(logits, self.twice), scores.prefix(second, half, known)
        _, (_, other) = self.student(self.random)
        copied = scores.copying(self.student.copies()[int(best.argmax())])
        measured = {
            "loss": scores.losses(self.student(self.test[:, :-1])[0], self.test).mean(),
            "loss_first": losses[:, known : half - 1].mean(),
            "loss_second": losses[:, half + known :].mean(),
            "previous": scores.previous(first).max(),
            "prefix": best.max(),
            "prefix_random": scores.prefix(other, half).max(),
        }
        return {k: v.double().cpu().numpy() for k, v in measured.items()} | {"copying": copied}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes per
    weight.
    """
    rows, length = max(p.batch_size, p.n_test), p.context
    stream, paid = rows * length * p.D, rows * p.heads * length**2
    weights = (2 * p.vocabulary + length + 8 * p.D) * p.D + p.heads * p.vocabulary**2
    logits = rows * length * p.vocabulary
    text = 2 * 8 * 500_000  # tokens, and while they are cut
    windows = 8 * 4 * rows * (length + 1) * 2
    return (
        itemsize * (20 * stream + 9 * paid + 6 * weights + 5 * logits)
        + text
        + windows
        + 16 * 4 * p.vocabulary**2
        + training.records(p, len(MEANING))
    )


def identity(p: Parameters) -> dict[str, Any]:
    """Digest of the text, which differs between versions of Python."""
    return {"digest": corpus.digest(corpus.read(p.text))}


def on_text(p: Parameters, text: str) -> tuple[Parameters, training.System]:
    """Parameters and system for a text of the user; runs are stored under its digest."""
    corpus.Corpus.of(text, p.vocabulary, p.context)
    return p, replace(
        SYSTEM,
        name=f"{SYSTEM.name}, text {corpus.digest(text)}",
        make=partial(Unstacked, partial(Learner, text=text)),
        identity=lambda p: {"digest": corpus.digest(text)},
    )


SYSTEM = training.System(
    "induction_heads.text",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    default_dtype="float32",
    identity=identity,
    text=on_text,
)
train = SYSTEM.train
