"""Separate key and query: flow of the heads, invariants, early time, aligned heads as scalars."""

from __future__ import annotations

from functools import cache

import sympy as sp

from linear_attention.theory import symbols as S
from linear_attention.theory import task
from linear_attention.theory.symbols import (
    D,
    G,
    K,
    Q,
    R,
    W,
    a,
    a_1,
    along,
    d,
    eta,
    g,
    h,
    i,
    j,
    k,
    l,
    lam,
    lam_1,
    minus,
    plus,
    r,
    s,
    t,
    tau,
    u,
    u_0,
    v,
    v_0,
    value,
)
from theory.algebra import delta_gradient, delta_sum, vanishes, written_as
from theory.equation import Equation
from theory.flow import Flow
from theory.notation import symbol

HEADS = "W = sum_h v_h K_h^T Q_h"
ROWS = "row r of K and Q along direction r, both of size u_r; v^2 = sum_r u_r^2"
ALIGNED = "v = k = q = u along direction 1"
EARLY = "W = 0 in the force"
LEVEL = "the drop is at (a/lambda) u^3 = 1/2, where three quarters of a step are gone"


@cache
def heads() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Rates of v_g, K[g, s, i] and Q[g, s, j], before the sums over i, j and r; over j; over i."""
    weight = sp.Sum(v[h] * K[h, r, i] * Q[h, r, j], (h, 1, S.H), (r, 1, R))
    of_v = G[i, j] * delta_gradient(weight, v[g]).function
    of_K, of_Q = (delta_gradient(weight, x[g, s, k]) * G[i, j] for x in (K, Q))
    return of_v, delta_sum(of_K, (i, 1, D)).subs(k, i), delta_sum(of_Q, (j, 1, D)).subs(k, j)


def conserved() -> None:
    """Prove both invariants, under the sums over i and j.

    Raises
    ------
    ArithmeticError
        If one is none.
    """
    of_v, of_K, of_Q = heads()
    norm = 2 * v[g] * of_v - 2 * K[g, r, i] * of_K.subs(s, r)
    pairs = [
        of_K * K[g, r, i] - of_Q * Q[g, r, j],
        of_K.subs(s, r) * K[g, s, i] - of_Q.subs(s, r) * Q[g, s, j],
    ]
    if not (vanishes(norm) and vanishes(sum(pairs))):
        raise ArithmeticError("an invariant of separate heads is not conserved")


@cache
def early() -> sp.Expr:
    """v^2 over tau, where dtau = v dt: k + q grows and k - q decays along every direction."""
    force = task.equations()["force"].rhs.subs(W[k, l], 0).subs({k: i, l: j})
    of_v, of_K, of_Q = (x.subs({G[i, j]: force, r: 1, s: 1, g: 1}) for x in heads())
    by_K, by_Q = delta_sum(of_K, (j, 1, D)) / v[1], delta_sum(of_Q, (i, 1, D)) / v[1]
    half = {K[1, 1, i]: plus[i] + minus[i], Q[1, 1, i]: plus[i] - minus[i]}
    sizes = {plus[i]: 1, minus[i]: -1}
    for x, sign in sizes.items():  # d(k +- q)/dtau = +- lambda^2 (k +- q)
        moved = (by_K + sign * by_Q.subs(j, i)).subs(half) / 2
        written_as(sign * lam[i] ** 2 * x, moved)
    grown = {x: x * sp.exp(sign * lam[i] ** 2 * tau) for x, sign in sizes.items()}
    slope = 2 * delta_sum(of_v, (j, 1, D)).subs(half).subs(grown, simultaneous=True)
    total = sp.integrate(sp.expand(slope), (tau, 0, tau))
    form = plus[i] ** 2 * (sp.exp(2 * lam[i] ** 2 * tau) - 1) + minus[i] ** 2 * (
        sp.exp(-2 * lam[i] ** 2 * tau) - 1
    )
    return v_0**2 + sp.Sum(written_as(form, total), (i, 1, D))


@cache
def aligned() -> tuple[sp.Expr, sp.Expr]:
    """Rates of v and u_d of one head whose row r lies along direction r."""
    of_v, of_K, _ = heads()
    rows = {
        K[g, r, i]: u[i] * sp.KroneckerDelta(r, i),
        Q[g, r, j]: u[j] * sp.KroneckerDelta(r, j),
        v[g]: value,
    }
    here = {Q[g, s, j]: u[s] * sp.KroneckerDelta(s, j), v[g]: value}
    weight = value * u[k] ** 2 * sp.KroneckerDelta(k, l)
    force = task.equations()["force"].rhs.subs(W[k, l], weight).subs(l, k).subs(k, d)
    of_value = sp.Sum(
        delta_sum(of_v.subs(rows), (i, 1, D), (j, 1, D)).subs(r, d).subs(G[d, d], force), (d, 1, R)
    )
    of_row = delta_sum(of_K.subs(here), (j, 1, D)).subs(i, s).subs(s, d).subs(G[d, d], force)
    return of_value, of_row


@cache
def pace() -> sp.Expr:
    """Of a head of rank one with v = k = q = u."""
    of_value, of_row = aligned()
    one = {u[d]: along, value: along, lam[d]: lam_1, a[d]: a_1}
    moved = of_row.subs(one)
    written_as(moved, of_value.function.subs(one))
    return written_as(lam_1**2 * along**2 * (1 - a_1 * along**3 / lam_1), moved)


@cache
def aligned_time() -> sp.Expr:
    """Integral of du / (du/dt) from u_0 to the drop, in x = (a/lambda)^(1/3) u."""
    x = sp.Symbol("x", positive=True)
    unit = (lam_1 / a_1) ** sp.Rational(1, 3)  # u at the end
    integrand = sp.simplify(unit / pace().subs(along, unit * x))
    front = sp.simplify(integrand * x**2 * (1 - x**3))
    total = sp.integrate(1 / (x**2 * (1 - x**3)), x).subs(sp.log(x - 1), sp.log(1 - x))  # x < 1
    written_as(integrand, sp.diff(front * total, x))
    return front * (
        total.subs(x, sp.Rational(1, 2) ** sp.Rational(1, 3)) - total.subs(x, u_0 / unit)
    )


@cache
def shift_of_drop() -> sp.Expr:
    """From where the early growth would blow up to the drop: of order one for a small start."""
    early_growth = 1 / (lam_1**2 * u_0)
    written_as(-1 / sp.diff(early_growth, u_0), lam_1**2 * u_0**2)  # du/dt without the force of W
    return sp.expand(aligned_time() - early_growth).subs(u_0, 0)


@cache
def equations() -> dict[str, Equation]:
    """Rates of the heads, invariants, early time, aligned heads and the time of their drop."""
    of_v, of_K, of_Q = heads()
    conserved()
    norm = v[g] ** 2 - sp.Sum(K[g, r, i] ** 2, (r, 1, R), (i, 1, D))
    rows = sp.Sum(K[g, r, i] * K[g, s, i] - Q[g, r, i] * Q[g, s, i], (i, 1, D))
    t_d = symbol("t_d", positive=True)
    half = (lam_1 / (2 * a_1)) ** sp.Rational(1, 3)
    shift = eta / 2 * sp.log(pace().subs(along, half) / pace().subs(along, u_0))
    return {
        **S.table(
            "separate: gradient flow and conservation laws",
            (HEADS,),
            separate_dv_dt=(sp.Derivative(v[g], t), sp.Sum(of_v, (i, 1, D), (j, 1, D), (r, 1, R))),
            separate_dK_dt=(sp.Derivative(K[g, s, i], t), sp.Sum(of_K, (j, 1, D))),
            separate_dQ_dt=(sp.Derivative(Q[g, s, j], t), sp.Sum(of_Q, (i, 1, D))),
            separate_norm=(symbol("kappa_g", r"\kappa_{g}"), norm),
            separate_rows=(symbol("C_rs", "C_{rs}"), rows),
        ),
        **S.table(
            "beyond: separate, early time from any start",
            (EARLY, "rank one; k, q = p+ +- p- at t = 0"),
            "leading order",
            v_squared=(symbol("v_tau", r"v(\tau)") ** 2, early),
        ),
        **S.table(
            "separate: scalar equations",
            (ROWS,),
            separate_dvalue_dt=(sp.Derivative(value, t), aligned()[0]),
            separate_du_dt=(sp.Derivative(u[d], t), aligned()[1]),
            aligned_du_dt=(sp.Derivative(along, t), pace),
        ),
        **S.table(
            "beyond: separate, time of a drop", (ALIGNED, LEVEL), t_aligned=(t_d, aligned_time)
        ),
        **S.table(
            "separate: time of a drop, and beyond",
            (ALIGNED, "u_0 -> 0, or eta -> 0"),
            "leading order",
            t_leading=(t_d, lambda: sp.limit(aligned_time() * u_0, u_0, 0) / u_0),
            t_shift=(symbol("delta_t", r"\delta t_{d}"), shift_of_drop),
            t_step=(t_d, lambda: aligned_time() + shift),
        ),
    }


def flow() -> Flow:
    """The scalar equation of an aligned head of rank one, for the largest eigenvalue."""
    return Flow(
        "separate_aligned",
        t,
        {along: pace()},
        {along: u_0},
        "zhang2025, separate: scalar equations",
        "exact",
        (ALIGNED,),
    )
