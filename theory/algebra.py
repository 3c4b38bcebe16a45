"""Algebra the derivations share: sums that meet Kronecker deltas, and choosing a result's printed form."""

from __future__ import annotations

import sympy as sp
from sympy.concrete.delta import deltasummation


def delta_sum(expr: sp.Expr, *limits: tuple[sp.Symbol, sp.Expr, sp.Expr]) -> sp.Expr:
    """Sum over the given indices, resolving deltas; every free index is taken to lie in its range."""
    for limit in limits:
        expr = deltasummation(sp.expand(expr), limit, no_piecewise=True)
    return sp.expand(expr)


def delta_gradient(total: sp.Expr, entry: sp.Expr) -> sp.Expr:
    """Derivative of a multi-index sum with respect to one entry, its free indices lying in range.

    Linear in ``total``: each ``Sum`` is differentiated under the summation sign and the deltas
    that result are resolved.
    """
    result = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(total)):
        coefficient, sums = term.as_independent(sp.Sum)
        if not isinstance(sums, sp.Sum):
            raise TypeError(f"expected a multiple of one sum, got {term}")
        inner = sp.expand(sp.diff(sums.function, entry))
        result += coefficient * delta_sum(inner, *sums.limits)
    return result


def written_as(form: sp.Expr, derived: sp.Expr) -> sp.Expr:
    """Give a derived result the grouping a reader expects, having proved that the two are equal.

    Raises
    ------
    ArithmeticError
        If SymPy cannot show that ``form`` equals ``derived``.
    """
    if sp.simplify(form - derived) != 0:
        raise ArithmeticError(f"{form} is not the derived {derived}")
    return form
