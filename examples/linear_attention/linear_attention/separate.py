"""Separate key and query: flow of the heads, invariants, early time, aligned heads as
scalars.
"""

import sympy as sp

from linear_attention import statement as S
from linear_attention.parameters import ONE_HEAD, Parameters, applies
from linear_attention.statement import (
    D,
    G,
    K,
    Q,
    R,
    d,
    g,
    h,
    i,
    j,
    k,
    lam,
    r,
    s,
    t,
    u,
    v,
)
from theory import Equation, Flow, delta_sum, proved, symbol, vanishes, written_as
from theory.dynamics.catalogue import cache, called, catalogue
from theory.dynamics.clocks import delay

__all__ = ["Parameters", "applies", "equations", "flows", "sections"]
ALIGNED = "v = k = q = u along direction 1"
LEVEL = "the drop is at (a/lambda) u^3 = 1/2, where three quarters of a step are gone"
FINAL = (S.lam_1 / S.a_1) ** sp.Rational(1, 3)  # of u
HALF = (S.lam_1 / (2 * S.a_1)) ** sp.Rational(1, 3)
of = sp.Derivative


@cache
def heads() -> list[sp.Sum]:
    """Rates of v_g, K[g, s, i] and Q[g, s, j]: sums over i, j and r; over j; over i."""
    part = v[h] * K[h, r, i] * Q[h, r, j]
    weights = (v[g], K[g, s, k], Q[g, s, k])
    return [
        rate.subs(k, x)
        for rate, x in zip(
            S.rates(part, *weights, over=[(r, 1, R)]), (k, i, j), strict=True
        )
    ]


@cache
def conserved() -> tuple[sp.Expr, sp.Expr]:
    """The invariants v^2 - |K|^2 and K K^T - Q Q^T,
    proved under the sums over i and j.
    """
    of_v, of_K, of_Q = (x.function for x in heads())
    norm = 2 * v[g] * of_v - 2 * K[g, r, i] * of_K.subs(s, r)
    rows = of_K * K[g, r, i] - of_Q * Q[g, r, j]
    rows += of_K.subs(s, r) * K[g, s, i] - of_Q.subs(s, r) * Q[g, s, j]
    proved(
        vanishes(norm) and vanishes(rows),
        "an invariant of separate heads is not conserved",
    )
    pairs = sp.Sum(K[g, r, i] * K[g, s, i] - Q[g, r, i] * Q[g, s, i], (i, 1, D))
    return v[g] ** 2 - sp.Sum(K[g, r, i] ** 2, (r, 1, R), (i, 1, D)), pairs


def early_pull() -> sp.Expr:
    """Early rate of v (while W is small), by direction i: half of d(v^2)/dtau at tau =
    0.
    """
    return sp.diff(early().atoms(sp.Sum).pop().function, S.tau).subs(S.tau, 0) / 2


@cache
def early() -> sp.Expr:
    """v^2 as a function of tau, with dtau = v dt: k + q grows and k - q decays along
    every direction.
    """
    small = {G[i, j]: S.early_force(), r: 1, s: 1, g: 1}
    of_v, of_K, of_Q = (x.function.subs(small).expand() for x in heads())
    by_K, by_Q = (delta_sum(x, (y, 1, D)) / v[1] for x, y in ((of_K, j), (of_Q, i)))
    sizes = {S.plus[i]: 1, S.minus[i]: -1}
    half = {x[1, 1, i]: S.plus[i] + y * S.minus[i] for x, y in ((K, 1), (Q, -1))}
    for x, sign in sizes.items():  # d(k +- q)/dtau = +- lambda^2 (k +- q)
        written_as(
            sign * lam[i] ** 2 * x, (by_K + sign * by_Q.subs(j, i)).subs(half) / 2
        )
    grown = {x: x * sp.exp(sign * lam[i] ** 2 * S.tau) for x, sign in sizes.items()}
    slope = 2 * delta_sum(of_v, (j, 1, D)).subs(half).subs(grown, simultaneous=True)
    total = sp.integrate(sp.expand(slope), (S.tau, 0, S.tau))
    form = sum(
        x**2 * (sp.exp(2 * sign * lam[i] ** 2 * S.tau) - 1) for x, sign in sizes.items()
    )
    return S.v_0**2 + sp.Sum(written_as(form, total), (i, 1, D))


@cache
def aligned() -> tuple[sp.Expr, sp.Expr]:
    """Rates of v and u_d of one head whose row r lies along direction r."""
    of_v, of_K, _ = (x.function for x in heads())
    here = {
        x[g, y, z]: u[z] * sp.KroneckerDelta(y, z)
        for x, z in ((K, i), (Q, j))
        for y in (r, s)
    }
    here[v[g]] = S.value
    pull = S.diagonal_force(S.value * u[k] ** 2)
    of_value = (
        delta_sum(of_v.subs(here), (i, 1, D), (j, 1, D)).subs(r, d).subs(G[d, d], pull)
    )
    of_row = (
        delta_sum(of_K.subs(here), (j, 1, D)).subs(i, s).subs(s, d).subs(G[d, d], pull)
    )
    return sp.Sum(of_value, (d, 1, R)), of_row


@cache
def pace() -> sp.Expr:
    """Rate of u for a head of rank one with v = k = q = u."""
    of_value, of_row = aligned()
    one = {u[d]: S.along, S.value: S.along, lam[d]: S.lam_1, S.a[d]: S.a_1}
    moved = of_row.subs(one)
    written_as(moved, of_value.function.subs(one))
    return written_as(
        S.lam_1**2 * S.along**2 * (1 - S.a_1 * S.along**3 / S.lam_1), moved
    )


@cache
def aligned_time() -> sp.Expr:
    """Integral of du / (du/dt) from u_0 to the drop, in x = (a/lambda)^(1/3) u."""
    x = sp.Symbol("x", positive=True)
    integrand = sp.cancel(FINAL / pace().subs(S.along, FINAL * x))
    front = sp.cancel(integrand * x**2 * (1 - x**3))
    total = sp.integrate(1 / (x**2 * (1 - x**3)), x).subs(
        sp.log(x - 1), sp.log(1 - x)
    )  # x < 1
    written_as(integrand, sp.diff(front * total, x))
    drop = sp.Rational(1, 2) ** sp.Rational(1, 3)
    return front * (total.subs(x, drop) - total.subs(x, S.u_0 / FINAL))


@cache
def shift_of_drop() -> sp.Expr:
    """Time between the blow-up of the early growth and the drop; of order one for a
    small start.
    """
    early_growth = 1 / (S.lam_1**2 * S.u_0)
    # du/dt without the force of W
    written_as(-1 / sp.diff(early_growth, S.u_0), S.lam_1**2 * S.u_0**2)
    return sp.expand(aligned_time() - early_growth).subs(S.u_0, 0)


@cache
def dynamics() -> dict[str, Equation]:
    """Rates of the heads, invariants, early time, aligned heads and the time of their
    drop.
    """
    (of_v, of_K, of_Q), (norm, rows), (of_value, of_row) = (
        heads(),
        conserved(),
        aligned(),
    )

    time, later = (
        symbol("t_d", means="time of a drop", positive=True),
        "what t_d has beyond its leading term",
    )
    flow_of_heads = dict(
        separate_dv_dt=(of(v[g], t), of_v),
        separate_dK_dt=(of(K[g, s, i], t), of_K),
        separate_dQ_dt=(of(Q[g, s, j], t), of_Q),
        separate_norm=(
            symbol("kappa_g", r"\kappa_{g}", "invariant of a head: norm"),
            norm,
        ),
        separate_rows=(
            symbol("C_rs", "C_{rs}", "invariant of two rows of a head"),
            rows,
        ),
    )
    scalar = dict(
        separate_dvalue_dt=(of(S.value, t), of_value),
        separate_du_dt=(of(u[d], t), of_row),
        aligned_du_dt=(of(S.along, t), pace),
    )
    small = dict(
        t_leading=(time, lambda: sp.limit(aligned_time() * S.u_0, S.u_0, 0) / S.u_0),
        t_shift=(symbol("delta_t", r"\delta t_{d}", later), shift_of_drop),
        t_step=(
            time,
            lambda: aligned_time() + delay(pace(), S.along, S.u_0, HALF, S.eta),
        ),
    )
    laws = "separate: gradient flow and conservation laws", "W = sum_h v_h K_h^T Q_h"
    start = "W = 0 in the force", "rank one; k, q = p+ +- p- at t = 0"
    squared = symbol("v_tau", r"v(\tau)", "value at tau") ** 2, early

    beyond, exact = (
        "beyond: separate, early time from any start",
        dict(t_aligned=(time, aligned_time)),
    )
    along = "row r of K and Q along direction r, both of size u_r; v^2 = sum_r u_r^2"
    near = ALIGNED, "u_0 -> 0, or eta -> 0"
    return {
        **S.table(*laws, status="exact", **flow_of_heads),
        **S.table(beyond, *start, status="leading order", v_squared=squared),
        **S.table("separate: scalar equations", along, status="exact", **scalar),
        **S.table(
            "beyond: separate, time of a drop", ALIGNED, LEVEL, status="exact", **exact
        ),
        **S.table(
            "separate: time of a drop, and beyond",
            *near,
            status="leading order",
            **small,
        ),
    }


@called
def flow() -> Flow:
    """Flow of an aligned head of rank one for the largest eigenvalue, and its reduction
    of the loss.
    """
    gained = S.gained(S.along**3).subs({lam[d]: S.lam_1, S.a[d]: S.a_1})
    given = "zhang2025, separate: scalar equations", "exact", (ALIGNED,)
    more = {"observables": {"gained": gained}, "scope": ONE_HEAD}
    return Flow(
        "separate_aligned", t, {S.along: pace()}, {S.along: S.u_0}, *given, **more
    )


flows, sections, equations = catalogue(
    {"Task": [S], "Separate key and query": [dynamics]}, flow
)
