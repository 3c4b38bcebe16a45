"""Spectrum of the training tasks: the Stieltjes transform of Marchenko and Pastur, and averages of
rational functions of the eigenvalues by it.
"""

from functools import cache

import sympy as sp

from linear_attention.proportional.symbols import M, M_z, kappa, r, slope, z
from theory.algebra import linear_root, written_as


@cache
def transform() -> sp.Expr:
    """M(z), the mean of 1/(r + z) over the eigenvalues r of R = (1/k) sum_mu w_mu w_mu^T.

    Leave one task w out of the resolvent: w^T (R + z)^-1 w / k follows from the same number without
    w, which is a mean, tr (R + z)^-1 / k.

    Raises
    ------
    ArithmeticError
        If it is not 1/z for large z.
    """
    left_out, whole = M / kappa, sp.Dummy("whole")
    whole = linear_root(whole - left_out + left_out * whole, whole)  # Sherman-Morrison
    # 1 = tr (R + z) (R + z)^-1 / d, and the k terms of R are alike
    roots = sp.solve(sp.numer(sp.together(kappa * whole + z * M - 1)), M)
    form = 2 / (z + 1 - 1 / kappa + sp.sqrt((z + 1 - 1 / kappa) ** 2 + 4 * z / kappa))
    decaying = [x for x in roots if sp.limit(x.subs(kappa, 2) * z, z, sp.oo) == 1]
    if len(decaying) != 1:
        raise ArithmeticError(f"M(z) is one of {decaying}")
    return written_as(form, decaying[0])


@cache
def derivative() -> sp.Expr:
    """M'(z) in terms of M and z, from the quadratic equation for M."""
    equation = z * M + M / (1 + M / kappa) - 1
    slope = -sp.diff(equation, z) / sp.diff(equation, M)
    return written_as(-M / (z + 1 / (1 + M / kappa) ** 2), slope)


def mean(of: sp.Expr) -> sp.Expr:
    """Mean over the eigenvalues r of a function whose only pole is at r = -z.

    In u = 1/(r + z), which has the mean M, and u^2 the mean -M'; r has the mean 1.

    Raises
    ------
    ArithmeticError
        For another function.
    """
    u = sp.Dummy("u")
    inside = sp.cancel(sp.together(of.subs(r, 1 / u - z)) * u)
    known = {0: 1 + z, 1: 1, 2: M_z, 3: -slope}
    if not inside.is_polynomial(u) or sp.degree(inside, u) > 3:
        raise ArithmeticError(f"{of}: no mean by M(z) and its derivative")
    return sum(c * known[n] for (n,), c in sp.Poly(inside, u).terms())
