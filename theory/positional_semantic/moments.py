"""Output channel (9), (42), (103): its Gaussian fields, the Moreau envelope, and the averages in
the state evolution.
"""

from functools import cache

import sympy as sp

from theory import Equation, function, symbol, table
from theory.positional_semantic import definitions, errors
from theory.positional_semantic.symbols import (
    E_M,
    Y_12,
    Y_21,
    E_g,
    E_geta,
    E_gg,
    E_gxi,
    E_loss,
    h_1,
    h_2,
    m,
    nu,
    q,
    ref,
    theta,
    w_1,
    w_2,
    z_1,
    z_2,
)

xi_1, xi_2 = (
    symbol(f"xi_{k}", rf"\xi_{{{k}}}", "standard Gaussian of the student's field", real=True)
    for k in "12"
)
eta_1, eta_2 = (
    symbol(f"eta_{k}", rf"\eta_{{{k}}}", "standard Gaussian of the teacher's field", real=True)
    for k in "12"
)
best = {
    x: function(f"{x.name[0]}^{{\\ast}}_{x.name[2]}", "proximal point")(w_1, w_2, Y_12, Y_21)
    for x in (z_1, z_2)
}
envelope = symbol(
    "envelope", r"\bar{\mathcal{M}}", "Moreau envelope: least objective", nonnegative=True
)
g_1, g_2 = (symbol(f"g_{k}", means="output channel: (z* - w) / V", real=True) for k in "12")


def average(expr: sp.Expr) -> sp.Expr:
    """Integral over the four independent standard normals."""
    normals = (xi_1, xi_2, eta_1, eta_2)
    density = sp.exp(-sum(x**2 for x in normals) / 2) / (2 * sp.pi) ** 2
    return sp.Integral(expr * density, *((x, -sp.oo, sp.oo) for x in normals))


@cache
def equations() -> dict[str, Equation]:
    """Fields, envelope, its derivative g, and the averages as integrals."""
    at_best = {z_1: best[z_1], z_2: best[z_2]}
    objective = definitions.equations()["objective"].rhs
    loss = definitions.equations()["sentence_loss"].rhs
    gap = Y_12 - definitions.equations()["S_12"].rhs, Y_21 - definitions.equations()["S_21"].rhs
    at_w = {z_1: w_1, z_2: w_2}
    h = [theta / sp.sqrt(q) * x + sp.sqrt(nu) * e for x, e in ((xi_1, eta_1), (xi_2, eta_2))]
    g = [sp.expand(-sp.diff(objective, w)).subs(at_best) for w in (w_1, w_2)]
    variance = "nu is the variance of the teacher field given the student's"
    smallest = "z^* minimises the objective over z_1, z_2"
    return table(
        ref,
        status="exact",
        w_1=(w_1, m + sp.sqrt(q) * xi_1, "Eq. (7)"),
        w_2=(w_2, -m + sp.sqrt(q) * xi_2, "Eq. (7)"),
        h_1=(h_1, h[0], "Eq. (7)", variance),
        h_2=(h_2, h[1], "Eq. (7)", variance),
        envelope=(envelope, objective.subs(at_best), "Eqs. (9), (42), (103)", smallest),
        g_1=(g_1, g[0], "Eqs. (42), (103)", "envelope theorem"),
        g_2=(g_2, g[1], "Eqs. (42), (103)", "envelope theorem"),
        E_gg=(E_gg, average(g_1**2 + g_2**2), "Eq. (7)"),
        E_g=(E_g, average(g_1 - g_2), "Eq. (7)"),
        E_gxi=(E_gxi, average(g_1 * xi_1 + g_2 * xi_2), "Eq. (7)"),
        E_geta=(E_geta, average(g_1 * eta_1 + g_2 * eta_2), "Eq. (7)"),
        E_M=(E_M, average(envelope), "Eq. (14)"),
        E_loss=(E_loss, average(loss.subs(at_best)), "Eq. (14)"),
        E_S_12=(errors.S_gap, average((gap[0] ** 2).subs(at_w)), "Eq. (10)"),
        E_S_21=(errors.R_gap, average((gap[1] ** 2).subs(at_w)), "Eq. (10)"),
    )
