"""Formulas and names of a page."""

import html
from typing import Any

import sympy as sp
from sympy.printing.mathml import mathml

from theory.flow import Flow

LONGEST = 600  # operations of a formula that is shown


def formulas(flow: Flow) -> str:
    """MathML of the equations and of their abbreviations."""
    shown = [(e.lhs, e.rhs) for e in flow.equations().values()] + list(flow.where.items())
    return "".join(formula(left, right) for left, right in shown)


def formula(left: Any, right: sp.Expr) -> str:
    """MathML of one equation."""
    if sp.count_ops(right) > LONGEST:
        return f"<p>{html.escape(str(left))} = ... (<code>python -m theory.latex</code>)</p>"
    body = mathml(sp.Eq(left, right, evaluate=False), printer="presentation").replace("&dd;", "d")
    return f'<math display="block">{body}</math>'


def word(name: str) -> str:
    """A name as a letter with subscripts; one with a long subscript as words."""
    _, *subscripts = name.split("_")
    if max(map(len, subscripts), default=0) > 2 and not name.endswith("_omega"):
        return name.replace("_", " ")
    return str(sp.pretty(sp.Symbol(name)))
