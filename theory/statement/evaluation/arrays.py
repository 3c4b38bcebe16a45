"""Numbers of a statement at concrete sizes: the same tree over arrays, all inputs
enumerated.

Axis 0 of every result is the batch; every sum puts an axis of its own in front. ``xp``
is NumPy or whatever offers its functions (`torch` does).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError
from theory.statement.derivation.roles import Classes
from theory.statement.evaluation.wick import expanded
from theory.statement.words.stated import Statement
from theory.statement.words.tree import (
    Function,
    Gauss,
    Index,
    Node,
    Sort,
    Term,
    Value,
    Weight,
    require,
    subterms,
)

MOST_INPUTS = 50_000  # of an enumeration


class Unlisted(ParameterError):
    """Raised if there are too many inputs to enumerate."""


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

    def shape(self, sorts: Sequence[Sort]) -> tuple[int, ...]:
        """Numbers of elements of sorts."""
        return tuple(map(self.size, sorts))


def counted(p: Any) -> dict[str, float]:
    """Numbers of parameters, sizes as numbers."""
    return {k: float(v) for k, v in p.as_dict().items() if isinstance(v, int | float)}


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

    def value(self, n: Node) -> Any:
        """Array that broadcasts against the batch and the sums around it."""
        if n.kind == "number":
            return self.data.scalar(n.of)
        if n.kind == "same":
            return self.one * self.same(*n.terms)
        if n.kind == "total":
            return self._total(n)
        if isinstance(n.of, Gauss):
            return self._read(self.data.gausses[n.of], n.terms, True)
        if n.kind == "entry":
            return self._read(self.weights[n.of], n.terms, False)
        parts = list(map(self.value, n.parts))
        if n.kind == "equal":
            return self.one * (parts[0] == parts[1])
        if n.kind == "plus":
            return sum(parts)
        if n.kind == "times":
            return math.prod(parts)
        if n.kind == "power":
            return parts[0] ** self.data.scalar(n.of)
        return getattr(self.xp if hasattr(parts[0], "shape") else math, n.kind)(
            parts[0]
        )

    def _total(self, n: Node) -> Any:
        size = self.data.size(n.of.sort)
        depth = len(self.summed) + 1
        self.summed[n.of] = here = self.xp.arange(size).reshape((size,) + (1,) * depth)
        x = self.value(n.parts[0])
        for end in n.terms:
            x = self.xp.where(here < self.term(end), x, 0 * self.one)
        del self.summed[n.of]
        if getattr(x, "ndim", 0) < depth + 1:
            return size * x
        return x.sum(0) * (size // x.shape[0])

    def term(self, t: Term) -> Any:
        """Elements that a term names, counted from 0."""
        if isinstance(t, Index):
            return self.summed[t] if t.bound else self.data.draws[t]
        assert isinstance(t, Value), t
        if t.solved is not None:
            return self._sent(t).argmax(0)
        return self._read(
            self.data.tables[t.function], t.arguments, not t.function.kept
        )

    def same(self, a: Term, b: Term) -> Any:
        """Whether two terms name the same element."""
        equal = (self.term(a) == self.term(b)) & self.exists(a, b)
        if a.parent is not None and b.parent is not None and a.parent != b.parent:
            equal = equal & self.same(a.parent, b.parent)
        return equal

    def exists(self, *terms: Term) -> Any:
        """Whether terms name an element, wherever they are solved for an argument."""
        solved = [s for s in subterms(*terms) if getattr(s, "solved", None) is not None]
        return math.prod((self._sent(t).any(0) for t in solved), start=True)

    def _sent(self, t: Any) -> Any:
        *others, image = map(self.term, t.arguments)
        values = np.moveaxis(self.data.tables[t.function], t.solved, -1)[tuple(others)]
        targets, many = np.asarray(image), values.shape[-1]
        return (
            np.moveaxis(np.broadcast_to(values, (*targets.shape, many)), -1, 0)
            == targets
        )

    def _read(self, array: Any, terms: tuple[Term, ...], batched: bool) -> Any:
        places = tuple(map(self.term, terms))
        if batched:
            places = (self.xp.arange(array.shape[0]), *places)
        return array[places] if places else array


def mean(data: Data, values: Any) -> Any:
    """Mean of a node's values over all inputs; one that does not depend on them is
    itself.
    """
    return (values * data.chances).sum()


def lifted(numbers: np.ndarray, values: Sequence[Any]) -> np.ndarray:
    """Weights whose entries have the values of their classes; see `class_numbers`."""
    return np.array([*values, 0.0])[numbers]


def class_numbers(of: Classes, data: Data) -> np.ndarray:
    """Place of every entry's class among those of its weight,
    -1 for one that is zero.
    """
    shape = data.shape(of.weight.sorts)
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    of_entry = Data(data.numbers, data.tables, dict(zip(of.slots, grid, strict=True)))
    for i in subterms(*itertools.chain.from_iterable(of.atoms)):
        if isinstance(i, Index) and i.place:
            of_entry.draws[i] = np.asarray(data.scalar(i.place) - 1, int)
    evaluation = Evaluation(of_entry, {})
    truth = [
        evaluation.exists(*atom) if len(atom) == 1 else evaluation.same(*atom)
        for atom in of.atoms
    ]
    entries = grid.shape[1]
    rows = np.array([np.broadcast_to(t, entries) for t in truth], bool).T
    rows = rows.reshape(entries, len(truth))
    known = {pattern: k for k, pattern in enumerate(of.symbols)}
    places = np.array([known.get(tuple(row), -1) for row in rows.tolist()], int)
    along = grid[of.vectors]
    per_direction = any(isinstance(x, sp.Indexed) for x in of.symbols.values())
    if per_direction:
        places = np.where(places < 0, -1, places * shape[of.vectors[0]] + along[0])
    if len(along):
        places = np.where((along[0] == along[-1]) & (len(along) == 2), places, -1)
    return places.reshape(shape)


def teacher_table(
    f: Function, shape: tuple[int, ...], size: int, rng: Any
) -> np.ndarray:
    """A random table of a teacher: one-to-one where declared so, otherwise balanced."""
    if f.injective:
        table = np.empty(shape, int)
        held: list[Any] = [
            [slice(None)] if k in f.injective else range(n) for k, n in enumerate(shape)
        ]
        for block in itertools.product(*held):
            axes = np.ix_(*(rng.permutation(size)[: shape[j]] for j in f.injective))
            table[block] = rng.permutation(size)[sum(axes) % size]
        return table
    lengths = [n for k, n in enumerate(shape) if k != f.parent]
    groups = math.prod(shape) // math.prod(lengths)
    often = np.resize(np.arange(size), math.prod(lengths))
    table = np.reshape(
        [rng.permutation(often) for _ in range(groups)], (groups, *lengths)
    )
    return table[0] if f.parent is None else np.moveaxis(table, 0, f.parent)


def teachers(stated: Statement, data: Data, rng: Any) -> dict[Function, np.ndarray]:
    """A table of every teacher, those that are made of others included."""
    kept = [f for f in stated.functions if f.kept]
    drawn = [f for f in kept if not f.parts]
    return completed(
        kept,
        {f: teacher_table(f, data.shape(f.sorts), data.size(f.to), rng) for f in drawn},
    )


def completed(
    kept: Sequence[Function], tables: Mapping[Function, Any]
) -> dict[Function, Any]:
    """Tables, with those of teachers that are made of others."""
    complete = dict(tables)
    for f in (f for f in kept if f.parts):
        *outer, complete[f] = (tables[g] for g in f.parts)
        for table in reversed(outer):
            complete[f] = table[complete[f]]
    return complete


def every_table(name: str, many: int, shape: tuple[int, ...]) -> np.ndarray:
    """All tables of numbers below ``many``, one after the other.

    Raises
    ------
    Unlisted
        If there are more than `MOST_INPUTS`.
    """
    entries = math.prod(shape)
    if many**entries > MOST_INPUTS:
        raise Unlisted(f"{name}: too many tables to list")
    return np.array([*itertools.product(range(many), repeat=entries)], int).reshape(
        -1, *shape
    )


def _samples(f: Function, data: Data) -> np.ndarray:
    tables = every_table(f"sample {f.name}", data.size(f.to), data.shape(f.sorts))
    for j in f.injective:
        steps = np.diff(np.sort(tables, j + 1), axis=j + 1)
        tables = tables[(steps != 0).reshape(len(tables), -1).all(1)]
    return tables


def _nodes(stated: Statement, g: Gauss, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Hermite nodes of all components and their masses, exact for means of the
    loss.
    """
    degree = 0
    for tree in stated.trees.values():
        for _, factors in expanded(tree, {}):
            degree = max(degree, sum(n.of is g for n in factors))
    nodes, masses = np.polynomial.hermite_e.hermegauss(degree // 2 + 1)
    chosen = every_table(f"gauss {g.name}", len(nodes), data.shape(g.sorts))
    shares = (masses / masses.sum())[chosen].reshape(len(chosen), -1).prod(1)
    return nodes[chosen] * np.sqrt(scales(g, data)), shares


def taken(i: Index, data: Data, count: int) -> np.ndarray:
    """Which elements a draw must not be: by element and input."""
    every = np.arange(data.size(i.sort))[:, None]
    read = Evaluation(dataclasses.replace(data, draws={**data.draws, i: every}), {})
    excluded = np.zeros((len(every), count), bool)
    for t in i.distinct:
        excluded |= read.same(i, t)
    return excluded


def every_input(
    stated: Statement,
    numbers: Mapping[str, float],
    rng: Any,
    tables: Mapping[Function, np.ndarray] | None = None,
) -> Data:
    """All inputs at concrete sizes with their probabilities, for one table of every
    teacher: those given in ``tables``, or random ones.

    Gaussian data lie on a grid of Gauss-Hermite nodes that makes means of the loss
    exact.

    Raises
    ------
    ParameterError
        If sizes do not fit a teacher, or there are more than `MOST_INPUTS`.
    """
    stated.fit(numbers)
    data = Data(numbers)
    sources: list[tuple[dict[Any, Any], Any, Any, Any]] = []
    data.tables = completed(stated.functions, tables or teachers(stated, data, rng))
    for i in stated.draws:
        place = slice(None) if i.place is None else [int(data.scalar(i.place)) - 1]
        options = np.arange(data.size(i.sort))[place]
        sources.append((data.draws, i, options, np.ones(len(options))))
    for f in (f for f in stated.functions if not f.kept):
        options = _samples(f, data)
        sources.append(
            (data.tables, f, options, np.full(len(options), 1 / max(len(options), 1)))
        )
    sources += [(data.gausses, g, *_nodes(stated, g, data)) for g in stated.gausses]
    lengths = [len(options) for _, _, options, _ in sources]
    count = math.prod(lengths)
    require(count, f"statement {stated.name}: no input fits these sizes")
    if count > MOST_INPUTS:
        raise Unlisted(f"statement {stated.name}: {count} inputs are too many to list")
    data.chances = np.ones(count)
    for (store, key, options, masses), row in zip(
        sources, np.indices(lengths).reshape(len(lengths), count), strict=True
    ):
        store[key] = options[row]
        data.chances *= masses[row]
    for i in (i for i in stated.draws if i.place is None):
        free = ~taken(i, data, count)
        data.chances *= free[data.draws[i], np.arange(count)] / np.maximum(
            free.sum(0), 1
        )
    kept = data.chances > 0
    for store, key, _, _ in sources:
        store[key] = store[key][kept]
    data.chances = data.chances[kept]
    return data


def scales(g: Gauss, data: Data) -> np.ndarray:
    """Variances along the last sort; a spectrum's eigenvalues are numbers ``lambda_1``,
    ...

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
        require(
            name in data.numbers,
            f"{name}: has no value; {g.sorts[-1]} has {size} directions",
        )
    return np.array([data.numbers[name] for name in names])
