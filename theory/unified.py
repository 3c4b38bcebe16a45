"""The door of a Flow: what it is made of, read as SymPy expressions in one symbol per name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import sympy as sp
from sympy.concrete.expr_with_limits import ExprWithLimits
from sympy.core.relational import Relational

from theory.parameters import ParameterError, nearest, shown

if TYPE_CHECKING:
    from theory.flow import Flow


def expression(name: str, value: Any) -> sp.Expr:
    """Read a number or SymPy expression.

    Raises
    ------
    ParameterError
        For anything else: text, arrays, true or false, infinity.
    """
    try:
        read = sp.sympify(value, strict=True)
    except (sp.SympifyError, TypeError, ValueError, AttributeError):
        read = None
    if not isinstance(read, sp.Expr) or isinstance(value, bool):
        kind = "text" if isinstance(value, str) else type(value).__name__
        raise ParameterError(
            f"{name} = {shown(value)}: must be a number or a SymPy expression, not {kind}"
        )
    if read in (sp.nan, sp.zoo, sp.oo, -sp.oo):
        raise ParameterError(f"{name} = {read}: must be finite")
    if arrays := sorted(read.atoms(sp.Indexed, sp.IndexedBase, sp.MatrixSymbol, sp.Dummy), key=str):
        bound = {v for e in read.atoms(ExprWithLimits) for v in e.variables}
        if arrays[0] not in bound:
            kind = type(arrays[0]).__name__
            raise ParameterError(
                f"{name}: holds {arrays[0]} ({kind}); a flow takes plain symbols, which stand for numbers"
            )
    return read


def renamed(name: str, expr: sp.Expr, symbols: Mapping[str, sp.Expr]) -> sp.Expr:
    """An expression in which free symbols are the ones of a table, by name.

    Raises
    ------
    ParameterError
        If an index of a sum or integral has the name of a symbol that would change.
    """
    free = {s for s in expr.free_symbols if isinstance(s, sp.Symbol)}
    changed = {s: symbols[s.name] for s in free if symbols.get(s.name, s) != s}
    if not changed:
        return expr
    bound = {v.name for e in expr.atoms(ExprWithLimits) for v in e.variables}
    names = {x.name for new in changed.values() for x in new.free_symbols}.union(
        s.name for s in changed
    )
    if clash := sorted(bound & names):
        raise ParameterError(
            f"{name}: {clash[0]} is an index there and a symbol outside; rename it"
        )
    return expr.xreplace(changed)


def _symbol(flow: Flow, what: str, key: Any) -> sp.Symbol:
    if not isinstance(key, sp.Symbol) or isinstance(key, sp.Dummy):
        kind = type(key).__name__
        raise ParameterError(
            f"{flow.name}: {what} {shown(key)} must be a SymPy symbol, not {kind}; take symbol('x')"
        )
    return key


def _mapping(flow: Flow, what: str) -> dict[Any, Any]:
    value = getattr(flow, what)
    if not isinstance(value, Mapping):
        raise ParameterError(
            f"{flow.name}: {what} = {shown(value)}: must be a mapping, as {{x: -x}}"
        )
    return dict(value)


def unified(flow: Flow) -> dict[str, Any]:
    """Fields of a flow: values are expressions, and symbols of one name are one symbol, whatever
    their assumptions.

    Raises
    ------
    ParameterError
        For keys that are no symbols, values that are no expressions, names that are used twice, a
        missing or unknown initial value, an initial value that depends on order parameters or time.
    """
    _symbol(flow, "time", flow.time)
    rhs, initial, where, observables = (
        _mapping(flow, part) for part in ("rhs", "initial", "where", "observables")
    )
    if not rhs:
        raise ParameterError(f"{flow.name}: rhs is empty; must give the rate of an order parameter")
    observables = {getattr(label, "name", label): of for label, of in observables.items()}
    for label in observables:
        if not isinstance(label, str):
            raise ParameterError(f"{flow.name}: observable {shown(label)} must be a name, text")
    keys = [_symbol(flow, "order parameter", x) for x in rhs]
    keys += [_symbol(flow, "abbreviation", x) for x in where]
    once(flow.name, [flow.time.name, *(x.name for x in keys)])
    once(flow.name, [flow.time.name, *(x.name for x in rhs), *observables])
    symbols: dict[str, sp.Symbol] = {x.name: x for x in (flow.time, *keys)}
    given: dict[str, Any] = {}
    for x, start in initial.items():
        name = _symbol(flow, "initial value of", x).name
        if symbols.get(name) not in rhs or name in given:
            hint = nearest(name, [x.name for x in rhs])
            raise ParameterError(
                f"{flow.name}: initial value of {name}, no order parameter; {hint}".rstrip("; ")
            )
        given[name] = start
    if missing := [x.name for x in rhs if x.name not in given]:
        raise ParameterError(f"{flow.name}: {missing[0]} has no initial value")

    def read(part: str, values: Mapping[Any, Any]) -> dict[Any, sp.Expr]:
        made = {}
        for key, value in values.items():
            name = f"{flow.name}: {part} of {key}" if part else f"{flow.name}: {key}"
            expr = expression(name, value)
            for s in sorted(expr.free_symbols, key=sp.default_sort_key):
                symbols.setdefault(s.name, s)
            made[key] = renamed(name, expr, symbols)
        return made

    rates = read("rate", rhs)
    start = read("initial value", {x: given[x.name] for x in rhs})
    for x, expr in start.items():
        if moving := sorted(expr.free_symbols & {flow.time, *keys}, key=str):
            raise ParameterError(
                f"{flow.name}: initial value of {x} = {expr}: depends on {moving[0]}; must be in parameters"
            )
    short = read("", where)
    used = {s.name for part in (rates, start, short) for e in part.values() for s in e.free_symbols}
    if clash := sorted((used & {*observables}) - {x.name for x in where}):
        raise ParameterError(
            f"{flow.name}: {clash[0]} is both an observable and a symbol of the rates; rename one"
        )
    seen: dict[str, sp.Expr] = {}
    for label, value in observables.items():  # each may use those before
        name = f"{flow.name}: {label}"
        seen[label] = renamed(name, read("", {label: value})[label], seen)
    return {"rhs": rates, "initial": start, "where": short, "observables": seen}


def once(name: str, names: Iterable[str]) -> None:
    """Raise an error for a name that is used twice."""
    known: set[str] = set()
    for n in names:
        if n in known:
            raise ParameterError(f"{name}: {n} is the name of two quantities; rename one")
        known.add(n)


def quantity(flow: Flow, label: Any, value: Any) -> sp.Expr:
    """An event of a flow: an expression in its order parameters, time, abbreviations, observables
    and parameters, in which abbreviations and observables are spelled out.

    Parameters
    ----------
    flow : Flow
        The flow.
    label : str
        Name of the event.
    value : Expr, Relational or str
        ``loss - 0.1``, ``loss < 0.1``, or the name of a quantity that crosses zero.

    Raises
    ------
    ParameterError
        If it is no expression, or one that nothing changes.
    """
    if isinstance(value, Relational):
        value = value.lhs - value.rhs
    known = {x.name: x for x in (*flow.state, flow.time, *flow.where)} | dict(flow.observables)
    if isinstance(value, str):
        if value not in known:
            hint = nearest(value, known)
            raise ParameterError(
                f"event {label} = {value!r}: no quantity of {flow.name}; {hint}give an expression, "
                "as symbol('x') - 0.5"
            )
        value = known[value]
    name = f"event {label}"
    expr = flow._spell(renamed(name, expression(name, value), known))
    free = {s.name: s for e in (*flow.rhs.values(), *flow.initial.values()) for s in e.free_symbols}
    expr = renamed(name, expr, free)
    if not expr.free_symbols:
        raise ParameterError(f"{name} = {shown(value)}: is a number, which nothing changes")
    return expr
