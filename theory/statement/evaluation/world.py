"""Evaluation of a loss with random elements drawn when needed: an index is identified
with a known element of its sort, or with a new one, only when a result depends on it.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy as sp

from theory.statement.derivation.roles import Classes, Roles
from theory.statement.evaluation import wick
from theory.statement.evaluation.decisions import Decisions
from theory.statement.evaluation.frames import (
    Frame,
    NeedOuter,
    NoTerms,
    Quenched,
    Vague,
)
from theory.statement.words.stated import Statement
from theory.statement.words.tree import Node, Term, Weight, require, substituted, walk
from theory.symbols import notation
from theory.symbols.fractions import factored

MOST_BRANCHES = 25_000  # of all sums: half a minute
MOST_PATTERNS = 300  # ways in which an entry's indices can lie


class World(Decisions):
    """Numbers of a tree, in means over everything that they depend on."""

    patience: float = 1  # in units of the most branches

    def mean_of(self, tree: Node) -> sp.Expr:
        """Mean of a tree, Gaussian data first; where a sum holds random numbers of
        terms, of the tree multiplied out.
        """
        if self.stated.gausses:
            return sp.Add(*map(self._mean_of, wick.integrated(tree)))
        try:
            return self._mean_of(tree)
        except Quenched as error:
            try:
                return sp.Add(
                    *(self._mean_of(wick.product(*m)) for m in wick.expanded(tree, {}))
                )
            except Quenched:
                raise error from None

    def _mean_of(self, tree: Node) -> sp.Expr:
        while True:
            try:
                return self._added(Frame(linear=True), lambda: self.value(tree))
            except Vague as need:
                self.whole.add(need.args[0])

    def _added(self, frame: Frame, body: Callable[[], sp.Expr]) -> sp.Expr:
        """Sum over all branches; weights of equal values are added first."""
        counts: dict[sp.Expr, list[sp.Expr]] = {}
        unlike = []
        for value in self._branches(frame, body):
            if frame.positions:
                unlike.append(frame.summed(value))
            else:
                counts.setdefault(value, []).append(frame.weight)
        made = (v * _collected(tuple(w)) for v, w in counts.items())
        return sp.Add(*made, *unlike)

    def chances(
        self, body: Callable[[], Any], most: int = MOST_PATTERNS
    ) -> dict[Any, sp.Expr]:
        """Probability of every outcome; of more branches than ``most`` an error."""
        frame = Frame(linear=True)
        probabilities: Any = collections.defaultdict(lambda: sp.S.Zero)
        for n, outcome in enumerate(self._branches(frame, body)):
            require(n < most, f"statement {self.stated.name}: more than {n} patterns")
            probabilities[outcome] += frame.summed(sp.S.One)
        return probabilities

    def _branches(self, frame: Frame, body: Callable[[], Any]) -> Iterator[Any]:
        for _ in frame.replays():
            self.spent += 1
            most = round(MOST_BRANCHES * self.patience)
            message = f"statement {self.stated.name}: more than {most} branches"
            require(self.spent <= most, message)
            saved = self.table, self.known
            self.table, self.known = (
                dict(self.table),
                {k: list(v) for k, v in self.known.items()},
            )
            self.frames.append(frame)
            try:
                if len(self.frames) == 1:
                    self._begin()
                value = body()
                if frame.index is not None and frame.index not in self.table:
                    frame.weight *= frame.index.sort.size
            except NoTerms:
                continue
            finally:
                self.frames.pop()
                self.table, self.known = saved
            yield value

    def value(self, n: Node, linear: bool = True) -> sp.Expr:
        """Number of a node in this world; ``linear`` says whether its mean may be
        taken.
        """
        if n.kind == "number":
            return n.of
        if n.kind == "entry":
            return self.entry(n.of, n.terms)
        if n.kind == "same":
            return sp.Integer(self.same(*n.terms))
        if n.kind == "plus":
            return sp.Add(*(self.value(p, linear) for p in n.parts))
        if n.kind == "times":
            return self._product(n, linear)
        if n.kind == "power":
            return self.value(n.parts[0], linear and n.of == 1) ** n.of
        if n.kind == "trace":
            return wick.trace([self.value(p) for p in n.parts], *n.of)
        if n.kind == "total":
            return self._total(n, linear)
        if n.kind == "equal":
            gap = sp.expand(
                self.value(n.parts[0], False) - self.value(n.parts[1], False)
            )
            require(
                gap.is_number,
                f"eq of numbers: whether {gap} = 0 is not known at all sizes",
            )
            return sp.Integer(gap == 0)
        return getattr(sp, n.kind)(self.value(n.parts[0], False))

    def _product(self, n: Node, linear: bool) -> sp.Expr:
        linear = linear and sum(map(_sums, n.parts)) < 2
        made = sp.S.One
        for part in sorted(n.parts, key=_sums):  # a mask that is zero spares the sums
            made *= self.value(part, linear)
            if made == 0:
                break
        return made

    def _total(self, n: Node, linear: bool) -> sp.Expr:
        self.bound[n.of] = len(self.frames)

        def body() -> sp.Expr:
            for end in n.terms:
                self._place(n.of, end)
            return self.value(n.parts[0], linear)

        while True:
            saved = dict(self.table), {k: list(v) for k, v in self.known.items()}
            try:
                return self._added(Frame(linear, n.of), body)
            except NeedOuter as need:
                self.table, self.known = saved
                depth, key = need.args
                if depth < len(self.frames) - 1:
                    raise
                self._decide(key)

    def entry(self, weight: Weight, terms: tuple[Term, ...]) -> Any:
        """Symbol of the class that an entry belongs to."""
        classes = self.roles.classes[weight]
        pattern = self.pattern(classes, terms)
        several = "teachers of several arguments tell its entries apart"
        known = (
            f"weight {weight.name}: {several}; say in which arguments they are"
            " injective"
        )
        require(pattern in classes.symbols, known)
        return classes.symbols[pattern]

    def pattern(self, classes: Classes, terms: tuple[Term, ...]) -> tuple[bool, ...]:
        """Truth values of the atoms of a weight at given indices, vectors aside."""
        by: dict[Term, Term] = dict(zip(classes.plain, terms, strict=True))

        def holds(atom: tuple[Term, ...]) -> bool:
            there = [substituted(t, by) for t in atom]
            if len(there) == 1:
                return self.element(there[0]) is not None
            return self.same(*there)

        return tuple(map(holds, classes.atoms))

    def same(self, a: Term, b: Term) -> bool:
        """Whether two terms name the same element."""
        if a == b:
            return True
        if (
            a.parent is not None
            and b.parent is not None
            and not self.same(a.parent, b.parent)
        ):
            return False
        one, other = self.element(a), self.element(b)
        if one is None or other is None:
            return False
        for e, o in ((one, other), (other, one)):
            if e.vague is not None and (o.vague is not None or e is o):
                raise Vague(e.vague)
        if one is other:
            self._single([one])
        return one is other


@functools.cache
def _collected(weights: tuple[sp.Expr, ...]) -> sp.Expr:
    return weights[0] if len(weights) == 1 else factored(sp.Add(*weights))


@functools.cache
def _sums(n: Node) -> bool:
    """Whether a node contains a sum over an index."""
    return any(p.kind == "total" for p in walk(n))


@dataclass(frozen=True)
class Class:
    """A class of a weight's entries, which keep one common value.

    Attributes
    ----------
    symbol : Symbol
        The common value (an entry of an array, where directions of a vector differ).
    weight : Weight
    size : Expr
        How many entries it has.
    means : str
        What is the same and what is not.
    """

    symbol: sp.Symbol
    weight: Weight
    size: sp.Expr
    means: str

    @property
    def many(self) -> sp.Expr:
        """How many values there are: one, unless directions of a vector differ."""
        along = [s.size for s in self.weight.sorts if s.vector]
        return along[0] if isinstance(self.symbol, sp.Indexed) else sp.S.One

    @property
    def label(self) -> str:
        """Name of the class, or of the array that it is an entry of."""
        return (
            self.symbol.base.name
            if isinstance(self.symbol, sp.Indexed)
            else self.symbol.name
        )


def classes(stated: Statement, roles: Roles) -> tuple[list[Class], set[str]]:
    """Classes of all weights with their sizes, found by drawing an entry's indices at
    random, and the names of teachers that were assumed to be balanced.

    By the symmetry of Gaussian data, a weight with one vector index vanishes and one
    with two is diagonal: one number, or one per eigenvalue.
    """
    distinct, assumed = [], set()
    for weight, of in roles.classes.items():
        if len(of.vectors) == 1:
            continue
        along = [of.slots[k].sort.size for k in of.vectors[:1]]
        patterns, balanced = told_apart(stated, roles, of)
        assumed |= balanced
        entries = sp.Mul(*(s.sort.size for s in of.plain))
        for pattern, chance in sorted(patterns.items(), reverse=True):
            name = (
                weight.name
                + "_" * bool(pattern)
                + "".join(str(int(b)) for b in pattern)
            )
            told = map(said, of.atoms, pattern)
            means = (
                ", ".join([*told, *["on the diagonal"] * len(along)]) or "every entry"
            )
            size = factored(entries * chance) * sp.Mul(*along)
            symbol = notation.symbol(name, means=f"{weight.name}: {means}", real=True)
            if along and wick.spectra(stated):
                symbol = notation.array(name)[wick.DIRECTION]
                size = size / along[0]
            of.symbols[pattern] = symbol
            distinct.append(Class(symbol, weight, size, means))
    return distinct, assumed


def told_apart(
    stated: Statement, roles: Roles, of: Classes
) -> tuple[dict[tuple[bool, ...], sp.Expr], set[str]]:
    """Probability of every pattern of an entry whose indices are drawn at random, atoms
    that tell no patterns apart left out, and the names of teachers that were assumed to
    be balanced.
    """
    world = World(stated, roles)
    chances = world.chances(functools.partial(world.pattern, of, tuple(of.plain)))
    keep = _telling(list(chances))
    of.atoms = [of.atoms[k] for k in keep]
    patterns = {_selected(p, keep): chance for p, chance in chances.items()}
    return patterns, {f.name for f in world.balanced}


def _telling(patterns: list[tuple[bool, ...]]) -> list[int]:
    """Places of few atoms, simplest first, that tell all patterns apart."""

    def count(places: list[int]) -> int:
        return len({_selected(p, places) for p in patterns})

    keep: list[int] = []
    for k in range(len(patterns[0])):
        if count([*keep, k]) > count(keep):
            keep.append(k)
    for k in list(keep):  # what later ones made needless
        if count([i for i in keep if i != k]) == len(patterns):
            keep.remove(k)
    return keep


def _selected(pattern: tuple[bool, ...], places: list[int]) -> tuple[bool, ...]:
    """The truth values at some places of a pattern."""
    return tuple(pattern[k] for k in places)


def said(atom: tuple[Any, ...], holds: bool) -> str:
    """An equality that tells entries apart, in words."""
    if len(atom) == 1:
        image, f = atom[0].arguments[-1], atom[0].function.name
        return f"{image!r} {'is' if holds else 'is not'} a value of {f}"
    return f"{atom[0]!r} {'=' if holds else '!='} {atom[1]!r}"
