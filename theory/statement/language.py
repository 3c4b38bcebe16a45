"""The words of a statement and the tree that they make: student, data law and symmetry."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from theory import notation
from theory.parameters import ParameterError

VERSION = 1  # of the language
CLOSURES = ("mean logits",)
_count = itertools.count()


def sizes(names: str) -> Any:
    """Symbols of sizes, positive whole numbers: ``S, R = sizes("S R")``; one name gives one."""
    made = tuple(notation.symbol(n, integer=True, positive=True) for n in names.split())
    return made[0] if len(made) == 1 else made


def number(name: str, means: str = "") -> sp.Symbol:
    """A real number that is not trained."""
    return notation.symbol(name, means=means, real=True)


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a covariance, one per direction of a vector sort."""

    name: str

    @property
    def base(self) -> sp.IndexedBase:
        """The eigenvalues as an indexed array."""
        return notation.array(self.name)


def spectrum(name: str) -> Spectrum:
    """Eigenvalues of a covariance; see `Spectrum`."""
    return Spectrum(name)


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


def sort(
    name: str, size: Any, *, of: Sort | None = None, ordered: bool = False, vector: bool = False
) -> Sort:
    """Make an index set.

    Parameters
    ----------
    name : str
        What its elements are called.
    size : int or Expr
        How many there are (per element of ``of``, if given).
    of : Sort, optional
        There is a set of its own for every element of this sort; elements of different ones cannot
        be compared.
    ordered : bool
        Positions, from 1 to ``size``: only these can be masked, and no weight depends on them.
    vector : bool
        Directions of a vector space whose rotations are symmetries.

    Raises
    ------
    ParameterError
        If the size is no positive whole number, nor an expression in sizes.
    """
    made = sp.sympify(size, strict=True)
    if not made.is_integer or made.is_nonpositive:
        raise ParameterError(f"sort {name}: size = {size}: must be a positive whole number")
    if ordered + vector + (of is not None) > 1:
        raise ParameterError(f"sort {name}: is one of ordered, vector, of another sort")
    return Sort(name, made, of, ordered, vector)


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
    """

    name: str
    sorts: tuple[Sort, ...]
    to: Sort
    kept: bool
    injective: tuple[int, ...] = ()
    leading: bool = False

    @property
    def parent(self) -> int | None:
        """Place of the argument whose set the values lie in."""
        if self.to.of is None:
            return None
        return max(k for k, s in enumerate(self.sorts) if s is self.to.of)

    def __call__(self, *terms: Term) -> Value:
        _fits(f"{self.kind} {self.name}", self.sorts, terms)
        return Value(self, terms)

    @property
    def kind(self) -> str:
        """What it is called in messages."""
        return "teacher" if self.kept else "sample"

    def __repr__(self) -> str:
        return self.name


def _fits(what: str, sorts: Sequence[Sort], terms: Sequence[Any]) -> None:
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


def teacher(
    name: str, args: Sequence[Sort], to: Sort, *, injective: bool | Sequence[Sort] = False
) -> Function:
    """Make a known function of indices, the same for all inputs; balanced: all values as often.

    Parameters
    ----------
    name : str
        What messages call it.
    args : sequence of Sort
        Sorts of its arguments.
    to : Sort
        Sort of its values.
    injective : bool or sequence of Sort
        The arguments in which it is one-to-one while the others are held: all (True), or those of
        these sorts. ``injective=(state,)`` makes a permutation for every other argument.

    Raises
    ------
    ParameterError
        If it is declared one-to-one into a smaller sort, or an argument is no sort.
    """
    return _function(name, args, to, True, injective)


def sample(
    name: str, args: Sequence[Sort], to: Sort, *, injective: bool | str | Sequence[Sort] = False
) -> Function:
    """Make a function of indices that is drawn anew for every input: a token at a place.

    Parameters are those of `teacher`. Values are independent and uniform; with ``injective`` they
    are distinct; with ``injective="leading order"`` they are independent, but so many to choose
    from that they are taken to be distinct.
    """
    leading = injective == "leading order"
    if isinstance(injective, str) and not leading:
        raise ParameterError(
            f"sample {name}: injective = {injective!r}: must be True, False, sorts or 'leading order'"
        )
    return _function(name, args, to, False, True if leading else injective, leading)


def _function(
    name: str, args: Sequence[Sort], to: Sort, kept: bool, injective: Any, leading: bool = False
) -> Function:
    what = f"{'teacher' if kept else 'sample'} {name}"
    sorts = (args,) if isinstance(args, Sort) else tuple(args)
    for s in (*sorts, to):
        if not isinstance(s, Sort) or s.vector:
            raise ParameterError(f"{what}: {s!r}: must be a sort that is no vector")
    if not sorts:
        raise ParameterError(f"{what}: needs at least one argument")
    if to.of is not None and to.of not in sorts:
        raise ParameterError(f"{what}: values are {to} of a {to.of}, which must be an argument")
    chosen = sorts if injective is True else tuple(injective or ())
    if set(chosen) - set(sorts):
        raise ParameterError(f"{what}: injective in {chosen}: must be among its arguments {sorts}")
    one_to_one = tuple(k for k, s in enumerate(sorts) if s in chosen and s is not to.of)
    for k in one_to_one:
        if (sorts[k].size - to.size).is_positive:
            raise ParameterError(
                f"{what}: {sorts[k].size} {sorts[k]} into {to.size} {to} cannot be one-to-one"
            )
    return Function(name, sorts, to, kept, one_to_one, leading)


@dataclass(frozen=True, eq=False)
class Array:
    """What is read entry by entry: trained weights, or Gaussian data."""

    name: str
    sorts: tuple[Sort, ...]

    def _terms(self, what: str, indices: Any) -> tuple[Term, ...]:
        terms = indices if isinstance(indices, tuple) else (indices,)
        _fits(f"{what} {self.name}", self.sorts, terms)
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


def weight(name: str, *sorts: Sort, start: Any = 0) -> Weight:
    """Make a trained array with an axis per sort; without sorts it is one number, ``w[()]``.

    Raises
    ------
    ParameterError
        If an axis is no sort, or an ordered one: entries at absolute positions have no symmetry.
    """
    for s in sorts:
        if not isinstance(s, Sort):
            raise ParameterError(f"weight {name}: {s!r}: must be a sort")
        if s.ordered:
            raise ParameterError(
                f"weight {name}: {s} is ordered: entries at absolute positions have no symmetry"
            )
    return Weight(name, sorts, sp.sympify(start, strict=True))


def gauss(name: str, *sorts: Sort, var: Any = 1) -> Gauss:
    """Make Gaussian data whose last sort is a vector; ``var`` is a number or a `spectrum`."""
    if not sorts or not sorts[-1].vector or any(s.vector for s in sorts[:-1]):
        raise ParameterError(f"gauss {name}: its last sort, and no other, must be a vector")
    return Gauss(name, sorts, var if isinstance(var, Spectrum) else sp.sympify(var, strict=True))


def draw(sort: Sort, *, distinct: Any = (), of: Term | None = None) -> Index:
    """An element drawn uniformly for every input, none of those in ``distinct``."""
    others = distinct if isinstance(distinct, tuple | list) else (distinct,)
    for other in others:
        if not isinstance(other, Term) or other.sort is not sort:
            raise ParameterError(f"draw of {sort}: distinct from {other!r}: must be a {sort}")
    if sort.vector:
        raise ParameterError(f"draw of {sort}: directions of a vector cannot be drawn")
    return Index(sort, _parent(f"draw of {sort}", sort, of), tuple(others))


def fixed(sort: Sort, place: Any, *, of: Term | None = None) -> Index:
    """The element at a known place, counted from 1."""
    at = sp.sympify(place, strict=True)
    if not at.is_integer or at.is_nonpositive or (sort.size - at).is_negative:
        raise ParameterError(f"fixed {sort}: place = {place}: must lie in 1..{sort.size}")
    return Index(sort, _parent(f"fixed {sort}", sort, of), place=at)


def _parent(what: str, sort: Sort, of: Term | None) -> Term | None:
    if sort.of is None and of is not None:
        raise ParameterError(f"{what}: of = {of!r}: {sort} belongs to no other sort")
    if sort.of is not None and (not isinstance(of, Term) or of.sort is not sort.of):
        raise ParameterError(f"{what}: of = {of!r}: must be the {sort.of} that it belongs to")
    return of


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


def eq(i: Term, j: Term) -> Node:
    """One where two indices are equal, else zero."""
    _fits("eq", (i.sort if isinstance(i, Term) else j.sort,) * 2, (i, j))
    return Same((i, j))


def exp(x: Any) -> Node:
    """Exponential."""
    return Transform("exp", node(x))


def log(x: Any) -> Node:
    """Natural logarithm."""
    return Transform("log", node(x))


def total(
    body: Callable[..., Any],
    *sorts: Sort,
    below: Term | None = None,
    upto: Term | None = None,
    of: Term | None = None,
) -> Node:
    """Sum of ``body(i, ...)`` over all elements of every sort.

    Parameters
    ----------
    body : callable
        Takes an index per sort.
    *sorts : Sort
        A sort that belongs to another one comes after it, unless ``of`` names the element.
    below, upto : Term
        Of an ordered sort, the first position that is left out, or the last one that is not.

    Raises
    ------
    ParameterError
        If a sort lacks the one it belongs to, or one that is not ordered is masked.
    """
    indices: list[Index] = []
    for s in sorts:
        if not isinstance(s, Sort):
            raise ParameterError(f"total over {s!r}: must be a sort")
        before = [i for i in indices if s.of is not None and i.sort is s.of]
        own = before[-1] if before else (None if s.of is None else of)
        indices.append(Index(s, _parent(f"total over {s}", s, own), bound=True))
    end = upto if below is None else below
    if not indices or (below is not None and upto is not None):
        raise ParameterError("total: needs a sort, and at most one of below and upto")
    if end is not None:
        if not all(s.ordered for s in sorts) or len(sorts) > 1:
            raise ParameterError(f"total over {sorts[0]}: only one ordered sort can be masked")
        _fits("total: end", sorts, (end,))
    made = node(body(*indices))
    for i in reversed(indices):
        made = Total(i, made, end, below is None)
    return made


def cross_entropy(
    logit: Callable[..., Any], *, over: Any, target: Any, of: Term | None = None
) -> Node:
    """Minus the logarithm of the softmax of ``logit`` at ``target``, over all of ``over``.

    ``over`` is a sort or a tuple of sorts, ``target`` a term or as many terms.
    """
    sorts = over if isinstance(over, tuple) else (over,)
    targets = target if isinstance(target, tuple) else (target,)
    _fits("cross_entropy: target", sorts, targets)
    return log(total(lambda *i: exp(logit(*i)), *sorts, of=of)) - node(logit(*targets))


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

    def __repr__(self) -> str:
        return f"<Statement {self.name}: {', '.join(w.name for w in self.weights)}>"

    @property
    def text(self) -> str:
        """The statement as canonical text, the same in every process."""
        return _text(self)


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


def statement(
    loss: Any,
    *,
    name: str = "statement",
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
    functions = list(dict.fromkeys(t.function for t in terms if isinstance(t, Value)))
    sorts: dict[Sort, None] = dict.fromkeys(s for w in (*weights, *gausses) for s in w.sorts)
    sorts |= dict.fromkeys(t.sort for t in terms)
    sorts |= dict.fromkeys(s for f in functions for s in (*f.sorts, f.to))
    sorts |= dict.fromkeys(s.of for s in list(sorts) if s.of is not None)
    for kind, found in (("weight", weights), ("sort", sorts), ("function", functions)):
        names = [x.name for x in found]
        for twice in {n for n in names if names.count(n) > 1}:
            raise ParameterError(f"statement {name}: two of its {kind}s are called {twice}")
    draws = [t for t in terms if isinstance(t, Index) and not t.bound]
    return Statement(
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
