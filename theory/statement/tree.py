"""The tree of a statement: nodes are numbers, terms are indices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from theory import notation
from theory.parameters import ParameterError

_count = itertools.count()


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a covariance, one per direction of a vector sort."""

    name: str

    @property
    def base(self) -> sp.IndexedBase:
        """The eigenvalues as an indexed array."""
        return notation.array(self.name)


@dataclass(frozen=True, eq=False)
class Sort:
    """An index set; all its permutations are symmetries of the data law (O(D), if ``vector``)."""

    name: str
    size: sp.Expr
    of: Sort | None = None
    ordered: bool = False
    vector: bool = False

    def __repr__(self) -> str:
        return self.name


class Term:
    """What names an element of a sort: a drawn index, one summed over, a function's value."""

    sort: Sort
    parent: Term | None

    @property
    def inner(self) -> tuple[Term, ...]:
        """Terms that it is made of."""
        return ()


@dataclass(frozen=True, eq=False)
class Index(Term):
    """An element drawn at random, summed over by a `Total` (``bound``), or at a known place.

    ``copied`` is the index of the sum that this one's sum is a copy of.
    """

    sort: Sort
    parent: Term | None = None
    distinct: tuple[Term, ...] = ()
    place: sp.Expr | None = None
    bound: bool = False
    copied: Index | None = None
    label: str = ""
    number: int = field(default_factory=lambda: next(_count))

    @property
    def inner(self) -> tuple[Term, ...]:
        """What it is distinct from, and what it belongs to."""
        return (*self.distinct, *(() if self.parent is None else (self.parent,)))

    def __repr__(self) -> str:
        return (self.label or self.sort.name) + ("" if self.place is None else f" {self.place}")


@dataclass(frozen=True)
class Value(Term):
    """Value of a teacher or of a sample."""

    function: Function
    arguments: tuple[Term, ...]

    @property
    def inner(self) -> tuple[Term, ...]:
        """Its arguments."""
        return self.arguments

    @property
    def sort(self) -> Sort:  # type: ignore[override]
        """Sort of the value."""
        return self.function.to

    @property
    def parent(self) -> Term | None:  # type: ignore[override]
        """The argument whose set the value lies in, if its sort has one per element."""
        k = self.function.parent
        return None if k is None else self.arguments[k]

    def __repr__(self) -> str:
        return f"{self.function.name}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, eq=False)
class Function:
    """An index-valued function: a teacher is ``kept``, a sample is drawn anew for every input.

    ``injective`` holds the places of arguments in which it is one-to-one, the others held;
    ``leading`` says that this holds to leading order only, as values are drawn independently.
    A teacher from a sort into itself (which is a permutation, as all values are equally frequent)
    that is applied again is a permutation of its own, made of its ``parts``, outermost first:
    ``f(f(i))`` is one value.
    """

    name: str
    sorts: tuple[Sort, ...]
    to: Sort
    kept: bool
    injective: tuple[int, ...] = ()
    leading: bool = False
    parts: tuple[Function, ...] = ()

    @property
    def parent(self) -> int | None:
        """Place of the argument whose set the values lie in."""
        if self.to.of is None:
            return None
        return max(k for k, s in enumerate(self.sorts) if s is self.to.of)

    def __call__(self, *terms: Term) -> Value:
        fits(f"{self.kind} {self.name}", self.sorts, terms)
        inner = terms[0]
        if self.kept and self.sorts == (self.to,) and isinstance(inner, Value):
            g = inner.function
            if (g.parts or (g,))[-1] is (self.parts or (self,))[-1]:
                return Value(composed(self, g), inner.arguments)
        return Value(self, terms)

    @property
    def kind(self) -> str:
        """What it is called in messages."""
        return "teacher" if self.kept else "sample"

    def __repr__(self) -> str:
        return self.name


@functools.cache
def composed(f: Function, g: Function) -> Function:
    """A permutation after another one."""
    parts = (*(f.parts or (f,)), *(g.parts or (g,)))
    name = f"{parts[0].name}^{len(parts)}"
    return Function(name, g.sorts, f.to, True, (0,), False, parts)


def fits(what: str, sorts: Sequence[Sort], terms: Sequence[Any]) -> None:
    """Refuse terms that do not fit the places of ``what``."""
    if len(sorts) != len(terms):
        raise ParameterError(
            f"{what}: takes {len(sorts)} indices ({', '.join(map(repr, sorts))}), got {len(terms)}"
        )
    for k, (s, t) in enumerate(zip(sorts, terms, strict=True)):
        if not isinstance(t, Term):
            raise ParameterError(f"{what}: index {k + 1} = {t!r}: must be an index of sort {s}")
        if t.sort is not s:
            raise ParameterError(
                f"{what}: index {k + 1} = {t!r} is of sort {t.sort}, must be of sort {s}"
            )
        parents = [u for u in terms[:k] if u.sort is s.of]
        if s.of is not None and parents and t.parent not in parents:
            raise ParameterError(f"{what}: {t!r} belongs to {t.parent!r}, not to {parents[-1]!r}")


@dataclass(frozen=True, eq=False)
class Array:
    """What is read entry by entry: trained weights, or Gaussian data."""

    name: str
    sorts: tuple[Sort, ...]

    def _terms(self, what: str, indices: Any) -> tuple[Term, ...]:
        terms = indices if isinstance(indices, tuple) else (indices,)
        fits(f"{what} {self.name}", self.sorts, terms)
        return terms

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Weight(Array):
    """A trained array; all entries start at ``start``."""

    start: sp.Expr = sp.S.Zero

    def __getitem__(self, indices: Any) -> Entry:
        return Entry(self, self._terms("weight", indices))


@dataclass(frozen=True, eq=False, repr=False)
class Gauss(Array):
    """Gaussian data of mean zero, independent but for the covariance along the last sort."""

    var: sp.Expr | Spectrum = sp.S.One

    def __getitem__(self, indices: Any) -> Component:
        return Component(self, self._terms("gauss", indices))


class Node:
    """A number that depends on weights, draws and data."""

    _op_priority = 100.0  # before SymPy's numbers, so that a symbol times a node is a node

    def __add__(self, other: Any) -> Node:
        return Plus((self, node(other)))

    def __radd__(self, other: Any) -> Node:
        return Plus((node(other), self))

    def __mul__(self, other: Any) -> Node:
        return Times((self, node(other)))

    def __rmul__(self, other: Any) -> Node:
        return Times((node(other), self))

    def __neg__(self) -> Node:
        return Times((Scalar(sp.S.NegativeOne), self))

    def __sub__(self, other: Any) -> Node:
        return Plus((self, -node(other)))

    def __rsub__(self, other: Any) -> Node:
        return Plus((node(other), -self))

    def __pow__(self, exponent: Any) -> Node:
        return Power(self, sp.sympify(exponent, strict=True))

    def __truediv__(self, other: Any) -> Node:
        return Times((self, Power(node(other), sp.S.NegativeOne)))

    def __rtruediv__(self, other: Any) -> Node:
        return Times((node(other), Power(self, sp.S.NegativeOne)))

    def children(self) -> tuple[Node, ...]:
        """Nodes that it is made of."""
        return ()

    def terms(self) -> tuple[Term, ...]:
        """Indices that it reads."""
        return ()


@dataclass(frozen=True, eq=False)
class Scalar(Node):
    """A number made of sizes and `number` symbols."""

    value: sp.Expr


@dataclass(frozen=True, eq=False)
class Entry(Node):
    """An entry of a weight."""

    weight: Weight
    indices: tuple[Term, ...]

    def terms(self) -> tuple[Term, ...]:
        """Its indices."""
        return self.indices


@dataclass(frozen=True, eq=False)
class Component(Node):
    """A component of Gaussian data."""

    gauss: Gauss
    indices: tuple[Term, ...]

    def terms(self) -> tuple[Term, ...]:
        """Its indices."""
        return self.indices


@dataclass(frozen=True, eq=False)
class Same(Node):
    """One if two indices are equal, else zero."""

    pair: tuple[Term, Term]

    def terms(self) -> tuple[Term, ...]:
        """Both indices."""
        return self.pair


@dataclass(frozen=True, eq=False)
class Plus(Node):
    """A sum of nodes."""

    parts: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        """Its terms."""
        return self.parts


@dataclass(frozen=True, eq=False)
class Times(Node):
    """A product of nodes."""

    parts: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        """Its factors."""
        return self.parts


@dataclass(frozen=True, eq=False)
class Power(Node):
    """A node to a power that is a number."""

    base: Node
    exponent: sp.Expr

    def children(self) -> tuple[Node, ...]:
        """Its base."""
        return (self.base,)


@dataclass(frozen=True, eq=False)
class Transform(Node):
    """An exponential or a logarithm of a node; ``kind`` is ``exp`` or ``log``."""

    kind: str
    argument: Node

    def children(self) -> tuple[Node, ...]:
        """Its argument."""
        return (self.argument,)


@dataclass(frozen=True, eq=False)
class Total(Node):
    """Sum of ``body`` over ``index``, up to position ``end`` (which counts if ``inclusive``)."""

    index: Index
    body: Node
    end: Term | None = None
    inclusive: bool = False

    def children(self) -> tuple[Node, ...]:
        """What is summed."""
        return (self.body,)

    def terms(self) -> tuple[Term, ...]:
        """The end of the sum."""
        return () if self.end is None else (self.end,)


def node(value: Any) -> Node:
    """A node, or a number as one.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, Term | Array | Function | Sort):
        raise ParameterError(f"{value!r}: is a {type(value).__name__.lower()}, must be a number")
    try:
        made = sp.sympify(value, strict=True)
    except sp.SympifyError:
        raise ParameterError(f"{value!r}: must be a number") from None
    if not isinstance(made, sp.Expr):
        raise ParameterError(f"{value!r}: must be a number")
    return Scalar(sp.nsimplify(made, rational=True) if made.has(sp.Float) else made)


def walk(root: Node) -> Iterator[Node]:
    """Every node of a tree, shared ones once per occurrence, parents first."""
    yield root
    for child in root.children():
        yield from walk(child)


def subterms(term: Term) -> Iterator[Term]:
    """A term, its arguments, what it belongs to and what it is distinct from."""
    yield term
    for t in term.inner:
        yield from subterms(t)
