"""Gradients with respect to single entries of the logic matrices, and their update (Eqs. 42-52)."""

from functools import cache

import sympy as sp

from theory import Equation, delta_gradient, symbol, table, written_as
from theory.state_tracking import definitions, logits, loss
from theory.state_tracking.loss import MEAN_FIELD
from theory.state_tracking.symbols import (
    M,
    M_star,
    N,
    R,
    S,
    b,
    c,
    c_R,
    c_S,
    d_g,
    eta,
    g,
    r,
    ref,
    s,
    z_k,
    z_kbar,
    zeta,
)

ENTRY = M[b, r, s]
OWN = M_star[b, r, s]  # entry of the matrix's own teacher
ALL = sp.Sum(M_star[c, r, s], (c, 1, d_g))  # entry of the sum of all teachers
UPDATE = symbol("Delta_M", r"\Delta [M_{b}]_{rs}", "change of an entry of M in an epoch")


@cache
def equations() -> dict[str, Equation]:
    """Equations 47-52: from the definitions to the update of one entry."""
    definition = definitions.equations()
    dR = delta_gradient(definition["R"].rhs, ENTRY)
    dS = written_as((ALL - OWN) / (d_g * (d_g - 1) * N), delta_gradient(definition["S"].rhs, ENTRY))
    dzeta = delta_gradient(logits.equations()["zeta"].rhs, ENTRY)
    dz_k = c_R * dR + c_S * dS  # chain rule with c_R, c_S the derivatives of the mean logit
    other = logits.equations()["logit_other"].rhs
    dz_kbar = sp.diff(other, z_k) * dz_k + sp.diff(other, zeta) * dzeta
    by = loss.equations()
    step = -eta * (by["dloss_dz_k"].rhs * dz_k + by["dloss_dz_kbar"].rhs * dz_kbar)
    others = ALL - OWN
    step = written_as(
        eta / (d_g * N) * g * N / (N - 1) * (c_R * OWN + c_S / (d_g - 1) * others - 1 / N), step
    )
    return table(
        ref,
        status="exact",
        dR_dM=(sp.Derivative(R, ENTRY), dR, "Eq. (47)"),
        dS_dM=(sp.Derivative(S, ENTRY), dS, "Eq. (47)", "d_g >= 2"),
        dz_k_dM=(sp.Derivative(z_k, ENTRY), dz_k, "Eqs. (44)-(48)"),
        dz_kbar_dM=(sp.Derivative(z_kbar, ENTRY), dz_kbar, "Eq. (49)"),
        update_M=(UPDATE, step, "Eqs. (42), (50)-(52)", MEAN_FIELD),
    )
