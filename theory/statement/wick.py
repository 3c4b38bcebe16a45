"""Means over Gaussian data: a tree as a polynomial, its Gaussian factors paired (Isserlis).

Every pairing equates indices. Each set of equal vector indices is a trace, which gives the number
of directions, or, where a covariance has a `spectrum`, a sum over eigenvalues. What is left has no
vectors in it and is a statement like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy as sp
from sympy.utilities.iterables import connected_components

from theory import notation
from theory.statement.stated import Statement
from theory.statement.tree import (
    Gauss,
    Node,
    Spectrum,
    Term,
    Weight,
    expanded,
    product,
    require,
    walk,
)

DIRECTION = sp.Symbol("k", integer=True, positive=True)


def spectra(stated: Statement) -> bool:
    """Whether directions differ."""
    return any(isinstance(g.var, Spectrum) for g in stated.gausses)


def integrated(tree: Node) -> Iterator[Node]:
    """Parts of a tree's mean over Gaussian data: no vectors are left in them."""
    for sums, factors in expanded(tree, {}):
        data = [f for f in factors if isinstance(f.of, Gauss)]
        coefficients = [f for f in factors if not isinstance(f.of, Gauss)]
        inside = [n for f in coefficients for p in f.parts for n in walk(p)]
        names = ", ".join(sorted({n.of.name for n in inside if isinstance(n.of, Gauss)}))
        said = f"gauss {names}: in a function that is no polynomial: state it in overlaps"
        require(not any(map(_vectors, inside)), f"{said} (theory.statement.overlaps)")
        if all(len(_vectors(f)) != 1 for f in coefficients):
            for pairs in pairings(data):
                yield _contracted(sums, coefficients, pairs)


def _vectors(n: Node) -> list[Term]:
    return [t for t in n.terms if t.sort.vector]


def pairings(data: list[Node]) -> Iterator[list[tuple[Node, Node]]]:
    if not data:
        yield []
        return
    first, *others = data
    for k, other in enumerate(others):
        if other.of is first.of:
            for others_paired in pairings(others[:k] + others[k + 1 :]):
                yield [(first, other), *others_paired]


def _contracted(sums: tuple[Node, ...], rest: list[Node], pairs: list[tuple[Node, Node]]) -> Node:
    """One Wick pairing: traces over directions, times the coefficients."""
    vectors = [s.of for s in sums if s.of.sort.vector]
    edges = [tuple(n.terms[-1] for n in pair) for pair in pairs]
    edges += [tuple(_vectors(f)) for f in rest if _vectors(f)]
    factors = [f for f in rest if not _vectors(f)]
    for one, other in pairs:
        between = zip(one.terms[:-1], other.terms[:-1], strict=True)
        factors += [Node("same", (), pair) for pair in between if pair[0] != pair[1]]
    for loop in connected_components((vectors, edges)):
        var = [one.of.var for one, _ in pairs if one.terms[-1] in loop]
        read = [f for f in rest if isinstance(f.of, Weight) and {*_vectors(f)} & {*loop}]
        plain = [Node("entry", (), tuple(t for t in f.terms if t not in loop), f.of) for f in read]
        factors.append(Node("trace", tuple(plain), (), (var, loop[0].sort.size)))
    return product([s for s in sums if not s.of.sort.vector], factors)


def trace(values: list[Any], var: list[Any], size: sp.Expr) -> sp.Expr:
    """Product of variances and entries, summed over directions."""
    along = sp.Mul(*values, *(v.base[DIRECTION] if isinstance(v, Spectrum) else v for v in var))
    return sp.Sum(along, (DIRECTION, 1, size)) if along.has(DIRECTION) else size * along


def at_size(expr: sp.Expr, numbers: Mapping[sp.Symbol, Any]) -> sp.Expr:
    """Sums written out at concrete sizes, entries of arrays as symbols: ``u[2]`` as ``u_2``."""
    written = expr.xreplace({k: sp.Integer(v) for k, v in numbers.items()})
    written = written.replace(
        lambda x: isinstance(x, sp.Sum) and all(q.is_Integer for l in x.limits for q in l[1:]),
        lambda x: x.doit(),
    )
    return written.replace(
        lambda x: isinstance(x, sp.Indexed) and x.indices[0].is_Integer,
        lambda x: direction(x.base.name, x.indices[0]),
    )


def direction(name: str, k: Any) -> sp.Symbol:
    """Symbol of an array along one direction."""
    return notation.symbol(f"{name}_{k}", means=f"{name} along direction {k}", real=True)


def slope(loss: sp.Expr, entry: sp.Indexed) -> sp.Expr:
    """Derivative of a function of sums over directions by one entry, taken inside the sums."""
    short = {s: sp.Dummy() for s in sorted(loss.atoms(sp.Sum), key=str)}
    outer, other = loss.xreplace(short), sp.Symbol("j", integer=True, positive=True)
    parts = [sp.diff(outer, d) * sp.diff(s.function, entry) for s, d in short.items()]
    return sp.Add(*parts).xreplace({d: s.xreplace({DIRECTION: other}) for s, d in short.items()})
