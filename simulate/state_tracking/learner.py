"""Students of the state-tracking task: full-batch or minibatch descent of a stack."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from simulate import learner, pool, training
from simulate.state_tracking.gradients import Grouped, Plain, engine
from simulate.state_tracking.measure import MEANING, measure
from simulate.state_tracking.student import Student, Students
from simulate.streams import keyed
from theory.state_tracking import Parameters, task

GPU_STACK = 128  # seeds trained together; at Table 1 each needs about 10 MB


def identity(p: Parameters, permutations: np.ndarray | None = None) -> dict[str, Any]:
    """Identity of a run: permutations, if given."""
    return (
        {}
        if permutations is None
        else {"given_permutations": task.check_permutations(permutations, p).tolist()}
    )


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Peak memory of one run in bytes, estimated from array shapes; ``itemsize`` bytes per
    weight.
    """
    rows = p.n_train * p.L
    data = 8 * (p.n_train + p.n_test) * (2 * p.L + 1) + 8 * p.n_test * (2 * p.L + 1)
    entries, head = p.d_g * p.N**2, p.d_h * p.d_model
    # Drawn, stacked and transposed weights, gradients, optimiser moments; teachers and overlaps in
    # double precision.
    weights = entries * (48 + 8 * itemsize) + (2 * head + (p.d_g + p.N) * p.d_model) * (
        16 + 4 * itemsize
    )
    drawn = 16 * p.d_g * p.N + p.d_g**2 * p.N  # permutations, and all their pairs for the overlap
    if p.fix_embedding:
        part = p.batch_size if p.batch_size and p.batch_size < p.n_train else 0
        grouped = (
            (p.n_train + part) * p.L * (10 * p.L + 40)
        )  # rows sorted by state: 8-byte actions, then 2-byte ones
        tables = (
            p.L**2 * (p.d_h // 2) * (32 + 4 * itemsize)
        )  # cosines and sines, in double precision first
        sums = 8 * p.N * p.L**2 + p.L * p.d_g * p.N * itemsize
    else:
        some = min(1024, p.n_train) * p.L  # rows of a slice, by autograd
        grouped = rows * 8
        tables = some * (3 * p.N**2 + 8 * p.d_h + 4 * p.d_g + 4 * p.L) * itemsize
        sums = p.n_test * p.L * (6 * p.d_h) * itemsize
    tested = p.n_test * (4 * p.N * itemsize + 8 * p.L)
    records = (
        (p.epochs // p.eval_every + 2) * 8 * (p.L**2 + p.L + 24) * 4
    )  # stored, stacked, packed, written
    return data + weights + drawn + grouped + tables + sums + tested + records


class Learner(learner.Learner):
    """A stack of students with their data and optimiser.

    Parameters
    ----------
    p : Parameters
        Model and training settings.
    seeds : sequence of int
        Seeds; each fixes teachers, data and initial weights through separate streams.
    device : torch.device
        Device.
    dtype : torch.dtype
        Precision of the students.
    permutations : ndarray, shape (d_g, N), optional
        A given action of a group instead of random permutations.
    """

    def __init__(
        self,
        p: Parameters,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        permutations: np.ndarray | None = None,
    ) -> None:
        self.p, self.seeds = p, seeds
        self.permutations, self.train_data, test, start = [], [], [], []
        for seed in seeds:
            stream = task.streams(seed, p.data_draw)
            drawn = task.draw_permutations(p, stream["task"])
            self.permutations.append(drawn if permutations is None else np.asarray(permutations))
            self.train_data.append(
                task.draw_sequences(self.permutations[-1], p.n_train, p.L, stream["train"])
            )
            test.append(task.draw_sequences(self.permutations[-1], p.n_test, p.L, stream["test"]))
            start.append(task.draw_weights(p, stream["initialisation"]))
        self.students = Students(
            [Student(p, w, dtype, learn_embedding=not p.fix_embedding).to(device) for w in start]
        )
        self.start = [{name: w[name][:, 0] for name in ("W_Q", "W_K")} for w in start]
        self.test_data = (
            torch.as_tensor(np.stack([t.actions for t in test]), device=device),
            torch.as_tensor(np.stack([t.states for t in test]), device=device),
        )
        self.teachers = torch.as_tensor(
            np.stack([task.teacher_matrices(x) for x in self.permutations]), device=device
        )
        self.engine = engine(self.students)
        self.full = self.engine(self.students, self.train_data, pool.share())
        self.optimizer = _optimizer(p, self.students)

    def step(self, number: int) -> None:
        """One epoch."""
        for batch in self.batches(number):
            batch.gradients(self.students)
            self.optimizer.step()

    def batches(self, epoch: int) -> Iterator[Grouped | Plain]:
        """All training data, or minibatches in the order of this epoch."""
        size, n = self.p.batch_size or self.p.n_train, self.p.n_train
        if size == n:
            yield self.full
            return
        orders = [
            keyed(seed, task.STREAMS.index("batches"), epoch).permutation(n) for seed in self.seeds
        ]
        for start in range(0, n, size):
            part = [
                task.Sequences(
                    d.actions[order[start : start + size]], d.states[order[start : start + size]]
                )
                for d, order in zip(self.train_data, orders, strict=True)
            ]
            yield self.engine(self.students, part, pool.share())

    def measure(self) -> dict[str, np.ndarray]:
        """Quantities in `measure.MEANING`."""
        return measure(self.students, self.full, self.test_data, self.teachers)

    def state(self, b: int) -> learner.State:
        """Weights and optimiser state."""
        own = {
            i: {k: v[b] if v.ndim else v for k, v in kept.items() if isinstance(v, torch.Tensor)}
            for i, kept in self.optimizer.state_dict()["state"].items()
        }
        return {
            "weights": {name: w[b] for name, w in self.students.state_dict().items()},
            "optimizer": own,
        }

    def load(self, states: Sequence[learner.State]) -> None:
        """Restore the states of all students."""
        with torch.no_grad():
            for name, w in self.students.named_parameters():
                w.copy_(torch.stack([state["weights"][name] for state in states]))
        found = [state["optimizer"] for state in states]
        stacked = {
            i: {k: torch.stack([f[i][k] for f in found]) if v.ndim else v for k, v in kept.items()}
            for i, kept in found[0].items()
        }
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": stacked})

    def finish(self, b: int) -> dict[str, Any]:
        """Overlap of the drawn teachers, and initial queries and keys."""
        found: dict[str, Any] = {"tau": task.teacher_overlap(self.permutations[b])}
        if self.p.fix_embedding:
            found |= {f"{name}_start": ("head", value) for name, value in self.start[b].items()}
        return found


def _optimizer(p: Parameters, students: Students) -> Any:
    kind: Any = {"sgd": learner.Descent, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[
        p.optimizer
    ]
    return kind(students.parameters(), lr=p.eta, weight_decay=p.weight_decay)


SYSTEM = training.System(
    "state_tracking",
    Parameters,
    Learner,
    MEANING,
    memory,
    time="alpha",
    clock=Parameters.alpha,
    counter="epoch",
    length=operator.attrgetter("epochs"),
    dimensions={"step_accuracy": ("step",), "attention": ("step", "action")},
    stack=GPU_STACK,
    identity=identity,
    displayed=("A", "R", "S", "loss", "accuracy", "rollout_accuracy"),
)
