"""Numbers of a statement at concrete sizes: the same tree over arrays, all inputs enumerated.

Axis 0 of every result is the batch; every sum puts an axis of its own in front. ``xp`` is NumPy or
whatever offers its functions (`torch` does).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from theory.parameters import ParameterError
from theory.statement.roles import Classes, Inverse
from theory.statement.stated import Statement
from theory.statement.tree import (
    Component,
    Entry,
    Function,
    Gauss,
    Index,
    Node,
    Plus,
    Power,
    Same,
    Scalar,
    Sort,
    Term,
    Times,
    Total,
    Transform,
    Value,
    Weight,
    subterms,
)

MOST_INPUTS = 50_000  # of an enumeration


class Unlisted(ParameterError):
    """There are too many inputs to list."""


@dataclass
class Data:
    """A batch of inputs at concrete sizes.

    Attributes
    ----------
    numbers : mapping of str to float
        Sizes and numbers by name.
    tables : mapping of Function to array
        Values counted from 0, an axis per argument; of samples with the batch in front.
    draws : mapping of Index to array
        Drawn elements counted from 0 (within what they belong to), one per input.
    gausses : mapping of Gauss to array
        Gaussian data, the batch in front.
    chances : array
        Weight of every input in a mean.
    known : mapping of Expr to float
        Expressions that were asked for.
    """

    numbers: Mapping[str, float]
    tables: dict[Function, Any] = field(default_factory=dict)
    draws: dict[Index, Any] = field(default_factory=dict)
    gausses: dict[Gauss, Any] = field(default_factory=dict)
    chances: Any = None
    known: dict[sp.Expr, float] = field(default_factory=dict)

    def scalar(self, expr: sp.Expr) -> float:
        """Number of an expression in sizes and numbers."""
        if expr not in self.known:
            values = {s: self.numbers[s.name] for s in expr.free_symbols}
            self.known[expr] = float(expr.subs(values))
        return self.known[expr]

    def size(self, sort: Sort) -> int:
        """Number of elements of a sort."""
        return int(self.scalar(sort.size))


class Evaluation:
    """Values of a tree for every input of a batch.

    Parameters
    ----------
    data : Data
    weights : mapping of Weight to array
        With an axis per sort, none for a number.
    xp : module
        ``numpy`` or ``torch``.
    one : float or tensor
        One, in the precision of what is made of nothing but indices.
    """

    def __init__(
        self, data: Data, weights: Mapping[Weight, Any], xp: Any = np, one: Any = 1.0
    ) -> None:
        self.data, self.weights, self.xp, self.one = data, weights, xp, one
        self.summed: dict[Index, Any] = {}
        self.depth = 0

    def value(self, n: Node) -> Any:
        """Array that broadcasts against the batch and the sums around it."""
        if isinstance(n, Scalar):
            return self.data.scalar(n.value)
        if isinstance(n, Entry):
            array = self.weights[n.weight]
            return array[tuple(map(self.term, n.indices))] if n.indices else array
        if isinstance(n, Component):
            return self._batched(self.data.gausses[n.gauss], n.indices)
        if isinstance(n, Same):
            return self.one * self.same(*n.pair)
        if isinstance(n, Plus):
            return sum(self.value(p) for p in n.parts)
        if isinstance(n, Times):
            return math.prod(self.value(p) for p in n.parts)
        if isinstance(n, Power):
            return self.value(n.base) ** self.data.scalar(n.exponent)
        if isinstance(n, Transform):
            x = self.value(n.argument)
            if not hasattr(x, "shape"):
                return getattr(math, n.kind)(x)
            return getattr(self.xp, n.kind)(x)
        assert isinstance(n, Total), n
        size = self.data.size(n.index.sort)
        self.depth += 1
        self.summed[n.index] = self.xp.arange(size).reshape((size,) + (1,) * self.depth)
        x = self.value(n.body)
        if n.end is not None:
            here, end = self.summed[n.index], self.term(n.end)
            x = self.xp.where(here <= end if n.inclusive else here < end, x, 0 * self.one)
        self.depth -= 1
        if getattr(x, "ndim", 0) < self.depth + 2:
            return size * x
        return x.sum(0) * (size // x.shape[0])

    def term(self, t: Term) -> Any:
        """Elements that a term names, counted from 0."""
        if isinstance(t, Value):
            table = self.data.tables[t.function]
            if t.function.kept:
                return table[tuple(map(self.term, t.arguments))]
            return self._batched(table, t.arguments)
        if isinstance(t, Inverse):
            return self._sent(t).argmax(0)
        assert isinstance(t, Index)
        return self.summed[t] if t.bound else self.data.draws[t]

    def same(self, a: Term, b: Term) -> Any:
        """Whether two terms name the same element."""
        equal = self.term(a) == self.term(b)
        for t in (*subterms(a), *subterms(b)):
            if isinstance(t, Inverse):
                equal = equal & self.exists(t)
        if a.parent is not None and b.parent is not None and a.parent != b.parent:
            equal = equal & self.same(a.parent, b.parent)
        return equal

    def exists(self, t: Inverse) -> Any:
        """Whether the argument that a function sends to an element is there."""
        found = self._sent(t).any(0)
        for inner in (x for t_ in (*t.others, t.image) for x in subterms(t_)):
            if isinstance(inner, Inverse):
                found = found & self.exists(inner)
        return found

    def _sent(self, t: Inverse) -> Any:
        table = np.moveaxis(self.data.tables[t.function], t.j, -1)
        values = table[tuple(map(self.term, t.others))] if t.others else table
        image = np.asarray(self.term(t.image))
        every = np.moveaxis(np.broadcast_to(values, (*image.shape, table.shape[-1])), -1, 0)
        return every == image

    def _batched(self, array: Any, terms: tuple[Term, ...]) -> Any:
        batch = self.xp.arange(array.shape[0])
        return array[(batch, *map(self.term, terms))]


def mean(data: Data, values: Any) -> Any:
    """Mean of a node's values over all inputs; one that does not depend on them is itself."""
    return (values * data.chances).sum()


def lifted(numbers: np.ndarray, values: Sequence[Any]) -> np.ndarray:
    """Weights whose entries have the values of their classes; see `class_numbers`."""
    return np.array([*values, 0.0])[numbers]


def class_numbers(of: Classes, data: Data) -> np.ndarray:
    """Place of every entry's class in ``of.listed``, -1 for one that is zero; an axis per sort."""
    shape = tuple(data.size(s) for s in of.weight.sorts)
    count = math.prod(shape)
    grid = np.indices(shape).reshape(len(shape), count)
    of_entry = Data(data.numbers, data.tables, dict(zip(of.slots, grid, strict=True)))
    of_entry.draws |= {i: np.asarray(data.scalar(i.place) - 1, int) for i in data.draws if i.place}
    told = Evaluation(of_entry, {})
    truth = [
        np.broadcast_to(told.exists(a[0]) if len(a) == 1 else told.same(*a), count)  # type: ignore[arg-type]
        for a in of.atoms
    ]
    if of.diagonal:
        return np.where(
            truth[0], grid[np.nonzero([x.vector for x in of.weight.sorts])[0][0]], -1
        ).reshape(shape)
    known = {pattern: k for k, pattern in enumerate(of.symbols)}
    found = [known.get(tuple(bool(t[e]) for t in truth), -1) for e in range(count)]
    return np.array(found, int).reshape(shape)


def teacher_table(f: Function, shape: tuple[int, ...], size: int, rng: Any) -> np.ndarray:
    """A random table of a teacher: one-to-one where it is said to be, otherwise balanced.

    Raises
    ------
    ParameterError
        If the sizes do not fit it.
    """
    if f.injective:
        if any(shape[j] > size for j in f.injective):
            raise ParameterError(f"teacher {f.name}: {shape} into {size} cannot be one-to-one")
        table = np.empty(shape, int)
        rest = [k for k in range(len(shape)) if k not in f.injective]
        for held in itertools.product(*(range(shape[k]) for k in rest)):
            at: list[Any] = [slice(None)] * len(shape)
            for k, v in zip(rest, held, strict=True):
                at[k] = v
            axes = np.ix_(*(rng.permutation(size)[: shape[j]] for j in f.injective))
            table[tuple(at)] = rng.permutation(size)[sum(axes) % size]
        return table
    parent = f.parent
    groups = 1 if parent is None else shape[parent]
    count = math.prod(shape) // groups
    if count % size:
        raise ParameterError(
            f"teacher {f.name}: {count} arguments cannot take {size} values equally often"
        )
    values = [rng.permutation(np.resize(np.arange(size), count)) for _ in range(groups)]
    if parent is None:
        return values[0].reshape(shape)
    rest_shape = shape[:parent] + shape[parent + 1 :]
    return np.stack([v.reshape(rest_shape) for v in values], parent)


def composed_table(f: Function, tables: Mapping[Function, np.ndarray]) -> np.ndarray:
    """Table of a teacher that is made of others."""
    *outer, made = (tables[g] for g in f.parts)
    for table in reversed(outer):
        made = table[made]
    return made


def teachers(stated: Statement, data: Data, rng: Any) -> dict[Function, np.ndarray]:
    """A table of every teacher, those that are made of others included."""
    found = {
        f: teacher_table(f, tuple(map(data.size, f.sorts)), data.size(f.to), rng)
        for f in stated.functions
        if f.kept and not f.parts
    }
    return found | {f: composed_table(f, found) for f in stated.functions if f.parts}


def sample_tables(f: Function, shape: tuple[int, ...], size: int) -> Iterator[np.ndarray]:
    """All tables of a sample."""
    for values in itertools.product(range(size), repeat=math.prod(shape)):
        table = np.array(values, int).reshape(shape)
        if all(_distinct(np.moveaxis(table, j, 0)) for j in f.injective):
            yield table


def _distinct(table: np.ndarray) -> bool:
    ordered = np.sort(table, 0)
    return bool((ordered[1:] != ordered[:-1]).all())


def every_input(
    stated: Statement,
    numbers: Mapping[str, float],
    rng: Any,
    tables: Mapping[Function, np.ndarray] | None = None,
) -> Data:
    """All inputs at concrete sizes with their probabilities, for one table of every teacher: those
    given in ``tables``, or random ones.

    Gaussian data lie on a grid of Gauss-Hermite nodes that makes means of the loss exact.

    Raises
    ------
    ParameterError
        If sizes do not fit a teacher, or there are more than `MOST_INPUTS`.
    """
    data = Data(numbers)
    data.tables = dict(tables or teachers(stated, data, rng))
    axes: list[list[Any]] = []
    drawn = [i for i in stated.draws if i.place is None]
    for i in drawn:
        axes.append(list(range(data.size(i.sort))))
    samples = []
    for f in stated.functions:
        shape = tuple(map(data.size, f.sorts))
        if not (f.kept or f.parts):
            samples.append(f)
            if data.size(f.to) ** math.prod(shape) > MOST_INPUTS:
                raise Unlisted(f"sample {f.name}: too many tables to list")
            axes.append(list(sample_tables(f, shape, data.size(f.to))))
    data.tables |= {f: composed_table(f, data.tables) for f in stated.functions if f.parts}
    spots = []
    for g in stated.gausses:
        shape = tuple(map(data.size, g.sorts))
        scale = scales(g, data)
        rule = np.polynomial.hermite_e.hermegauss(_degree(stated, g) // 2 + 1)
        for at in np.ndindex(shape):
            spots.append((g, at, np.sqrt(scale[at[-1]]) * rule[0], rule[1] / rule[1].sum()))
            axes.append(list(rule[0]))
    count = math.prod(map(len, axes))
    if count > MOST_INPUTS:
        raise Unlisted(f"statement {stated.name}: {count} inputs are too many to list")
    if not count:
        raise ParameterError(f"statement {stated.name}: no input fits these sizes")
    grid = np.indices([len(a) for a in axes]).reshape(len(axes), count)
    data.chances = np.full(count, 1.0)
    for i in stated.draws:
        if i.place is not None:
            data.draws[i] = np.full(count, int(data.scalar(i.place)) - 1)
    for i, row in zip(drawn, grid, strict=False):
        data.draws[i] = row
    for f, row, axis in zip(samples, grid[len(drawn) :], axes[len(drawn) :], strict=False):
        data.tables[f] = np.array(axis)[row]
        data.chances /= len(axis)
    read = Evaluation(data, {})
    for i in drawn:
        free = np.full(count, float(data.size(i.sort)))
        others: list[Term] = []
        for t in i.distinct:
            new = ~np.any([read.same(t, o) for o in others], 0) if others else True
            free -= new
            data.chances *= ~(read.same(i, t))
            others.append(t)
        data.chances /= free
    for g in stated.gausses:
        data.gausses[g] = np.empty((count, *map(data.size, g.sorts)))
    for (g, at, nodes, masses), row in zip(spots, grid[len(drawn) + len(samples) :], strict=True):
        data.gausses[g][(slice(None), *at)] = nodes[row]
        data.chances = data.chances * masses[row]
    kept = data.chances > 0
    if not kept.all():
        data.chances = data.chances[kept]
        data.draws = {i: v[kept] for i, v in data.draws.items()}
        for f in samples:
            data.tables[f] = data.tables[f][kept]
    return data


def scales(g: Gauss, data: Data) -> np.ndarray:
    """Variances along the last sort; a spectrum's eigenvalues are numbers ``lambda_1``, ...

    Raises
    ------
    ParameterError
        If there are fewer eigenvalues than directions.
    """
    size = data.size(g.sorts[-1])
    if isinstance(g.var, sp.Expr):
        return np.full(size, data.scalar(g.var))
    names = [f"{g.var.name}_{k + 1}" for k in range(size)]
    for name in names:
        if name not in data.numbers:
            raise ParameterError(f"{name}: has no value; {g.sorts[-1]} has {size} directions")
    return np.array([data.numbers[name] for name in names])


def _degree(stated: Statement, g: Gauss) -> int:
    """Highest power of one Gaussian variable in the loss."""

    def of(n: Node) -> int:
        if isinstance(n, Component):
            return int(n.gauss is g)
        if isinstance(n, Plus):
            return max(map(of, n.parts))
        if isinstance(n, Times):
            return sum(map(of, n.parts))
        inner = max(map(of, n.children()), default=0)
        if isinstance(n, Power) and inner:
            return inner * int(n.exponent) if n.exponent.is_Integer and n.exponent > 0 else 20
        return 20 if isinstance(n, Transform) and inner else inner

    return max(map(of, (stated.loss, *stated.observables.values())))
