"""A tree as a sum of products under sums: what a mean may be taken of, factor by factor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.tree import (
    Component,
    Entry,
    Index,
    Node,
    Plus,
    Power,
    Same,
    Scalar,
    Term,
    Times,
    Total,
    Transform,
    Value,
)

MOST = 5000  # products


@dataclass(frozen=True)
class Monomial:
    """A number times factors, under sums (whose bodies are left out), outermost first."""

    number: sp.Expr
    sums: tuple[Total, ...] = ()
    factors: tuple[Node, ...] = ()

    def __mul__(self, other: Monomial) -> Monomial:
        return Monomial(
            self.number * other.number, self.sums + other.sums, self.factors + other.factors
        )

    def node(self) -> Node:
        """The product under its sums, without the number."""
        made: Node = Times(self.factors)
        for s in reversed(self.sums):
            made = Total(s.index, made, s.end, s.inclusive)
        return made


def monomials(
    n: Node, fresh: Mapping[Term, Term], leaf: Callable[[Node], Monomial]
) -> list[Monomial]:
    """Multiply a tree out; every copy of a sum gets an index of its own.

    Parameters
    ----------
    n : Node
    fresh : mapping
        Indices that stand for others.
    leaf : callable
        What to make of a node that is no sum, product or whole power.

    Raises
    ------
    ParameterError
        If there are more than `MOST` products.
    """
    if isinstance(n, Scalar):
        return [Monomial(n.value)]
    if isinstance(n, Plus):
        return [m for p in n.parts for m in monomials(p, fresh, leaf)]
    if isinstance(n, Times):
        return _product([monomials(p, fresh, leaf) for p in n.parts])
    if isinstance(n, Power) and n.exponent.is_Integer and n.exponent > 0:
        return _product([monomials(n.base, fresh, leaf) for _ in range(int(n.exponent))])
    if isinstance(n, Total):
        own = _own(n.index, fresh)
        end = None if n.end is None else renamed_term(n.end, fresh)
        around = Monomial(sp.S.One, (Total(own, Scalar(sp.S.One), end, n.inclusive),))
        return [around * m for m in monomials(n.body, {**fresh, n.index: own}, leaf)]
    return [leaf(renamed(n, fresh))]


def _own(index: Index, fresh: Mapping[Term, Term]) -> Index:
    parent = None if index.parent is None else renamed_term(index.parent, fresh)
    return Index(index.sort, parent, bound=True, copied=index.copied or index)


def _product(parts: Sequence[list[Monomial]]) -> list[Monomial]:
    made = [Monomial(sp.S.One)]
    for part in parts:
        made = [a * b for a in made for b in part]
        if len(made) > MOST:
            raise ParameterError(f"loss: more than {MOST} products when multiplied out")
    return made


def renamed_term(term: Term, by: Mapping[Term, Term]) -> Term:
    """A term with other indices."""
    if isinstance(term, Value):
        return Value(term.function, tuple(renamed_term(t, by) for t in term.arguments))
    return by.get(term, term)


def renamed(n: Node, by: Mapping[Term, Term]) -> Node:
    """A node with other indices; sums inside it keep their own."""
    terms = tuple(renamed_term(t, by) for t in n.terms())
    if isinstance(n, Entry):
        return Entry(n.weight, terms)
    if isinstance(n, Component):
        return Component(n.gauss, terms)
    if isinstance(n, Same):
        return Same((terms[0], terms[1]))
    if isinstance(n, Plus | Times):
        return type(n)(tuple(renamed(p, by) for p in n.parts))
    if isinstance(n, Power):
        return Power(renamed(n.base, by), n.exponent)
    if isinstance(n, Transform):
        return Transform(n.kind, renamed(n.argument, by))
    if isinstance(n, Total):
        own = _own(n.index, by)
        body = renamed(n.body, {**by, n.index: own})
        return Total(own, body, terms[0] if terms else None, n.inclusive)
    return n
