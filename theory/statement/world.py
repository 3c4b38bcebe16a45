"""A forward pass in a world drawn as it is needed: an index is placed among the known elements of
its sort only when something depends on where it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.decisions import Decisions
from theory.statement.frames import Frame, NeedOuter, Quenched, Vague
from theory.statement.polynomial import Monomial, monomials
from theory.statement.roles import Classes, substituted
from theory.statement.tree import (
    Entry,
    Function,
    Node,
    Plus,
    Power,
    Same,
    Scalar,
    Term,
    Times,
    Total,
    Transform,
    Weight,
)

MOST_BRANCHES = 25_000  # of all sums: half a minute
MOST_PATTERNS = 1000  # ways in which an entry's indices can lie


class World(Decisions):
    """Numbers of a tree, in means over everything that they depend on."""

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
        for outcome in self._branches(frame, body, MOST_PATTERNS):
            found[outcome] = found.get(outcome, 0) + frame.summed(sp.S.One)
        return {k: sp.factor(v) for k, v in found.items()}

    def _branches(
        self, frame: Frame, body: Callable[[], Any], most: int | None = None
    ) -> Iterator[Any]:
        for _ in range(most or MOST_BRANCHES):
            self.spent += 1
            if self.spent > MOST_BRANCHES:
                break
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
        few = min(most or MOST_BRANCHES, MOST_BRANCHES)
        raise ParameterError(f"statement {self.stated.name}: more than {few} branches")

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


def _sums(n: Node) -> bool:
    """Whether a node holds a sum over an index."""
    return isinstance(n, Total) or any(map(_sums, n.children()))
