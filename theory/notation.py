"""Symbols with their printed forms and meanings."""

import sys
from collections.abc import Callable
from typing import Any

import sympy as sp

NAMES: dict[sp.Symbol, str] = {}
_MEANINGS: dict[tuple[str, Any], str] = {}  # by module and symbol: models share letters


def symbol(name: str, latex: str | None = None, means: str = "", **assumptions: Any) -> sp.Symbol:
    """Make a symbol with its LaTeX form (if that differs from its name) and its meaning."""
    return _meaning(_named(sp.Symbol(name, **assumptions), latex), means)


def array(
    name: str, latex: str | None = None, means: str = "", **assumptions: Any
) -> sp.IndexedBase:
    """Make an indexed array (real by default) with its LaTeX form and meaning."""
    made = sp.IndexedBase(name, **(assumptions or {"real": True}))
    _named(made.label, latex)
    return _meaning(made, means)


def function(name: str, means: str = "") -> Any:
    """Make an undefined function with its meaning."""
    return _meaning(sp.Function(name), means)


def meanings(inside: Callable[[str], bool]) -> dict[Any, list[str]]:
    """Meanings of symbols, arrays and functions, as given in the modules that define them.
    ``inside`` selects modules by name.
    """
    said: dict[Any, list[str]] = {}
    for (module, made), text in _MEANINGS.items():
        if inside(module) and text not in said.setdefault(made, []):
            said[made].append(text)
    return said


def _meaning(made: Any, means: str) -> Any:
    if means:
        # Stored under the module that calls `symbol`, `array` or `function`. A symbol cannot carry
        # its meaning itself, as SymPy keeps equal symbols as one object.
        _MEANINGS[sys._getframe(2).f_globals["__name__"], made] = means
    return made


def _named(made: sp.Symbol, latex: str | None) -> sp.Symbol:
    for other, printed in NAMES.items():
        if latex and other.name == made.name and printed != latex:
            raise ValueError(f"{made}: printed as both {printed} and {latex}")
    if latex:
        NAMES[made] = latex
    return made
