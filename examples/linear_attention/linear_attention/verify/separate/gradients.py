"""Separate key and query: every rate against autograd of the attention over all prompts."""

from __future__ import annotations

import numpy as np
import torch

from linear_attention.simulate import student
from linear_attention.theory import separate
from linear_attention.theory.parameters import Parameters
from linear_attention.verify import groups
from theory.special import gauss_legendre
from verify.check import Check, Sides, identity, vanishing
from verify.report import Table, derivations

SEPARATE = dict(attention="separate", R=2)


def heads(table: Table) -> list[Check]:
    """Rates of v, K and Q at rank two; both invariants."""
    names = {"v": "separate_dv_dt", "K": "separate_dK_dt", "Q": "separate_dQ_dt"}
    found = groups.entries(table, names, **SEPARATE)
    for name, letters, part in (("norm", "g", slice(2)), ("rows", "grs", slice(2, None))):
        found += groups.invariant(table, f"separate_{name}", letters, part, **SEPARATE)
    return found


def aligned(table: Table) -> list[Check]:
    """Scalar equations of one head with a row per direction, and of one of rank one."""
    sides, astray = Sides(table, *groups.EXACT), []
    for spectrum, N, R in (("1.4,0.6", 2, 2), ("1.2,0.9,0.4", 1, 2), ("1.4,0.6", 2, 1)):
        p = Parameters(spectrum=spectrum, N=N, H=1, R=R, attention="separate")
        u = np.linspace(0.5, 0.8, R)
        v, rows = float(np.sqrt((u**2).sum())), torch.as_tensor(np.eye(R, p.eigenvalues.size))
        rows = torch.as_tensor(u)[:, None] * rows[None]
        x = groups.Point(
            p, {"v": torch.tensor([v], dtype=torch.float64), "K": rows, "Q": rows.clone()}
        )
        known = x.known | {"v": v, "u": u}
        of_keys, of_queries = (x.rates[name][0].clone().numpy() for name in "KQ")
        astray.append((of_keys - of_queries).ravel())
        du = of_keys.diagonal().copy()
        np.fill_diagonal(of_keys, 0)
        astray.append(of_keys.ravel())
        label = "rate of the value of an aligned head"
        sides.add(label, "separate_dvalue_dt", known | p.learned(R), x.rates["v"])
        for d in range(R):
            sides.add("rate of its rows", "separate_du_dt", known | {"d": d + 1}, du[d])
        if R == 1:
            label = "rate of an aligned head of rank one"
            sides.add(label, "aligned_du_dt", known | {"u": v}, du[0])
    stays = vanishing(
        "rate of an aligned head out of alignment",
        "separate_dK_dt",
        np.concatenate(astray),
        *groups.EXACT,
    )
    return [*sides.checks(), stays]


def early(table: Table) -> list[Check]:
    """v^2 over tau, where every direction turns (k, q) hyperbolically."""
    p, tau = Parameters(attention="separate"), 0.6
    begun, x = student.start(p, groups.SEED), p.eigenvalues
    v, k, q = float(begun["v"][0]), *(begun[n][0, 0].numpy() for n in "KQ")
    nodes, weights = gauss_legendre(40, 0, tau)
    c, s = (turn(np.outer(nodes, x**2)) for turn in (np.cosh, np.sinh))
    slope = 2 * ((c * k + s * q) * (c * q + s * k) * x**2).sum(1)  # of v^2: 2 k.Lambda^2.q
    hold = {"v_0": v, "p_plus": (k + q) / 2, "p_minus": (k - q) / 2, "tau": tau}
    found, measured = table["v_squared"].evaluate(p.values() | hold), v**2 + weights @ slope
    label, why = "value of a head before it drops", "quadrature with 40 nodes"
    return [identity(label, "v_squared", found, measured, 1e-10, why)]


def zeros(_: Table) -> list[Check]:
    """Weights that start at zero."""
    return groups.zeros(**SEPARATE)


COVERS = {
    heads: ("separate_dv_dt", "separate_dK_dt", "separate_dQ_dt", "separate_norm", "separate_rows"),
    aligned: ("separate_dvalue_dt", "separate_du_dt", "aligned_du_dt"),
    early: ("v_squared",),
    zeros: (),
}
checks, report = derivations(COVERS, separate.equations)
