"""The door of a Flow: its expressions are read in one symbol per name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import sympy as sp
from sympy.core.relational import Relational

from theory.parameters import ParameterError, nearest, shown

if TYPE_CHECKING:
    from theory.flow import Flow


def expression(name: str, value: Any, symbols: Mapping[str, sp.Expr]) -> sp.Expr:
    """Read a number or SymPy expression, in which symbols are those of a table, by name.

    Raises
    ------
    ParameterError
        For anything else: text, arrays, true or false, infinity.
    """
    try:
        read = None if isinstance(value, bool) else sp.sympify(value, strict=True)
    except (sp.SympifyError, TypeError, ValueError, AttributeError):
        read = None
    refused = (sp.nan, sp.zoo, sp.oo, -sp.oo, sp.Indexed)
    unfit = not isinstance(read, sp.Expr) or read.is_Matrix or read.has(*refused)
    if unfit or any(abs(x) > sys.float_info.max for x in read.atoms(sp.Number)):
        raise ParameterError(
            f"{name} = {shown(value)}: must be a number or a SymPy expression in plain symbols"
        )
    named = {s: symbols.get(getattr(s, "name", ""), s) for s in read.free_symbols}
    changed = {s: new for s, new in named.items() if new != s}
    return read.subs(changed, simultaneous=True) if changed else read


def by_name(words: str, values: Any, known: Iterable[sp.Symbol]) -> dict[sp.Symbol, Any]:
    """Values by symbol, which may be given by name or with other assumptions.

    Raises
    ------
    ParameterError
        For a name that is unknown or occurs twice, with ``words``, which hold ``{}`` for the name.
    """
    symbols, found = {x.name: x for x in known}, {}
    if not isinstance(values, Mapping):
        raise ParameterError(f"{words.format(shown(values))}: must be a mapping, as {{x: 1}}")
    for name, value in ((getattr(key, "name", key), v) for key, v in values.items()):
        if name not in symbols or symbols[name] in found:
            hint = nearest(str(name), symbols)
            raise ParameterError(
                f"{words.format(name)}; {hint}there are {', '.join(symbols)}, each once"
            )
        found[symbols[name]] = value
    return found


def unify(flow: Flow) -> dict[str, Any]:
    """Fields of a flow: values are expressions, and symbols of one name are one symbol, whatever
    their assumptions.

    Raises
    ------
    ParameterError
        For keys that are no symbols, values that are no expressions, names of two quantities, a
        missing initial value, or one that depends on order parameters or time.
    """
    for part in (flow.rhs, flow.where, flow.observables, flow.second_order):
        if not isinstance(part, Mapping):
            raise ParameterError(f"{flow.name}: {shown(part)} must be a mapping, as {{x: -x}}")
    keys = [flow.time, *flow.rhs, *flow.where]
    for key in keys:
        if not isinstance(key, sp.Symbol):
            raise ParameterError(f"{flow.name}: {shown(key)} must be a symbol, as symbol('x')")
    names = [x.name for x in keys]
    distinct(flow.name, names)
    distinct(flow.name, [*names[: 1 + len(flow.rhs)], *flow.observables])
    initial = by_name("initial: {} is no order parameter", flow.initial, flow.rhs)
    symbols: dict[str, sp.Expr] = {x.name: x for x in keys}

    def read(values: Mapping[Any, Any]) -> dict[Any, sp.Expr]:
        exprs = {x: expression(f"{flow.name}: {x}", v, {}) for x, v in values.items()}
        for s in (s for e in exprs.values() for s in sorted(e.free_symbols, key=str)):
            symbols.setdefault(str(s), s)
        return {x: expression(str(x), e, symbols) for x, e in exprs.items()}

    rates, start = read(flow.rhs), read(initial)
    for x in flow.rhs:
        if x not in start or start[x].free_symbols & {*keys}:
            raise ParameterError(f"{flow.name}: {x} has no start, an expression in parameters")
    more = {part: read(getattr(flow, part)) for part in ("where", "observables", "second_order")}
    return {"rhs": rates, "initial": {x: start[x] for x in rates}, **more}


def distinct(words: str, names: Iterable[Any]) -> None:
    """Raise an error for a name that occurs twice, or that is no text."""
    seen: set[Any] = set()
    for name in names:
        if name in seen or not isinstance(name, str):
            raise ParameterError(f"{words}: {shown(name)} is used twice, or no name; rename it")
        seen.add(name)


def quantities(flow: Flow, values: Mapping[str, Any]) -> dict[str, sp.Expr]:
    """Events of a flow, with abbreviations and observables spelled out.

    Parameters
    ----------
    flow : Flow
        The flow.
    values : mapping
        By name: expressions in order parameters, time, abbreviations, observables and parameters,
        as ``loss - 0.1``; relations, ``loss < 0.1``; or the name of a quantity that crosses zero.

    Raises
    ------
    ParameterError
        If one is no expression, or one that nothing changes.
    """
    if not isinstance(values, Mapping):
        raise ParameterError(f"events = {shown(values)}: must be a mapping, as {{'half': x - 0.5}}")
    distinct("events", [flow.time.name, *map(str, flow.state), *flow.observables, *values])
    exprs = [*flow.expanded.values(), *flow.initial.values()]
    symbols = {*flow.state, flow.time, *flow.where}.union(*(e.free_symbols for e in exprs))
    known = {s.name: s for s in symbols} | dict(flow.observables)
    found = {}
    for label, value in values.items():
        value = known.get(value, value) if isinstance(value, str) else value
        value = value.lhs - value.rhs if isinstance(value, Relational) else value
        expr = found[label] = flow._spell(expression(f"event {label}", value, known))
        if not expr.free_symbols:
            raise ParameterError(f"event {label} = {shown(value)}: never changes")
    return found
