"""Output channel (9), (42), (103): its Gaussian fields, the Moreau envelope, and the averages in
the state evolution.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.equation import Equation
from theory.notation import function, symbol
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
    gaps = [
        (Y - S) ** 2
        for Y, S in (
            (Y_12, definitions.equations()["S_12"].rhs),
            (Y_21, definitions.equations()["S_21"].rhs),
        )
    ]
    at_w = {z_1: w_1, z_2: w_2}
    fields = [
        Equation("w_1", w_1, m + sp.sqrt(q) * xi_1, ref("Eq. (7)"), "exact"),
        Equation("w_2", w_2, -m + sp.sqrt(q) * xi_2, ref("Eq. (7)"), "exact"),
        *(
            Equation(
                h.name,
                h,
                theta / sp.sqrt(q) * x + sp.sqrt(nu) * e,
                ref("Eq. (7)"),
                "exact",
                ("nu is the variance of the teacher field given the student's",),
            )
            for h, x, e in ((h_1, xi_1, eta_1), (h_2, xi_2, eta_2))
        ),
    ]
    stationary = [
        Equation(
            g.name,
            g,
            sp.expand(-sp.diff(objective, w)).subs(at_best),
            ref("Eqs. (42), (103)"),
            "exact",
            ("envelope theorem",),
        )
        for g, w in ((g_1, w_1), (g_2, w_2))
    ]
    averages = {
        E_gg: (g_1**2 + g_2**2, "(7)"),
        E_g: (g_1 - g_2, "(7)"),
        E_gxi: (g_1 * xi_1 + g_2 * xi_2, "(7)"),
        E_geta: (g_1 * eta_1 + g_2 * eta_2, "(7)"),
        E_M: (envelope, "(14)"),
        E_loss: (loss.subs(at_best), "(14)"),
        errors.S_gap: (gaps[0].subs(at_w), "(10)"),
        errors.R_gap: (gaps[1].subs(at_w), "(10)"),
    }
    return {
        e.name: e
        for e in [
            *fields,
            Equation(
                "envelope",
                envelope,
                objective.subs(at_best),
                ref("Eqs. (9), (42), (103)"),
                "exact",
                ("z^* minimises the objective over z_1, z_2",),
            ),
            *stationary,
            *(
                Equation(x.name, x, average(form), ref(f"Eq. {place}"), "exact")
                for x, (form, place) in averages.items()
            ),
        ]
    }
