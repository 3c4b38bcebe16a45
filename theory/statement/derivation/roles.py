"""Which indices can meet: a sort splits into as many roles as the statement never
compares, and every role has its own permutations. From roles follow the classes of a
weight's entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from theory.statement.words.stated import Statement
from theory.statement.words.tree import (
    Function,
    Index,
    Node,
    Term,
    Value,
    Weight,
    require,
    subterms,
    walk,
)

DEEPEST = 3  # functions applied to one another in a term that tells classes apart
MOST_TERMS = 40  # of a weight


@dataclass
class Classes:
    """Classes of a weight's entries, defined by the equalities among the terms in its
    ``slots``.

    An atom is a pair of terms, or one term that may not exist (an argument of what is
    no image). Entries with other truth values than those in ``symbols``, and those off
    the diagonal of a pair of vector indices, are zero and stay so. Where directions
    differ, every pattern has a symbol that is an entry of an array.
    """

    weight: Weight
    slots: tuple[Index, ...]
    atoms: list[tuple[Term, ...]]
    symbols: dict[tuple[bool, ...], Any] = field(default_factory=dict)

    @property
    def plain(self) -> list[Index]:
        """Slots that are no directions of a vector."""
        return [s for s in self.slots if not s.sort.vector]

    @property
    def vectors(self) -> list[int]:
        """Places of the others."""
        return [k for k, s in enumerate(self.slots) if s.sort.vector]


class Roles:
    """Union of all places in which an index can stand.

    ``inverse`` says whether classes are told apart by what one-to-one teachers send to
    an index, too.
    """

    def __init__(self, stated: Statement, *, inverse: bool = True) -> None:
        self.stated, self.inverse = stated, inverse
        self._joined: dict[Any, Any] = {}
        self._parents: dict[Any, Any] = {}
        for tree in stated.trees.values():
            for n in walk(tree):
                self._read(n)
        self.classes = {w: self._classes(w) for w in stated.weights}

    @staticmethod
    def place(term: Term) -> Any:
        """Where a term stands, before places are joined."""
        if isinstance(term, Value):
            j = term.solved
            return (
                ("value", term.function)
                if j is None
                else ("argument", term.function, j)
            )
        return getattr(term, "copied", None) or term

    def of(self, term: Term) -> Any:
        """Role of a term."""
        return self.root(self.place(term))

    def root(self, place: Any) -> Any:
        """Role of a place."""
        while place in self._joined:
            place = self._joined[place]
        return place

    def _join(self, a: Any, b: Any) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self._joined[a] = b
            if a in self._parents:
                self._join(
                    self._parents[a], self._parents.setdefault(b, self._parents[a])
                )

    def _read(self, n: Node) -> None:
        for t in subterms(*n.terms):
            self._enter(t)
        if n.kind == "entry":
            for k, t in enumerate(n.terms):
                self._join(("slot", n.of, k), self.place(t))
        elif n.terms:
            self._join(self.place(n.terms[0]), self.place(n.of or n.terms[1]))

    def _enter(self, term: Term) -> None:
        here = self.place(term)
        if term.parent is not None:
            above = self.place(term.parent)
            self._join(self._parents.setdefault(self.root(here), above), above)
        for k, t in enumerate(getattr(term, "arguments", ())):
            self._join(("argument", term.function, k), self.place(t))  # type: ignore[attr-defined]
        for t in getattr(term, "distinct", ()):
            self._join(here, self.place(t))

    def drawn(self, weight: Weight) -> tuple[Index, ...]:
        """New indices of an entry of a weight."""
        slots: list[Index] = []
        for k, s in enumerate(weight.sorts):
            above = [i for i in slots if i.sort is s.of]
            message = (
                f"weight {weight.name}: {s} needs an axis for the {s.of} that it"
                " belongs to"
            )
            require(s.of is None or above, message)
            label = s.name + "'" * sum(i.sort is s for i in slots)
            slots.append(Index(s, above[-1] if above else None, label=label))
            self._join(slots[-1], ("slot", weight, k))
        return tuple(slots)

    def _classes(self, weight: Weight) -> Classes:
        slots = self.drawn(weight)
        classes = Classes(weight, slots, [])
        message = "has more than two vector indices, or two of different sorts"
        kinds = {slots[k].sort for k in classes.vectors}
        require(
            len(classes.vectors) < 3 and len(kinds) < 2,
            f"weight {weight.name}: {message}",
        )
        message = (
            f"start = {weight.start}: must be 0, as the data single out no direction"
        )
        require(
            len(classes.vectors) != 1 or weight.mean == 0,
            f"weight {weight.name}: {message}",
        )
        terms = self._terms(weight, classes.plain)
        pairs = itertools.combinations(terms, 2)
        unary = [t for t in terms if isinstance(t, Value) and t.solved is not None]
        classes.atoms = [(t,) for t in unary if t.sort.size != t.function.to.size]
        classes.atoms += [(a, b) for a, b in pairs if self.of(a) == self.of(b)]
        classes.atoms.sort(key=lambda x: sum(map(_depth, x)))
        return classes

    def pair(self, one: Weight, two: Weight) -> Classes:
        """Classes of pairs of entries,
        as those of a weight with the indices of both.
        """
        both = Weight(f"{one.name}{two.name}", (*one.sorts, *two.sorts))
        places = [("slot", one, k) for k in range(len(one.sorts))]
        places += [("slot", two, k) for k in range(len(two.sorts))]
        for k, place in enumerate(places):
            self._join(("slot", both, k), place)
        self.classes[both] = self._classes(both)
        return self.classes[both]

    def _terms(self, weight: Weight, slots: list[Index]) -> list[Term]:
        """Slots, fixed elements of their roles, and every teacher filled with terms."""
        roles = {self.of(s) for s in slots}
        known = [
            d for d in self.stated.draws if d.place is not None and self.of(d) in roles
        ]
        terms: dict[Term, None] = dict.fromkeys([*slots, *known])
        teachers = [f for f in self.stated.functions if f.kept]
        for _ in range(DEEPEST):
            filled: list[Term] = []
            for f in teachers:
                filled += self._filled(f, list(terms))
            terms |= dict.fromkeys(filled)
            message = (
                f"weight {weight.name}: more than {MOST_TERMS} terms tell its entries"
                " apart; give teachers that are never composed sorts of their own"
            )
            require(len(terms) <= MOST_TERMS, message)
        return list(terms)

    def _filled(self, f: Function, terms: list[Term]) -> Iterator[Term]:
        """A teacher (or the preimage of a value) with all combinations of arguments
        that fit, none repeated.
        """

        def reads_it(term: Term) -> bool:
            return any(getattr(s, "function", None) is f for s in subterms(term))

        free = [(t, self.of(t)) for t in terms if not reads_it(t)]
        fit = []
        for k in range(len(f.sorts)):
            place = self.root(("argument", f, k))
            fit.append([t for t, role in free if role == place])
        for chosen in itertools.product(*fit):
            if all(
                t.parent is None or t.parent in chosen[:k] for k, t in enumerate(chosen)
            ):
                yield Value(f, chosen)
        images = [t for t, role in free if role == self.root(("value", f))]
        for j in f.injective if self.inverse else ():
            for *others, image in itertools.product(*fit[:j], *fit[j + 1 :], images):
                above = None if f.parent is None else others[f.parent - (f.parent > j)]
                if above is image.parent:
                    yield Value(f, (*others, image), j)


def _depth(term: Term) -> int:
    depth = isinstance(term, Value) + (getattr(term, "solved", None) is not None)
    return depth + max(map(_depth, term.inner), default=0)
