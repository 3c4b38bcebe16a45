"""Means over Gaussian data: a tree as a polynomial, its Gaussian factors paired
(Isserlis).

Every pairing equates indices. Each set of equal vector indices is a trace, which gives
the number of directions, or, where a covariance has a `spectrum`, a sum over
eigenvalues. What is left has no vectors in it and is a statement like any other. Or no
symmetry is assumed, and the mean is one in all entries of all weights (`mean`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy as sp
from sympy.utilities.iterables import connected_components

from theory.statement.words.stated import Statement
from theory.statement.words.tree import (
    Gauss,
    Index,
    Node,
    Spectrum,
    Term,
    Weight,
    renamed,
    require,
    walk,
)
from theory.symbols import notation
from theory.symbols.algebra import delta_gradient

DIRECTION = sp.Symbol("k", integer=True, positive=True)

MOST = 5000  # products of a tree that is multiplied out


def spectra(stated: Statement) -> bool:
    """Whether directions differ."""
    return any(isinstance(g.var, Spectrum) for g in stated.gausses)


def integrated(tree: Node) -> Iterator[Node]:
    """Parts of a tree's mean over Gaussian data: no vectors are left in them."""
    for sums, data, coefficients in _products(tree):
        inside: list[Node] = []
        for factor in coefficients:
            for part in factor.parts:
                inside += walk(part)
        gausses = sorted({n.of.name for n in inside if isinstance(n.of, Gauss)})
        message = (
            f"gauss {', '.join(gausses)}: in a function that is no polynomial: state"
            " it in overlaps (theory.statement.overlaps)"
        )
        require(not any(map(_vectors, inside)), message)
        if all(len(_vectors(f)) != 1 for f in coefficients):
            for pairs in pairings(data):
                yield _contracted(sums, coefficients, pairs)


def _products(tree: Node) -> Iterator[tuple[tuple[Node, ...], list[Node], list[Node]]]:
    """A tree multiplied out: sums, Gaussian data and other factors of every product."""
    for sums, factors in expanded(tree, {}):
        data = [f for f in factors if isinstance(f.of, Gauss)]
        yield sums, data, [f for f in factors if not isinstance(f.of, Gauss)]


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


def _contracted(
    sums: tuple[Node, ...], rest: list[Node], pairs: list[tuple[Node, Node]]
) -> Node:
    """One Wick pairing: traces over directions, times the coefficients."""
    vectors = [s.of for s in sums if s.of.sort.vector]
    edges: list[tuple[Term, ...]] = [(a.terms[-1], b.terms[-1]) for a, b in pairs]
    edges += [tuple(_vectors(f)) for f in rest if _vectors(f)]
    factors = [f for f in rest if not _vectors(f)]
    for one, other in pairs:
        between = zip(one.terms[:-1], other.terms[:-1], strict=True)
        factors += [Node("same", (), pair) for pair in between if pair[0] != pair[1]]
    for loop in connected_components((vectors, edges)):
        variances = [one.of.var for one, _ in pairs if one.terms[-1] in loop]
        entries = []
        for f in rest:
            if isinstance(f.of, Weight) and {*_vectors(f)} & {*loop}:
                indices = tuple(t for t in f.terms if t not in loop)
                entries.append(Node("entry", (), indices, f.of))
        trace_of = (variances, loop[0].sort.size)
        factors.append(Node("trace", tuple(entries), (), trace_of))
    return product([s for s in sums if not s.of.sort.vector], factors)


def trace(values: list[Any], var: list[Any], size: sp.Expr) -> sp.Expr:
    """Product of variances and entries, summed over directions."""
    variances = [v.base[DIRECTION] if isinstance(v, Spectrum) else v for v in var]
    along = sp.Mul(*values, *variances)
    return sp.Sum(along, (DIRECTION, 1, size)) if along.has(DIRECTION) else size * along


def at_size(expr: sp.Expr, numbers: Mapping[sp.Symbol, Any]) -> sp.Expr:
    """Sums written out at concrete sizes, entries of arrays as symbols: ``u[2]`` as
    ``u_2``.
    """
    written = expr.xreplace({k: sp.Integer(v) for k, v in numbers.items()})
    written = written.replace(_is_finite_sum, lambda x: x.doit())
    return written.replace(
        lambda x: isinstance(x, sp.Indexed) and x.indices[0].is_Integer,
        lambda x: direction(x.base.name, x.indices[0]),
    )


def _is_finite_sum(x: sp.Basic) -> bool:
    """Whether an expression is a sum whose ends are all numbers."""
    if not isinstance(x, sp.Sum):
        return False
    ends = itertools.chain.from_iterable(limit[1:] for limit in x.limits)
    return all(end.is_Integer for end in ends)


def direction(name: str, k: Any) -> sp.Symbol:
    """Symbol of an array along one direction."""
    return notation.symbol(
        f"{name}_{k}", means=f"{name} along direction {k}", real=True
    )


def slope(loss: sp.Expr, entry: sp.Indexed) -> sp.Expr:
    """Derivative of a function of sums over directions by one entry, taken inside the
    sums.
    """
    short = {s: sp.Dummy() for s in sorted(loss.atoms(sp.Sum), key=str)}
    outer = loss.xreplace(short)
    other = sp.Symbol("j", integer=True, positive=True)
    parts = [sp.diff(outer, d) * sp.diff(s.function, entry) for s, d in short.items()]
    written = {d: s.xreplace({DIRECTION: other}) for s, d in short.items()}
    return sp.Add(*parts).xreplace(written)


def mean(
    stated: Statement,
    indices: Sequence[sp.Symbol],
    traces: Mapping[sp.Expr, sp.Expr] | None = None,
    tree: Node | None = None,
) -> sp.Expr:
    """Mean of the loss, or of another number of the statement, over all inputs.

    Parameters
    ----------
    stated : Statement
    indices : sequence of Symbol
        Of sums, in the order in which weights read them; one that is summed alone is
        the last.
    traces : mapping of Expr to Expr, optional
        Sums by what is summed, in the last of the indices: ``{lam[d]: trace}``.

    Raises
    ------
    ParameterError
        If the loss is no polynomial in Gaussian data and weights.
    """
    terms: dict[tuple[Any, ...], sp.Expr] = {}
    for sums, data, coefficients in _products(stated.loss if tree is None else tree):
        bound = [s.of for s in sums]
        for pairs in pairings(data):
            limits, term = _summed(bound, coefficients, pairs, indices, traces or {})
            terms[limits] = terms.get(limits, sp.S.Zero) + term
    parts = [
        sp.Sum(sp.expand(term), *limits) if limits else term
        for limits, term in terms.items()
    ]
    return sp.Add(*parts)


def _summed(
    bound: list[Index],
    rest: list[Node],
    pairs: list[tuple[Node, Node]],
    indices: Sequence[sp.Symbol],
    traces: Mapping[sp.Expr, sp.Expr],
) -> tuple[tuple[Any, ...], sp.Expr]:
    """Limits of the sums that are left by one pairing, and what is summed."""
    equal: list[tuple[Any, Any]] = []
    for a, b in pairs:
        equal += zip(a.terms, b.terms, strict=True)
    group: dict[Any, int] = {}
    for k, component in enumerate(connected_components((bound, equal))):
        group |= dict.fromkeys(component, k)
    order: list[int] = []  # of the groups that weights read
    for f in rest:
        if isinstance(f.of, Weight):
            order += [group[i] for i in f.terms]
    order = list(dict.fromkeys(order))
    symbols = {k: indices[n] for n, k in enumerate(order)}
    of_group: dict[int, sp.Expr] = {}
    for one, _ in pairs:
        var, k = one.of.var, group[one.terms[-1]]
        along = (
            notation.array(var.name)[symbols.get(k, indices[-1])]
            if isinstance(var, Spectrum)
            else var
        )
        of_group[k] = of_group.get(k, sp.S.One) * along
    total: sp.Expr = sp.S.One
    limits: dict[int, Any] = {}
    for i in bound:
        k, size = group[i], i.sort.size
        along = of_group.pop(k, sp.S.One)
        if k in symbols:
            limits[k] = (symbols[k], 1, size)
            total = total * along
        elif k not in limits:
            summed = along * size
            if along.has(indices[-1]):
                explicit = sp.Sum(along, (indices[-1], 1, size))
                summed = traces.get(along, explicit)
            limits[k] = None
            total = total * summed
    for f in rest:
        total *= _number(f, {i: symbols[group[i]] for i in f.terms})
    return tuple(limits[k] for k in order), total


def _number(f: Node, symbols: Mapping[Any, sp.Symbol]) -> sp.Expr:
    if f.kind == "power":
        return _number(f.parts[0], symbols) ** f.of
    message = "entries: the loss is no polynomial in Gaussian data and weights"
    require(f.kind in ("number", "entry"), message)
    if f.kind == "number":
        return f.of
    return (
        notation.array(f.of.name)[tuple(symbols[i] for i in f.terms)]
        if f.terms
        else sp.Symbol(f.of.name)
    )


def force(loss: sp.Expr, entry: sp.Expr) -> sp.Expr:
    """Minus the slope of a mean loss along one entry, constants left out."""
    sums = [x for x in sp.Add.make_args(sp.expand(loss)) if x.has(sp.Sum)]
    return -delta_gradient(sp.Add(*sums), entry)


def expanded(
    n: Node, by: Mapping[Term, Term]
) -> list[tuple[tuple[Node, ...], tuple[Node, ...]]]:
    """A tree multiplied out: factors of every product, with the sums that they are
    under.

    Raises
    ------
    ParameterError
        If there are more than `MOST` products.
    """
    if n.kind == "plus":
        summands = (expanded(part, by) for part in n.parts)
        return [*itertools.chain.from_iterable(summands)]
    if n.kind == "total":
        head = renamed(dataclasses.replace(n, parts=()), by)
        inner = expanded(n.parts[0], {**by, n.of: head.of})
        return [((head, *sums), factors) for sums, factors in inner]
    if n.kind != "times" and not (n.kind == "power" and n.of.is_Integer and n.of > 0):
        return [((), (renamed(n, by),))]
    products: list[tuple[tuple[Node, ...], tuple[Node, ...]]] = [((), ())]
    for part in n.parts * (1 if n.kind == "times" else int(n.of)):
        # Every factor is expanded anew, as each needs summed indices of its own.
        products = [(a + c, b + d) for a, b in products for c, d in expanded(part, by)]
        require(
            len(products) <= MOST,
            f"loss: more than {MOST} products when multiplied out",
        )
    return products


def product(sums: Sequence[Node], factors: Sequence[Node]) -> Node:
    """A product under its sums."""
    summed = Node("times", tuple(factors))
    for head in reversed(sums):
        summed = dataclasses.replace(head, parts=(summed,))
    return summed
