"""JavaScript of expressions, printed by SymPy."""

from collections.abc import Mapping
from typing import Any

import sympy as sp
from sympy.printing.jscode import JavascriptCodePrinter

from theory.parameters import ParameterError


class Printer(JavascriptCodePrinter):
    """JavaScript of expressions, polygamma functions included."""

    def _print_polygamma(self, expr: sp.Expr) -> str:
        return f"polygamma({', '.join(map(self._print, expr.args))})"


def written(expr: sp.Expr) -> str:
    """An expression in JavaScript.

    Raises
    ------
    ParameterError
        Naming what JavaScript has no function for.
    """
    expr = expr.xreplace({c: c.evalf(17) for c in expr.atoms(sp.NumberSymbol)})
    _, missing, text = Printer({"human": False}).doprint(expr)
    if missing:
        raise ParameterError(f"no JavaScript for {', '.join(map(str, missing))}")
    return text


def function(arguments: Mapping[str, list[sp.Symbol]], value: list[Any]) -> str:
    """JavaScript function of arrays, such as ``(y, p) => [...]``; lists may be nested once."""
    places = {
        x: sp.Symbol(f"{name}[{i}]") for name, of in arguments.items() for i, x in enumerate(of)
    }
    nested = isinstance(value[0], list)
    rows = value if nested else [value]
    flat = [sp.sympify(e, strict=True).xreplace(places) for row in rows for e in row]
    shared, flat = sp.cse(flat, symbols=sp.numbered_symbols("c"))
    lines = "".join(f"const {x} = {written(e)}; " for x, e in shared)
    parts = iter(map(written, flat))
    lists = [f"[{', '.join(next(parts) for _ in row)}]" for row in rows]
    result = f"[{', '.join(lists)}]" if nested else lists[0]
    return f"({', '.join(arguments)}) => {{ {lines}return {result}; }}"
