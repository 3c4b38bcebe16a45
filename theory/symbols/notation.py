"""Symbols with their printed forms and meanings; expressions and names as users write
them.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError, nearest, shown, unwrapped
from theory.symbols.reading import sympified

Forms = dict[sp.Symbol, sp.Expr]  # expressions by the symbols that they stand for
NAMES: dict[sp.Symbol, str] = {}
_MEANINGS: dict[tuple[str, Any], str] = {}  # by module and symbol: models share letters


def symbol(
    name: str, latex: str | None = None, means: str = "", **assumptions: Any
) -> sp.Symbol:
    """Make a symbol with its LaTeX form (if that differs from its name) and its
    meaning.
    """
    return _meaning(_named(sp.Symbol(name, **assumptions), latex), means)


def array(
    name: str, latex: str | None = None, means: str = "", **assumptions: Any
) -> sp.IndexedBase:
    """Make an indexed array (real by default) with its LaTeX form and meaning."""
    distinct("array", [name])
    made = sp.IndexedBase(name, **(assumptions or {"real": True}))
    _named(made.label, latex)
    return _meaning(made, means)


def function(name: str, means: str = "") -> Any:
    """Make an undefined function with its meaning."""
    return _meaning(sp.Function(name), means)


def meanings(inside: Callable[[str], bool]) -> dict[Any, list[str]]:
    """Meanings of symbols, arrays and functions, as given in the modules that define
    them. ``inside`` selects modules by name.
    """
    said: dict[Any, list[str]] = {}
    for (module, made), text in _MEANINGS.items():
        if inside(module) and text not in said.setdefault(made, []):
            said[made].append(text)
    return said


def _meaning(made: Any, means: str) -> Any:
    if means:
        # Stored under the module that calls `symbol`, `array` or `function`. A symbol
        # cannot carry its meaning itself, as SymPy keeps equal symbols as one object.
        _MEANINGS[sys._getframe(2).f_globals["__name__"], made] = means
    return made


def _named(made: sp.Symbol, latex: str | None) -> sp.Symbol:
    for other, printed in NAMES.items():
        if latex and other.name == made.name and printed != latex:
            raise ValueError(f"{made}: printed as both {printed} and {latex}")
    if latex:
        NAMES[made] = latex
    return made


def expression(name: str, value: Any, symbols: Mapping[str, sp.Expr]) -> sp.Expr:
    """Read a number or SymPy expression, in which symbols are those of a table, by
    name.

    Raises
    ------
    ParameterError
        For anything else: text, containers, arrays, true or false, infinity.
    """
    value = unwrapped(name, value)
    try:
        read = None if isinstance(value, bool) else sympified(value)
    except (TypeError, ValueError, AttributeError):
        read = None
    refused = (sp.nan, sp.zoo, sp.oo, -sp.oo, sp.Indexed)
    if (
        not isinstance(read, sp.Expr)
        or read.is_Matrix
        or read.has(*refused)
        or any(abs(x) > sys.float_info.max for x in read.atoms(sp.Number))
    ):
        raise ParameterError(
            f"{name} = {shown(value)}: must be a number or a SymPy expression in plain"
            " symbols"
        )
    named = {s: symbols.get(getattr(s, "name", ""), s) for s in read.free_symbols}
    changed = {s: new for s, new in named.items() if new != s}
    return read.subs(changed, simultaneous=True) if changed else read


def mapping(what: str, values: Any, example: str) -> Mapping[Any, Any]:
    """A mapping, as it is given.

    Raises
    ------
    ParameterError
        For anything else, which takes the place of ``{}`` in ``what``, if that has one.
    """
    if not isinstance(values, Mapping):
        words = what if "{}" in what else f"{what}: {{}}"
        raise ParameterError(
            f"{words.format(shown(values))}: must be a mapping, as {example}"
        )
    return values


def by_name(
    words: str, values: Any, known: Iterable[sp.Symbol]
) -> dict[sp.Symbol, Any]:
    """Values by symbol, which may be given by name or with other assumptions.

    Raises
    ------
    ParameterError
        For a name that is unknown or occurs twice, with ``words``, which hold ``{}``
        for the name.
    """
    symbols, found = {x.name: x for x in known}, {}
    values = mapping(words, values, "{x: 1}")
    for name, value in ((getattr(key, "name", key), v) for key, v in values.items()):
        if name not in symbols or symbols[name] in found:
            hint = nearest(str(name), symbols)
            raise ParameterError(
                f"{words.format(name)}; {hint}there are {', '.join(symbols) or 'none'},"
                " each once"
            )
        found[symbols[name]] = value
    return found


def distinct(words: str, names: Iterable[Any]) -> None:
    """Raise an error for a name that occurs twice, or that is no text."""
    seen: set[Any] = set()
    for name in names:
        if name in seen or not isinstance(name, str):
            raise ParameterError(
                f"{words}: {shown(name)} is used twice, or no name; rename it"
            )
        seen.add(name)
