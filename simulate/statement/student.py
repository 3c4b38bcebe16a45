"""The student of a statement and how it is trained; thousands of small ones at once,
one array per weight for all of them.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp
import torch
import xarray as xr
from torch import Tensor

from simulate.statement import data as law
from simulate.training import optimisers, plan
from simulate.training.learner import Descent, Unstacked
from simulate.training.pool import one_thread
from simulate.training.streams import keyed
from theory.call.refusal import ParameterError
from theory.dynamics import prediction
from theory.dynamics.optimisers import Optimiser
from theory.runtime import output
from theory.statement import model, onset
from theory.statement.derivation.symmetry import compiled
from theory.statement.evaluation import arrays
from theory.statement.randomness import random_starts
from theory.statement.words.stated import Statement
from theory.statement.words.tree import (
    Function,
    Index,
    Node,
    Value,
    Weight,
    require,
    subterms,
)

Weights = Mapping[Weight, Tensor]
TEACHERS, TEST, START = 1, 2, 3  # streams of a seed, beside its batches
STREAM = 5  # of all inputs of many students
AT_ONCE = 2**20  # inputs of students, measured together
TESTED = 4096  # inputs that the loss is measured on, where not all of them are listed
DRAWN_ANEW = "batch_size=256 draws inputs anew"
TAKEN = {"seed", "step"}  # coordinates of a run
ENGINE = [Path(str(m.__file__)) for m in (arrays, law, random_starts)] + [
    Path(__file__)
]


class Student:
    """Losses of a statement for given weights: its tree in PyTorch.

    Parameters
    ----------
    stated : Statement
    dtype : torch.dtype
        Precision.
    """

    def __init__(self, stated: Statement, dtype: torch.dtype = torch.float64) -> None:
        self.stated, self.dtype = stated, dtype

    def taken(self, data: arrays.Data) -> arrays.Data:
        """The same inputs as tensors."""
        whole = torch.as_tensor
        real = functools.partial(torch.as_tensor, dtype=self.dtype)
        return arrays.Data(
            data.numbers,
            {f: whole(table) for f, table in data.tables.items()},
            {i: whole(places) for i, places in data.draws.items()},
            {g: real(x) for g, x in data.gausses.items()},
            real(data.chances),
            data.known,
        )

    def each(
        self, weights: Weights, data: arrays.Data, tree: Node | None = None
    ) -> Tensor:
        """Loss of every input (made by `taken`), or another number of the statement."""
        read = arrays.Evaluation(data, weights, torch, torch.ones((), dtype=self.dtype))
        return read.value(self.stated.loss if tree is None else tree)

    def mean(
        self, weights: Weights, data: arrays.Data, tree: Node | None = None
    ) -> Tensor:
        """Mean of these."""
        return arrays.mean(data, self.each(weights, data, tree))

    def gradients(
        self, weights: Weights, data: arrays.Data
    ) -> tuple[Tensor, dict[Weight, Tensor]]:
        """Mean loss and its gradients by all weights, by autograd."""
        held = {w: x.detach().requires_grad_() for w, x in weights.items()}
        loss = self.mean(held, data)
        slopes = torch.autograd.grad(loss, list(held.values()), materialize_grads=True)
        return loss.detach(), dict(zip(held, slopes, strict=True))


class Learner:
    """One student: descent on all inputs, or on inputs drawn anew for every step.

    Parameters
    ----------
    stated : Statement
    p : Parameters
        As `theory.statement.model.parameters` makes them.
    seed : int
        Fixes teachers and inputs.
    device : torch.device, optional
        The CPU.
    dtype : torch.dtype
        Precision.
    tables : mapping of Function to array, optional
        Teachers of one's own, values counted from 0.
    optimizer : Optimiser, optional
        Gradient descent by default.

    Raises
    ------
    ParameterError
        If a size or number has no value, or inputs are too many to list.
    """

    def __init__(
        self,
        stated: Statement,
        p: Any,
        seed: int,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float64,
        tables: Mapping[Function, np.ndarray] | None = None,
        optimizer: Optimiser | None = None,
    ) -> None:
        self.p, self.seed, self.student = p, seed, Student(stated, dtype)
        self.made = onset.at_sizes(stated, p)
        self.numbers = arrays.counted(p)
        sized = arrays.Data(self.numbers)
        self.tables = dict(
            tables or arrays.teachers(stated, sized, keyed(seed, TEACHERS))
        )
        distinct = p.batch_size > 0 or not any(f.leading for f in stated.functions)
        said = "must be at least 1 where samples are distinct to leading order"
        require(distinct, f"batch_size = 0: {said}; {DRAWN_ANEW}")
        if p.batch_size == 0 or law.most(stated, self.numbers) <= TESTED:
            try:
                test = arrays.every_input(stated, self.numbers, None, self.tables)
            except arrays.Unlisted as error:
                raise ParameterError(f"{error}; {DRAWN_ANEW}") from None
        else:
            test = law.inputs(
                stated, self.numbers, self.tables, TESTED, keyed(seed, TEST)
            )
        self.test = self.student.taken(test)
        self.members = self.made.members(arrays.Data(self.numbers, self.tables))
        self.weights = self.lift(
            {c.symbol: sized.scalar(c.weight.mean) for c in self.made.classes}
        )
        rng = keyed(seed, START)
        for w, size in random_starts.sizes(self.made, p).items():
            drawn = random_starts.entries(w.start, size, self.members[w].shape, rng)
            self.weights[w] = torch.tensor(drawn, dtype=dtype)
        self.optimizer = Descent(self.weights.values(), lr=p.eta)
        self.moves = optimisers.Moves(optimizer, p.eta, p.steps) if optimizer else None

    def lift(self, values: Mapping[sp.Symbol, float]) -> dict[Weight, Tensor]:
        """Weights whose entries have the values of their classes."""
        of = [values[c.symbol] for c in self.made.classes]
        lifted = {w: arrays.lifted(numbers, of) for w, numbers in self.members.items()}
        return {w: torch.tensor(x, dtype=self.student.dtype) for w, x in lifted.items()}

    def batch(self, number: int) -> arrays.Data:
        """Inputs of a step."""
        if self.p.batch_size == 0:
            return self.test
        rng = keyed(self.seed, 0, number)
        drawn = law.inputs(
            self.student.stated, self.numbers, self.tables, self.p.batch_size, rng
        )
        return self.student.taken(drawn)

    def step(self, number: int) -> None:
        """One step of descent."""
        _, slopes = self.student.gradients(self.weights, self.batch(number))
        if self.moves is not None:
            weights = [w.numpy() for w in self.weights.values()]
            moved = self.moves(weights, [slope.numpy() for slope in slopes.values()])
            for x, new in zip(self.weights.values(), moved, strict=True):
                x.copy_(torch.from_numpy(new))
            return
        for w, slope in slopes.items():
            self.weights[w].grad = slope
        self.optimizer.step()

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Order parameters of the flow as means over classes, mean loss and
        observables.
        """
        weights = {w: x.numpy() for w, x in self.weights.items()}
        orders = self.orders(
            *random_starts.means(self.made, self.members, weights).values()
        )
        measured = dict(
            zip(
                (x.name for x in self.made.quotient.order),
                map(float, orders),
                strict=True,
            )
        )
        trees = self.student.stated.trees.items()
        return measured | {
            k: float(self.student.mean(self.weights, self.test, v)) for k, v in trees
        }

    @functools.cached_property
    def orders(self) -> Any:
        """Order parameters as a function of class means."""
        numbers = {x: self.numbers[x.name] for x in self.student.stated.symbols}
        order = [x.xreplace(numbers) for x in self.made.quotient.order.values()]
        return compiled(order, [c.symbol for c in self.made.classes])

    def state(self) -> dict[str, Tensor]:
        """All weights."""
        kept = self.moves.state() if self.moves is not None else {}
        return {w.name: x.clone() for w, x in self.weights.items()} | kept

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the weights."""
        for w, x in self.weights.items():
            x.copy_(state[w.name])
        if self.moves is not None:
            self.moves.load(state)


def memory(stated: Statement, p: Any, itemsize: int = 8) -> float:
    """Bytes at the peak of one run: tensors that autograd stores for every node of the
    tree.
    """
    numbers = arrays.counted(p)
    data = arrays.Data(numbers)
    if any(p.as_dict()[s.name] is None for s in stated.symbols):
        return 0.0  # refused by name, when it is made
    listed = min(law.most(stated, numbers), arrays.MOST_INPUTS)
    inputs = max(p.batch_size, listed if p.batch_size == 0 else min(listed, TESTED))

    def kept(n: Node) -> tuple[float, frozenset[Index]]:
        """Numbers that autograd keeps for a node and below it, and the sums that it
        depends on.
        """
        below = [kept(c) for c in n.parts]
        read = {*itertools.chain.from_iterable(map(subterms, n.terms))}
        summed = frozenset(t for t in read if isinstance(t, Index) and t.bound)
        axes = summed.union(*(a for _, a in below))
        index = sum(isinstance(t, Value) for t in read) + isinstance(n.of, Weight)
        entries = math.prod(data.size(i.sort) for i in axes)
        many = entries * inputs * (1 + index * 8 / itemsize)
        return many + sum(b for b, _ in below), axes - {n.of}

    samples = [f for f in stated.functions if not f.kept]
    weights = sum(math.prod(data.shape(w.sorts)) for w in stated.weights)
    drawn = sum(math.prod(data.shape(f.sorts)) for f in samples)
    drawn += sum(math.prod(data.shape(g.sorts)) for g in stated.gausses)
    drawn += sum(data.size(f.to) for f in samples if f.injective)
    names = len(stated.weights) * 4 + len(stated.observables) + 1
    numbers_kept = 2 * kept(stated.loss)[0] + 4 * weights
    return numbers_kept * itemsize + 4 * 8 * drawn * inputs + plan.records(p, 2 * names)


class Stated(plan.System):
    """Students of a statement."""

    @property
    def code(self) -> str:
        """Digest of the code that makes a step."""
        return output.digest(ENGINE)


def system(stated: Statement) -> Stated:
    """How students of a statement are trained; time is the learning rate times steps.

    Raises
    ------
    ParameterError
        If a number of the statement is called as one of its training, or of its runs.
    """
    names = {s.name for s in stated.symbols} & model.TRAINING.keys()
    names |= ({w.name for w in stated.weights} | stated.observables.keys()) & TAKEN
    taken = ", ".join(sorted(names))
    require(
        not names,
        f"statement {stated.name}: {taken}: is the name of a field or result of"
        " training; choose another",
    )
    text = hashlib.sha256(stated.text.encode()).hexdigest()[:16]
    return Stated(
        f"statement.{stated.name}",
        model.parameters(stated),
        functools.partial(Unstacked, functools.partial(Learner, stated)),
        {
            "loss": (
                "mean loss: of all inputs, or of a test sample where they are not"
                " listed"
            )
        },
        functools.partial(memory, stated),
        default_dtype="float64",
        devices=("cpu",),
        identity=functools.partial(_identity, text),
    )


def _identity(text: str, p: Any, optimizer: Optimiser | None = None) -> dict[str, Any]:
    return {"statement": text, **optimisers.identity(optimizer)}


class Evaluation(arrays.Evaluation):
    """Values of a tree where every input has a student of its own: weights have the
    students in front.
    """

    def __init__(self, data: arrays.Data, weights: Mapping[Weight, Tensor]) -> None:
        super().__init__(data, weights, torch, torch.ones((), dtype=torch.float64))
        self.students = len(next(iter(weights.values())))
        inputs = len(data.chances)
        self.owner = torch.arange(self.students).repeat_interleave(
            inputs // self.students
        )

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
        Over ``(seed, t)``, with ``t`` the learning rate times steps: order parameters
        as means over classes; loss and observables as means over all inputs, or, where
        these are more than `TESTED`, over the batch that comes next.

    Raises
    ------
    ParameterError
        If there are no batches, weights start at random, a size or number has no value,
        or the descent diverges.
    """
    require(
        p.batch_size,
        "batch_size = 0: students would be the same; set batch_size=8, say",
    )
    made = onset.at_sizes(stated, p)
    student = Student(stated)
    numbers = arrays.counted(p)
    require(
        not random_starts.laws(made),
        "start: of many students weights start equal; write start=0",
    )
    sized, rng = arrays.Data(numbers), keyed(seed, STREAM)
    tables = arrays.teachers(stated, sized, rng)
    members = made.members(arrays.Data(numbers, tables))
    weights = {
        w: torch.full((students, *x.shape), sized.scalar(w.mean), dtype=torch.float64)
        for w, x in members.items()
    }
    steps = prediction.evaluations(p.steps, p.eval_every)
    known: list[dict[str, np.ndarray]] = []
    listed = law.most(stated, numbers) <= TESTED
    inputs = (
        student.taken(arrays.every_input(stated, numbers, None, tables))
        if listed
        else None
    )
    with one_thread():
        for n in range(steps[-1] + 1):
            drawn = law.inputs(stated, numbers, tables, students * p.batch_size, rng)
            held = {w: x.requires_grad_() for w, x in weights.items()}
            read = Evaluation(student.taken(drawn), held)
            losses = read.batch(stated.loss)
            slopes = torch.autograd.grad(
                losses.sum(), [*held.values()], materialize_grads=True
            )
            weights = {w: x.detach() for w, x in held.items()}
            if n in steps:
                means = random_starts.means(
                    made, members, {w: x.numpy() for w, x in weights.items()}
                )
                names = (x.name for x in made.quotient.order)
                known.append(
                    dict(zip(names, random_starts.ordered(made, means), strict=True))
                )
                for k, tree in stated.trees.items():
                    mean = read.batch(tree).detach()
                    if inputs is not None:
                        one = functools.partial(student.mean, data=inputs, tree=tree)
                        some = max(AT_ONCE // len(inputs.chances), 1)
                        mean = torch.func.vmap(one, chunk_size=some)(weights)
                    known[-1][k] = mean.numpy()
            weights = {
                w: x - p.eta * g
                for (w, x), g in zip(weights.items(), slopes, strict=True)
            }
    data = {}
    for k in known[0]:
        data[k] = ("seed", "t"), np.stack([x[k] for x in known], 1)
    where = {"seed": range(students), "t": steps * p.eta, "step": ("t", steps)}
    about = {"kind": "students", "parameters": p.as_json()}
    return prediction.finite(p, lambda: xr.Dataset(data, where, about))
