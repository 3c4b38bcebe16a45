"""Closure over random teachers: every exponent is replaced by its mean.

Mean logits are linear in the weights: sums of means of entries ``M[a, g(b, s), s]`` over what is
drawn, the teachers kept. These means are the order parameters. Their gradients overlap in as far
as two independent draws, of the same teachers, address the same entry: that probability is the
mobility.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import sympy as sp

from theory import notation
from theory.parameters import ParameterError
from theory.statement.frames import Element
from theory.statement.roles import Roles
from theory.statement.stated import Statement
from theory.statement.tree import Index, Term, Value, Weight, subterms, walk
from theory.statement.world import World


@dataclass(frozen=True)
class Name:
    """What is known of an index: a ``letter`` told apart by number, a teacher's value, or free."""

    role: Any
    number: int | None = None
    function: Any = None
    arguments: tuple[Name, ...] = ()


class Means(World):
    """A world in which entries of weights are read as their means; teachers are not evaluated."""

    def __init__(self, stated: Statement, roles: Roles) -> None:
        super().__init__(stated, roles, averaged=True)
        self.symbols: dict[tuple[Weight, tuple[Name, ...]], sp.Symbol] = {}
        self.like: dict[Any, Index] = {}  # an index of every role
        self.ranges = {roles._root(("value", f)) for f in stated.functions if f.kept}
        self.targets = [
            t for n in walk(stated.loss) for t in n.terms() if isinstance(t, Value) and _drawn(t)
        ]
        if any(s.of is not None for s in stated.sorts):
            raise ParameterError("closure: sorts that belong to others are not supported")

    def body(self, tree: Any) -> sp.Expr:
        """Number of a tree, the values that are asked for placed first."""
        for t in self.targets:
            self.element(t)
        return self.value(tree)

    def entry(self, weight: Weight, terms: tuple[Term, ...]) -> sp.Expr:
        """Mean of an entry in what is known; indices that are none of the known ones count so."""
        weights: list[list[tuple[sp.Expr, Name]]] = [self._spelled(t) for t in terms]
        total = sp.S.Zero
        for chosen in itertools.product(*weights):
            share = sp.Mul(*(w for w, _ in chosen))
            total += share * self._symbol(weight, tuple(n for _, n in chosen))
        return total

    def _spelled(self, term: Term) -> list[tuple[sp.Expr, Name]]:
        if isinstance(term, Value) and term.function.kept:
            return [(sp.S.One, self._named(term))]
        e = self.element(term)
        assert e is not None
        if isinstance(term, Index):
            self.like.setdefault(e.role, term)
        if not self._free(e):
            return [(sp.S.One, self._describe(e))]
        known = [k for k in self._group(e.role, None) if not self._free(k)]
        size, rest = term.sort.size, term.sort.size - len(known)
        return [
            (size / rest, Name(e.role)),
            *((-sp.S.One / rest, self._describe(k)) for k in known),
        ]

    def _named(self, term: Term) -> Name:
        if isinstance(term, Value) and term.function.kept:
            role = self.roles.of(term)
            return Name(role, None, term.function, tuple(map(self._named, term.arguments)))
        e = self.element(term)
        assert e is not None
        if isinstance(term, Index):
            self.like.setdefault(e.role, term)
        return self._describe(e)

    def _source(self, e: Element) -> Any:
        return next(
            (
                key
                for key, v in self.table.items()
                if v is e and not isinstance(key, Index) and len(key) == 2
            ),
            None,
        )

    def _free(self, e: Element) -> bool:
        """Whether an element is only known to be none of the others."""
        return e.role in self.ranges and self._source(e) is None and e.depth > 0

    def _describe(self, e: Element) -> Name:
        source = self._source(e)
        if source is None:
            return Name(e.role, self._group(e.role, None).index(e))
        return Name(e.role, None, source[0], tuple(map(self._describe, source[1])))

    def _symbol(self, weight: Weight, names: tuple[Name, ...]) -> sp.Symbol:
        numbers: dict[tuple[Any, int], int] = {}

        def canonical(n: Name) -> Name:
            if n.function is not None:
                return Name(n.role, None, n.function, tuple(map(canonical, n.arguments)))
            if n.number is None:
                return n
            seen = [k for k in numbers if k[0] == n.role]
            return Name(n.role, numbers.setdefault((n.role, n.number), len(seen)))

        key = weight, tuple(map(canonical, names))
        if key not in self.symbols:
            count = sum(w is weight for w, _ in self.symbols) + 1
            said = ", ".join(map(self._said, key[1]))
            self.symbols[key] = notation.symbol(
                f"{weight.name}_{count}", means=f"mean of {weight.name}[{said}]", real=True
            )
        return self.symbols[key]

    def _said(self, n: Name) -> str:
        if n.function is not None:
            return f"{n.function.name}({', '.join(map(self._said, n.arguments))})"
        return f"{self.like[n.role].sort.name}{'' if n.number is None else n.number}"


def _drawn(term: Term) -> bool:
    return not any(isinstance(t, Index) and t.bound for t in subterms(term))


def mobility(means: Means) -> dict[tuple[sp.Symbol, sp.Symbol], sp.Expr]:
    """Probability that two draws address the same entry, per pair of order parameters."""
    found = {}
    for (key, x), (other, y) in itertools.combinations_with_replacement(means.symbols.items(), 2):
        chance = sp.S.Zero
        if key[0] is other[0]:
            world = World(means.stated, means.roles, averaged=True)
            one, two = (_replica(means, k[1]) for k in (key, other))
            same = functools.partial(_agree, world, one, two)
            chance = world.chances(same).get(True, sp.S.Zero)
        found[x, y] = found[y, x] = chance
    return found


def _agree(world: World, one: list[Term], two: list[Term]) -> bool:
    return all(world.same(a, b) for a, b in zip(one, two, strict=True))


def _replica(means: Means, names: tuple[Name, ...]) -> list[Term]:
    """Terms at indices drawn anew, different ones where they are told apart."""
    made: dict[Name, Index] = {}

    def term(n: Name) -> Term:
        if n.function is not None:
            return Value(n.function, tuple(map(term, n.arguments)))
        like = means.like[n.role]
        if n.number is None:
            return Index(like.sort, copied=like.copied or like)
        if n not in made:
            others = tuple(v for k, v in made.items() if k.role == n.role)
            made[n] = Index(like.sort, distinct=others, copied=like.copied or like)
        return made[n]

    return [term(n) for n in names]
