"""Students of contexts with right pairs at any places, written without a statement."""

import numpy as np
import torch
import xarray as xr

from simulate.induction_heads import student as task
from simulate.induction_heads.student import Constrained, squared_error
from simulate.training.learner import Descent
from theory.induction_heads import Parameters


def burst_sequences(
    p: Parameters, right: np.ndarray, random: torch.Generator
) -> task.Batch:
    """One orthonormal sequence for each row of ``right``, whose ones are the queried
    pair.
    """
    items, labels, codes = task.orthonormal(p, len(right), random, torch.float64)
    last = torch.as_tensor([int(np.flatnonzero(row)[-1]) for row in right])
    each = torch.arange(len(right))
    where = torch.as_tensor(right, dtype=torch.bool)[:, :, None]
    items, labels = (
        torch.where(where, x[each, last][:, None], x) for x in (items, labels)
    )
    return task.batch_of(items, labels, codes, last)


def burst_descent(
    p: Parameters, right: np.ndarray, chances: np.ndarray, seed: int, step: float
) -> xr.Dataset:
    """Alpha of three numbers from zero, in steps of the flow's time on the mean loss
    over contexts: ``right`` has a row for each, 1 where the queried pair stands, and
    ``chances`` its probability.

    The loss of a context does not depend on the tokens, so that one sequence of each
    suffices.
    """
    student = Constrained(p.dimension, p.mask, torch.float64)
    batch = burst_sequences(p, right, task.generator(seed, "train"))
    # Roots, as they multiply residuals.
    share = torch.as_tensor(np.sqrt(chances * len(chances)))[:, None]

    optimizer = Descent(student.parameters(), lr=step)
    alpha = []
    for _ in range(p.steps + 1):
        loss = squared_error(share * student(batch.X), share * batch.y, "sum")
        alpha.append(float(student.theta[0].detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return xr.Dataset({"alpha": ("t", alpha)}, {"t": step * np.arange(p.steps + 1)})
