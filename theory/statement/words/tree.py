"""The tree of a statement: nodes are numbers, terms are indices."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError, shown
from theory.symbols import notation
from theory.symbols.reading import sympified

_count = itertools.count()


def require(holds: Any, said: str) -> None:
    """Refuse in one line what does not hold."""
    if not holds:
        raise ParameterError(said)


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a covariance, one per direction of a vector sort."""

    name: str

    @property
    def base(self) -> sp.IndexedBase:
        """The eigenvalues as an indexed array."""
        return notation.array(self.name)


class Unordered:
    """What can be equal, and not less or more; all that Python's operators cannot do
    with it is refused.
    """

    USE = (
        "takes part in sums, products, quotients, powers, exp and log, and in nothing"
        " else"
    )

    def __lt__(self, other: Any) -> Any:
        require(
            False, f"{self!r}: cannot be less or more than something; eq(i, j) compares"
        )

    __le__ = __gt__ = __ge__ = __lt__

    def _refuse(self, *_: Any) -> Any:
        require(False, f"{shown(self)}: {self.USE}")


for _binary in ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod", "matmul"):
    for _name in (_binary, f"r{_binary}"):
        setattr(Unordered, f"__{_name}__", Unordered._refuse)
for _name in ("neg", "pos", "abs", "float", "int", "index", "iter", "getitem"):
    setattr(Unordered, f"__{_name}__", Unordered._refuse)


@dataclass(frozen=True, eq=False)
class Sort(Unordered):
    """An index set; all its permutations are symmetries of the data law (O(D), if
    ``vector``).
    """

    name: str
    size: sp.Expr
    of: Sort | None = None
    ordered: bool = False
    vector: bool = False

    USE = (
        "is a sort, a set of indices; draw(sort) and total(lambda i: ..., sort) give"
        " one of them"
    )

    def __repr__(self) -> str:
        return self.name


class Term(Unordered):
    """What names an element of a sort: a drawn index, one summed over, a function's
    value.
    """

    USE = (
        "is an index, with which nothing is computed; arrays, samples and teachers are"
        " read at it, eq(i, j) compares two, and total(..., below=i) sums over what"
        " comes before"
    )

    sort: Sort
    parent: Term | None
    inner: tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Index(Term):
    """An element drawn at random, summed over (``bound``), or at a known ``place`` from
    1.

    ``copied`` is the index of the sum that this one's sum is a copy of.
    """

    sort: Sort
    parent: Term | None = None
    distinct: tuple[Term, ...] = ()
    place: sp.Expr | None = None
    bound: bool = False
    copied: Index | None = None
    label: str = ""
    number: int = field(default_factory=lambda: next(_count), repr=False)

    @property
    def inner(self) -> tuple[Term, ...]:  # type: ignore[override]
        """What it is distinct from, and what it belongs to."""
        return (*self.distinct, *(() if self.parent is None else (self.parent,)))

    def __repr__(self) -> str:
        return (self.label or self.sort.name) + (
            "" if self.place is None else f" {self.place}"
        )


@dataclass(frozen=True)
class Value(Term):
    """Value of a function; or, with ``solved``, its argument there, which may not
    exist: the last of ``arguments`` is then the value, the others are the function's
    others.
    """

    function: Function
    arguments: tuple[Term, ...]
    solved: int | None = None

    @property
    def inner(self) -> tuple[Term, ...]:  # type: ignore[override]
        """Its arguments."""
        return self.arguments

    @property
    def sort(self) -> Sort:  # type: ignore[override]
        """Sort of the value, or of the argument."""
        return (
            self.function.to
            if self.solved is None
            else self.function.sorts[self.solved]
        )

    @property
    def parent(self) -> Term | None:  # type: ignore[override]
        """The last argument whose set the value lies in, if its sort has one per
        element.
        """
        above = [t for t in self.arguments if t.sort is self.sort.of]
        return above[-1] if above else None

    def __repr__(self) -> str:
        inverse = "" if self.solved is None else "^-1"
        return f"{self.function.name}{inverse}({', '.join(map(repr, self.arguments))})"


def _line() -> int:
    """Line outside of this package that is being executed."""
    frame: Any = sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(__package__):
        frame = frame.f_back
    return int(frame.f_lineno)


@dataclass(frozen=True, eq=False)
class Function(Unordered):
    """An index-valued function: a teacher is ``kept``, a sample is drawn anew for every
    input.

    ``injective`` holds the places of arguments in which it is one-to-one, the others
    held; ``leading`` says that this holds to leading order only, as values are drawn
    independently. A teacher from a sort into itself (a permutation, as all values are
    equally frequent) that is applied again is a permutation of its own, made of its
    ``parts``, outermost first.
    """

    name: str
    sorts: tuple[Sort, ...]
    to: Sort
    kept: bool
    injective: tuple[int, ...] = ()
    leading: bool = False
    parts: tuple[Function, ...] = ()
    line: int = field(default_factory=_line, repr=False)

    USE = "is a function; its values, read with (...), are indices"

    @property
    def parent(self) -> int | None:
        """Place of the argument whose set the values lie in."""
        places = [k for k, s in enumerate(self.sorts) if s is self.to.of]
        return places[-1] if places else None

    def __getitem__(self, terms: Any) -> Any:
        require(False, f"{self.kind} {self.name}: is read with (...), not with [...]")

    def __call__(self, *terms: Term) -> Value:
        fits(f"{self.kind} {self.name}", self.sorts, terms)
        if self.kept and self.sorts == (self.to,) and isinstance(terms[0], Value):
            g = terms[0].function
            if (g.parts or (g,))[-1] is (self.parts or (self,))[-1]:
                return Value(composed(self, g), terms[0].arguments)
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
    wanted = (
        f"takes {len(sorts)} indices ({', '.join(map(repr, sorts))}), got {len(terms)}"
    )
    require(len(sorts) == len(terms), f"{what}: {wanted}")
    for k, (s, t) in enumerate(zip(sorts, terms, strict=True)):
        message = f"{what}: index {k + 1} = {t!r}"
        require(isinstance(t, Term), f"{message}: must be an index of sort {s}")
        require(t.sort is s, f"{message} is of sort {t.sort}, must be of sort {s}")
        above = [u for u in terms[:k] if u.sort is s.of]
        belongs = s.of is None or not above or t.parent in above
        require(belongs, f"{what}: {t!r} belongs to {t.parent!r}, not to {above[-1:]}")


@dataclass(frozen=True, eq=False)
class Array(Unordered):
    """An array that is read entry by entry: a weight or Gaussian data."""

    USE = (
        "is an array; its entries, read with [...], or [()] without indices, are"
        " numbers"
    )
    name: str
    sorts: tuple[Sort, ...]
    line: int = field(default_factory=_line, repr=False, kw_only=True)

    def __getitem__(self, indices: Any) -> Node:
        terms = indices if isinstance(indices, tuple) else (indices,)
        fits(f"{self.kind} {self.name}", self.sorts, terms)
        return Node("entry", (), terms, self)

    def __call__(self, *terms: Any) -> Any:
        require(False, f"{self.kind} {self.name}: is read with [...], not with (...)")

    @property
    def kind(self) -> str:
        """What it is called in messages."""
        return type(self).__name__.lower()

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Random:
    """A law of entries at the start, around zero: ``gaussian`` of a standard deviation,
    ``uniform`` up to a width, or ``orthogonal``, of a scale; all of this ``size``.
    """

    kind: str
    size: sp.Expr

    def __repr__(self) -> str:
        return f"{self.kind}({self.size})"


@dataclass(frozen=True, eq=False, repr=False)
class Weight(Array):
    """A trained array; all entries start at ``start``, or are drawn from it."""

    start: sp.Expr | Random = sp.S.Zero

    @property
    def mean(self) -> sp.Expr:
        """Mean of an entry at the start."""
        return sp.S.Zero if isinstance(self.start, Random) else self.start


@dataclass(frozen=True, eq=False, repr=False)
class Gauss(Array):
    """Gaussian data of mean zero, independent but for the covariance along the last
    sort.
    """

    var: sp.Expr | Spectrum = sp.S.One


@dataclass(frozen=True, eq=False)
class Node(Unordered):
    """A number that depends on weights, draws and data.

    Attributes
    ----------
    kind : str
        ``number`` (``of``: an expression in sizes and numbers), ``entry`` (of an
        array), ``same`` (one where both terms are equal, else zero), ``equal`` (both
        parts), ``plus``, ``times``, ``power`` (``of``: the exponent), ``exp``, ``log``,
        ``total`` (over the index ``of``; a term is the position of an ordered sort that
        it ends before), ``trace`` (see `theory.statement.evaluation.wick`).
    parts : tuple of Node
        What it is made of.
    terms : tuple of Term
        Indices that it reads.
    """

    kind: str
    parts: tuple[Node, ...] = ()
    terms: tuple[Term, ...] = ()
    of: Any = None

    _op_priority = (
        100.0  # before SymPy's numbers, so that a symbol times a node is a node
    )

    def __add__(self, other: Any) -> Node:
        return Node("plus", (self, node(other)))

    def __mul__(self, other: Any) -> Node:
        return Node("times", (self, node(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Node:
        return self * -1

    def __sub__(self, other: Any) -> Node:
        return self + node(other) * -1

    def __rsub__(self, other: Any) -> Node:
        return self * -1 + other

    def __pow__(self, exponent: Any) -> Node:
        return Node("power", (self,), (), sympified(exponent))

    def __truediv__(self, other: Any) -> Node:
        return self * node(other) ** -1

    def __rtruediv__(self, other: Any) -> Node:
        return self**-1 * other


def node(value: Any) -> Node:
    """A node, or a number as one.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, Unordered):
        value._refuse()
    try:
        made = sympified(value)
    except ParameterError:
        made = None
    require(isinstance(made, sp.Expr), f"{value!r}: must be a number")
    return Node(
        "number", of=sp.nsimplify(made, rational=True) if made.has(sp.Float) else made
    )


def walk(root: Node) -> Iterator[Node]:
    """Every node of a tree, shared ones once per occurrence, parents first."""
    yield root
    for child in root.parts:
        yield from walk(child)


def subterms(*terms: Term) -> Iterator[Term]:
    """Terms, their arguments, what they belong to and what they are distinct from."""
    for term in terms:
        yield term
        yield from subterms(*term.inner)


def reached(root: Any, found: dict[Any, None] | None = None) -> dict[Any, None]:
    """Everything that occurs in a tree, in order of appearance: nodes, terms, sorts,
    ...
    """
    found = {} if found is None else found
    if isinstance(root, tuple):
        for x in root:
            reached(x, found)
    elif isinstance(root, sp.Expr):
        found[root] = None
    elif dataclasses.is_dataclass(root) and root not in found:
        found[root] = None
        reached(tuple(vars(root).values()), found)
    return found


def substituted(term: Term, by: Mapping[Term, Term]) -> Term:
    """A term with other indices in the places of some."""
    if isinstance(term, Value):
        return Value(
            term.function,
            tuple(substituted(t, by) for t in term.arguments),
            term.solved,
        )
    return by.get(term, term)


def renamed(n: Node, by: Mapping[Term, Term]) -> Node:
    """A node with other indices; every sum in it gets an index of its own."""
    bound = n.of
    terms = tuple(substituted(t, by) for t in n.terms)
    if n.kind == "total":
        parent = None if n.of.parent is None else substituted(n.of.parent, by)
        bound = Index(n.of.sort, parent, bound=True, copied=n.of.copied or n.of)
        by = {**by, n.of: bound}
    return Node(n.kind, tuple(renamed(p, by) for p in n.parts), terms, bound)
