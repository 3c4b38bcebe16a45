"""LaTeX of expressions and equations."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from typing import TYPE_CHECKING

import sympy as sp
from sympy.printing.latex import LatexPrinter

from theory.notation import NAMES

if TYPE_CHECKING:
    from theory.equation import Equation

SETTINGS = {
    "mul_symbol": None,
    "fold_short_frac": False,
    "ln_notation": True,
    "parenthesize_super": True,
    "imaginary_unit": "i",
    "diff_operator": "d",
}
HALF = sp.Rational(1, 2)


class Printer(LatexPrinter):
    """SymPy's printer, with roots as written by hand: one root of a product, and the root of e."""

    def _print_Mul(self, expr: sp.Mul) -> str:
        number, product = expr.as_coeff_Mul(rational=True)
        factors = sp.Mul.make_args(product)
        over, under = ([x.base for x in factors if _is_root(x, s * HALF)] for s in (1, -1))
        for base in [x for x in over if under and x.is_Integer and number.q % x == 0]:
            number *= base  # sqrt(2) / (2 sqrt(pi)) is 1 / sqrt(2 pi)
            over.remove(base)
            under.append(base)
        if len(over) + len(under) < 2:
            return super()._print_Mul(expr)
        # Under a symbol that is printed so, as SymPy takes roots of products apart again.
        whole = sp.Dummy(positive=True)
        inside = sp.Mul(*over) / sp.Mul(*under) if over else sp.Mul(*under)
        self._settings["symbol_names"][whole] = self._print(inside)
        others = [x for x in factors if not (_is_root(x, HALF) or _is_root(x, -HALF))]
        return self._print(sp.Mul(number, *others, whole ** (HALF if over else -HALF)))

    def _print_ExpBase(self, expr: sp.exp, exp: str | None = None) -> str:
        if exp is None and abs(expr.exp) == HALF:
            root = r"\sqrt{e}"
            return root if expr.exp > 0 else rf"\frac{{1}}{{{root}}}"
        return super()._print_ExpBase(expr, exp)


def _is_root(expr: sp.Basic, power: sp.Rational) -> bool:
    return isinstance(expr, sp.Pow) and expr.exp == power and expr.base.is_number


def expression(expr: sp.Basic) -> str:
    """LaTeX of an expression with the toolkit's printer settings."""
    return Printer({**SETTINGS, "symbol_names": ChainMap({}, NAMES)}).doprint(expr)


def aligned(equations: Iterable[Equation]) -> str:
    """One ``aligned`` block of several equations."""
    lines = " \\\\\n".join("  " + e.latex(align=True) for e in equations)
    return f"\\begin{{aligned}}\n{lines}\n\\end{{aligned}}"
