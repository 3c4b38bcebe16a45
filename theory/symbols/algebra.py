"""Algebra shared by the derivations: long expressions rebuilt and differentiated, sums
over Kronecker deltas, moments of Gaussians, Taylor polynomials, and rewriting a result
in a chosen form.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp
from sympy.concrete.delta import deltasummation

from theory.symbols import fractions
from theory.symbols.reading import sympified

Rebuild = Callable[[sp.Expr], sp.Expr]


def nodes(expr: sp.Basic) -> set[sp.Basic]:
    """All parts of an expression, each once:
    those of a long one share most of theirs.
    """
    found: set[sp.Basic] = set()
    ahead = [expr]
    while ahead:
        if (part := ahead.pop()) not in found:
            found.add(part)
            ahead.extend(part.args)
    return found


def rebuilt(
    expr: sp.Expr, rule: Callable[[sp.Expr, Rebuild], sp.Expr | None]
) -> sp.Expr:
    """An expression rebuilt from its parts, each of which is visited once.

    ``rule(part, of)`` gives what a part becomes, or None for the same of new parts.
    """
    known: dict[sp.Expr, sp.Expr] = {}

    def of(e: sp.Expr) -> sp.Expr:
        if e not in known:
            made = rule(e, of)
            known[e] = (
                (e.func(*map(of, e.args)) if e.args else e) if made is None else made
            )
        return known[e]

    return of(expr)


def replaced(expr: sp.Expr, by: Mapping[sp.Expr, sp.Expr]) -> sp.Expr:
    """An expression with some subexpressions replaced."""
    return rebuilt(expr, lambda e, of: by.get(e))


def slope(expr: sp.Expr, x: sp.Symbol) -> sp.Expr:
    """Derivative of an expression in real symbols."""
    if expr.has(sp.Abs, sp.sign) and (
        real := {
            s: sp.Symbol(s.name, real=True)
            for s in expr.free_symbols
            if s.is_real is None
        }
    ):
        found = slope(expr.xreplace(real), real.get(x, x)).replace(
            sp.DiracDelta, lambda *_: 0
        )
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
            other_factors = (
                sp.Mul(*e.args[:k], *e.args[k + 1 :]) for k in range(len(inner))
            )
            return sp.Add(
                *(d * r for d, r in zip(inner, other_factors, strict=True) if d != 0)
            )
        if e.is_Pow and inner[1] == 0:
            return inner[0] * e.exp * e.base ** (e.exp - 1)
        outer = {sp.exp: e, sp.log: 1 / e.args[0]}
        return inner[0] * outer[e.func] if e.func in outer else sp.diff(e, x)

    return rebuilt(expr, rule)


def delta_sum(expr: sp.Expr, *limits: tuple[sp.Symbol, sp.Expr, sp.Expr]) -> sp.Expr:
    """Sum over the given indices, resolving deltas; every free index is assumed to lie
    in its range.
    """
    expr = sympified(expr)
    for limit in limits:
        terms = sp.Add.make_args(sp.expand(expr))
        expr = sp.Add(*(_term_sum(term, *limit) for term in terms))
    return sp.expand(expr)


def _term_sum(term: sp.Expr, index: sp.Symbol, low: sp.Expr, high: sp.Expr) -> sp.Expr:
    """Sum of one product over one index: a constant times the range, the term selected
    by a delta, or an unevaluated sum.
    """
    if not term.has(index):
        return term * (high - low + 1)
    for delta in sorted(term.atoms(sp.KroneckerDelta), key=str):
        if index in delta.args:
            (other,) = set(delta.args) - {index}
            return (term / delta).subs(index, other)
    return deltasummation(term, (index, low, high), no_piecewise=True)


def gaussian_moment(
    variables: Sequence[Any], covariance: Callable[[Any, Any], sp.Expr]
) -> sp.Expr:
    """Mean of a product of jointly Gaussian variables of mean zero: the sum over all
    ways to pair them of the product of the pairs' covariances (Isserlis).

    Parameters
    ----------
    variables : sequence
        Labels that ``covariance(x, y)`` accepts; a label may be repeated.
    """
    if not variables:
        return sp.S.One
    first, *others = variables
    rests = (others[:n] + others[n + 1 :] for n in range(len(others)))
    pairs = (
        (covariance(first, x), unpaired)
        for x, unpaired in zip(others, rests, strict=True)
    )
    return sp.Add(
        *(c * gaussian_moment(unpaired, covariance) for c, unpaired in pairs if c != 0)
    )


def linear_root(expr: sp.Expr, unknown: sp.Symbol) -> sp.Expr:
    """Root of an expression linear in ``unknown``.

    Raises
    ------
    ArithmeticError
        If it is not linear.
    """
    expr = sympified(expr)
    slope = sp.diff(expr, unknown)
    if slope == 0 or slope.has(unknown):
        raise ArithmeticError(f"{expr} is not linear in {unknown}")
    return -expr.subs(unknown, 0) / slope


def delta_gradient(total: sp.Expr, entry: sp.Expr) -> sp.Expr:
    """Derivative of a multi-index sum with respect to one array entry, whose indices
    are assumed to lie in range.

    Each ``Sum`` is differentiated under the summation sign, then the resulting deltas
    are resolved.
    """
    result = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(sympified(total))):
        coefficient, sums = term.as_independent(sp.Sum)
        if not isinstance(sums, sp.Sum):
            raise TypeError(f"expected a multiple of one sum, got {term}")
        inner = sp.expand(sp.diff(sums.function, entry))
        result += coefficient * delta_sum(inner, *sums.limits)
    return result


def vanishes(expr: sp.Expr) -> bool:
    """Whether an expression is shown to be identically zero.

    Of fractions of symbols, exponentials, logarithms, roots, trigonometric functions
    and functions of which nothing is known that is a decision: what is not shown to be
    zero is not zero. Of sums, integrals and other functions only linearity is known.
    """
    expr = sympified(expr)
    try:
        return bool(fractions.Field(expr).fraction(expr).top == 0)
    except fractions.NotRational:
        return False


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
    """Return ``form`` in place of ``derived`` after proving that the two are equal.
    This gives a derived result the grouping that a reader expects.

    Raises
    ------
    ArithmeticError
        If ``form`` is not shown to equal ``derived``.
    """
    if not vanishes(sympified(form) - sympified(derived)):
        raise ArithmeticError(f"{form} is not the derived {derived}")
    return form


MOST = 32  # leading orders that may cancel


def truncated(expr: sp.Expr, order: int, small: sp.Symbol) -> sp.Expr:
    """Taylor polynomial of an expression built from sums, products, powers and
    functions.

    Same result as ``sympy.series``, several times faster.

    Raises
    ------
    ValueError
        If it has no Taylor series, or more than `MOST` leading orders cancel.
    """
    expr, size = sympified(expr), order + 1
    while True:  # if leading powers cancel, recompute with more terms
        first, coefficients = _laurent(expr, size, small)
        missing = order + 1 - first - len(coefficients)
        if missing <= 0:
            break
        size += missing
        if size > order + MOST:
            raise ValueError(f"{expr}: something in it has no leading power of {small}")
    powers = (
        c * small ** (first + k)
        for k, c in enumerate(coefficients)
        if first + k <= order
    )
    return sp.expand(sp.Add(*powers))


def _laurent(expr: sp.Expr, size: int, small: sp.Symbol) -> tuple[int, list[sp.Expr]]:
    """Lowest power and the coefficients from there on, the first one nonzero. As many
    as are known if every leaf of the expression is expanded to ``size`` coefficients.
    """
    if not expr.has(small):
        return 0, [expr] + [sp.S.Zero] * (size - 1)
    if expr == small:
        return 1, [sp.S.One] + [sp.S.Zero] * (size - 1)
    if expr.is_Add:
        parts = [_laurent(a, size, small) for a in expr.args]
        low = min(v for v, _ in parts)
        end = min(v + len(c) for v, c in parts)
        total = []
        for k in range(low, end):
            of_power = [c[k - v] for v, c in parts if k >= v]
            total.append(sp.expand(sp.Add(*of_power)))
        return _leading(low, total)
    if expr.is_Mul:
        low, product = 0, [sp.S.One] + [sp.S.Zero] * (size - 1)
        for v, c in (_laurent(a, size, small) for a in expr.args):
            low += v
            product = _product(product, c)
        return low, product
    if isinstance(expr, sp.exp):
        shifted = _taylor(expr, expr.exp, size, small)
        powers = [sp.exp(x) for x in shifted[:1]]
        for k in range(1, len(shifted)):  # f' = g' f
            powers.append(_of_slopes(shifted, powers, k))
        return 0, powers
    if expr.is_Pow and not expr.exp.has(small):
        v, c = _laurent(expr.base, size, small)
        power = expr.exp
        powers = [x**power for x in c[:1]]
        for k in range(1, len(c)):  # g f' = power g' f
            terms = (
                (power * i - (k - i)) * c[i] * powers[k - i] for i in range(1, k + 1)
            )
            powers.append(sp.expand(sp.Add(*terms) / (k * c[0])))
        return int(v * power), powers
    if isinstance(expr, sp.Function) and len(expr.args) == 1:
        shifted = _taylor(expr, expr.args[0], size, small)
        z = sp.Dummy("z")
        slope = sp.diff(expr.func(z), z)
        if sp.diff(expr.func(z), z, 2).has(expr.func) or slope.has(expr.func):
            composed = _composed(expr.func, shifted, z)
            if any(c.has(sp.nan, sp.zoo) for c in composed):
                raise ValueError(
                    f"{expr}: its derivatives are not known at {small} = 0"
                )
            return _leading(0, composed)
        rate = _taylor(expr, slope.subs(z, expr.args[0]), size, small)
        powers = [expr.func(x) for x in shifted[:1]]
        for k in range(1, min(len(shifted), len(rate) + 1)):  # h' = f'(g) g'
            powers.append(_of_slopes(shifted, rate, k))
        return _leading(0, powers)
    raise ValueError(f"{expr}: not a sum, product, power or function")


def _of_slopes(inner: list[sp.Expr], rate: list[sp.Expr], k: int) -> sp.Expr:
    """Coefficient of the function whose slope is ``rate`` times that of ``inner``."""
    terms = [i * inner[i] * rate[k - i] for i in range(1, k + 1)]
    return sp.expand(sp.Add(*terms) / k)


def _composed(
    function: type[sp.Function], inner: list[sp.Expr], z: sp.Symbol
) -> list[sp.Expr]:
    """Coefficients of a function of a series, by Horner's rule from its derivatives: of
    sine, whose derivatives lead back to itself.
    """
    moved = [sp.S.Zero, *inner[1:]]
    sums = [sp.S.Zero] * len(inner)
    for k in reversed(range(len(inner))):
        sums = _product(sums, moved)
        sums[0] += sp.diff(function(z), z, k).subs(z, inner[0]) / sp.factorial(k)
    return sums


def _taylor(expr: sp.Expr, part: sp.Expr, size: int, small: sp.Symbol) -> list[sp.Expr]:
    """Coefficients of a subexpression, starting with the constant."""
    v, c = _laurent(part, size, small)
    if v < 0 and c:
        raise ValueError(f"{expr}: no Taylor series")
    return [sp.S.Zero] * v + c


def _product(a: list[sp.Expr], b: list[sp.Expr]) -> list[sp.Expr]:
    """Coefficients of a product of two series, up to the shorter one."""
    coefficients = []
    for k in range(min(len(a), len(b))):
        terms = [a[i] * b[k - i] for i in range(k + 1) if a[i] and b[k - i]]
        coefficients.append(sp.expand(sp.Add(*terms)) if terms else sp.S.Zero)
    return coefficients


def _leading(low: int, coefficients: list[sp.Expr]) -> tuple[int, list[sp.Expr]]:
    """Drop leading zeros."""
    zeros = next((k for k, c in enumerate(coefficients) if c != 0), len(coefficients))
    return low + zeros, coefficients[zeros:]
