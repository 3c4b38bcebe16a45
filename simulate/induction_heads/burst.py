"""Disentangled transformers on sequences that end in a burst of right pairs."""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr

from simulate.induction_heads import task
from simulate.induction_heads.student import NAMES, Constrained, Student, project, squared_error
from simulate.learner import Descent
from theory.induction_heads import Parameters


def sequences(p: Parameters, B: int, size: int, random: torch.Generator) -> task.Batch:
    """Orthonormal sequences whose last B pairs are the queried one, in double precision."""
    items, labels, codes = task.orthonormal(p, size, random, torch.float64)
    for tokens in (items, labels):
        tokens[:, p.N - B :] = tokens[:, -1:]
    return task.assemble(items, labels, codes, torch.full((size,), p.N - 1))


def descent(p: Parameters, B: int, seed: int, step: float = 1.0) -> xr.Dataset:
    """Alpha of one student from zero, in steps of the flow's time, on fresh sequences.

    Parameters
    ----------
    p : Parameters
        ``trained`` ("three" or "all"), sizes, ``steps``, ``batch_size``.
    B : int
        Right pairs.
    seed : int
        Of the sequences.
    step : float
        Time of a step.
    """
    kinds: dict[str, type[Constrained] | type[Student]] = {"three": Constrained, "all": Student}
    student = kinds[p.trained](p.dimension, p.mask, torch.float64)
    rate = step * p.dimension ** (p.trained != "three")
    optimizer, alpha = Descent(student.parameters(), lr=rate), [0.0]
    for number in range(p.steps):
        batch = sequences(p, B, p.batch_size, task.generator(seed, "train", number))
        optimizer.zero_grad()
        squared_error(student(batch.X), batch.y, "sum").backward()
        optimizer.step()
        values = project({k: w.detach() for k, w in student.weights().items()})
        alpha.append(float(values[NAMES.index("alpha_3")]))
    return xr.Dataset({"alpha": ("t", alpha)}, {"t": step * np.arange(p.steps + 1)})
