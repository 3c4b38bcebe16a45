"""Random choices made so far for one input, and how further choices are drawn when a
sum depends on them.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError
from theory.statement.derivation.roles import Roles
from theory.statement.evaluation.frames import (
    Element,
    Frame,
    NeedOuter,
    NoTerms,
    Quenched,
    Vague,
    advice,
    gaps,
    partitions,
    shares,
    ways,
)
from theory.statement.words.stated import Statement
from theory.statement.words.tree import Function, Index, Term, Value, require
from theory.symbols.fractions import factored
from theory.symbols.reading import sympified


class Decisions:
    """Random choices made so far for one input while its loss is computed, as it asks
    for them.

    An *element* is one member of a sort, or ``many`` equal ones; a *role* is a part of
    a sort whose members the loss may compare; a *frame* is a sum, or a mean over draws,
    that is being carried out; ``balanced`` are teachers whose values were taken to be
    equally frequent. ``table`` has the element of every index, and of every value under
    (function, None, arguments), or, of an argument j of a one-to-one function,
    (function, j, other arguments and value).
    """

    def __init__(
        self, stated: Statement, roles: Roles, *, averaged: bool = False
    ) -> None:
        self.stated, self.roles, self.averaged = stated, roles, averaged
        self.spent = 0  # branches
        self.asked: list[
            Any
        ] = []  # keys that are being decided, against endless recursion
        self.whole: set[Function] = (
            set()
        )  # samples whose values are told apart one by one
        self.listed: set[Any] = (
            set()
        )  # roles of ordered sorts whose places are all known
        self.balanced: set[Function] = set()
        self.frames: list[Frame] = []
        self.table: dict[Any, Any] = {}
        self.known: dict[Any, list[Element]] = {}
        self.bound: dict[Index, int] = {}

    def element(self, term: Term) -> Element | None:
        """The element that a term names, placed now if it was not; None for what does
        not exist.
        """
        key: Any = term
        if isinstance(term, Value):
            known = tuple(map(self.element, term.arguments))
            if None in known:
                return None
            key = (term.function, term.solved, known)
        if key not in self.table:
            self._here(key)
        return self.table[key]

    def _here(self, key: Any) -> None:
        """Decide a key, or leave it to the outer sum that contains it."""
        if (depth := self._depth(key)) < len(self.frames) - 1:
            raise NeedOuter(depth, key)
        self._decide(key)

    def _depth(self, key: Any) -> int:
        return (
            max(e.depth for e in key[2])
            if isinstance(key, tuple)
            else self.bound.get(key, 0)
        )

    def _decide(self, key: Any) -> None:
        if key in self.table:
            return
        if isinstance(key, Index):
            self._place(key)
        elif isinstance(key, Function):
            self._occupy(key)
        elif isinstance(key, Element):
            self._split(key, [sp.S.One] * int(key.many))
        elif key[1] is None:
            self._apply(key[0], key[2])
        else:
            self._invert(*key)

    @property
    def _random(self) -> bool:
        """Whether the number of equal terms must be known here, inside a nonlinear
        function.
        """
        return len(self.frames) > 1 and not self.frames[-1].linear

    def _choose(
        self,
        what: Any,
        options: list[tuple[Any, Any]],
        by: Element | None,
        function: Any,
    ) -> Any:
        """Choose among options that can happen.

        A choice that is no count would make the number of equal terms random: it is
        allowed before all sums, in sums whose mean may be taken, and where ``by``
        stands for a known number.
        """
        live = [(w, o) for w, o in options if not _vanishes(w)]
        if not live:
            raise NoTerms
        frame = self.frames[-1]
        if len(live) > 1 and self._random and function is not None:
            if by is None or not frame.counted(by, function):
                raise Quenched(f"{what}")
            frame.tell(by, function)
        return frame.choose(live)

    def _group(self, role: Any, parent: Element | None) -> list[Element]:
        for e in self.known.get(("vague", role), ()):
            raise Vague(e.vague)  # type: ignore[arg-type]
        return self.known.setdefault((role, parent), [])

    def _new(
        self,
        role: Any,
        parent: Element | None,
        position: Any = None,
        at: int | None = None,
    ) -> Element:
        made = Element(role, parent, len(self.frames) - 1, position=position)
        group = self._group(role, parent)
        group.insert(len(group) if at is None else at, made)
        return made

    def _begin(self) -> None:
        """Place the elements that every input has: listed places, fixed elements."""
        for role, size in self.listed:
            for k in range(1, int(size) + 1):
                self._new(role, None, sp.Integer(k)).place = sp.Integer(k)
        for index in self.stated.draws:
            if index.place is not None:
                self.element(index)

    def _place(self, index: Index, end: Term | None = None) -> None:
        """Set an index equal to a known element of its role, or to a new one."""
        parent = None if index.parent is None else self.element(index.parent)
        last = None if end is None else self.element(end)
        barred = [self.element(t) for t in index.distinct]
        role, size = self.roles.of(index), index.sort.size
        group = self._group(role, parent)
        if index.place is not None:
            self.table[index] = self._at(index, group, role)
            return
        whole = sp.S.One if index.bound else 1 / (size - len({id(b) for b in barred}))
        if not index.sort.ordered or any(e.position is None for e in group):
            free = size - sp.Add(*(e.many for e in group))
            options: list[tuple[Any, Any]] = [
                (e.many * whole, e) for e in group if e not in barred
            ]
            options.append((free * whole, (None,)))
        else:
            stop = len(group) if last is None else group.index(last)
            options = [(whole, e) for e in group[:stop] if e not in barred]
            free = gaps(group, size)[: stop + 1]
            options += [
                ((high - low + 1) * whole, (k, low, high)) for k, low, high in free
            ]
        chosen = self._choose(index, options, None, None)
        if isinstance(chosen, tuple):
            chosen = self._between(role, parent, index.sort, *chosen)
            if index is self.frames[-1].index:
                self.frames[-1].told[chosen] = None
        self.table[index] = chosen

    def _between(
        self,
        role: Any,
        parent: Any,
        sort: Any,
        k: int | None,
        low: Any = None,
        high: Any = None,
    ) -> Element:
        """A new element; of an ordered sort, somewhere in a gap, which its weight
        counted.
        """
        if k is None:
            return self._new(role, parent)
        frame, taken = self.frames[-1], sum(len(f.positions) for f in self.frames)
        position = sp.Symbol(f"{sort.name}_{taken + 1}", integer=True, positive=True)
        frame.weight = factored(
            frame.weight / (high - low + 1)
        )  # 0/0 where the gap is empty
        frame.positions.append((position, low, high))
        return self._new(role, parent, position, k)

    def _at(self, index: Index, group: list[Element], role: Any) -> Element:
        """The element at a known place; of an ordered sort before the first that is
        further on.
        """
        behind = None
        for k, e in reversed([*enumerate(group)]):
            gap = None if e.place is None else sp.expand(index.place - e.place)
            if gap == 0:
                return e
            if gap is not None and index.sort.ordered:
                if not (gap.is_nonpositive or gap.is_nonnegative):
                    message = f"is neither before nor after {e.place} at all sizes"
                    raise ParameterError(f"fixed {index!r}: its place {message}")
                behind = k if gap.is_nonpositive else behind
        made = self._new(
            role, None, index.place if index.sort.ordered else None, behind
        )
        made.place = index.place
        return made

    def _apply(self, f: Function, args: tuple[Element, ...]) -> None:
        """Decide the value of a function. Each value is taken by ``capacity``
        arguments, ``taken`` of which are known; ``left`` arguments have no value yet.
        """
        if f.injective or f.kept or len(args) > 1:
            self._single(args)
        elif args[0].many != 1:
            self._occupy(f)
            return
        parent = None if f.parent is None else args[f.parent]
        role, size, frame = self.roles.root(("value", f)), f.to.size, self.frames[-1]
        group = self._group(role, parent)
        new = [k for k, e in enumerate(args) if e in frame.told]
        by = args[new[0]] if len(new) == 1 else None
        section = (f, new[0], _without(args, new[0])) if new else f
        capacity, left, onto = sp.S.One, size, f.kept
        taken: dict[Element, int] = {}
        if f.injective:
            if self._random:
                self._statuses(f, args, group)
                if (f, None, args) in self.table:
                    return
            taken = dict.fromkeys(self._barred(f, args, group), 1)
            left = size - len(taken)
            onto = bool(new) and f.sorts[new[0]].size == size and new[0] in f.injective
            by = by if len(taken) == len(group) else None
        elif f.kept and not self.averaged:
            capacity, left, taken = self._fibres(f, args, group)
        else:
            by, onto = None, False
        options: list[tuple[Any, Any]]
        options = [((capacity - taken.get(e, 0)) / left, e) for e in group]
        options.append(((size - len(group)) * capacity / left, None))
        if (
            f.kept
            and not (self.averaged or f.injective)
            and sum(w != 0 for w, _ in options) > 1
        ):
            self.balanced.add(f)
        what = (
            f"{f.kind} {f.name}: how often a sum meets each of its values is random;"
            f" {advice(f)}"
        )
        try:
            chosen = self._choose(what, options, by, section)
        except Quenched:
            if (
                f.kept
                or f.injective
                or len(f.sorts) > 1
                or not f.sorts[0].size.is_number
            ):
                raise
            if not f.sorts[0].ordered:
                raise NeedOuter(0, f) from None
            self.listed.add((self.roles.root(("argument", f, 0)), f.sorts[0].size))
            raise Vague(f) from None
        if chosen is None:
            message = f"{f.kind} {f.name}: its values are {f.to}, which is ordered"
            require(not f.to.ordered, message)
            chosen = self._new(role, parent)
            if onto and by is not None:
                frame.told[chosen], frame.source[chosen] = None, (by, section)
        self._set(f, args, chosen)

    def _set(self, f: Function, args: tuple[Element, ...], value: Element) -> None:
        self.table[f, None, args] = value
        for j in f.injective:
            self.table[f, j, (*_without(args, j), value)] = args[j]

    def _barred(
        self, f: Function, args: tuple[Element, ...], group: list[Element]
    ) -> list[Element]:
        """Values that are excluded: already taken by a one-to-one function, or known to
        have no preimage.
        """
        keys = [(j, _without(args, j)) for j in f.injective]

        def excluded(e: Element) -> bool:
            return any((f, j, (*others, e)) in self.table for j, others in keys)

        return [e for e in group if excluded(e)]

    def _statuses(
        self, f: Function, args: tuple[Element, ...], group: list[Element]
    ) -> None:
        """Before a sum over values of a one-to-one function: decide which arguments are
        mapped to the known values.
        """
        here = len(self.frames) - 1
        for j in f.injective:
            others = _without(args, j)
            if args[j].depth == here and all(e.depth < here for e in others):
                for e in list(group):
                    if not self._barred(f, args, [e]):
                        self._status((f, j, (*others, e)))

    def _status(self, key: Any) -> None:
        if key not in self.table and key not in self.asked:
            self._here(key)

    def _invert(self, f: Function, j: int, given: tuple[Element, ...]) -> None:
        """Decide which argument a one-to-one function sends to an element, if any."""
        *others, image = given
        key, frame, s = (f, j, given), self.frames[-1], f.sorts[j]
        group = self._group(
            self.roles.root(("value", f)), None if f.parent is None else image.parent
        )
        if self._random:
            self.asked.append(key)
            try:
                for e in list(group):
                    if e is not image and e.depth < len(self.frames) - 1:
                        self._status((f, j, (*others, e)))
            finally:
                self.asked.pop()
            if key in self.table:
                return
        above = next(
            (e for e, t in zip(others, f.sorts[:j], strict=False) if t is s.of), None
        )
        role = self.roles.root(("argument", f, j))
        self._single(self._group(role, above))
        args = self._group(role, above)
        full = {a: (*others[:j], a, *others[j:]) for a in args}
        open_ = [a for a in args if (f, None, full[a]) not in self.table]
        left = f.to.size - sum((f, j, (*others, e)) in self.table for e in group)
        options: list[tuple[Any, Any]] = [(a.many / left, a) for a in open_]
        if s.ordered:
            free = gaps(args, s.size)
            options += [
                ((high - low + 1) / left, (k, low, high)) for k, low, high in free
            ]
        else:
            options.append(((s.size - len(args)) / left, (None,)))
        options.append(((left - (s.size - len(args) + len(open_))) / left, None))
        what = (
            f"{f.kind} {f.name}: whether it takes a value is random in a sum;"
            f" {advice(f)}"
        )
        section, by = (f, j, tuple(others)), image if image in frame.told else None
        chosen = self._choose(what, options, by, section)
        if isinstance(chosen, tuple):
            chosen = self._between(role, above, s, *chosen)
            if by is not None:
                frame.told[chosen], frame.source[chosen] = None, (image, section)
        if chosen is None:
            self.table[key] = None
        else:
            self._set(f, (*others[:j], chosen, *others[j:]), image)

    def _fibres(
        self, f: Function, args: tuple[Element, ...], group: list[Element]
    ) -> tuple[sp.Expr, sp.Expr, dict[Element, int]]:
        """Sizes of the fibres of a balanced teacher along the only argument that
        differs from earlier ones: arguments per value, how many are left, how many have
        the known values. Values at several differing arguments are taken to be
        independent.
        """
        keys = [k for k, v in self.table.items() if isinstance(k, tuple) and v in group]
        told = [k for k in keys if k[:2] == (f, None)]
        differ = set()
        for _, _, earlier in told:
            differ |= {k for k, e in enumerate(args) if earlier[k] is not e}
        here = len(self.frames) - 1
        if not told and self._random:
            differ = {k for k, e in enumerate(args) if e.depth == here}
        if len(differ) > 1:
            return sp.S.One, f.to.size, {}
        k = differ.pop() if differ else 0
        if self._random:
            role = self.roles.root(("argument", f, k))
            for e in list(self._group(role, args[k].parent)):
                other = (f, None, (*args[:k], e, *args[k + 1 :]))
                if e.depth < here and other not in self.table:
                    raise NeedOuter(self._depth(other), other)
        many = f.sorts[k].size
        taken = collections.Counter(self.table[t] for t in told)
        return many / f.to.size, many - len(told), taken

    def _occupy(self, f: Function) -> None:
        """Values of all exchangeable places at once:
        how many places hold each value.
        """
        self.table[f] = True
        role, to, size = (
            *map(self.roles.root, (("argument", f, 0), ("value", f))),
            f.to.size,
        )
        for index in self.stated.draws:
            if self.roles.of(index) == role:
                self._decide((f, None, (self.element(index),)))
        group = self._group(role, None)
        free = f.sorts[0].size - sp.Add(*(e.many for e in group))
        if free.is_positive:
            self._new(role, None).many = free
        vague: list[Element] = []
        for block in [e for e in group if (f, None, (e,)) not in self.table]:
            values, many = list(self._group(to, None)), int(block.many)
            unoccupied, options = size - len(values), []
            for counts in shares(many, len(values)):
                left = many - sum(counts)
                for parts in (
                    partitions(left) if f in self.whole else [(left,) * (left > 0)]
                ):
                    new = (
                        sp.ff(unoccupied, len(parts))
                        if f in self.whole
                        else unoccupied**left
                    )
                    options.append(
                        (ways(counts, parts) * new / size**many, (counts, parts))
                    )
            counts, parts = self._choose(f, options, None, None)
            if f in self.whole:
                values += [self._new(to, None) for _ in parts]
            else:  # none of the known ones is all that is known of them
                vague += [Element(to, None, 0, vague=f) for _ in parts]
                values += vague[len(vague) - len(parts) :]
            held = [(e, n) for e, n in zip(values, (*counts, *parts), strict=True) if n]
            pieces = self._split(block, [sp.Integer(n) for _, n in held])
            for piece, (e, _) in zip(pieces, held, strict=True):
                self.table[f, None, (piece,)] = e
        self.known["vague", to] = vague

    def _single(self, elements: Iterable[Element]) -> None:
        """Have each element stand for one place,
        not for as many as were alike so far.
        """
        for e in [e for e in elements if e.many != 1]:
            self._here(e)

    def _split(self, block: Element, sizes: list[sp.Expr]) -> list[Element]:
        """Elements in the place of one, of so many places each, with the values that it
        had.
        """
        group = self._group(block.role, None)
        group.remove(block)
        decided = [k for k in self.table if isinstance(k, tuple) and k[2] == (block,)]
        pieces = [self._new(block.role, None) for _ in sizes]
        for piece, size in zip(pieces, sizes, strict=True):
            piece.many = size
            self.table |= {(k[0], k[1], (piece,)): self.table[k] for k in decided}
        return pieces


@functools.cache
def _vanishes(weight: Any) -> bool:
    return sp.expand(sympified(weight)) == 0


def _without(items: tuple[Any, ...], k: int) -> tuple[Any, ...]:
    return items[:k] + items[k + 1 :]
