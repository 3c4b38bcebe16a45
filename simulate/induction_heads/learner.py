"""Disentangled students trained by stochastic gradient descent from zero: all weights,
19 directions or three pseudo-parameters.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from simulate.induction_heads import student
from simulate.induction_heads.student import (
    NAMES,
    THREE,
    Constrained,
    Nineteen,
    Student,
    project,
    residual,
    squared_error,
)
from simulate.training import plan
from simulate.training.learner import Descent, Module, Unstacked
from theory.induction_heads import Parameters
from theory.induction_heads.structure import HEAD

MEANING = {
    "loss": (
        "squared error summed over D, relative to predicting zero, on test sequences of"
        " the seed"
    ),
    "loss_three": "the same loss with only alpha_3, beta_2, gamma_3 kept",
    "loss_others": (
        "the same loss with alpha_3, beta_2, gamma_3 and what lies outside the 19"
        " directions set to zero"
    ),
    "residual": (
        "norm of the weights outside the 19 directions, relative to all weights"
    ),
    "pseudo": "the 19 pseudo-parameters",
}
KINDS = {
    "all": Student,
    "nineteen": Nineteen,
    "projected": Constrained,
    "three": Constrained,
}


def memory(p: Parameters, itemsize: int = 4, keep_weights: bool = False) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per number.
    """
    places, D = 2 * p.N + 1, p.dimension
    sequences = p.batch_size * places * 2 * D * itemsize
    scores = p.batch_size * places**2 * itemsize
    frames = (
        8 * p.batch_size * p.N * D * itemsize if p.data == "orthonormal" else 0
    )  # QR
    weights = 28 * D**2 * itemsize
    # Test and training sequences with their parts, both layers and their gradients. The
    # 19 directions need up to one score matrix each; measurements build all matrices
    # several times.
    kept = plan.records(p, 24 + (28 * D**2 if keep_weights else 0))
    return 14 * sequences + 20 * scores + frames + 8 * weights + kept


class Learner(Module):
    """One disentangled student."""

    p: Parameters

    def build(self, keep_weights: bool = False) -> None:
        """Whether W1, W2, W3 are recorded at every measurement (large)."""
        p, self.keep_weights = self.p, keep_weights
        self.student = KINDS[p.trained](p.dimension, p.mask, self.dtype).to(self.device)
        # A step of the matrices changes a pseudo-parameter by the gradient along its
        # kernel, divided by D.
        rate = p.eta / p.dimension if p.trained in ("nineteen", "projected") else p.eta
        self.optimizer = Descent(self.student.parameters(), lr=rate)
        self.test = self._draw("test")

    def _draw(self, stream: str, step: int = 0) -> student.Batch:
        batch = student.sample(
            self.p, student.generator(self.seed, stream, step), dtype=self.dtype
        )
        return student.Batch(*(x.to(self.device) for x in batch))

    def loss(self, number: int) -> Tensor:
        """Squared error on fresh sequences."""
        batch = self._draw("train", number)
        return squared_error(self.student(batch.X), batch.y, self.p.loss)

    @torch.no_grad()
    def measure(self) -> dict[str, torch.Tensor]:
        """Pseudo-parameters, the norm outside them, and the loss."""
        weights = {k: w.detach().cpu() for k, w in self.student.weights().items()}
        loss = squared_error(
            self.student(self.test.X), self.test.y, "sum"
        ) / student.scale(self.p)
        values = project(weights)
        kept = torch.tensor([name in THREE for name in NAMES])
        measured = {
            "pseudo": values,
            "residual": residual(weights),
            "loss": loss.cpu(),
            "loss_three": self._loss_of(values * kept),
            "loss_others": self._loss_of(values * ~kept),
        }
        measured |= {short: values[NAMES.index(name)] for short, name in HEAD.items()}
        return measured | (weights if self.keep_weights else {})

    def _loss_of(self, values: Tensor) -> Tensor:
        """Loss of the network with only some pseudo-parameters nonzero."""
        cut = Nineteen(self.p.dimension, self.p.mask, self.dtype).to(self.device)
        cut.theta.copy_(values)
        return (
            squared_error(cut(self.test.X), self.test.y, "sum") / student.scale(self.p)
        ).cpu()

    def finish(self) -> dict[str, Any]:
        """Names of the pseudo-parameters."""
        return {"parameter": list(NAMES)}


def identity(p: Parameters, keep_weights: bool = False) -> dict[str, Any]:
    """Identity of a run: whether weights are recorded."""
    return {"keep_weights": keep_weights}


TINY = dict(N=2, D=4, batch_size=8, **plan.FEW_STEPS)
DISENTANGLED = plan.System(
    "induction_heads",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    identity=identity,
    dimensions={
        "pseudo": ("parameter",),
        **{f"W{k}": (f"row_{k}", f"column_{k}") for k in (1, 2, 3)},
    },
    displayed=("alpha", "beta", "gamma", "loss", "residual"),
    tiny={"": dict(TINY, trained="projected")},
)
SYSTEMS = {
    "disentangled": DISENTANGLED,
    **{
        k: replace(DISENTANGLED, settings={"trained": k}, tiny={"": TINY})
        for k in ("three", "nineteen", "all")
    },
}
