"""The standard attention-only transformer (Sec. 2, App. E, Figs. 1, 2, 17)."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from simulate.induction_heads.student import attention, generator
from simulate.training import plan
from simulate.training.learner import Module, Unstacked
from theory.induction_heads.parameters import StandardParameters


class Transformer(nn.Module):
    """Two attention-only layers with one head each on a residual stream, learned token
    and position embeddings, linear output.

    No normalisation, no biases, no tied weights. The residual stream is stored as rows,
    not columns as in the paper.
    """

    def __init__(self, p: StandardParameters, random: torch.Generator) -> None:
        super().__init__()
        self.p = p
        self.E = nn.Parameter(torch.randn(p.vocabulary, p.D, generator=random))
        self.P = nn.Parameter(torch.randn(p.block, p.D, generator=random))

        def dense(
            rows: int,
        ) -> nn.Parameter:  # torch's default initialisation of a linear layer
            return nn.Parameter(
                (2 * torch.rand(rows, p.D, generator=random) - 1) / math.sqrt(p.D)
            )

        self.Q, self.K, self.V, self.O = (
            nn.ParameterList(dense(p.D) for _ in range(2)) for _ in range(4)
        )
        self.out = dense(p.vocabulary)

    def forward(self, tokens: Tensor, offset: Tensor) -> Tensor:
        """Logits after the last token; ``offset`` is the first position of each
        sequence.
        """
        places = offset[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        h = self.E[tokens] + self.P[places]
        for Q, K, V, O in zip(self.Q, self.K, self.V, self.O, strict=True):
            scores = (h @ Q.T) @ (h @ K.T).transpose(1, 2) / math.sqrt(self.p.D)
            h = h + attention(scores, "inclusive") @ h @ V.T @ O.T
        return h[:, -1] @ self.out.T

    @torch.no_grad()
    def interpret(self) -> dict[str, Tensor]:
        """Key-query products and output matrix in the basis of the embeddings and the
        outputs of the heads (Fig. 2).

        Returns
        -------
        dict
            ``scores_1`` and ``scores_2`` (query, key), divided by sqrt(D) as in the
            softmax, and ``readout`` (token, direction). Directions: tokens and
            positions; the same as written by head 1; all of these as written by head 2
            (readout only).
        """
        base = torch.cat([self.E, self.P])
        first = torch.cat([base, base @ self.V[0].T @ self.O[0].T])
        second = torch.cat([first, first @ self.V[1].T @ self.O[1].T])

        def scores(stream: Tensor, k: int) -> Tensor:
            return (
                (stream @ self.Q[k].T) @ (stream @ self.K[k].T).T / math.sqrt(self.p.D)
            )

        return {
            "scores_1": scores(base, 0),
            "scores_2": scores(first, 1),
            "readout": self.out @ second.T,
        }


def sample(
    p: StandardParameters, random: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences of distinct tokens with a repeated item, their offsets in the block,
    and the labels to predict.
    """
    size = 2 * p.pairs
    tokens = torch.rand(p.batch_size, p.vocabulary, generator=random).argsort(1)[
        :, :size
    ]
    q = torch.randint(p.pairs, (p.batch_size, 1), generator=random)
    return (
        torch.cat([tokens, tokens.gather(1, 2 * q)], 1),
        torch.randint(p.block - size, (p.batch_size,), generator=random),
        tokens.gather(1, 2 * q + 1)[:, 0],
    )


class Learner(Module):
    """One standard transformer, trained on the negative log-likelihood of the correct
    label.
    """

    p: StandardParameters

    def build(self) -> None:
        """A transformer and its test sequences."""
        p, random = self.p, generator(self.seed, "initialisation")
        self.student = Transformer(p, random).to(self.device, self.dtype)
        self.optimizer = torch.optim.AdamW(
            self.student.parameters(), lr=p.eta, weight_decay=p.weight_decay
        )
        self.test = self._draw("test", 0)

    def _draw(self, stream: str, step: int) -> list[Tensor]:
        return [
            x.to(self.device)
            for x in sample(self.p, generator(self.seed, stream, step))
        ]

    def loss(self, number: int) -> Tensor:
        """Negative log-likelihood on fresh sequences."""
        tokens, offset, label = self._draw("train", number)
        return nn.functional.cross_entropy(self.student(tokens, offset), label)

    @torch.no_grad()
    def measure(self) -> dict[str, Tensor]:
        """Loss and accuracy."""
        tokens, offset, label = self.test
        logits = self.student(tokens, offset)
        return {
            "loss": nn.functional.cross_entropy(logits, label),
            "accuracy": (logits.argmax(1) == label).float().mean(),
        }

    def finish(self) -> dict[str, Any]:
        """The matrices of `Transformer.interpret`."""
        return {
            name: ((f"{name}_to", f"{name}_from"), matrix.cpu().numpy())
            for name, matrix in self.student.interpret().items()
        }


def memory(p: StandardParameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per weight.
    """
    places, tokens = 2 * p.pairs + 1, p.vocabulary + p.block
    stream = p.batch_size * places * p.D
    scores = p.batch_size * places**2
    weights = tokens * p.D + 8 * p.D**2 + p.vocabulary * p.D
    draws = (
        6 * p.batch_size * p.vocabulary
    )  # random numbers and their sorting indices of 8 bytes
    shown = (
        8 * tokens * p.D + 3 * 5 * tokens**2 + 3 * 4 * p.vocabulary * tokens
    )  # `interpret`
    return (
        itemsize * (30 * stream + 20 * scores + 6 * weights + shown)
        + 4 * draws
        + plan.records(p, 2)
    )


def identity(p: StandardParameters) -> dict[str, Any]:
    """Runs of this student are stored beside those of the disentangled one."""
    return {"kind": "standard"}


SYSTEM = plan.System(
    "induction_heads",
    StandardParameters,
    partial(Unstacked, Learner),
    {
        "loss": "negative log-likelihood of the right label (nats)",
        "accuracy": "label most probable",
    },
    memory,
    default_dtype="float32",
    identity=identity,
    displayed=("loss", "accuracy"),
    tiny={
        "": dict(D=8, vocabulary=8, block=9, pairs=2, batch_size=4, **plan.FEW_STEPS)
    },
)
train = SYSTEM.train
