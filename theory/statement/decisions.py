"""What is known of one input, and how what is not known yet is decided."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.frames import Element, Frame, NeedOuter, Quenched, Vague
from theory.statement.occupancy import occupy
from theory.statement.roles import Inverse, Roles
from theory.statement.stated import Statement
from theory.statement.tree import Function, Index, Term, Value

TEACHER = "say in which arguments it is injective, or ask for closure='mean logits'"
SAMPLE = "declare it injective, or injective='leading order', or give the size of its argument as a number"


class Decisions:
    """What is known of one input while its loss is computed.

    Attributes
    ----------
    balanced : set of Function
        Teachers whose values were taken to be equally frequent.
    """

    def __init__(self, stated: Statement, roles: Roles, *, averaged: bool = False) -> None:
        self.stated, self.roles, self.averaged = stated, roles, averaged
        self.spent = 0  # branches
        self.asked: list[Any] = []  # what is sent to known values, being decided
        self.whole: set[Function] = set()  # samples whose values are told apart one by one
        self.listed: set[Any] = set()  # roles of ordered sorts whose places are all known
        self.balanced: set[Function] = set()
        self.frames: list[Frame] = []
        self.table: dict[Any, Any] = {}
        self.known: dict[Any, list[Element]] = {}
        self.bound: dict[Index, int] = {}

    def element(self, term: Term) -> Element | None:
        """The element that a term names, placed now if it was not; None for what does not exist."""
        key = self._key(term)
        if key is None:
            return None
        if key not in self.table:
            depth = self._depth(key)
            if depth < len(self.frames) - 1:
                raise NeedOuter(depth, key)
            self._decide(key)
        return self.table[key]

    def _key(self, term: Term) -> Any:
        if isinstance(term, Index):
            return term
        found = tuple(self.element(t) for t in term.inner)
        if None in found:
            return None
        if isinstance(term, Value):
            return (term.function, found)
        assert isinstance(term, Inverse)
        return (term.function, term.j, found[:-1], found[-1])

    def _depth(self, key: Any) -> int:
        if isinstance(key, Index):
            return self.bound.get(key, 0) if key.bound else 0
        if len(key) == 2:
            return max(e.depth for e in key[1])
        return max(e.depth for e in (*key[2], key[3]))

    def _decide(self, key: Any) -> None:
        if key in self.table:
            return
        if isinstance(key, Index):
            self._place(key)
        elif len(key) == 1:
            occupy(self, key[0])
        elif len(key) == 2:
            self._apply(*key)
        else:
            self._invert(*key)

    def _choose(
        self, what: str, options: list[tuple[Any, Any]], by: Element | None, function: Any
    ) -> Any:
        """Choose among options that can happen.

        A choice that is no count would make the number of equal terms random: it is allowed before
        all sums, in sums whose mean may be taken, and where ``by`` stands for a known number.
        """
        live = [(w, o) for w, o in options if sp.expand(sp.sympify(w, strict=True)) != 0]
        frame = self.frames[-1]
        if len(live) > 1 and len(self.frames) > 1 and not frame.linear and function is not None:
            if not frame.counted(by, function):
                raise Quenched(what)
            frame.tell(by, function)  # type: ignore[arg-type]
        return frame.choose(live)

    def _group(self, role: Any, parent: Element | None) -> list[Element]:
        if self.known.get(("vague", role)):
            raise Vague(self.known["vague", role][0].name)
        return self.known.setdefault((role, parent), [])

    def _list_places(self) -> None:
        for role, size in self.listed:
            for k in range(1, int(size) + 1):
                self._new(role, None, sp.Integer(k)).name = sp.Integer(k)

    def _new(
        self, role: Any, parent: Element | None, position: Any = None, at: int = -1
    ) -> Element:
        made = Element(role, parent, len(self.frames) - 1, position=position)
        group = self._group(role, parent)
        group.insert(len(group) if at < 0 else at, made)
        return made

    def _place(self, index: Index, end: Term | None = None, inclusive: bool = False) -> None:
        """Put an index among the known elements of its role, or beside them."""
        parent = None if index.parent is None else self.element(index.parent)
        last = None if end is None else self.element(end)
        barred = [self.element(t) for t in index.distinct]
        role, size = self.roles.of(index), index.sort.size
        group = self._group(role, parent)
        if index.place is not None:
            self.table[index] = self._at(index, group, role)
            return
        whole = sp.S.One if index.bound else 1 / (size - len({id(b) for b in barred}))
        options: list[tuple[Any, Any]] = [(e.many * whole, e) for e in group if e not in barred]
        free = size - sp.Add(*(e.many for e in group))
        if not index.sort.ordered or any(e.position is None for e in group):
            options.append((free * whole, None))
        else:
            stop = len(group) if last is None else group.index(last)
            if last is not None:
                kept = group[: stop + inclusive]
                options = [(w, e) for w, e in options if e in kept]
            options += [
                ((high - low + 1) * whole, (k, low, high))
                for k, low, high in self._gaps(group, size)
                if k <= stop
            ]
        chosen = self._choose(repr(index), options, None, None)
        frame, old = self.frames[-1], isinstance(chosen, Element)
        if chosen is None:
            chosen = self._new(role, parent)
        elif isinstance(chosen, tuple):
            chosen = self._between(role, parent, index.sort.name, *chosen)
        if index is frame.index and not old:
            frame.told[chosen] = None
        self.table[index] = chosen

    def _gaps(self, group: list[Element], size: sp.Expr) -> list[tuple[int, sp.Expr, sp.Expr]]:
        """Free stretches of an ordered sort: place in the list, first and last position."""
        places = [sp.S.Zero, *(e.position for e in group), size + 1]
        return [(k, a + 1, b - 1) for k, (a, b) in enumerate(itertools.pairwise(places))]

    def _between(self, role: Any, parent: Any, name: str, k: int, low: Any, high: Any) -> Element:
        """A new element of an ordered sort, somewhere in a gap; its weight counted the gap."""
        frame = self.frames[-1]
        taken = sum(len(f.positions) for f in self.frames)
        position = sp.Symbol(f"{name}_{taken + 1}", integer=True, positive=True)
        frame.weight /= high - low + 1
        frame.positions.append((position, low, high))
        return self._new(role, parent, position, k)

    def _at(self, index: Index, group: list[Element], role: Any) -> Element:
        """The element at a known place."""
        for k, e in enumerate(group):
            if e.name is None:
                continue
            gap = sp.expand(index.place - e.name)
            if gap == 0:
                return e
            if index.sort.ordered and gap.is_nonpositive:
                made = self._new(role, None, index.place, k)
                made.name = index.place
                return made
            if index.sort.ordered and not gap.is_nonnegative:
                raise ParameterError(f"fixed {index!r}: before or after place {e.name}?")
        made = self._new(role, None, index.place if index.sort.ordered else None)
        made.name = index.place
        return made

    def _apply(self, f: Function, args: tuple[Element, ...]) -> None:
        """Decide the value of a function."""
        if any(e.many != 1 for e in args):
            occupy(self, f)
            return
        parent = None if f.parent is None else args[f.parent]
        role, size = self.roles._root(("value", f)), f.to.size
        group = self._group(role, parent)
        frame = self.frames[-1]
        inner = len(self.frames) > 1 and not frame.linear
        new = [k for k, e in enumerate(args) if e in frame.told]
        by = args[new[0]] if len(new) == 1 else None
        section = (f, new[0], args[: new[0]] + args[new[0] + 1 :]) if new else f
        onto = f.kept
        if f.injective:
            if inner:
                self._statuses(f, args, group)
                if (f, args) in self.table:
                    return
            barred = self._barred(f, args, group)
            rest = size - len(barred)
            options: list[tuple[Any, Any]]
            options = [(1 / rest, e) for e in group if e not in barred]
            onto = bool(new) and f.sorts[new[0]].size == size and new[0] in f.injective
            by = None if options else by
            options.append(((size - len(group)) / rest, None))
        elif f.kept and not self.averaged:
            options = self._fibres(f, args, group, inner)
        else:
            options = [(sp.S.One / size, e) for e in group]
            options.append(((size - len(group)) / size, None))
            by, onto = None, False
        if f.kept and not (self.averaged or f.injective) and sum(w != 0 for w, _ in options) > 1:
            self.balanced.add(f)
        what = f"{f.kind} {f.name}: how often a sum meets each of its values is random; {TEACHER if f.kept else SAMPLE}"
        try:
            chosen = self._choose(what, options, by, section)
        except Quenched:
            if f.kept or f.injective or len(f.sorts) > 1 or not f.sorts[0].size.is_number:
                raise
            if f.sorts[0].ordered:
                self.listed.add((self.roles._root(("argument", f, 0)), f.sorts[0].size))
                raise Vague(f) from None
            raise NeedOuter(0, (f,)) from None
        if chosen is None:
            chosen = self._ranged(f, role, parent)
            if onto and by is not None:
                frame.told[chosen], frame.source[chosen] = None, (by, section)
        self._set(f, args, chosen)

    def _ranged(self, f: Function, role: Any, parent: Any) -> Element:
        if f.to.ordered:
            raise ParameterError(f"{f.kind} {f.name}: its values are {f.to}, which is ordered")
        return self._new(role, parent)

    def _set(self, f: Function, args: tuple[Element, ...], value: Element) -> None:
        self.table[f, args] = value
        for j in f.injective:
            self.table[f, j, args[:j] + args[j + 1 :], value] = args[j]

    def _decided(self, f: Function) -> Iterator[tuple[tuple[Element, ...], Element]]:
        for key, value in self.table.items():
            if isinstance(key, tuple) and len(key) == 2 and key[0] is f:
                yield key[1], value

    def _barred(
        self, f: Function, args: tuple[Element, ...], group: list[Element]
    ) -> list[Element]:
        """Values that are taken, or that nothing is sent to."""
        return [
            e
            for e in group
            if any((f, j, args[:j] + args[j + 1 :], e) in self.table for j in f.injective)
        ]

    def _statuses(self, f: Function, args: tuple[Element, ...], group: list[Element]) -> None:
        """Before a sum meets values of a one-to-one function: what is sent to the known ones."""
        here = len(self.frames) - 1
        for j in f.injective:
            others = args[:j] + args[j + 1 :]
            if args[j].depth == here and all(e.depth < here for e in others):
                for e in list(group):
                    if e not in self._barred(f, args, group):
                        self._status(f, j, others, e)

    def _status(self, f: Function, j: int, others: tuple[Element, ...], e: Element) -> None:
        key = (f, j, others, e)
        if key not in self.table and key not in self.asked:
            depth = self._depth(key)
            if depth < len(self.frames) - 1:
                raise NeedOuter(depth, key)
            self._decide(key)

    def _invert(self, f: Function, j: int, others: tuple[Element, ...], image: Element) -> None:
        """Decide which argument a one-to-one function sends to an element, if any."""
        parent = None if f.parent is None else image.parent
        group = self._group(self.roles._root(("value", f)), parent)
        frame = self.frames[-1]
        if len(self.frames) > 1 and not frame.linear:
            self.asked.append((f, j, others, image))
            try:
                for e in list(group):
                    if e is not image and e.depth < len(self.frames) - 1:
                        self._status(f, j, others, e)
            finally:
                self.asked.pop()
            if (f, j, others, image) in self.table:
                return
        s = f.sorts[j]
        above = next((e for e, t in zip(others, f.sorts[:j], strict=False) if t is s.of), None)
        role = self.roles._root(("argument", f, j))
        args = self._group(role, above)
        full = [(a, others[:j] + (a,) + others[j:]) for a in args]
        sent = [a for a, t in full if (f, t) in self.table]
        open_ = [a for a, t in full if (f, t) not in self.table]
        told = [e for e in group if (f, j, others, e) in self.table]
        left = f.to.size - len(told)
        options: list[tuple[Any, Any]] = [(a.many / left, a) for a in open_]
        if s.ordered:
            options += [
                ((high - low + 1) / left, (k, low, high))
                for k, low, high in self._gaps(args, s.size)
            ]
        else:
            options.append(((s.size - len(args)) / left, "new"))
        options.append(((left - (s.size - len(sent))) / left, None))
        what = f"{f.kind} {f.name}: whether it takes a value is random in a sum; {TEACHER if f.kept else SAMPLE}"
        section = (f, j, others)
        chosen = self._choose(what, options, image if image in frame.told else None, section)
        if chosen is None:
            self.table[f, j, others, image] = None
            return
        if not isinstance(chosen, Element):
            if isinstance(chosen, tuple):
                chosen = self._between(role, above, s.name, *chosen)
            else:
                chosen = self._new(role, above)
            if image in frame.told:
                frame.told[chosen], frame.source[chosen] = None, (image, section)
        self._set(f, others[:j] + (chosen,) + others[j:], image)

    def _fibres(
        self, f: Function, args: tuple[Element, ...], group: list[Element], inner: bool
    ) -> list[tuple[Any, Any]]:
        """Options for the value of a balanced teacher: drawing without replacement."""
        told = [(t, v) for t, v in self._decided(f) if v in group]
        differ = {k for t, _ in told for k in range(len(args)) if t[k] is not args[k]}
        here = len(self.frames) - 1
        if not told and inner:
            differ = {k for k in range(len(args)) if args[k].depth == here}
        size = f.to.size
        if len(differ) > 1:
            return [*((sp.S.One / size, e) for e in group), ((size - len(group)) / size, None)]
        k = differ.pop() if differ else 0
        if inner:
            role = self.roles._root(("argument", f, k))
            for e in list(self._group(role, args[k].parent)):
                other = (f, args[:k] + (e,) + args[k + 1 :])
                if e.depth < here and other not in self.table:
                    raise NeedOuter(self._depth(other), other)
        each, left = f.sorts[k].size / size, f.sorts[k].size - len(told)
        taken = [sum(v is e for _, v in told) for e in group]
        options: list[tuple[Any, Any]] = [
            ((each - n) / left, e) for n, e in zip(taken, group, strict=True)
        ]
        options.append(((size - len(group)) * each / left, None))
        return options
