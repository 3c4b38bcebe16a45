"""The solvable student, measured by the interventions of standard transformers."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import torch
from torch import Tensor

from simulate.learner import State, Unstacked
from simulate.state_tracking import learner
from simulate.state_tracking.standard import interventions
from simulate.state_tracking.standard.transformer import Seen
from simulate.state_tracking.student import Student
from theory.state_tracking import Parameters


def seen(student: Student, actions: Tensor, states: Tensor, redirect: Tensor | None = None) -> Seen:
    """As `transformer.Transformer.forward`; one head, which sees actions alone."""
    attention = student.attention(actions, states)
    used = attention if redirect is None else redirect.expand_as(attention)
    logits = student.logic(student.retrieve(used, actions), states)
    return Seen(logits, attention[:, None], attention.new_zeros(len(actions), 1, states.shape[1]))


class Measured:
    """One solvable student for `simulate.learner.Unstacked`."""

    def __init__(self, p: Parameters, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.learner = learner.Learner(p, [seed], device, dtype)
        self.step = self.learner.step

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `interventions.MEANING`."""
        (student,), test = self.learner.students.members, (x[0] for x in self.learner.test_data)
        found = interventions.measure(partial(seen, student), *test)
        return {name: v.cpu().double().numpy() for name, v in found.items()}

    def state(self) -> State:
        """State of the student."""
        return self.learner.state(0)

    def load(self, state: State) -> None:
        """Restore a state."""
        self.learner.load([state])


SYSTEM = dataclasses.replace(
    learner.SYSTEM,
    name="state_tracking.measured",
    make=partial(Unstacked, Measured),
    meaning=interventions.MEANING,
    dimensions=interventions.DIMENSIONS,
    stack=1,
    identity=lambda p: learner.identity(p),
    data=None,
)
