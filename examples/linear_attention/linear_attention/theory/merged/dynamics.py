"""One matrix for key and query: flow of the heads, invariants, and growth from zero."""

from __future__ import annotations

from functools import cache

import sympy as sp

from linear_attention.theory import symbols as S
from linear_attention.theory import task
from linear_attention.theory.scope import MERGED
from linear_attention.theory.symbols import D, U, along, d, g, h, i, j, k, l, lam, rate, t, u, value
from theory.algebra import delta_sum
from theory.equation import Equation
from theory.flow import Flow
from theory.notation import symbol

HEADS = "W = sum_h v_h U_h"
ONE = "U = diag(u_d), one effective head"


def summed(expr: sp.Expr) -> sp.Expr:
    """Sum over both directions."""
    return sp.Sum(expr, (i, 1, D), (j, 1, D))


@cache
def equations() -> dict[str, Equation]:
    """Rates of the heads, invariants, early growth, and one effective head for any Lambda."""
    v, weight = S.v, sp.Sum(S.v[h] * U[h, i, j], (h, 1, S.H))
    of_v = summed(task.pull(weight, v[g]))
    of_U = delta_sum(task.pull(weight, U[g, k, l]), (i, 1, D), (j, 1, D))
    moved = sp.S.Zero  # d/dt of v_g v_h - tr(U_g^T U_h), under one sum
    for one, other in ((g, h), (h, g)):
        moved += of_v.function.subs(g, one) * v[other]
        moved -= of_U.subs({g: one, k: i, l: j}) * U[other, i, j]
    if sp.expand(moved) != 0:
        raise ArithmeticError("v_g v_h - tr(U_g^T U_h) is not conserved")
    # Early: G = Lambda^2. Only the component of U along Lambda^2 contributes: u = tr(U^T Lambda^2)
    # / rate.
    size = sp.Sum(delta_sum(task.early_force() ** 2, (j, 1, D)), (i, 1, D))  # |Lambda^2|_F^2
    matrix = sp.Matrix([[0, rate], [size / rate, 0]]).subs(size, rate**2)  # of (v, u)
    start = sp.Matrix([value, along])
    grown = start * sp.cosh(rate * t) + start.permute([1, 0]) * sp.sinh(rate * t)
    if grown.subs(t, 0) != start or not (grown.diff(t) - matrix * grown).expand().is_zero_matrix:
        raise ArithmeticError("v and u do not grow together")
    v_early, u_early = grown
    pull = task.diagonal_force(value * u[k])  # one head along the eigenvectors stays there
    invariant = v[g] * v[h] - summed(U[g, i, j] * U[h, i, j])
    return {
        **S.table(
            "merged: gradient flow and conservation law",
            HEADS,
            status="exact",
            merged_dv_dt=(sp.Derivative(v[g], t), of_v),
            merged_dU_dt=(sp.Derivative(U[g, k, l], t), of_U),
            merged_invariant=(
                symbol("kappa_gh", r"\kappa_{gh}", "invariant of two heads"),
                invariant,
            ),
        ),
        **S.table(
            "merged: early dynamics",
            "W = 0 in the force",
            "any head; v and u at t = 0",
            status="leading order",
            merged_rate=(rate, sp.sqrt(size)),
            merged_v_early=(symbol("v_t", "v(t)", "value at t"), v_early),
            merged_u_early=(symbol("u_t", "u(t)", "weight along Lambda^2 at t"), u_early),
        ),
        **S.table(
            "merged: any Lambda",
            ONE,
            status="exact",
            merged_dvalue_dt=(sp.Derivative(value, t), sp.Sum(u[d] * pull, (d, 1, D))),
            merged_du_dt=(sp.Derivative(u[d], t), value * pull),
        ),
    }


@cache
def flow(size: int) -> Flow:
    """Flow of the value and D = ``size`` directions of one effective head, starting from sqrt(P_0)
    along Lambda^2.
    """

    def spelled(expr: sp.Expr, direction: int = 1) -> sp.Expr:
        """Expand sums, and replace array entries by symbols: u[2] becomes u_2."""
        return (expr.subs({D: size, d: direction}).doit()).replace(
            lambda x: isinstance(x, sp.Indexed), lambda x: symbol(f"{x.base.name}_{x.indices[0]}")
        )

    known, start = equations(), sp.sqrt(S.P_0)
    rates, initial = {value: spelled(known["merged_dvalue_dt"].rhs)}, {value: start}
    for n in range(1, size + 1):
        rates[spelled(u[d], n)] = spelled(known["merged_du_dt"].rhs, n)
        initial[spelled(u[d], n)] = spelled(start * lam[d] ** 2 / rate, n)
    loss = S.trace - sp.Sum(task.gained(value * u[d]), (d, 1, D))
    return Flow(
        f"merged_{size}",
        t,
        rates,
        initial,
        "zhang2025, merged: any Lambda",
        "leading order",
        (ONE, "heads collapse to one while W is small"),
        observables={"loss": spelled(loss)},
        scope=MERGED,
    )
