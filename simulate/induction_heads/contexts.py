"""Disentangled transformers that learn from a mixture of contexts, with right pairs at any
places.
"""

import numpy as np
import torch
import xarray as xr

from simulate.induction_heads import task
from simulate.induction_heads.student import Constrained, squared_error
from simulate.learner import Descent
from theory.induction_heads import Parameters


def sequences(p: Parameters, right: np.ndarray, random: torch.Generator) -> task.Batch:
    """One orthonormal sequence for each row of ``right``, whose ones are the queried pair."""
    items, labels, codes = task.orthonormal(p, len(right), random, torch.float64)
    last = torch.as_tensor([int(np.flatnonzero(row)[-1]) for row in right])
    each, where = torch.arange(len(right)), torch.as_tensor(right, dtype=torch.bool)[:, :, None]
    items, labels = (torch.where(where, x[each, last][:, None], x) for x in (items, labels))
    return task.assemble(items, labels, codes, last)


def descent(
    p: Parameters, right: np.ndarray, chances: np.ndarray, seed: int, step: float
) -> xr.Dataset:
    """Alpha of three numbers from zero, in steps of the flow's time on the mean loss over contexts.

    The loss of a context does not depend on the tokens, so that one sequence of each suffices.
    """
    student = Constrained(p.dimension, p.mask, torch.float64)
    optimizer, alpha = Descent(student.parameters(), lr=step), [0.0]
    batch = sequences(p, right, task.generator(seed, "train"))
    share = torch.as_tensor(np.sqrt(chances * len(chances)))[:, None]  # of the squared error
    for _ in range(p.steps):
        optimizer.zero_grad()
        z, y = student(batch.X), batch.y
        squared_error(share * z, share * y, "sum").backward()
        optimizer.step()
        alpha.append(float(student.theta[0].detach()))
    return xr.Dataset({"alpha": ("t", alpha)}, {"t": step * np.arange(p.steps + 1)})
