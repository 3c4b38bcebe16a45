"""Closure over random teachers: every exponent is replaced by its mean.

Mean logits are linear in the weights: sums of means of entries ``M[a, g(b, s), s]``
over what is drawn, the teachers kept. These means are the order parameters. Their
gradients overlap in as far as two independent draws, of the same teachers, address the
same entry: that probability is the mobility.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from theory.statement.derivation.roles import Roles
from theory.statement.evaluation.world import World
from theory.statement.words.stated import Statement
from theory.statement.words.tree import (
    Index,
    Term,
    Value,
    Weight,
    reached,
    require,
    subterms,
    walk,
)
from theory.symbols import notation
from theory.symbols.fractions import factored


@dataclass(frozen=True)
class Name:
    """Status of an index: distinguished by ``number``,
    the value of a teacher, or free.
    """

    role: Any
    number: int | None = None
    function: Any = None
    arguments: tuple[Name, ...] = ()


class Means(World):
    """A world in which entries of weights are read as their means; teachers are not
    evaluated.
    """

    def __init__(self, stated: Statement, roles: Roles) -> None:
        super().__init__(stated, roles, averaged=True)
        none = all(s.of is None for s in stated.sorts)
        require(none, "closure: sorts that belong to others are not supported")
        self.symbols: dict[tuple[Weight, tuple[Name, ...]], sp.Symbol] = {}
        terms = [t for t in reached(stated.loss) if isinstance(t, Term)]
        self.like = {roles.of(t): t for t in reversed(terms) if isinstance(t, Index)}
        self.ranges = {roles.root(("value", f)) for f in stated.functions if f.kept}
        self.targets = [t for t in terms if isinstance(t, Value) and _drawn(t)]
        inner: set[Term] = set()
        for t in self.targets:
            inner.update(subterms(*t.arguments))
        for t in (t for t in self.targets if t.function.kept and t not in inner):
            message = (
                f"closure: what is read at {t!r} must be read at all its arguments,"
                " too: else logits may scatter around their means as much as these"
                " differ"
            )
            entries = [
                n.terms
                for n in walk(stated.loss)
                if t in n.terms and isinstance(n.of, Weight)
            ]
            arguments = {*t.arguments}
            complete = (arguments <= {*terms} for terms in filter(_settled, entries))
            require(entries and all(complete), message)

    def _begin(self) -> None:
        """Place the elements that every input has, and values at drawn indices."""
        super()._begin()
        for t in self.targets:
            self.element(t)

    def entry(self, weight: Weight, terms: tuple[Term, ...]) -> sp.Expr:
        """Mean of an entry given the known indices; all other indices count as
        equivalent.
        """
        summands = []
        for chosen in itertools.product(*map(self._spelled, terms)):
            factors, names = zip(*chosen, strict=True)
            summands.append(sp.Mul(*factors) * self._symbol(weight, names))
        return sp.Add(*summands)

    def _spelled(self, term: Term) -> list[tuple[sp.Expr, Name]]:
        if isinstance(term, Value) and term.function.kept:
            return [(sp.S.One, self._named(term))]
        e: Any = self.element(term)
        if not self._free(e):
            return [(sp.S.One, self._named(term))]
        known = [k for k in self._group(e.role, None) if not self._free(k)]
        unknown = term.sort.size - len(known)
        among = [(-sp.S.One / unknown, self._describe(k)) for k in known]
        return [(term.sort.size / unknown, Name(e.role)), *among]

    def _named(self, term: Term) -> Name:
        if isinstance(term, Value) and term.function.kept:
            inner = tuple(map(self._named, term.arguments))
            return Name(self.roles.of(term), None, term.function, inner)
        return self._describe(self.element(term))

    def _source(self, e: Any) -> Any:
        """Index of which an element is the value."""
        source = (k for k, v in self.table.items() if v is e and isinstance(k, tuple))
        return next((k for k in source if k[1] is None), None)

    def _free(self, e: Any) -> bool:
        """Whether an element is only known to be none of the others."""
        return e.role in self.ranges and self._source(e) is None and e.depth > 0

    def _describe(self, e: Any) -> Name:
        source = self._source(e)
        if source is None:
            return Name(e.role, self._group(e.role, None).index(e))
        return Name(e.role, None, source[0], tuple(map(self._describe, source[2])))

    def _symbol(self, weight: Weight, names: tuple[Name, ...]) -> sp.Symbol:
        numbers: dict[Name, int] = {}

        def canonical(n: Name) -> Name:
            if n.number is None:
                return replace(n, arguments=tuple(map(canonical, n.arguments)))
            seen = sum(k.role == n.role for k in numbers)
            return Name(n.role, numbers.setdefault(n, seen))

        key = weight, tuple(map(canonical, names))
        if key not in self.symbols:
            count = sum(w is weight for w, _ in self.symbols) + 1
            means = f"mean of {weight.name}[{', '.join(map(self._said, key[1]))}]"
            self.symbols[key] = notation.symbol(
                f"{weight.name}_{count}", means=means, real=True
            )
        return self.symbols[key]

    def _said(self, n: Name) -> str:
        if n.function is not None:
            return f"{n.function.name}({', '.join(map(self._said, n.arguments))})"
        return f"{self.like[n.role].sort.name}{'' if n.number is None else n.number}"


def _settled(terms: tuple[Term, ...]) -> bool:
    return all(map(_drawn, terms))


def _drawn(term: Term) -> bool:
    return not any(isinstance(t, Index) and t.bound for t in subterms(term))


def mobility(means: Means) -> dict[tuple[sp.Symbol, sp.Symbol], sp.Expr]:
    """Probability that two draws address the same entry,
    per pair of order parameters.
    """
    probabilities = {}
    for (key, x), (other, y) in itertools.combinations_with_replacement(
        means.symbols.items(), 2
    ):
        chance = sp.S.Zero
        if key[0] is other[0]:
            world = World(means.stated, means.roles, averaged=True)
            pairs = [*zip(*(_replica(means, k[1]) for k in (key, other)), strict=True)]
            same = functools.partial(_agree, world, pairs)
            chance = factored(world.chances(same)[True])
        probabilities[x, y] = probabilities[y, x] = chance
    return probabilities


def _agree(world: World, pairs: list[tuple[Term, Term]]) -> bool:
    return all(world.same(*pair) for pair in pairs)


def _replica(means: Means, names: tuple[Name, ...]) -> list[Term]:
    """Terms at newly drawn indices; indices that are distinguished stay different."""
    made: dict[Name, Index] = {}

    def term(n: Name) -> Term:
        if n.function is not None:
            return Value(n.function, tuple(map(term, n.arguments)))
        if n in made:
            return made[n]
        like = means.like[n.role]
        if n.number is None:
            return Index(like.sort, copied=like.copied or like)
        others = tuple(v for k, v in made.items() if k.role == n.role)
        made[n] = Index(like.sort, distinct=others, copied=like.copied or like)
        return made[n]

    return [term(n) for n in names]
