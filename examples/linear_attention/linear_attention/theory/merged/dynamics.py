"""One matrix for key and query: flow of the heads, what it conserves, and how it leaves zero."""

from __future__ import annotations

from functools import cache

import sympy as sp

from linear_attention.theory import symbols as S
from linear_attention.theory import task
from linear_attention.theory.symbols import (
    D,
    G,
    U,
    W,
    a,
    along,
    d,
    g,
    h,
    i,
    j,
    k,
    l,
    lam,
    rate,
    t,
    u,
    v,
    value,
)
from theory.algebra import delta_gradient, delta_sum
from theory.equation import Equation
from theory.flow import Flow
from theory.notation import symbol

HEADS = "W = sum_h v_h U_h"
ONE = "U = diag(u_d), one effective head"
EARLY = "W = 0 in the force"


def summed(expr: sp.Expr) -> sp.Expr:
    """Sum over both directions."""
    return sp.Sum(expr, (i, 1, D), (j, 1, D))


@cache
def equations() -> dict[str, Equation]:
    """Rates of the heads, invariants, early growth, and one effective head for any Lambda."""
    weight = sp.Sum(v[h] * U[h, i, j], (h, 1, S.H))
    of_v = summed(G[i, j] * delta_gradient(weight, v[g]))  # dv/dt = sum_ij G_ij dW_ij/dv
    of_U = delta_sum(G[i, j] * delta_gradient(weight, U[g, k, l]), (i, 1, D), (j, 1, D))
    # d/dt of v_g v_h - tr(U_g^T U_h), under one sum
    rate_of = {x: of_U.subs({g: x, k: i, l: j}) for x in (g, h)}
    moved = sum(
        of_v.function.subs(g, x) * v[y] - rate_of[x] * U[y, i, j] for x, y in ((g, h), (h, g))
    )
    if sp.expand(moved) != 0:
        raise ArithmeticError("v_g v_h - tr(U_g^T U_h) is not conserved")
    force = task.equations()["force"].rhs
    # Early: G = Lambda^2. Of U only the part along Lambda^2 meets it: u = tr(U^T Lambda^2) / rate.
    early = force.subs(W[k, l], 0).subs({k: i, l: j})
    size = sp.Sum(delta_sum(early**2, (j, 1, D)), (i, 1, D))  # |Lambda^2|_F^2
    matrix = sp.Matrix([[0, rate], [size / rate, 0]]).subs(size, rate**2)  # of (v, u)
    grown = (matrix * t).exp() * sp.Matrix([value, along])
    v_early, u_early = (sp.simplify(x.rewrite(sp.cosh)) for x in grown)
    # One head along the eigenvectors stays there: D + 1 numbers.
    diagonal = force.subs(W[k, l], value * u[k] * sp.KroneckerDelta(k, l)).subs(l, k).subs(k, d)
    of_value = sp.Sum(u[d] * diagonal, (d, 1, D))
    invariant = v[g] * v[h] - summed(U[g, i, j] * U[h, i, j])
    return {
        **S.table(
            "merged: gradient flow and conservation law",
            (HEADS,),
            merged_dv_dt=(sp.Derivative(v[g], t), of_v),
            merged_dU_dt=(sp.Derivative(U[g, k, l], t), of_U),
            merged_invariant=(symbol("kappa_gh", r"\kappa_{gh}"), invariant),
        ),
        **S.table(
            "merged: early dynamics",
            (EARLY, "any head; v and u at t = 0"),
            "leading order",
            merged_rate=(rate, sp.sqrt(size)),
            merged_v_early=(symbol("v_t", "v(t)"), v_early),
            merged_u_early=(symbol("u_t", "u(t)"), u_early),
        ),
        **S.table(
            "merged: any Lambda",
            (ONE,),
            merged_dvalue_dt=(sp.Derivative(value, t), of_value),
            merged_du_dt=(sp.Derivative(u[d], t), value * diagonal),
        ),
    }


@cache
def flow(size: int) -> Flow:
    """Value and D = ``size`` directions of one effective head, from sqrt(P_0) along Lambda^2."""
    known = equations()
    entries = {
        n: {base[n]: symbol(f"{name}_{n}") for base, name in ((u, "u"), (a, "a"), (lam, "lambda"))}
        for n in range(1, size + 1)
    }
    every = {x: y for row in entries.values() for x, y in row.items()}
    squares = {n: row[lam[n]] ** 2 for n, row in entries.items()}
    rates = {value: known["merged_dvalue_dt"].rhs.subs(D, size).doit().xreplace(every)}
    rates |= {
        row[u[n]]: known["merged_du_dt"].rhs.subs(d, n).xreplace(every)
        for n, row in entries.items()
    }
    steps = task.equations()["loss"].rhs.replace(
        sp.Sum, lambda x, *limits: sp.Sum(x.subs(j, i), limits[0])
    )
    weights = {W[n, n]: value * row[u[n]] for n, row in entries.items()}
    return Flow(
        f"merged_{size}",
        t,
        rates,
        {
            value: sp.sqrt(S.P_0),
            **{row[u[n]]: sp.sqrt(S.P_0) * squares[n] / rate for n, row in entries.items()},
        },
        "zhang2025, merged: any Lambda",
        "leading order",
        (ONE, "heads collapse to one while W is small"),
        observables={"loss": steps.subs(D, size).doit().xreplace(weights | every)},
    )
