"""Algebra shared by the derivations: long expressions rebuilt and differentiated, sums over
Kronecker deltas, moments of Gaussians, and rewriting a result in a chosen form.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp
from sympy.concrete.delta import deltasummation

Rebuild = Callable[[sp.Expr], sp.Expr]


def rebuilt(expr: sp.Expr, rule: Callable[[sp.Expr, Rebuild], sp.Expr | None]) -> sp.Expr:
    """An expression rebuilt from its parts, each of which is visited once.

    ``rule(part, of)`` gives what a part becomes, or None for the same of new parts.
    """
    known: dict[sp.Expr, sp.Expr] = {}

    def of(e: sp.Expr) -> sp.Expr:
        if e not in known:
            made = rule(e, of)
            known[e] = (e.func(*map(of, e.args)) if e.args else e) if made is None else made
        return known[e]

    return of(expr)


def replaced(expr: sp.Expr, by: Mapping[sp.Expr, sp.Expr]) -> sp.Expr:
    """An expression with some subexpressions replaced."""
    return rebuilt(expr, lambda e, of: by.get(e))


def slope(expr: sp.Expr, x: sp.Symbol) -> sp.Expr:
    """Derivative of an expression in real symbols."""
    if expr.has(sp.Abs, sp.sign) and (
        real := {s: sp.Symbol(s.name, real=True) for s in expr.free_symbols if s.is_real is None}
    ):
        found = slope(expr.xreplace(real), real.get(x, x)).replace(sp.DiracDelta, lambda *_: 0)
        return found.xreplace({new: old for old, new in real.items()})

    def rule(e: sp.Expr, of: Rebuild) -> sp.Expr:
        if not e.args:
            return sp.Integer(e == x)
        if not isinstance(e, sp.Add | sp.Mul | sp.Pow | sp.exp | sp.log):
            return sp.diff(e, x)
        inner = list(map(of, e.args))
        if e.is_Add or not any(inner):
            return sp.Add(*inner)
        if e.is_Mul:
            other_factors = (sp.Mul(*e.args[:k], *e.args[k + 1 :]) for k in range(len(inner)))
            return sp.Add(*(d * r for d, r in zip(inner, other_factors, strict=True) if d != 0))
        if e.is_Pow and inner[1] == 0:
            return inner[0] * e.exp * e.base ** (e.exp - 1)
        outer = {sp.exp: e, sp.log: 1 / e.args[0]}
        return inner[0] * outer[e.func] if e.func in outer else sp.diff(e, x)

    return rebuilt(expr, rule)


def delta_sum(expr: sp.Expr, *limits: tuple[sp.Symbol, sp.Expr, sp.Expr]) -> sp.Expr:
    """Sum over the given indices, resolving deltas; every free index is assumed to lie in its
    range.
    """
    for limit in limits:
        terms = sp.Add.make_args(sp.expand(expr))
        expr = sp.Add(*(_term_sum(term, *limit) for term in terms))
    return sp.expand(expr)


def _term_sum(term: sp.Expr, index: sp.Symbol, low: sp.Expr, high: sp.Expr) -> sp.Expr:
    """Sum of one product over one index: a constant times the range, the term selected by a delta,
    or an unevaluated sum.
    """
    if not term.has(index):
        return term * (high - low + 1)
    for delta in sorted(term.atoms(sp.KroneckerDelta), key=str):
        if index in delta.args:
            (other,) = set(delta.args) - {index}
            return (term / delta).subs(index, other)
    return deltasummation(term, (index, low, high), no_piecewise=True)


def gaussian_moment(variables: Sequence[Any], covariance: Callable[[Any, Any], sp.Expr]) -> sp.Expr:
    """Mean of a product of jointly Gaussian variables of mean zero: the sum over all ways to pair
    them of the product of the pairs' covariances (Isserlis).

    Parameters
    ----------
    variables : sequence
        Labels that ``covariance(x, y)`` accepts; a label may be repeated.
    """
    if not variables:
        return sp.S.One
    first, *others = variables
    rests = (others[:n] + others[n + 1 :] for n in range(len(others)))
    pairs = ((covariance(first, x), unpaired) for x, unpaired in zip(others, rests, strict=True))
    return sp.Add(*(c * gaussian_moment(unpaired, covariance) for c, unpaired in pairs if c != 0))


def linear_root(expr: sp.Expr, unknown: sp.Symbol) -> sp.Expr:
    """Root of an expression linear in ``unknown``.

    Raises
    ------
    ArithmeticError
        If it is not linear.
    """
    slope = sp.diff(expr, unknown)
    if slope == 0 or slope.has(unknown):
        raise ArithmeticError(f"{expr} is not linear in {unknown}")
    return -expr.subs(unknown, 0) / slope


def delta_gradient(total: sp.Expr, entry: sp.Expr) -> sp.Expr:
    """Derivative of a multi-index sum with respect to one array entry, whose indices are assumed to
    lie in range.

    Each ``Sum`` is differentiated under the summation sign, then the resulting deltas are resolved.
    """
    result = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(total)):
        coefficient, sums = term.as_independent(sp.Sum)
        if not isinstance(sums, sp.Sum):
            raise TypeError(f"expected a multiple of one sum, got {term}")
        inner = sp.expand(sp.diff(sums.function, entry))
        result += coefficient * delta_sum(inner, *sums.limits)
    return result


def vanishes(expr: sp.Expr) -> bool:
    """Whether SymPy can show that an expression is identically zero.

    The expression is brought over one denominator and its numerator expanded, with trigonometric
    functions written as exponentials. Only if that is inconclusive is `sympy.simplify` called,
    which is slow.
    """
    expr = sp.sympify(expr, strict=True)
    forms = (lambda: expr, lambda: expr.rewrite(sp.exp))
    return (
        any(sp.expand(sp.numer(sp.together(form()))) == 0 for form in forms)
        or sp.simplify(expr) == 0
    )


def proved(holds: bool, otherwise: str) -> None:
    """Go on with a derivation only if a step of it holds.

    Raises
    ------
    ArithmeticError
        With the given words, if it does not.
    """
    if not holds:
        raise ArithmeticError(otherwise)


def written_as(form: sp.Expr, derived: sp.Expr) -> sp.Expr:
    """Return ``form`` in place of ``derived`` after proving that the two are equal. This gives a
    derived result the grouping that a reader expects.

    Raises
    ------
    ArithmeticError
        If SymPy cannot show that ``form`` equals ``derived``.
    """
    if not vanishes(form - derived):
        raise ArithmeticError(f"{form} is not the derived {derived}")
    return form
