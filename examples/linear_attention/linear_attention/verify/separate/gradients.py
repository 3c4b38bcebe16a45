"""Separate key and query: every rate against autograd of the attention over all prompts."""

from __future__ import annotations

import numpy as np
import torch

from linear_attention.simulate import student
from linear_attention.theory import separate
from linear_attention.theory.parameters import Parameters
from linear_attention.verify import groups
from linear_attention.verify.groups import Found, Point, Table
from verify.check import Check, identity
from verify.report import Report, Request, with_device

RANK = 2


def heads(table: Table) -> list[Check]:
    """Rates of v, K and Q at rank two; both invariants."""
    names = {"v": "separate_dv_dt", "K": "separate_dK_dt", "Q": "separate_dQ_dt"}
    found = groups.entries(table, "separate", names, R=RANK)
    for name, letters, part in (("norm", "g", slice(2)), ("rows", "grs", slice(2, None))):
        more = dict(attention="separate", R=RANK)
        found += groups.invariant(table, f"separate_{name}", letters, part, **more)
    return found


def aligned(table: Table) -> list[Check]:
    """Scalar equations of one head with a row per direction, and of one of rank one."""
    found = Found(table)
    for spectrum, N, R in (("1.4,0.6", 2, 2), ("1.2,0.9,0.4", 1, 2), ("1.4,0.6", 2, 1)):
        p = Parameters(spectrum=spectrum, N=N, H=1, R=R, attention="separate")
        u = np.linspace(0.5, 0.8, R)
        v = float(np.sqrt((u**2).sum()))
        rows = torch.zeros(1, R, p.eigenvalues.size, dtype=torch.float64)
        rows[0, range(R), range(R)] = torch.as_tensor(u)
        x = Point(p, {"v": torch.tensor([v], dtype=torch.float64), "K": rows, "Q": rows.clone()})
        known, du = x.known | {"v": v, "u": u}, x.rates["K"][0].diagonal()
        found.add("separate_dvalue_dt", known, x.rates["v"])
        for d in range(R):
            found.add("separate_du_dt", known | {"d": d + 1}, du[d])
        if R == 1:
            found.add("aligned_du_dt", known | {"u": v}, du[0])
    return found.checks(
        separate_dvalue_dt="rate of the value of an aligned head",
        separate_du_dt="rate of its rows",
        aligned_du_dt="rate of an aligned head of rank one",
    )


def early(table: Table) -> list[Check]:
    """v^2 over tau, where every direction turns (k, q) hyperbolically."""
    p = Parameters(attention="separate")
    begun = student.start(p, groups.SEED)
    v, k, q = (float(begun["v"][0]), *(begun[n][0, 0].numpy() for n in "KQ"))
    x, tau = p.eigenvalues, 0.6
    hold = {"v_0": v, "p_plus": (k + q) / 2, "p_minus": (k - q) / 2, "tau": tau}
    nodes, weights = np.polynomial.legendre.leggauss(40)
    angle = np.outer(tau * (nodes + 1) / 2, x**2)
    c, s = np.cosh(angle), np.sinh(angle)
    slope = 2 * ((c * k + s * q) * (c * q + s * k) * x**2).sum(1)  # of v^2: 2 k.Lambda^2.q
    measured = v**2 + tau / 2 * float(weights @ slope)
    found = float(table["v_squared"].evaluate(p.values() | hold))
    label, why = "value of a head before it drops", "quadrature with 40 nodes"
    return [identity(label, "v_squared", found, measured, 1e-10, why)]


COVERS = {
    heads: ("separate_dv_dt", "separate_dK_dt", "separate_dQ_dt", "separate_norm", "separate_rows"),
    aligned: ("separate_dvalue_dt", "separate_du_dt", "aligned_du_dt"),
    early: ("v_squared",),
}


def report(request: Request) -> Report:
    """Every group on the derived equations, and the weights that start at zero."""
    table = separate.equations()
    rows = [c for group in COVERS for c in group(table)]
    return with_device(request, [*rows, *groups.zeros("separate", R=RANK)])
