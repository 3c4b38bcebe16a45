"""Standard transformers under training, and their system."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from simulate import training
from simulate.learner import Module, Unstacked
from simulate.state_tracking.learner import optimizer, tables
from simulate.state_tracking.standard import interventions
from simulate.state_tracking.standard.transformer import drawn
from theory.state_tracking import task
from theory.state_tracking.standard import StandardParameters


class Learner(Module):
    """One standard transformer, on the data of the solvable student of its seed."""

    def __init__(
        self,
        p: StandardParameters,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        permutations: np.ndarray | None = None,
    ) -> None:
        self.p, self.seed = p, seed
        stream = task.streams(seed, p.data_draw)
        teachers = task.draw_permutations(p, stream["task"])
        teachers = teachers if permutations is None else np.asarray(permutations)
        self.data, self.test = (
            tuple(torch.as_tensor(x, device=device) for x in (sequences.actions, sequences.states))
            for n, which in ((p.n_train, "train"), (p.n_test, "test"))
            for sequences in [task.draw_sequences(teachers, n, p.L, stream[which])]
        )
        start = int(stream["initialisation"].integers(2**62))
        self.student = drawn(p, start).to(device, dtype)
        self.optimizer = optimizer(p, self.student)

    def step(self, number: int) -> None:
        """One step, or one epoch where those are counted."""
        for update in self.p.steps_of(number):
            chosen = torch.as_tensor(task.batch(self.p, self.seed, update))
            actions, states = (x[chosen.to(x.device)] for x in self.data)
            self.optimizer.zero_grad()
            logits = self.student(actions, states[:, :-1]).logits
            nn.functional.cross_entropy(logits.flatten(0, 1), states[:, 1:].flatten()).backward()
            if self.p.clip is not None:
                nn.utils.clip_grad_norm_(self.student.parameters(), self.p.clip)
            for group in self.optimizer.param_groups:
                group["lr"] = self.p.eta * self.p.share(update, self.p.updates)
            self.optimizer.step()

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `interventions.MEANING`."""
        quantities = interventions.measure(self.student, *self.test)
        return {name: v.double().cpu().numpy() for name, v in quantities.items()}


def memory(p: StandardParameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes per
    weight.
    """
    width, length = p.heads * p.d_h, 2 * p.L
    scores = p.heads * length
    trained = p.blocks * (8 * p.d_model + 8 * width + 6 * p.d_ff + 5 * scores) + 4 * p.d_model
    tested = 4 * p.d_model + 4 * width + 3 * p.d_ff + 3 * scores + p.blocks * scores  # no gradients
    rows = max(p.sequences_per_step * trained, p.n_test * tested) * length
    logits = p.n_test * p.L * p.N * (7 * itemsize + 16)
    block = 4 * p.d_model * width + (2 + (p.mlp == "glu")) * p.d_model * p.d_ff
    weights = p.blocks * block + (p.d_g + 2 * p.N + 2 * p.L) * p.d_model
    data = 8 * (p.n_train + p.n_test) * (2 * p.L + 1) * 2 + 16 * p.n_train
    drawn_tables = 24 * p.d_g * p.N
    numbers = 12 + p.L**2 + p.L + p.blocks * p.heads
    records = (p.epochs // p.eval_every + 2) * 4 * 8 * numbers
    # Weights, gradients, two moments, and copies of the state.
    return itemsize * (rows + 12 * weights) + logits + data + drawn_tables + records


def identity(p: StandardParameters, permutations: np.ndarray | None = None) -> dict[str, Any]:
    """Given permutations, if any, identify a run."""
    return tables(p, permutations)


SYSTEM = training.System(
    "state_tracking.standard",
    StandardParameters,
    partial(Unstacked, Learner),
    interventions.MEANING,
    memory,
    clock=StandardParameters.alpha,
    dimensions=interventions.DIMENSIONS,
    identity=identity,
    displayed=("A", "B", "R", "S", "heuristic", "logic", "accuracy", "rollout_accuracy"),
)
