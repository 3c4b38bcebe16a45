"""Thousands of small students of a statement at once: one array per weight for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate.pool import one_thread
from simulate.statement import data as law
from simulate.statement.student import Student
from simulate.streams import keyed
from theory import prediction
from theory.statement import arrays, onset, starts
from theory.statement.stated import Statement
from theory.statement.tree import Node, Weight, require

STREAM = 5  # of a seed, beside those of single students


class Evaluation(arrays.Evaluation):
    """Values of a tree where every input has a student of its own: weights have the students in
    front.
    """

    def __init__(self, data: arrays.Data, weights: Mapping[Weight, Tensor]) -> None:
        super().__init__(data, weights, torch, torch.ones((), dtype=torch.float64))
        self.students = len(next(iter(weights.values())))
        inputs = len(data.chances)
        self.owner = torch.arange(self.students).repeat_interleave(inputs // self.students)

    def _read(self, array: Any, terms: tuple[Any, ...], batched: bool) -> Any:
        if not array.is_floating_point() or batched:
            return super()._read(array, terms, batched)
        return array[(self.owner, *map(self.term, terms))]

    def batch(self, tree: Node) -> Tensor:
        """Mean of a tree over the batch of every student."""
        each = self.value(tree) * torch.ones(len(self.owner), dtype=torch.float64)
        return each.reshape(self.students, -1).mean(1)


def train(stated: Statement, p: Any, students: int, seed: int = 0) -> xr.Dataset:
    """Train students by plain descent on batches, each on its own inputs.

    Parameters
    ----------
    stated : Statement
    p : Parameters
        With a batch size above 0.
    students : int
        How many.
    seed : int
        Of all their inputs, and of the teachers, which are the same for all students.

    Returns
    -------
    Dataset
        Over ``(seed, t)``, with ``t`` the learning rate times steps: order parameters as means over
        classes; loss and observables as means over the batch that comes next.

    Raises
    ------
    ParameterError
        If there are no batches, weights start at random, a size or number has no value, or the
        descent diverges.
    """
    require(p.batch_size, "batch_size = 0: students would be the same; set batch_size=8, say")
    made, student, numbers = onset.at_sizes(stated, p), Student(stated), law.counted(p.as_dict())
    require(not starts.laws(made), "start: of many students weights start equal; write start=0")
    sized, rng = arrays.Data(numbers), keyed(seed, STREAM)
    tables = arrays.teachers(stated, sized, rng)
    members = made.members(arrays.Data(numbers, tables))
    weights = {
        w: torch.full((students, *x.shape), sized.scalar(w.mean), dtype=torch.float64)
        for w, x in members.items()
    }
    steps = prediction.evaluations(p.steps, p.eval_every)
    known: list[dict[str, np.ndarray]] = []
    with one_thread():
        for n in range(steps[-1] + 1):
            drawn = law.inputs(stated, numbers, tables, students * p.batch_size, rng)
            held = {w: x.requires_grad_() for w, x in weights.items()}
            read = Evaluation(student.taken(drawn), held)
            losses = read.batch(stated.loss)
            slopes = torch.autograd.grad(losses.sum(), [*held.values()], materialize_grads=True)
            weights = {w: x.detach() for w, x in held.items()}
            if n in steps:
                of = enumerate(made.classes)
                means = {
                    c.symbol.name: weights[c.weight].numpy()[:, members[c.weight] == k].mean(1)
                    for k, c in of
                }
                names = (x.name for x in made.quotient.order)
                known.append(dict(zip(names, starts.ordered(made, means), strict=True)))
                trees = stated.trees.items()
                known[-1] |= {k: read.batch(tree).detach().numpy() for k, tree in trees}
            weights = {w: x - p.eta * g for (w, x), g in zip(weights.items(), slopes, strict=True)}
    data = {k: (("seed", "t"), np.stack([x[k] for x in known], 1)) for k in known[0]}
    where = {"seed": range(students), "t": steps * p.eta, "step": ("t", steps)}
    about = {"kind": "students", "parameters": p.as_json()}
    return prediction.finite(p, lambda: xr.Dataset(data, where, about))
