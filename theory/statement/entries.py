"""Mean loss in all entries of all weights, with no symmetry assumed: for Gaussian data and a loss
that is a polynomial. Every pairing of the data equates indices; a set of equal ones that no weight
reads is a trace, the others are summed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy as sp
from sympy.utilities.iterables import connected_components

from theory.algebra import delta_gradient
from theory.notation import array
from theory.statement.stated import Statement
from theory.statement.tree import Gauss, Index, Node, Spectrum, Weight, expanded, require
from theory.statement.wick import pairings


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
        Of sums, in the order in which weights read them; one that is summed alone is the last.
    traces : mapping of Expr to Expr, optional
        Sums by what is summed, in the last of the indices: ``{lam[d]: trace}``.

    Raises
    ------
    ParameterError
        If the loss is no polynomial in Gaussian data and weights.
    """
    terms: dict[tuple[Any, ...], sp.Expr] = {}
    for sums, factors in expanded(stated.loss if tree is None else tree, {}):
        data = [f for f in factors if isinstance(f.of, Gauss)]
        coefficients = [f for f in factors if not isinstance(f.of, Gauss)]
        for pairs in pairings(data):
            limits, term = _contracted(
                [s.of for s in sums], coefficients, pairs, indices, traces or {}
            )
            terms[limits] = terms.get(limits, sp.S.Zero) + term
    return sp.Add(*(sp.Sum(sp.expand(x), *ranges) if ranges else x for ranges, x in terms.items()))


def _contracted(
    bound: list[Index],
    rest: list[Node],
    pairs: list[tuple[Node, Node]],
    indices: Sequence[sp.Symbol],
    traces: Mapping[sp.Expr, sp.Expr],
) -> tuple[tuple[Any, ...], sp.Expr]:
    """Limits of the sums that are left by one pairing, and what is summed."""
    equal = [edge for a, b in pairs for edge in zip(a.terms, b.terms, strict=True)]
    group = {i: k for k, one in enumerate(connected_components((bound, equal))) for i in one}
    read = [i for f in rest if isinstance(f.of, Weight) for i in f.terms]
    order = list(dict.fromkeys(group[i] for i in read))
    symbols = {k: indices[n] for n, k in enumerate(order)}
    of_group: dict[int, sp.Expr] = {}
    for one, _ in pairs:
        var, k = one.of.var, group[one.terms[-1]]
        along = array(var.name)[symbols.get(k, indices[-1])] if isinstance(var, Spectrum) else var
        of_group[k] = of_group.get(k, sp.S.One) * along
    total: sp.Expr = sp.S.One
    limits: dict[int, Any] = {}
    for i in bound:
        k = group[i]
        along = of_group.pop(k, sp.S.One)
        if k in symbols:
            limits[k], total = (symbols[k], 1, i.sort.size), total * along
        elif k not in limits:
            whole = along * i.sort.size
            if along.has(indices[-1]):
                whole = traces.get(along, sp.Sum(along, (indices[-1], 1, i.sort.size)))
            limits[k], total = None, total * whole
    for f in rest:
        total *= _number(f, {i: symbols[group[i]] for i in f.terms})
    return tuple(limits[k] for k in order), total


def _number(f: Node, symbols: Mapping[Any, sp.Symbol]) -> sp.Expr:
    if f.kind == "power":
        return _number(f.parts[0], symbols) ** f.of
    said = "entries: the loss is no polynomial in Gaussian data and weights"
    require(f.kind in ("number", "entry"), said)
    if f.kind == "number":
        return f.of
    return array(f.of.name)[tuple(symbols[i] for i in f.terms)] if f.terms else sp.Symbol(f.of.name)


def force(loss: sp.Expr, entry: sp.Expr) -> sp.Expr:
    """Minus the slope of a mean loss along one entry, constants left out."""
    sums = [x for x in sp.Add.make_args(sp.expand(loss)) if x.has(sp.Sum)]
    return -delta_gradient(sp.Add(*sums), entry)
