"""A statement: the loss of one input, and everything that it is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.tree import (
    Component,
    Entry,
    Function,
    Gauss,
    Index,
    Node,
    Power,
    Scalar,
    Sort,
    Term,
    Total,
    Transform,
    Value,
    Weight,
    node,
    subterms,
    walk,
)

VERSION = 1  # of the language
UNNAMED = "statement"
RESERVED = {"t", "loss"}  # names of what every flow has
CLOSURES = ("mean logits",)


@dataclass(frozen=True, eq=False)
class Statement:
    """A loss with everything that it is made of; made by `statement`.

    Attributes
    ----------
    loss : Node
        Loss of one input; the population loss is its mean over draws, samples and Gaussian data.
    name, title : str
        What the model is called.
    observables : mapping of str to Node
        Further numbers whose means are carried along.
    closure : str, optional
        ``"mean logits"``: teachers are averaged over, exponents replaced by their means.
    version : int
        Version of the language that it was written in.
    values : mapping of str to number
        Numbers for sizes and numbers to start from; a list for a spectrum.
    weights, draws, functions, gausses, sorts : tuple
        What the trees read, in order of appearance.
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

    @property
    def symbols(self) -> tuple[sp.Symbol, ...]:
        """Sizes and numbers, by name."""
        used = [s.size for s in self.sorts] + [w.start for w in self.weights]
        used += [g.var for g in self.gausses if isinstance(g.var, sp.Expr)]
        used += [i.place for i in self.draws if i.place is not None]
        for tree in (self.loss, *self.observables.values()):
            for n in walk(tree):
                used += [n.value] if isinstance(n, Scalar) else []
                used += [n.exponent] if isinstance(n, Power) else []
        return tuple(sorted(set().union(*(x.free_symbols for x in used)), key=lambda s: s.name))

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
        size: dict[Sort, int] = {}
        for s in self.sorts:
            if all(numbers.get(x.name) is not None for x in s.size.free_symbols):
                size[s] = int(s.size.subs({x: numbers[x.name] for x in s.size.free_symbols}))
                if size[s] < 1:
                    raise ParameterError(f"sort {s}: {s.size} = {size[s]}: must be at least 1")
        for f in self.functions:
            if not {*f.sorts, f.to} <= size.keys():
                continue
            arguments = [size[s] for k, s in enumerate(f.sorts) if k != f.parent]
            for j in f.injective:
                if size[f.sorts[j]] > size[f.to]:
                    raise ParameterError(
                        f"{f.kind} {f.name}: {size[f.sorts[j]]} {f.sorts[j]} into {size[f.to]} {f.to} "
                        "cannot be one-to-one"
                    )
            if f.kept and not f.injective and math.prod(arguments) % size[f.to]:
                raise ParameterError(
                    f"teacher {f.name}: {math.prod(arguments)} arguments cannot take {size[f.to]} "
                    "values equally often"
                )

    def __repr__(self) -> str:
        return f"<Statement {self.name}: {', '.join(w.name for w in self.weights)}>"

    @property
    def text(self) -> str:
        """The statement as canonical text, the same in every process."""
        return _text(self)


def statement(
    loss: Any,
    *,
    name: str = UNNAMED,
    title: str = "",
    observables: Mapping[str, Any] | None = None,
    closure: str | None = None,
    values: Mapping[str, Any] | None = None,
    version: int = VERSION,
) -> Statement:
    """State a model by its loss; everything else is read off the tree.

    Parameters
    ----------
    loss : Node
        Loss of one input.
    name, title : str
        What the model is called, and one line on it.
    observables : mapping, optional
        Further numbers to follow, by name.
    closure : {'mean logits'}, optional
        Average over teachers, exponents replaced by their means.
    values : mapping, optional
        Numbers for sizes and numbers that commands start from, by name; a list for a spectrum.
    version : int
        Version of the language that the statement was written in.

    Raises
    ------
    ParameterError
        Naming the place, if the loss is no number, reads no weight, or an index is used outside of
        the sum that it belongs to.
    """
    if version != VERSION:
        raise ParameterError(f"statement {name}: version = {version}: must be {VERSION}")
    if closure is not None and closure not in CLOSURES:
        raise ParameterError(f"statement {name}: closure = {closure!r}: must be 'mean logits'")
    trees = {"loss": node(loss), **{k: node(v) for k, v in (observables or {}).items()}}
    weights: dict[Any, None] = {}
    gausses: dict[Any, None] = {}
    terms: dict[Term, None] = {}
    for label, tree in trees.items():
        _closed(f"statement {name}: {label}", tree, frozenset())
        for n in walk(tree):
            if isinstance(n, Entry):
                weights[n.weight] = None
            if isinstance(n, Component):
                gausses[n.gauss] = None
            for t in (*n.terms(), *((n.index,) if isinstance(n, Total) else ())):
                terms |= dict.fromkeys(subterms(t))
    if not any(isinstance(n, Entry) for n in walk(trees["loss"])):
        raise ParameterError(f"statement {name}: loss: reads no weight")
    read = [t.function for t in terms if isinstance(t, Value)]
    functions = list(dict.fromkeys(f for g in read for f in (*g.parts, g)))
    sorts: dict[Sort, None] = dict.fromkeys(s for w in (*weights, *gausses) for s in w.sorts)
    sorts |= dict.fromkeys(t.sort for t in terms)
    sorts |= dict.fromkeys(s for f in functions for s in (*f.sorts, f.to))
    sorts |= dict.fromkeys(s.of for s in list(sorts) if s.of is not None)
    for kind, found in (("weight", weights), ("sort", sorts), ("function", functions)):
        names = [x.name for x in found]
        for twice in {n for n in names if names.count(n) > 1}:
            raise ParameterError(f"statement {name}: two of its {kind}s are called {twice}")
    made = {w.name for w in weights}
    for w in made:
        if not w.isidentifier():
            raise ParameterError(f"statement {name}: weight {w!r}: must be a name")
    draws = [t for t in terms if isinstance(t, Index) and not t.bound]
    stated = Statement(
        trees.pop("loss"),
        name,
        title or name,
        trees,
        closure,
        version,
        dict(values or {}),
        tuple(weights),
        tuple(sorted(draws, key=lambda i: i.number)),
        tuple(functions),
        tuple(gausses),
        tuple(sorts),
    )
    for taken in made & ({s.name for s in stated.symbols} | RESERVED):
        raise ParameterError(f"statement {name}: weight {taken}: something else is called so")
    return stated


def _closed(what: str, tree: Node, bound: frozenset[Index]) -> None:
    """Refuse a summed index outside of its sum."""
    inside = bound | {tree.index} if isinstance(tree, Total) else bound
    for t in tree.terms():
        for i in subterms(t):
            if isinstance(i, Index) and i.bound and i not in inside:
                raise ParameterError(f"{what}: index {i!r} is used outside of its sum")
    for child in tree.children():
        _closed(what, child, inside)


def unread(stated: Sequence[Statement], given: Mapping[str, Any]) -> None:
    """Refuse what was made beside statements, and is read by none of them.

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
    read = {x for s in stated for x in (*s.weights, *s.draws, *s.functions, *s.gausses)}
    for label, value in given.items():
        several = [*value.values()] if isinstance(value, Mapping) else value
        for x in several if isinstance(several, list | tuple) else [several]:
            if isinstance(x, Weight | Gauss | Function) and x not in read:
                kind = x.kind if isinstance(x, Function) else type(x).__name__.lower()
                raise ParameterError(f"{kind} {x.name}: is read by no statement")
            if isinstance(x, Index) and x not in read:
                raise ParameterError(f"draw {label} of {x.sort}: is used by no statement")


def _text(stated: Statement) -> str:
    """Canonical text: everything by name, indices numbered as they appear."""
    numbers: dict[Index, str] = {}

    def of_term(t: Term) -> str:
        if isinstance(t, Value):
            return f"{t.function.name}({','.join(map(of_term, t.arguments))})"
        assert isinstance(t, Index)
        if t not in numbers:
            numbers[t] = f"{t.sort.name}#{len(numbers)}"
            inner = [of_term(d) for d in (*t.distinct, *((t.parent,) if t.parent else ()))]
            numbers[t] += f"[{t.place},{t.bound},{','.join(inner)}]"
        return numbers[t]

    def of_node(n: Node) -> str:
        own = {
            Scalar: lambda: sp.srepr(n.value),  # type: ignore[attr-defined]
            Entry: lambda: n.weight.name,  # type: ignore[attr-defined]
            Component: lambda: n.gauss.name,  # type: ignore[attr-defined]
            Power: lambda: sp.srepr(n.exponent),  # type: ignore[attr-defined]
            Transform: lambda: n.kind,  # type: ignore[attr-defined]
            Total: lambda: f"{of_term(n.index)}{n.inclusive}",  # type: ignore[attr-defined]
        }.get(type(n), lambda: "")()
        parts = [own, *map(of_term, n.terms()), *map(of_node, n.children())]
        return f"{type(n).__name__}({';'.join(parts)})"

    def named(x: Any) -> str:
        parts = []
        for key, value in vars(x).items():
            shown = sp.srepr(value) if isinstance(value, sp.Basic) else repr(value)
            parts.append(f"{key}={shown}")
        return f"{type(x).__name__}({','.join(parts)})"

    lines = [f"{stated.version} {stated.name} {stated.title} {stated.closure}"]
    lines += [
        named(x) for x in (*stated.sorts, *stated.functions, *stated.weights, *stated.gausses)
    ]
    lines += [of_node(stated.loss)]
    lines += [f"{k}: {of_node(v)}" for k, v in stated.observables.items()]
    return "\n".join(lines)
