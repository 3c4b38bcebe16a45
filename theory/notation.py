"""How symbols and formulas print: the one place with printer settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import sympy as sp

if TYPE_CHECKING:
    from theory.equation import Equation

_NAMES: dict[sp.Symbol, str] = {}


def symbol(name: str, latex: str | None = None, **assumptions: Any) -> sp.Symbol:
    """Make a symbol and, where its printed form differs from its name, say how it prints."""
    return _named(sp.Symbol(name, **assumptions), latex)


def array(name: str, latex: str | None = None) -> sp.IndexedBase:
    """Make an indexed array, with its printed form."""
    made = sp.IndexedBase(name, real=True)
    _named(made.label, latex)
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
