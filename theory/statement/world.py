"""A forward pass in a world drawn as it is needed: an index is placed among the known elements of
its sort only when something depends on where it is.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.language import (
    Entry,
    Function,
    Index,
    Node,
    Plus,
    Power,
    Same,
    Scalar,
    Statement,
    Term,
    Times,
    Total,
    Transform,
    Value,
    Weight,
)
from theory.statement.polynomial import Monomial, monomials
from theory.statement.roles import Classes, Inverse, Roles, substituted

REMEDIES = (
    "declare it injective, give its sort's size as a number, or ask for closure='mean logits'"
)
MOST_BRANCHES = 20_000


class Quenched(ParameterError):
    """A sum holds a random number of equal terms, under a function that is not linear."""


@dataclass(eq=False)
class Element:
    """A known element of a role; ``many`` of them where places with the same values are one."""

    role: Any
    parent: Element | None
    depth: int
    many: sp.Expr = sp.S.One
    position: sp.Expr | None = None
    name: Any = None


class Vague(Exception):
    """Values of a sample that were only known to be none of the known ones are compared."""

    def __init__(self, function: Function) -> None:
        self.function = function


class NeedOuter(Exception):
    """Something has to be decided in an outer sum, or before all of them."""

    def __init__(self, depth: int, key: Any) -> None:
        self.depth, self.key = depth, key


@dataclass
class Frame:
    """A sum that is being carried out, or the mean over draws: a script of choices, replayed.

    ``told`` has the elements that stand for all unknown ones of their role, with the function that
    told them apart since; ``source`` has those that one of these goes with, one to one or as many
    to each, by a function. How many there are of each kind is then a number, not random.
    """

    linear: bool
    index: Index | None = None
    script: list[list[int]] = field(default_factory=list)
    at: int = 0
    weight: sp.Expr = sp.S.One
    told: dict[Element, Any] = field(default_factory=dict)
    source: dict[Element, tuple[Element, Any]] = field(default_factory=dict)
    positions: list[tuple[sp.Symbol, sp.Expr, sp.Expr]] = field(default_factory=list)

    def begin(self) -> None:
        """Start a replay."""
        self.at, self.weight, self.positions = 0, sp.S.One, []
        self.told, self.source = {}, {}

    def counted(self, e: Element | None, function: Any) -> bool:
        """Whether elements like this one can be told apart by a function, with known numbers."""
        if e is None or self.told.get(e, e) not in (None, function):
            return False
        return e not in self.source or self.counted(*self.source[e])

    def tell(self, e: Element, function: Any) -> None:
        """Elements like this one are told apart by a function."""
        self.told[e] = function
        if e in self.source:
            self.tell(*self.source[e])

    def choose(self, options: list[tuple[sp.Expr, Any]]) -> Any:
        """The option that the script says, or the first, which it says from now on."""
        if self.at == len(self.script):
            self.script.append([0, len(options)])
        weight, outcome = options[self.script[self.at][0]]
        self.at += 1
        self.weight *= weight
        return outcome

    def advance(self) -> bool:
        """Turn to the next script; whether there is one."""
        while self.script and self.script[-1][0] + 1 == self.script[-1][1]:
            self.script.pop()
        if self.script:
            self.script[-1][0] += 1
        return bool(self.script)

    def summed(self, value: sp.Expr) -> sp.Expr:
        """What this branch adds: times its weight, over all positions of its elements."""
        term = self.weight * value
        for symbol, low, high in reversed(self.positions):
            if not term.has(symbol):
                term *= high - low + 1
            elif (high - low).is_number:
                span = range(int(low), int(high) + 1)
                term = sp.Add(*(term.subs(symbol, k) for k in span))
            else:
                term = sp.Sum(term, (symbol, low, high))
        return term


class World:
    """What is known of one input while its loss is computed.

    Attributes
    ----------
    annealed : set of Function
        Teachers over which means were taken that need not hold for one of them.
    balanced : set of Function
        Teachers whose values were taken to be equally frequent.
    """

    def __init__(self, stated: Statement, roles: Roles, *, averaged: bool = False) -> None:
        self.stated, self.roles, self.averaged = stated, roles, averaged
        self.whole: set[Function] = set()  # samples whose values are told apart one by one
        self.listed: set[Any] = set()  # roles of ordered sorts whose places are all known
        self.annealed: set[Function] = set()
        self.balanced: set[Function] = set()
        self.frames: list[Frame] = []
        self.table: dict[Any, Any] = {}
        self.known: dict[Any, list[Element]] = {}
        self.bound: dict[Index, int] = {}

    # --- frames ---------------------------------------------------------------------------------

    def mean_of(self, tree: Node) -> sp.Expr:
        """Mean of a tree; where a sum holds random numbers of terms, of the tree multiplied out."""
        try:
            return self._mean_of(tree)
        except Quenched as error:
            leaf = functools.partial(Monomial, sp.S.One, ())
            try:
                parts = monomials(tree, {}, lambda n: leaf((n,)))
                return sp.Add(*(m.number * self._mean_of(m.node()) for m in parts))
            except Quenched:
                raise error from None

    def _mean_of(self, tree: Node) -> sp.Expr:
        while True:
            try:
                return self.mean(lambda: self.value(tree))
            except Vague as need:
                self.whole.add(need.function)

    def mean(self, body: Callable[[], sp.Expr]) -> sp.Expr:
        """Mean of a number over everything that it depends on."""
        return self._added(Frame(linear=True), body)

    def _added(self, frame: Frame, body: Callable[[], sp.Expr]) -> sp.Expr:
        """Sum over all branches; weights of equal values are added first."""
        counts: dict[sp.Expr, list[sp.Expr]] = {}
        rest = []
        for value in self._branches(frame, body):
            if frame.positions:
                rest.append(frame.summed(value))
            else:
                counts.setdefault(value, []).append(frame.weight)
        made = (v * (w[0] if len(w) == 1 else sp.factor(sp.Add(*w))) for v, w in counts.items())
        return sp.Add(*made, *rest)

    def chances(self, body: Callable[[], Any]) -> dict[Any, sp.Expr]:
        """Probability of every outcome."""
        frame = Frame(linear=True)
        found: dict[Any, sp.Expr] = {}
        for outcome in self._branches(frame, body):
            found[outcome] = found.get(outcome, 0) + frame.summed(sp.S.One)
        return {k: sp.factor(v) for k, v in found.items()}

    def _branches(self, frame: Frame, body: Callable[[], Any]) -> Iterator[Any]:
        for _ in range(MOST_BRANCHES):
            saved = self.table, self.known
            self.table, self.known = (dict(self.table), {k: list(v) for k, v in self.known.items()})
            self.frames.append(frame)
            frame.begin()
            try:
                if len(self.frames) == 1:
                    self._list_places()
                    for index in self.stated.draws:
                        if index.place is not None:
                            self.element(index)
                value = body()
                if frame.index is not None and frame.index not in self.table:
                    frame.weight *= frame.index.sort.size
            finally:
                self.frames.pop()
                self.table, self.known = saved
            yield value
            if not frame.advance():
                return
        raise ParameterError(f"statement {self.stated.name}: more than {MOST_BRANCHES} branches")

    def value(self, n: Node, linear: bool = True) -> sp.Expr:
        """Number of a node in this world; ``linear`` says whether its mean may be taken."""
        if isinstance(n, Scalar):
            return n.value
        if isinstance(n, Entry):
            return self.entry(n.weight, n.indices)
        if isinstance(n, Same):
            return sp.Integer(self.same(*n.pair))
        if isinstance(n, Plus):
            return sp.Add(*(self.value(p, linear) for p in n.parts))
        if isinstance(n, Times):
            return self._product(n, linear)
        if isinstance(n, Power):
            return self.value(n.base, linear and n.exponent == 1) ** n.exponent
        if isinstance(n, Transform):
            made = self.value(n.argument, False)
            return sp.exp(made) if n.kind == "exp" else sp.log(made)
        assert isinstance(n, Total), n
        return self._total(n, linear)

    def _product(self, n: Times, linear: bool) -> sp.Expr:
        linear = linear and sum(map(_sums, n.parts)) < 2
        made = sp.S.One
        for part in sorted(n.parts, key=_sums):  # a mask that is zero spares the sums
            made *= self.value(part, linear)
            if made == 0:
                break
        return made

    def _total(self, n: Total, linear: bool) -> sp.Expr:
        while True:
            saved = dict(self.table), {k: list(v) for k, v in self.known.items()}
            frame = Frame(linear, n.index)
            self.bound[n.index] = len(self.frames)

            def body() -> sp.Expr:
                if n.end is not None:
                    self._place(n.index, n.end, n.inclusive)
                return self.value(n.body, linear)

            try:
                return self._added(frame, body)
            except NeedOuter as need:
                self.table, self.known = saved
                if need.depth < len(self.frames) - 1:
                    raise
                self._decide(need.key)

    # --- what is compared -----------------------------------------------------------------------

    def entry(self, weight: Weight, terms: tuple[Term, ...]) -> Any:
        """Symbol of the class that an entry belongs to."""
        classes = self.roles.classes[weight]
        return classes.symbols[self.pattern(classes, terms)]

    def pattern(self, classes: Classes, terms: tuple[Term, ...]) -> tuple[bool, ...]:
        """Truth values of the atoms of a weight at given indices."""
        by: dict[Term, Term] = dict(zip(classes.slots, terms, strict=True))
        found = []
        for atom in classes.atoms:
            spelled = [substituted(t, by) for t in atom]
            if len(spelled) == 1:
                found.append(self.element(spelled[0]) is not None)
            else:
                found.append(self.same(*spelled))
        return tuple(found)

    def same(self, a: Term, b: Term) -> bool:
        """Whether two terms name the same element."""
        if a == b:
            return True
        if a.parent is not None and b.parent is not None and not self.same(a.parent, b.parent):
            return False
        one, other = self.element(a), self.element(b)
        if one is not None and other is not None:
            for e, o in ((one, other), (other, one)):
                if isinstance(e.name, Function) and (isinstance(o.name, Function) or e is o):
                    raise Vague(e.name)
        if one is not None and one is other and one.many != 1:
            raise ParameterError(
                f"{a!r} and {b!r}: cannot be compared where places are exchangeable"
            )
        return one is not None and one is other

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

    # --- decisions ------------------------------------------------------------------------------

    def _decide(self, key: Any) -> None:
        if key in self.table:
            return
        if isinstance(key, Index):
            self._place(key)
        elif len(key) == 1:
            self._occupy(key[0])
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
        live = [(w, o) for w, o in options if sp.expand(sp.sympify(w)) != 0]
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
            self._occupy(f)
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
            (self.annealed if self._loose(f, args) else self.balanced).add(f)
        what = f"{f.kind} {f.name}: how often a sum meets each of its values is random; {REMEDIES}"
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
        if key not in self.table:
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
            for e in list(group):
                if e is not image and e.depth < len(self.frames) - 1:
                    self._status(f, j, others, e)
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
        what = f"{f.kind} {f.name}: whether it takes a value is random in a sum; {REMEDIES}"
        if f.kept and not self.averaged and self._entangled(f, image):
            self.annealed.add(f)
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
            self.annealed.add(f)
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

    def _loose(self, f: Function, args: tuple[Element, ...]) -> bool:
        """Whether another teacher was told apart at the same arguments: how they go together
        differs between teachers.
        """
        return any(self._entangled(f, a) for a in args)

    def _entangled(self, f: Function, e: Element) -> bool:
        for key, value in self.table.items():
            if isinstance(key, tuple) and len(key) == 2:
                g, args = key
                if g is not f and g.kept and (e in args or e is value):
                    return True
        return False

    def _occupy(self, f: Function) -> None:
        """Values of all exchangeable places at once: how many places hold each value."""
        self.table[(f,)] = True
        role = self.roles._root(("argument", f, 0))
        for index in self.stated.draws:
            if self.roles.of(index) == role:
                self._decide((f, (self.element(index),)))
        group = self._group(role, None)
        free = f.sorts[0].size - sp.Add(*(e.many for e in group))
        if free.is_positive:
            self._new(role, None).many = free
        vague, to = [], self.roles._root(("value", f))
        for block in list(group):
            if (f, (block,)) in self.table:
                continue
            values = list(self._group(to, None))
            many, size, options = int(block.many), f.to.size, []
            for counts in _shares(many, len(values)):
                left = many - sum(counts)
                for parts in _partitions(left) if f in self.whole else [(left,) * (left > 0)]:
                    ways = _ways(many, counts, parts)
                    new = sp.ff(size - len(values), len(parts))
                    if f not in self.whole:
                        ways, new = ways * (size - len(values)) ** left, sp.S.One
                    options.append((ways * new / size**many, (counts, parts)))
            counts, parts = self._choose(repr(f), options, None, None)
            hit = [(e, n) for e, n in zip(values, counts, strict=True) if n]
            if f in self.whole:
                hit += [(self._new(to, None), n) for n in parts]
            else:  # none of the known ones is all that is known of them
                vague += [Element(to, None, 0, name=f) for _ in parts]
                hit += list(zip(vague[len(vague) - len(parts) :], parts, strict=True))
            group.remove(block)
            for e, n in hit:
                piece = self._new(role, None)
                piece.many = sp.Integer(n)
                for key, value in list(self.table.items()):
                    if isinstance(key, tuple) and len(key) == 2 and key[1] == (block,):
                        self.table[key[0], (piece,)] = value
                self.table[f, (piece,)] = e
        self.known["vague", to] = vague


def _shares(total: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """Numbers of places that hold each known value, the rest holding new ones."""
    if not kinds:
        yield ()
        return
    for n in range(total + 1):
        yield from ((n, *rest) for rest in _shares(total - n, kinds - 1))


def _partitions(total: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Integer partitions, largest part first."""
    if not total:
        yield ()
    for part in range(min(total, most or total), 0, -1):
        yield from ((part, *rest) for rest in _partitions(total - part, part))


def _ways(many: int, counts: tuple[int, ...], parts: tuple[int, ...]) -> sp.Integer:
    """Ways in which places can hold known values so often, and unknown ones as often as parts."""
    ways = math.factorial(many)
    for n in (*counts, *parts):
        ways //= math.factorial(n)
    for n in set(parts):
        ways //= math.factorial(parts.count(n))
    return sp.Integer(ways)


def _sums(n: Node) -> bool:
    """Whether a node holds a sum over an index."""
    return isinstance(n, Total) or any(map(_sums, n.children()))
