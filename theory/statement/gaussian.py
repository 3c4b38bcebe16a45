"""Means over Gaussian data: the loss as a polynomial, its Gaussian factors paired (Isserlis).

Every pairing equates indices; each set of equal ones gives the size of its sort, or, where a
covariance has a `spectrum`, a sum over eigenvalues. By the symmetry of the data, a weight with one
vector index vanishes and one with two is diagonal: one number, or one per eigenvalue.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import sympy as sp

from theory import notation
from theory.parameters import ParameterError
from theory.statement.polynomial import Monomial, monomials
from theory.statement.stated import Statement
from theory.statement.tree import (
    Component,
    Entry,
    Index,
    Node,
    Plus,
    Power,
    Same,
    Scalar,
    Sort,
    Spectrum,
    Term,
    Times,
    Transform,
    Weight,
)

DIRECTION = sp.Symbol("k", integer=True, positive=True)


def spectra(stated: Statement) -> bool:
    """Whether directions differ."""
    return any(isinstance(g.var, Spectrum) for g in stated.gausses)


def vectors(weight: Weight) -> list[int]:
    """Places of a weight's vector indices.

    Raises
    ------
    ParameterError
        If there are more than two, or two other indices of one sort, or one that has no class
        starts elsewhere than at zero.
    """
    places = [k for k, s in enumerate(weight.sorts) if s.vector]
    others = [s for s in weight.sorts if not s.vector]
    if len(places) > 2 or len({id(weight.sorts[k]) for k in places}) > 1:
        raise ParameterError(
            f"weight {weight.name}: has more than two vector indices, or two of different sorts"
        )
    if len(set(map(id, others))) < len(others):
        raise ParameterError(
            f"weight {weight.name}: two indices of one sort: not beside Gaussian data"
        )
    if len(places) == 1 and weight.start != 0:
        raise ParameterError(
            f"weight {weight.name}: start = {weight.start}: must be 0, as one vector index has no "
            "direction that the data single out"
        )
    return places


def value_of(stated: Statement, weight: Weight) -> Any:
    """Symbol of a weight's only class (an array of them, if directions differ); zero if none."""
    places = vectors(weight)
    if len(places) == 1:
        return sp.S.Zero
    if len(places) == 2 and spectra(stated):
        return notation.array(weight.name)
    means = f"{weight.name}: {'diagonal' if places else 'every entry'}"
    return notation.symbol(weight.name, means=means, real=True)


def mean(stated: Statement, tree: Node) -> sp.Expr:
    """Mean of a polynomial in Gaussian data, in the values of the weights' classes."""
    found: dict[Any, sp.Expr] = {}
    for d in stated.draws:
        if d.distinct:
            raise ParameterError(f"draw of {d}: distinct beside Gaussian data: not supported")
    for m in monomials(tree, {}, functools.partial(_leaf, stated)):
        if any(s.end is not None for s in m.sums):
            raise ParameterError(
                f"statement {stated.name}: masks beside Gaussian data: not supported"
            )
        data = [f for f in m.factors if isinstance(f, Component)]
        rest = [f for f in m.factors if not isinstance(f, Component)]
        for pairs in _pairings(data):
            key = _contracted(stated, [s.index for s in m.sums], rest, pairs)
            if key is not None:
                found[key] = found.get(key, sp.S.Zero) + m.number
    return sp.Add(*(number * key for key, number in found.items()))


def _leaf(stated: Statement, n: Node) -> Monomial:
    if not isinstance(n, Entry | Component | Same):
        return Monomial(_plain(stated, n))
    if any(not isinstance(t, Index) for t in n.terms()):
        raise ParameterError(
            f"statement {stated.name}: Gaussian data beside teachers or samples: not supported"
        )
    return Monomial(sp.S.One, (), (n,))


def _plain(stated: Statement, n: Node) -> sp.Expr:
    """A function of numbers and of weights without indices."""
    if isinstance(n, Scalar):
        return n.value
    if isinstance(n, Entry) and not n.indices:
        return value_of(stated, n.weight)
    if isinstance(n, Plus | Times):
        of = sp.Add if isinstance(n, Plus) else sp.Mul
        return of(*(_plain(stated, p) for p in n.parts))
    if isinstance(n, Power):
        return _plain(stated, n.base) ** n.exponent
    if isinstance(n, Transform):
        return getattr(sp, n.kind)(_plain(stated, n.argument))
    raise ParameterError(
        f"statement {stated.name}: a function of Gaussian data that is no polynomial: state it in "
        "overlaps (theory.statement.overlaps)"
    )


def _pairings(data: list[Component]) -> Iterator[list[tuple[Component, Component]]]:
    if not data:
        yield []
        return
    first, *others = data
    for k, other in enumerate(others):
        if other.gauss is first.gauss:
            for rest in _pairings(others[:k] + others[k + 1 :]):
                yield [(first, other), *rest]


def _contracted(
    stated: Statement,
    indices: list[Index],
    rest: list[Node],
    pairs: list[tuple[Component, Component]],
) -> sp.Expr | None:
    """One pairing, summed over all indices; None if it vanishes."""
    joined: dict[Term, Term] = {}

    def root(t: Term) -> Term:
        while t in joined:
            t = joined[t]
        return t

    def join(a: Term, b: Term) -> None:
        a, b = root(a), root(b)
        if a is not b:
            joined[a] = b

    number, spectral = sp.S.One, []
    for one, other in pairs:
        for a, b in zip(one.indices, other.indices, strict=True):
            join(a, b)
        if isinstance(one.gauss.var, Spectrum):
            spectral.append((one.indices[-1], one.gauss.var.base[DIRECTION]))
        else:
            number *= one.gauss.var
    for factor in rest:
        if isinstance(factor, Same):
            join(*factor.pair)
            continue
        assert isinstance(factor, Entry)
        places, value = vectors(factor.weight), value_of(stated, factor.weight)
        if value == 0:
            return None
        if len(places) == 2:
            join(factor.indices[places[0]], factor.indices[places[1]])
        if isinstance(value, sp.IndexedBase):
            spectral.append((factor.indices[places[0]], value[DIRECTION]))
        else:
            number *= value
    drawn = [d for d in stated.draws if d.place is None]
    groups: dict[Term, list[Term]] = {}
    for t in dict.fromkeys((*indices, *stated.draws)):
        groups.setdefault(root(t), []).append(t)
    for top, members in groups.items():
        sort: Sort = top.sort
        places_ = {t.place for t in members if isinstance(t, Index) and t.place is not None}
        if len(places_) > 1:
            return None
        size = sp.S.One if places_ else sort.size
        along = [factor for t, factor in spectral if root(t) is top]
        if along:
            size = sp.Sum(sp.Mul(*along), (DIRECTION, 1, sort.size))
        number *= size / sort.size ** sum(t in drawn for t in members)
    return number


def at_size(expr: sp.Expr, numbers: dict[sp.Symbol, Any]) -> sp.Expr:
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


def slope(loss: sp.Expr, base: sp.IndexedBase) -> sp.Expr:
    """Derivative of a function of sums over directions by one entry, taken inside the sums."""
    sums = sorted(loss.atoms(sp.Sum), key=str)
    short = {s: sp.Dummy() for s in sums}
    outer = loss.xreplace(short)
    entry = base[DIRECTION]
    parts = (sp.diff(outer, short[s]) * sp.diff(s.function, entry) for s in sums if s.has(entry))
    back = {
        d: s.xreplace({DIRECTION: sp.Symbol("j", integer=True, positive=True)})
        for s, d in short.items()
    }
    return sp.Add(*parts).xreplace(back)
