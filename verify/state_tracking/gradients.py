"""Every derivative of the state-tracking theory against autograd of the actual model.

Each group of checks takes the table of Equations, so that tests can pass a faulty one
and confirm that it is detected.
"""

from collections.abc import Iterator

import numpy as np
import torch

from simulate.state_tracking.gradients import Grouped, Plain
from simulate.state_tracking.student import Student, Students
from theory.state_tracking import Parameters, equations
from theory.state_tracking.model import task
from verify.checks.check import Check, identity, listed
from verify.checks.report import Table, derivations
from verify.state_tracking.beyond_gradients import (
    attention_constant,
    attention_derivatives,
    dressed_derivatives,
)
from verify.state_tracking.flow_gradients import (
    EXACT,
    GENERATOR,
    entry_derivatives,
    flow_at_paper_overlap,
    flow_increments,
    loss_derivatives,
    mean_logits,
    overlap_updates,
    seed_means,
)


@listed
def engine(eq: Table) -> Iterator[Check]:
    """The training code's hand-written gradients against
    autograd of the plain module.
    """
    p = Parameters(N=6, L=5, d_g=5, d_h=8, n_train=64)
    rng = np.random.default_rng(GENERATOR)
    data = task.draw_sequences(task.draw_permutations(p, rng), p.n_train, p.L, rng)
    student = Student(p, task.draw_weights(p, rng), torch.float64)
    students = Students([student])
    losses, grads = [], []
    for kind in (Grouped, Plain):
        way = kind(students, [data])
        way.gradients(students)
        losses.append(float(way.statistics(students)["loss"]))
        grads.append(
            {
                name: w.grad.numpy().copy()
                for name, w in students.named_parameters()
                if w.grad is not None
            }
        )
    yield identity("training loss", "engine", losses[0], losses[1], *EXACT)
    yield from [
        identity(
            f"training gradient of {name}",
            "engine",
            grads[0][name],
            grads[1][name],
            *EXACT,
        )
        for name in grads[0]
    ]


GRADIENTS = (
    mean_logits,
    loss_derivatives,
    entry_derivatives,
    overlap_updates,
    seed_means,
    attention_derivatives,
    attention_constant,
    flow_increments,
    flow_at_paper_overlap,
    dressed_derivatives,
    engine,
)

checks, report = derivations(GRADIENTS, equations)
