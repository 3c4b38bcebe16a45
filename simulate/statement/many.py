"""Thousands of small students of a statement at once: one array per weight for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from simulate.pool import one_thread
from simulate.statement import data as law
from simulate.statement.student import TESTED, Student
from simulate.streams import keyed
from theory import prediction
from theory.statement import arrays, onset
from theory.statement.stated import Statement
from theory.statement.tree import Function, Node, Weight, require

STREAM = 5  # of a seed, beside those of single students
ROOM = 2**19  # inputs whose losses are evaluated at once
PLAIN = "batches drawn anew are needed; set batch_size=8, say"


class Evaluation(arrays.Evaluation):
    """Values of a tree where every input has a student of its own: weights have the students in
    front.
    """

    def __init__(self, data: arrays.Data, weights: Mapping[Weight, Tensor], owner: Tensor) -> None:
        super().__init__(data, weights, torch, torch.ones((), dtype=torch.float64))
        self.owner = owner

    def _read(self, array: Any, terms: tuple[Any, ...], batched: bool) -> Any:
        if batched or isinstance(array, Tensor) and not array.is_floating_point():
            return super()._read(array, terms, batched)
        return array[(self.owner, *map(self.term, terms))]


def train(
    stated: Statement, p: Any, students: int, seed: int = 0, *, loss: bool = True
) -> xr.Dataset:
    """Train students by plain descent on batches, each on its own inputs.

    Parameters
    ----------
    stated : Statement
    p : Parameters
        With a batch size above 0.
    students : int
        How many.
    seed : int
        Of all their inputs.
    loss : bool
        Whether loss and observables are measured, too.

    Returns
    -------
    Dataset
        Order parameters as means over classes, loss and observables, over ``(seed, t)``.

    Raises
    ------
    ParameterError
        If there are no batches, a size or number has no value, or the descent diverges.
    """
    require(p.batch_size, f"batch_size = 0: {PLAIN}")
    made, student, numbers = onset.at_sizes(stated, p), Student(stated), law.counted(p.as_dict())
    sized, rng = arrays.Data(numbers), keyed(seed, STREAM)
    tables: dict[Function, Any] = arrays.teachers(stated, sized, rng)
    members = made.members(arrays.Data(numbers, tables))
    few = law.most(stated, numbers) <= TESTED
    test = arrays.every_input(stated, numbers, None, tables) if few else law.inputs(
        stated, numbers, tables, TESTED, rng
    )
    weights = {
        w: torch.full((students, *x.shape), sized.scalar(w.mean), dtype=torch.float64)
        for w, x in members.items()
    }
    owner = torch.arange(students).repeat_interleave(p.batch_size)
    forms = made.quotient.order
    steps = prediction.evaluations(p.steps, p.eval_every)
    known: dict[str, list[np.ndarray]] = {x.name: [] for x in forms}
    with one_thread():
        for n in range(steps[-1] + 1):
            if n in steps:
                means = {
                    c.symbol: weights[c.weight].numpy()[:, members[c.weight] == k].mean(1)
                    for k, c in enumerate(made.classes)
                }
                for x, form in forms.items():
                    known[x.name].append(sum(float(form.coeff(c)) * m for c, m in means.items()))
                for name, tree in stated.trees.items() if loss else ():
                    known.setdefault(name, []).append(_means(student, weights, test, tree))
            drawn = law.inputs(stated, numbers, tables, len(owner), rng)
            held = [x.requires_grad_() for x in weights.values()]
            read = Evaluation(student.taken(drawn), dict(zip(weights, held, strict=True)), owner)
            total = read.value(stated.loss).sum() / p.batch_size
            slopes = torch.autograd.grad(total, held, materialize_grads=True)
            weights = {
                w: (x - p.eta * g).detach() for (w, x), g in zip(weights.items(), slopes, strict=True)
            }
    data = {k: (("seed", "t"), np.array(v).T) for k, v in known.items()}
    about = {"kind": "students", "parameters": p.as_json()}
    where = {"seed": range(students), "t": steps * p.eta, "step": ("t", steps)}
    return prediction.finite(p, lambda: xr.Dataset(data, where, about))


def _means(
    student: Student, weights: Mapping[Weight, Tensor], test: arrays.Data, tree: Node
) -> np.ndarray:
    """Mean of a tree over all test inputs, for every student."""
    inputs, students = len(test.chances), len(next(iter(weights.values())))
    many = max(ROOM // inputs, 1)
    tiled = lambda x: np.concatenate([x] * many)  # noqa: E731
    samples = {f: x if f.kept else tiled(x) for f, x in test.tables.items()}
    every = dataclasses.replace(
        test,
        tables=samples,
        draws={i: tiled(x) for i, x in test.draws.items()},
        gausses={g: tiled(x) for g, x in test.gausses.items()},
    )
    taken, chances = student.taken(every), torch.as_tensor(test.chances)
    found = []
    for first in range(0, students, many):
        owner = (first + torch.arange(many).repeat_interleave(inputs)).clamp(max=students - 1)
        values = Evaluation(taken, weights, owner).value(tree) * torch.ones(len(owner))
        found.append((values.reshape(many, inputs) * chances).sum(1))
    return torch.cat(found)[:students].numpy()
