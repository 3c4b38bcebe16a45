"""Students: the attention on tokens, the reduced model on prompts, and its population gradient."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from linear_attention.simulate import student
from linear_attention.theory.parameters import Parameters
from simulate import training
from simulate.gradient_flow import rates
from simulate.learner import Unstacked

MEANING = {
    "loss": "mean squared error over all prompts of beta^T W x_q",
    "learned": "W_dd over its final value, per eigenvector of Lambda, largest eigenvalue first",
    "rest": "norm of W off its diagonal",
    "others": "largest size of the weights that start at zero; zero in the reduced model",
    "invariant": "conserved quantities of gradient flow",
}


class Student:
    """One student, trained by descent on half the loss, so that time is eta * steps."""

    def __init__(self, p: Parameters, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.p, self.seed, self.device, self.dtype = p, seed, device, dtype
        self.population, self.final = student.population(p), student.final(p)
        begun = student.start(p, seed)
        if p.student == "tokens":
            begun = student.embedded(begun, p.eigenvalues.size)
        self.weights = {n: w.to(device, dtype) for n, w in begun.items()}

    def step(self, number: int) -> None:
        """One step of descent."""
        loss = self.population
        if self.p.student != "population":
            drawn = student.sample(self.p, self.seed, number)
            X, y = (x.to(self.device, self.dtype) for x in drawn)
            predict = student.attention if self.p.student == "tokens" else student.reduced
            loss = lambda weights: (y - predict(weights, X)).square().mean()  # noqa: E731
        _, moved = rates(lambda weights: loss(weights) / 2, self.weights)
        self.weights = {n: w + self.p.eta * moved[n] for n, w in self.weights.items()}

    def measure(self) -> dict[str, Any]:
        """Quantities in `MEANING`."""
        small, others = self.weights, torch.zeros(())
        if self.p.student == "tokens":
            small = student.extracted(self.weights)
            zeroed = student.embedded(small, self.p.eigenvalues.size)
            others = torch.stack([(w - zeroed[n]).abs().max() for n, w in self.weights.items()])
        W = student.matrix(small)
        found = {
            "loss": self.population(small),
            "learned": W.diagonal() / self.final.to(W),
            "rest": (W - W.diag().diag()).norm(),
            "others": others.max(),
            "invariant": student.invariants(small),
        }
        return {n: x.double().cpu().numpy() for n, x in found.items()}

    def state(self) -> dict[str, Any]:
        """The weights."""
        return self.weights

    def load(self, state: dict[str, Any]) -> None:
        """Set the weights."""
        self.weights = {n: w.to(self.device) for n, w in state.items()}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes."""
    D, drawn = p.eigenvalues.size, p.student != "population"
    prompts = drawn * p.batch_size * (p.N + 1) * (D + 1 + p.H * (p.R + 2))
    weights = p.H * (D + 1) * max(D + 1, 2 * p.R) + D**2
    recorded = training.records(p, 4 + D + p.H * (p.H + p.R**2))
    return 8 * 6 * prompts + 12 * itemsize * weights + recorded


SYSTEM = training.System(
    "linear_attention",
    Parameters,
    partial(Unstacked, Student),
    MEANING,
    memory,
    dimensions={"learned": ("direction",), "invariant": ("pair",)},
    time="t",
    clock=lambda p, steps: p.eta * steps,
    default_dtype="float64",
)
SYSTEMS = {k: replace(SYSTEM, settings={"attention": k}) for k in ("merged", "separate")}
train = SYSTEM.train
