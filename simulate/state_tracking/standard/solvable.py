"""The solvable student, measured by the interventions of standard transformers."""

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking import learner
from simulate.state_tracking.standard import interventions
from simulate.state_tracking.standard.transformer import Seen
from simulate.state_tracking.student import Student


def seen(student: Student, actions: Tensor, states: Tensor, redirect: Tensor | None = None) -> Seen:
    """As `transformer.Transformer.forward`; one head, which sees actions alone."""
    attention = student.attention(actions, states)
    used = attention if redirect is None else redirect.expand_as(attention)
    logits = student.logic(student.retrieve(used, actions), states)
    return Seen(logits, attention[:, None], attention.new_zeros(len(actions), 1, states.shape[1]))


class Measured(learner.Learner):
    """Solvable students, measured as standard transformers are."""

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `interventions.MEANING`."""
        students = zip(self.students.members, *self.test_data, strict=True)
        each = [interventions.measure(partial(seen, one), *test) for one, *test in students]
        return {
            name: torch.stack([x[name] for x in each]).cpu().double().numpy() for name in each[0]
        }

    def finish(self, b: int) -> dict[str, Any]:
        """No final results."""
        return {}


SYSTEM = dataclasses.replace(
    learner.SYSTEM,
    name="state_tracking.measured",
    make=Measured,
    meaning=interventions.MEANING,
    dimensions=interventions.DIMENSIONS,
    stack=1,
    identity=lambda p: learner.identity(p),
    data=None,
)
