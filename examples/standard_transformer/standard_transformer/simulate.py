"""Students: standard transformers on the sequences of the solvable student of their
seed; and that student, measured as they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from simulate.state_tracking import learner as solvable
from simulate.training import plan
from simulate.training.learner import Module, Unstacked
from standard_transformer.interventions import MEANING, measure, seen_by
from standard_transformer.theory import Parameters
from standard_transformer.transformer import drawn
from theory.state_tracking.model import task


class Learner(Module):
    """One standard transformer."""

    p: Parameters

    def build(self) -> None:
        """Draw teachers, data and weights."""
        p, seed = self.p, self.seed
        stream = task.streams(seed, p.data_draw)
        teachers = task.draw_permutations(p, stream["task"])

        def sequences(count: int, purpose: str) -> tuple[Tensor, Tensor]:
            found = task.draw_sequences(teachers, count, p.L, stream[purpose])
            pair = found.actions, found.states
            actions, states = (torch.as_tensor(x, device=self.device) for x in pair)
            return actions, states

        self.data = sequences(p.n_train, "train")
        self.test = sequences(p.n_test, "test")
        start = int(stream["initialisation"].integers(2**62))
        self.student = drawn(p, start).to(self.device, self.dtype)
        self.optimizer = solvable.optimizer(p, self.student)

    def step(self, number: int) -> None:
        """One step, or one epoch where those are counted."""
        p = self.p
        for update in p.steps_of(number):
            chosen = torch.as_tensor(task.batch(p, self.seed, update))
            actions, states = (x[chosen.to(x.device)] for x in self.data)
            self.optimizer.zero_grad()
            logits = self.student(actions, states[:, :-1]).logits.flatten(0, 1)
            nn.functional.cross_entropy(logits, states[:, 1:].flatten()).backward()
            if p.clip is not None:
                nn.utils.clip_grad_norm_(self.student.parameters(), p.clip)
            for group in self.optimizer.param_groups:
                group["lr"] = p.eta * p.share(update, p.updates)
            self.optimizer.step()

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `MEANING`."""
        quantities = measure(self.student, *self.test)
        return {name: v.double().cpu().numpy() for name, v in quantities.items()}


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes
    per weight.
    """
    length, width = 2 * p.L, p.heads * (p.d_h + p.L)
    place = p.blocks * (8 * p.d_model + 10 * width + 6 * p.d_ff) + 4 * p.d_model
    places = max(p.batch_size or p.n_train, p.n_test) * length
    logits = p.n_test * p.L * p.N * (7 * itemsize + 16)
    block = p.d_model * (4 * p.heads * p.d_h + 3 * p.d_ff)
    weights = p.blocks * block + (p.d_g + 2 * p.N + length) * p.d_model
    data = 16 * (p.n_train + p.n_test) * (length + 2) + 24 * p.d_g * p.N
    records = plan.records(p, len(MEANING))
    # Weights, gradients, two moments, and copies of the state.
    return itemsize * (places * place + 12 * weights) + logits + data + records


SYSTEM = plan.System(
    "standard_transformer",
    Parameters,
    partial(Unstacked, Learner),
    MEANING,
    memory,
    clock=Parameters.alpha,
)
SYSTEMS = {"student": SYSTEM}
train = SYSTEM.train


class Measured(solvable.Learner):
    """Solvable students, measured as standard transformers are."""

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `MEANING`."""
        each = []
        for one, *test in zip(self.students.members, *self.test_data, strict=True):
            each.append(measure(partial(seen_by, one), *test))
        return {name: np.array([float(x[name]) for x in each]) for name in MEANING}


MEASURED = replace(
    solvable.SYSTEM,
    name="state_tracking.measured",
    make=Measured,
    meaning=MEANING,
    dimensions={},
    stack=1,
    data=None,
)
