"""One-pass students of the tied attention layer: a few fresh sentences at every step."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from simulate import training
from simulate.learner import Member, State, Unstacked
from simulate.positional_semantic.student import Student, positional_encoding
from simulate.streams import keyed
from theory.parameters import ParameterError
from theory.positional_semantic.online import Parameters

TEACHER, START, SENTENCES, TEST = range(4)  # streams of a seed
TESTED = 2000  # sentences on which the loss is measured
MEANING = {
    "q": "sigma^2 |Q|^2/d",
    "m": "overlap with the positional encoding, p_1.Q/sqrt(d)",
    "theta": "overlap with the teacher, sigma^2 Q.Q*/d",
    "loss": "mean of |y - f|^2/(2d) on fresh sentences",
}


class OnePass(Member):
    """Weights ``Q`` that start with the given norm and cosines and descend on fresh sentences."""

    p: Parameters
    dtype = torch.float64

    def build(self) -> None:
        """Teacher, start and test sentences."""
        p, seed, dtype = self.p, self.seed, self.dtype
        if p.batch is None:
            raise ParameterError("batch = None: must be a number of sentences for students")
        self.batch = p.batch
        self.positions = torch.as_tensor(positional_encoding(p.d)).to(dtype)
        draws = keyed(seed, TEACHER).standard_normal(p.d), keyed(seed, START).standard_normal(p.d)
        axes, _ = np.linalg.qr(np.stack([self.positions[0].double().numpy(), *draws], 1))
        axes *= np.sign(axes[0, 0])  # the first is the positional encoding
        self.teacher = torch.as_tensor(axes[:, 1] * np.sqrt(p.d)).to(dtype)
        sine = np.sqrt(1 - p.cos_p**2 - p.cos_teacher**2)
        start = p.scale * np.sqrt(p.d) * axes @ [p.cos_p, p.cos_teacher, sine]
        self.student = Student({"Q": torch.as_tensor(start).to(dtype)[:, None]})
        self.test = self.sentences(TESTED, TEST)

    @property
    def Q(self) -> Tensor:
        """The weights, shape ``(d, 1)``."""
        return self.student.weights["Q"]

    def sentences(self, n: int, *stream: int) -> tuple[Tensor, Tensor]:
        """Tokens with positions, and targets, of fresh sentences."""
        p = self.p
        drawn = keyed(self.seed, *stream).standard_normal((n, 2, p.d), dtype=np.float32)
        x = p.sigma * torch.as_tensor(drawn).to(self.dtype)
        h = x @ self.teacher / np.sqrt(p.d)
        semantic = torch.softmax(h[:, :, None] * h[:, None, :], dim=2)
        target = (1 - p.omega) * semantic + p.omega * torch.as_tensor(p.A).to(self.dtype)
        return x + self.positions, target @ x

    def step(self, number: int) -> None:
        """One step on fresh sentences."""
        p = self.p
        tokens, y = self.sentences(self.batch, SENTENCES, number)
        loss = self.student.objective(tokens, y, 0.0) / self.batch
        (slope,) = torch.autograd.grad(loss, [self.Q])
        with torch.no_grad():
            self.Q.sub_(p.eta * (slope + p.decay / p.d * self.Q))
            if p.norm == "held":
                self.Q.mul_(p.scale * np.sqrt(p.d) / self.Q.norm())

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Quantities in `MEANING`."""
        p, Q = self.p, self.Q[:, 0]
        tokens, y = self.test
        return {
            "q": p.sigma**2 * (Q @ Q) / p.d,
            "m": (self.positions[0] @ Q) / p.d**0.5,
            "theta": p.sigma**2 * (self.teacher @ Q) / p.d,
            "loss": self.student.objective(tokens, y, 0.0) / TESTED,
        }

    def state(self) -> State:
        """The weights; sentences follow from the seed and the step."""
        return {"Q": self.Q.detach().clone()}

    def load(self, state: State) -> None:
        """Restore a state."""
        with torch.no_grad():
            self.Q.copy_(state["Q"])


def memory(p: Parameters, itemsize: int = 8) -> float:
    """Peak memory of one run in bytes: sentences of a step or a test, drawn, and their outputs."""
    return 2 * p.d * max(p.batch or 1, TESTED) * (4 + 6 * itemsize)


SYSTEM = training.System(
    "positional_semantic.online",
    Parameters,
    partial(Unstacked, OnePass),
    MEANING,
    memory,
    default_dtype="float64",
    devices=("cpu",),
)
SYSTEMS = {"online": SYSTEM}
train = SYSTEM.train
