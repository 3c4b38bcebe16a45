"""Symbols with their printed forms and meanings, and the LaTeX printer settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import sympy as sp

if TYPE_CHECKING:
    from theory.equation import Equation

_NAMES: dict[sp.Symbol, str] = {}
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
    for other, printed in _NAMES.items():
        if latex and other.name == made.name and printed != latex:
            raise ValueError(f"{made}: printed as both {printed} and {latex}")
    if latex:
        _NAMES[made] = latex
    return made


def expression(expr: sp.Basic) -> str:
    """LaTeX of an expression with the toolkit's printer settings."""
    return sp.latex(
        expr,
        symbol_names=_NAMES,
        mul_symbol=None,
        fold_short_frac=False,
        ln_notation=True,
        parenthesize_super=True,
        imaginary_unit="i",
        diff_operator="d",
    )


def aligned(equations: Iterable[Equation]) -> str:
    """One ``aligned`` block of several equations."""
    lines = " \\\\\n".join("  " + e.latex(align=True) for e in equations)
    return f"\\begin{{aligned}}\n{lines}\n\\end{{aligned}}"
