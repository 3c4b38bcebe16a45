"""Taylor polynomials by arithmetic on coefficients, several times faster than ``sympy.series``."""

from __future__ import annotations

import sympy as sp

MARGIN = 4  # orders that leading powers may cancel on the way


def truncated(expr: sp.Expr, order: int, small: sp.Symbol) -> sp.Expr:
    """Taylor polynomial of an expression built from sums, products, powers and functions.

    The same as ``sympy.series`` but by arithmetic on coefficients, several times faster.
    """
    size = order + MARGIN
    first, coefficients = _laurent(sp.sympify(expr, strict=True), size, small)
    return sp.expand(
        sum(
            (c * small ** (first + k) for k, c in enumerate(coefficients) if first + k <= order),
            sp.S.Zero,
        )
    )


def _laurent(expr: sp.Expr, size: int, small: sp.Symbol) -> tuple[int, list[sp.Expr]]:
    """Lowest power and the coefficients from there on, the first of them not zero."""
    if not expr.has(small):
        return 0, [expr] + [sp.S.Zero] * (size - 1)
    if expr == small:
        return 1, [sp.S.One] + [sp.S.Zero] * (size - 1)
    if expr.is_Add:
        parts = [_laurent(a, size, small) for a in expr.args]
        low = min(v for v, _ in parts)
        total = [
            sp.Add(*(c[k - v + low] for v, c in parts if 0 <= k - v + low < size))
            for k in range(size)
        ]
        return _leading(low, [sp.expand(c) for c in total])
    if expr.is_Mul:
        low, product = 0, [sp.S.One] + [sp.S.Zero] * (size - 1)
        for v, c in (_laurent(a, size, small) for a in expr.args):
            low += v
            product = _product(product, c)
        return low, product
    if isinstance(expr, sp.exp):
        v, c = _laurent(expr.exp, size, small)
        if v < 0:
            raise ValueError(f"{expr}: no Taylor series")
        shifted = ([sp.S.Zero] * v + c)[:size]
        found = [sp.exp(shifted[0])]
        for k in range(1, size):  # f' = g' f
            found.append(
                sp.expand(sp.Add(*(i * shifted[i] * found[k - i] for i in range(1, k + 1))) / k)
            )
        return 0, found
    if expr.is_Pow and not expr.exp.has(small):
        v, c = _laurent(expr.base, size, small)
        power = expr.exp
        found = [c[0] ** power]
        for k in range(1, size):  # g f' = power g' f
            terms = ((power * i - (k - i)) * c[i] * found[k - i] for i in range(1, k + 1))
            found.append(sp.expand(sp.Add(*terms) / (k * c[0])))
        return int(v * power), found
    if isinstance(expr, sp.Function) and len(expr.args) == 1:
        v, c = _laurent(expr.args[0], size, small)
        if v < 0:
            raise ValueError(f"{expr}: no Taylor series")
        shifted = ([sp.S.Zero] * v + c)[:size]
        z = sp.Dummy("z")
        low, rate = _laurent(sp.diff(expr.func(z), z).subs(z, expr.args[0]), size, small)
        rate = ([sp.S.Zero] * low + rate)[:size]
        found = [expr.func(shifted[0])]
        for k in range(1, size):  # h' = f'(g) g'
            found.append(
                sp.expand(sp.Add(*(i * shifted[i] * rate[k - i] for i in range(1, k + 1))) / k)
            )
        return _leading(0, found)
    raise ValueError(f"{expr}: not a sum, product, power or function")


def _product(a: list[sp.Expr], b: list[sp.Expr]) -> list[sp.Expr]:
    """Coefficients of a product of two series."""
    pairs = ([(a[i], b[k - i]) for i in range(k + 1) if a[i] and b[k - i]] for k in range(len(a)))
    return [
        sp.expand(sp.Add(*(x * y for x, y in found))) if found else sp.S.Zero for found in pairs
    ]


def _leading(low: int, coefficients: list[sp.Expr]) -> tuple[int, list[sp.Expr]]:
    """Drop leading zeros."""
    zeros = next((k for k, c in enumerate(coefficients) if c != 0), 0)
    return low + zeros, coefficients[zeros:] + [sp.S.Zero] * zeros
