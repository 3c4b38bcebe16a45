"""Derived results in the symbols and abbreviations of a paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from theory.dynamics.flow import Flow
from theory.dynamics.optimisers import Entries
from theory.statement.derivation.derived import Derived
from theory.symbols.fractions import factored


def spelled(expr: sp.Expr, where: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """An expression without abbreviations; each may use later ones."""
    for short, meaning in where.items():
        expr = expr.subs(short, meaning)
    return expr


def shortened(expr: sp.Expr, where: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """An expression with the first abbreviation that is a factor of all its
    exponentials.
    """
    for short, meaning in where.items():
        factor = factored(expr / spelled(meaning, where))
        if expr.has(sp.exp) and not factor.has(sp.exp):
            return factor * short
    return expr


def flow(
    made: Derived,
    names: Mapping[str, sp.Symbol],
    where: Mapping[sp.Symbol, sp.Expr] | None = None,
    **more: Any,
) -> Flow:
    """The derived flow, its order parameters called and ordered as in ``names``.

    Parameters
    ----------
    made : Derived
    names : mapping of str to Symbol
        By name of an order parameter of the derivation, the symbol that is printed.
    where : mapping of Symbol to Expr, optional
        Abbreviations, in printed symbols; one that is a factor of a rate is written for
        it.
    **more
        Fields of `theory.dynamics.flow.Flow`: name, time, reference, scope, observables
        and others.
    """
    printed = {x: names.get(x.name, x) for x in made.flow.state}
    where = {**(where or {})}
    rates = {
        printed[x]: shortened(rate.xreplace(printed), where)
        for x, rate in made.flow.rhs.items()
    }
    start = {
        printed[x]: value.xreplace(printed) for x, value in made.flow.initial.items()
    }
    order = [x for x in names.values() if x in rates]
    order += [x for x in rates if x not in order]

    def entries() -> Entries:
        derived = made.entries()
        return replace(
            derived, order={printed[x]: form for x, form in derived.order.items()}
        )

    given = {
        "name": made.statement.name,
        "time": made.flow.time,
        "reference": made.reference,
        "status": made.status,
        "assumptions": made.assumptions,
        "observables": observables(made, names),
        "scope": made.flow.scope,
        "entries": entries if made.flow.entries else None,
    }
    return Flow(
        rhs={x: rates[x] for x in order},
        initial={x: start[x] for x in order},
        where=where,
        **{**given, **more},
    )


def observables(made: Derived, names: Mapping[str, sp.Symbol]) -> dict[str, sp.Expr]:
    """Loss and what else the statement follows, in printed order parameters."""
    printed = {x: names.get(x.name, x) for x in made.flow.state}
    return {k: value.xreplace(printed) for k, value in made.flow.observables.items()}


def invariants(made: Derived, names: Mapping[str, sp.Symbol]) -> list[sp.Expr]:
    """Conserved quantities, in printed order parameters."""
    printed = {x: names.get(x.name, x) for x in made.flow.state}
    return [sp.expand(kept.xreplace(printed)) for _, kept in made.invariants]
