"""How symbols and formulas print: the one place with printer settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import sympy as sp

if TYPE_CHECKING:
    from theory.equation import Equation

_NAMES: dict[sp.Symbol, str] = {}
_MEANINGS: dict[tuple[str, Any], str] = {}  # by module and what it made: models share letters


def symbol(name: str, latex: str | None = None, means: str = "", **assumptions: Any) -> sp.Symbol:
    """Make a symbol; say how it prints, where that differs from its name, and what it means."""
    return _meaning(_named(sp.Symbol(name, **assumptions), latex), means)


def array(
    name: str, latex: str | None = None, means: str = "", **assumptions: Any
) -> sp.IndexedBase:
    """Make an indexed array, real at least, with its printed form and meaning."""
    made = sp.IndexedBase(name, **(assumptions or {"real": True}))
    _named(made.label, latex)
    return _meaning(made, means)


def function(name: str, means: str = "") -> Any:
    """Make an undefined function, with its meaning."""
    return _meaning(sp.Function(name), means)


def meanings(inside: Callable[[str], bool]) -> dict[Any, list[str]]:
    """What modules say of the symbols, arrays and functions that they make; ``inside`` picks the
    modules by name.
    """
    said: dict[Any, list[str]] = {}
    for (module, made), text in _MEANINGS.items():
        if inside(module) and text not in said.setdefault(made, []):
            said[made].append(text)
    return said


def _meaning(made: Any, means: str) -> Any:
    if means:
        # The module that calls `symbol`, `array` or `function`, as a symbol cannot carry a meaning:
        # SymPy makes equal symbols one object.
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
    """LaTeX of a bare expression in the house style."""
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
