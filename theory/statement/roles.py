"""Which indices can meet: a sort splits into as many roles as the statement never compares, and
every role has its own permutations. From roles follow the classes of a weight's entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from theory.parameters import ParameterError
from theory.statement.stated import Statement
from theory.statement.tree import (
    Component,
    Entry,
    Function,
    Index,
    Same,
    Term,
    Total,
    Value,
    Weight,
    subterms,
    walk,
)

DEEPEST = 3  # functions applied to one another in a term that tells classes apart
MOST_TERMS = 40  # of a weight


@dataclass(frozen=True)
class Inverse(Term):
    """The argument at place ``j`` that a function sends to ``image``, the ``others`` given."""

    function: Function
    j: int
    others: tuple[Term, ...]
    image: Term

    @property
    def inner(self) -> tuple[Term, ...]:
        """Its image and the other arguments."""
        return (*self.others, self.image)

    @property
    def sort(self) -> Any:  # type: ignore[override]
        """Sort of the argument."""
        return self.function.sorts[self.j]

    @property
    def parent(self) -> Term | None:  # type: ignore[override]
        """What the argument belongs to."""
        for t in self.others:
            if self.sort.of is not None and t.sort is self.sort.of:
                return t
        return None

    def __repr__(self) -> str:
        return f"{self.function.name}^-1({self.image!r})"


@dataclass
class Classes:
    """Classes of a weight's entries: equalities of terms in its ``slots``, told by ``atoms``.

    An atom is a pair of terms, or one term that may not exist (an argument of what is no image).
    Entries with other truth values than those in ``symbols`` are zero and stay so. Where directions
    differ, ``diagonal`` has the symbol of every diagonal entry instead.
    """

    weight: Weight
    slots: tuple[Index, ...]
    atoms: list[tuple[Term, ...]]
    symbols: dict[tuple[bool, ...], Any] = field(default_factory=dict)
    diagonal: list[Any] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Atoms as text."""
        return [" = ".join(map(repr, atom)) for atom in self.atoms]

    @property
    def listed(self) -> list[Any]:
        """Symbols of all classes."""
        return self.diagonal or list(self.symbols.values())


class Roles:
    """Union of all places in which an index can stand.

    ``inverse`` says whether classes are told apart by what one-to-one teachers send to an index,
    too.
    """

    def __init__(self, stated: Statement, *, inverse: bool = True) -> None:
        self.inverse = inverse
        self._joined: dict[Any, Any] = {}
        self._parents: dict[Any, Any] = {}
        self.stated = stated
        for tree in (stated.loss, *stated.observables.values()):
            for n in walk(tree):
                for t in n.terms():
                    for s in subterms(t):
                        self._enter(s)
                if isinstance(n, Entry | Component):
                    array = n.weight if isinstance(n, Entry) else n.gauss
                    self._slots(array, n.indices)
                elif isinstance(n, Same):
                    self._join(self.place(n.pair[0]), self.place(n.pair[1]))
                elif isinstance(n, Total) and n.end is not None:
                    self._join(self.place(n.index), self.place(n.end))
        make = self._vector_classes if stated.gausses else self._classes
        self.classes = {w: make(w) for w in stated.weights}

    @staticmethod
    def place(term: Term) -> Any:
        """Where a term stands, before places are joined."""
        if isinstance(term, Value):
            return ("value", term.function)
        if isinstance(term, Inverse):
            return ("argument", term.function, term.j)
        return getattr(term, "copied", None) or term

    def of(self, term: Term) -> Any:
        """Role of a term."""
        return self._root(self.place(term))

    def _root(self, place: Any) -> Any:
        while (above := self._joined.get(place, place)) != place:
            place = above
        return place

    def _join(self, a: Any, b: Any) -> None:
        a, b = self._root(a), self._root(b)
        if a == b:
            return
        self._joined[a] = b
        above, other = self._parents.get(a), self._parents.get(b)
        if above is not None and other is not None:
            self._join(above, other)
        elif above is not None:
            self._parents[b] = above

    def _enter(self, term: Term) -> None:
        here = self.place(term)
        if term.parent is not None:
            self._parents.setdefault(self._root(here), self.place(term.parent))
            self._join(self._parents[self._root(here)], self.place(term.parent))
        if isinstance(term, Value):
            self._arguments(term.function, term.arguments)
        elif isinstance(term, Index):
            for t in term.distinct:
                self._join(here, self.place(t))

    def _arguments(self, function: Function, terms: tuple[Term, ...]) -> None:
        for k, t in enumerate(terms):
            self._join(("argument", function, k), self.place(t))

    def _slots(self, array: Any, terms: tuple[Term, ...]) -> None:
        for k, t in enumerate(terms):
            self._join(("slot", array, k), self.place(t))

    @staticmethod
    def _vector_classes(weight: Weight) -> Classes:
        slots = tuple(Index(s) for s in weight.sorts)
        along = [t for t in slots if t.sort.vector]
        return Classes(weight, slots, [tuple(along)] if len(along) == 2 else [])

    def _classes(self, weight: Weight) -> Classes:
        slots: list[Index] = []
        for k, s in enumerate(weight.sorts):
            above = [i for i in slots if i.sort is s.of]
            if s.of is not None and not above:
                raise ParameterError(
                    f"weight {weight.name}: {s} needs an axis for the {s.of} that it belongs to"
                )
            label = s.name + "'" * sum(i.sort is s for i in slots)
            slots.append(Index(s, above[-1] if above else None, label=label))
            self._join(slots[-1], ("slot", weight, k))
        terms = self._terms(weight, slots)
        atoms: list[tuple[Term, ...]] = [
            (t,) for t in terms if isinstance(t, Inverse) and t.sort.size != t.function.to.size
        ]
        atoms += [(a, b) for a, b in itertools.combinations(terms, 2) if self.of(a) == self.of(b)]
        return Classes(weight, tuple(slots), sorted(atoms, key=lambda x: sum(map(_depth, x))))

    def _terms(self, weight: Weight, slots: list[Index]) -> list[Term]:
        """Slots, fixed elements of their roles, and every teacher filled with terms."""
        at = {self.of(s) for s in slots}
        found: dict[Term, None] = dict.fromkeys(slots)
        found |= dict.fromkeys(
            d for d in self.stated.draws if d.place is not None and self.of(d) in at
        )
        kept = [f for f in self.stated.functions if f.kept]
        for _ in range(DEEPEST):
            for made in [t for f in kept for t in self._filled(f, list(found))]:
                found[made] = None
            if len(found) > MOST_TERMS:
                raise ParameterError(
                    f"weight {weight.name}: more than {MOST_TERMS} terms tell its entries apart; "
                    "give teachers that are never composed sorts of their own"
                )
        return list(found)

    def _filled(self, f: Function, terms: list[Term]) -> Iterator[Term]:
        """A teacher, or what it sends somewhere, with all arguments that fit, none repeated."""
        fit = [
            [t for t in terms if self.of(t) == self._root(("argument", f, k)) and not _uses(t, f)]
            for k in range(len(f.sorts))
        ]
        for chosen in itertools.product(*fit):
            if self._belong(f, chosen):
                yield Value(f, chosen)
        images = [t for t in terms if self.of(t) == self._root(("value", f)) and not _uses(t, f)]
        for j in f.injective if self.inverse else ():
            for chosen in itertools.product(*fit[:j], *fit[j + 1 :]):
                for image in images:
                    above = None if f.parent is None else chosen[f.parent - (f.parent > j)]
                    if above is image.parent:
                        yield Inverse(f, j, chosen, image)

    @staticmethod
    def _belong(f: Function, terms: tuple[Term, ...]) -> bool:
        return all(t.parent is None or t.parent in terms[:k] for k, t in enumerate(terms))


def _uses(term: Term, function: Function) -> bool:
    """Whether a function occurs in a term."""
    return any(isinstance(t, Value | Inverse) and t.function is function for t in subterms(term))


def _depth(term: Term) -> int:
    own = 2 if isinstance(term, Inverse) else isinstance(term, Value)
    return own + max(map(_depth, term.inner), default=0)


def substituted(term: Term, by: dict[Term, Term]) -> Term:
    """A term with other indices in the places of slots."""
    if isinstance(term, Value):
        return Value(term.function, tuple(substituted(t, by) for t in term.arguments))
    if isinstance(term, Inverse):
        others = tuple(substituted(t, by) for t in term.others)
        return Inverse(term.function, term.j, others, substituted(term.image, by))
    return by.get(term, term)
