"""A statement: the loss of one input, and all sorts, draws, functions and weights in
it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import sympy as sp

from theory.call.parameters import BaseParameters
from theory.call.scope import Limit, Scope, only
from theory.statement.words.tree import (
    Array,
    Function,
    Gauss,
    Index,
    Node,
    Sort,
    Weight,
    node,
    reached,
    require,
    subterms,
    walk,
)

VERSION = 1  # of the language
UNNAMED = "statement"
RESERVED = {"t", "loss"}  # names of what every flow has
CLOSURES = (None, "mean logits")


@dataclass(frozen=True, eq=False)
class Statement:
    """A loss with all that it contains; made by `statement`.

    Attributes
    ----------
    loss : Node
        Loss of one input; the population loss is its mean over draws, samples and
        Gaussian data.
    name, title : str
        What the model is called.
    paper : str
        Key of the paper that its equations refer to; may be empty.
    observables : mapping of str to Node
        Further numbers whose means are carried along.
    closure : str, optional
        ``"mean logits"``: teachers are averaged over, exponents replaced by their
        means.
    version : int
        Version of the language that it was written in.
    values : mapping of str to number
        Numbers for sizes and numbers to start from; a list for a spectrum.
    weights, draws, functions, gausses, sorts : tuple
        What the trees read, in order of appearance.
    symbols : tuple of Symbol
        Sizes and numbers, by name.
    bounds : mapping of str to pair of number
        Least and largest value of numbers, by name.
    """

    loss: Node
    name: str
    title: str
    observables: Mapping[str, Node]
    closure: str | None
    version: int
    values: Mapping[str, Any]
    weights: tuple[Weight, ...]
    draws: tuple[Index, ...]
    functions: tuple[Function, ...]
    gausses: tuple[Gauss, ...]
    sorts: tuple[Sort, ...]
    symbols: tuple[sp.Symbol, ...]
    paper: str = ""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @functools.cached_property
    def text(self) -> str:
        """The statement as canonical text, the same in every process."""
        content = (self.version, self.name, self.title, self.closure)
        return spelled((*content, *self.trees.items()), {})

    @property
    def trees(self) -> dict[str, Node]:
        """The loss, and what else is followed."""
        return {"loss": self.loss, **self.observables}

    def fit(self, numbers: Mapping[str, Any]) -> None:
        """Refuse sizes that leave a sort empty, or that do not fit a teacher or sample.

        Parameters
        ----------
        numbers : mapping
            Sizes by name; what depends on others is not looked at.

        Raises
        ------
        ParameterError
            Naming the sort or function, and what is wrong.
        """
        known = {
            s: numbers[s.name] for s in self.symbols if numbers.get(s.name) is not None
        }
        given = [s for s in self.sorts if s.size.free_symbols <= known.keys()]
        size = {
            s: int(known[s.size] if s.size in known else s.size.subs(known))
            for s in given
        }
        for s, n in size.items():
            of = ", ".join(
                f"{x} = {known[x]}" for x in sorted(s.size.free_symbols, key=str)
            )
            prefix = "" if s.size.is_Symbol else f"{of}: "
            require(n >= 1, f"sort {s}: {prefix}{s.size} = {n}: must be at least 1")
        for f in self.functions:
            if not {*f.sorts, f.to} <= size.keys():
                continue
            many = math.prod(size[s] for k, s in enumerate(f.sorts) if k != f.parent)
            for s in (f.sorts[j] for j in f.injective):
                message = (
                    f"{s.size} = {size[s]}: cannot be one-to-one into {f.to.size} ="
                    f" {size[f.to]}"
                )
                require(size[s] <= size[f.to], f"{f.kind} {f.name}: {message}")
            often = not f.kept or f.injective or many % size[f.to] == 0
            of = ", ".join(f"{s.size} = {size[s]}" for s in f.sorts)
            message = (
                f"{of}: must be such that {f.to.size} = {size[f.to]} values occur"
                " equally often"
            )
            require(often, f"teacher {f.name}: {message}")

    def __repr__(self) -> str:
        return f"<Statement {self.name}: {', '.join(w.name for w in self.weights)}>"


def statement(
    loss: Any,
    *,
    name: str = UNNAMED,
    title: str = "",
    paper: str = "",
    observables: Mapping[str, Any] | None = None,
    closure: str | None = None,
    values: Mapping[str, Any] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    version: int = VERSION,
) -> Statement:
    """State a model by its loss; everything else is read off the tree.

    Parameters
    ----------
    loss : Node
        Loss of one input.
    name, title : str
        What the model is called, and one line on it.
    paper : str
        Key of the paper that its equations refer to.
    observables : mapping, optional
        Further numbers to follow, by name.
    closure : {'mean logits'}, optional
        Average over teachers, exponents replaced by their means: how logits scatter is
        neglected.
    values : mapping, optional
        Numbers for sizes and numbers that commands start from, by name; a list for a
        spectrum.
    bounds : mapping, optional
        Least and largest value of numbers, by name: others are refused.
    version : int
        Version of the language that the statement was written in.

    Raises
    ------
    ParameterError
        Naming the place, if the loss is no number, reads no weight, or an index is used
        outside of the sum that it belongs to.
    """
    what = f"statement {name}"
    require(version == VERSION, f"{what}: version = {version}: must be {VERSION}")
    require(
        closure in CLOSURES, f"{what}: closure = {closure!r}: must be 'mean logits'"
    )
    trees = {k: node(v) for k, v in {"loss": loss, **(observables or {})}.items()}
    for label, tree in trees.items():
        _closed(f"{what}: {label}", tree, frozenset())
    reads = any(isinstance(n.of, Weight) for n in walk(trees["loss"]))
    require(reads, f"{what}: loss: reads no weight")
    things = list(reached(tuple(trees.values())))
    kinds: tuple[Any, ...] = (Weight, Gauss, Function, Sort, Index, sp.Expr)

    def of_kind(kind: Any) -> tuple[Any, ...]:
        return tuple(x for x in things if isinstance(x, kind))

    weights, gausses, functions, sorts, indices, numbers = map(of_kind, kinds)
    symbols: set[sp.Symbol] = set().union(*(x.free_symbols for x in numbers))
    for kind, declared in {
        "weight": weights,
        "sort": sorts,
        "function": functions,
    }.items():
        names = [x.name for x in declared]
        twice = sorted(n for n in names if names.count(n) > 1)
        require(
            not twice, f"{what}: two of its {kind}s are called {''.join(twice[:1])}"
        )
    taken = {s.name for s in symbols} | RESERVED
    for w in (w.name for w in weights):
        require(w.isidentifier(), f"{what}: weight {w!r}: must be a name")
        require(
            w not in taken, f"{what}: weight {w}: its name is that of something else"
        )
    draws = sorted((i for i in indices if not i.bound), key=lambda i: i.number)
    for s in (s for s in symbols if s.is_integer):
        message = (
            f"{s.name} = {(values or {}).get(s.name)}: a size must be a whole number"
        )
        real = f"a real number is number({s.name!r})"
        require(
            (values or {}).get(s.name, 0) % 1 == 0, f"{what}: values: {message}; {real}"
        )
    bounded = {s.name for s in symbols if not s.is_integer}
    for key in bounds or {}:
        message = f"{what}: bounds: {key}: must be one of its numbers {sorted(bounded)}"
        require(key in bounded, message)
    (_, tree), *others = trees.items()
    return Statement(
        tree,
        name,
        title or name,
        dict(others),
        closure,
        version,
        dict(values or {}),
        weights,
        tuple(draws),
        functions,
        gausses,
        sorts,
        tuple(sorted(symbols, key=lambda s: s.name)),
        paper,
        dict(bounds or {}),
    )


def _closed(what: str, tree: Node, bound: frozenset[Index]) -> None:
    """Refuse a summed index outside of its sum."""
    inside = bound | {tree.of} if tree.kind == "total" else bound
    for i in subterms(*tree.terms):
        outside = isinstance(i, Index) and i.bound and i not in inside
        require(not outside, f"{what}: index {i!r} is used outside of its sum")
    for child in tree.parts:
        _closed(what, child, inside)


def unread(stated: Sequence[Statement], given: Mapping[str, Any]) -> None:
    """Reject objects that were made next to statements but occur in none of them.

    Parameters
    ----------
    stated : sequence of Statement
        What a file states.
    given : mapping
        All that it made, by name.

    Raises
    ------
    ParameterError
        Naming the weight, draw, teacher, sample or Gaussian data.
    """
    read: set[Any] = set()
    for s in stated:
        read.update(s.weights, s.draws, s.functions, s.gausses)
    for label, value in given.items():
        several = [*value.values()] if isinstance(value, Mapping) else value
        for x in several if isinstance(several, list | tuple) else [several]:
            if isinstance(x, Array | Function):
                require(x in read, f"{x.kind} {x.name}: is read by no statement")
            if isinstance(x, Index):
                require(x in read, f"draw {label} of {x.sort}: is used by no statement")


def spelled(x: Any, seen: dict[Any, int]) -> str:
    """Canonical text of a tree; repeated subtrees are replaced by numbers."""
    if isinstance(x, tuple):
        return f"({','.join(spelled(y, seen) for y in x)})"
    if not dataclasses.is_dataclass(x):
        return sp.srepr(x) if isinstance(x, sp.Basic) else repr(x)
    if x in seen:
        return f"#{seen[x]}"
    seen[x] = len(seen)
    shown = tuple(getattr(x, f.name) for f in dataclasses.fields(x) if f.repr)
    return type(x).__name__ + spelled(shown, seen)


WHOLE = only("batch_size", 0, words="0 (all inputs) where weights start at random")


def scope_of(
    of: Statement,
    sizes: Mapping[sp.Symbol, int] = MappingProxyType({}),
    filled: Sequence[Limit] = (),
    kind: Callable[[], type[BaseParameters]] | None = None,
) -> Scope:
    """Which students the flow of a statement describes, derived at some sizes or at
    any.
    """
    limits = (*(only(s.name, n) for s, n in sizes.items()), *filled)
    limited = [limit.field for limit in filled]
    training = ("eta", "steps", "eval_every", "batch_size")
    free = tuple(name for name in training if name not in limited)
    return Scope(
        f"the flow of {of.name}",
        "gradient descent in small steps",
        limits,
        free=free,
        kind=kind,
    )
