"""Separate key and query: every rate against autograd of the statement's student on all prompts."""

from __future__ import annotations

import numpy as np

from linear_attention.simulate import student
from linear_attention.theory import separate
from linear_attention.theory.parameters import Parameters
from linear_attention.verify import groups
from theory.special import gauss_legendre
from verify.check import Check, Sides, identity, vanishing
from verify.report import Table, derivations
from verify.statement.entries import invariant, rates


def heads(table: Table) -> list[Check]:
    """Rates of v, K and Q at rank two; both invariants."""
    sides, points = Sides(table, *groups.EXACT), groups.points("separate", 2)
    names = {"v": ("separate_dv_dt", "g"), "K": ("separate_dK_dt", "gsi"), "Q": ("separate_dQ_dt", "gsj")}  # fmt: skip
    rates(sides, points, names, "separate rate")
    product = lambda x: np.einsum("gri,gsi->grs", x, x)  # noqa: E731
    norm = lambda w: w["v"] ** 2 - (w["K"] ** 2).sum((1, 2))  # noqa: E731
    rows = lambda w: product(w["K"]) - product(w["Q"])  # noqa: E731
    laws = ("separate_norm", "g", norm), ("separate_rows", "grs", rows)
    still = [invariant(sides, points, *law, groups.EXACT) for law in laws]
    return [*sides.checks(), *still]


def aligned(table: Table) -> list[Check]:
    """Scalar equations of one head with a row per direction, and of one of rank one."""
    sides, astray = Sides(table, *groups.EXACT), []
    for spectrum, N, R in (("1.4,0.6", 2, 2), ("1.2,0.9,0.4", 1, 2), ("1.4,0.6", 2, 1)):
        p = Parameters(spectrum=spectrum, N=N, H=1, R=R, attention="separate")
        u = np.linspace(0.5, 0.8, R)
        v, rows = np.sqrt((u**2).sum()), u[:, None] * np.eye(R, p.eigenvalues.size)[None]
        x = groups.point("separate", p, {"v": [v], "K": rows, "Q": rows})
        known = x.known | {"v": v, "u": u}
        of_keys, of_queries = (x.rates[name][0].copy() for name in "KQ")
        astray.append((of_keys - of_queries).ravel())
        du = of_keys.diagonal().copy()
        np.fill_diagonal(of_keys, 0)
        astray.append(of_keys.ravel())
        label = "rate of the value of an aligned head"
        sides.add(label, "separate_dvalue_dt", known | p.learned(R), x.rates["v"])
        sides.each("rate of its rows", "separate_du_dt", known, "d", du)
        if R == 1:
            label = "rate of an aligned head of rank one"
            sides.add(label, "aligned_du_dt", known | {"u": v}, du[0])
    label, off = "rate of an aligned head out of alignment", np.concatenate(astray)
    return [*sides.checks(), vanishing(label, "separate_dK_dt", off, *groups.EXACT)]


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


def plain(_: Table) -> list[Check]:
    """The attention on tokens."""
    return groups.plain("separate", 2)


COVERS = {
    heads: ("separate_dv_dt", "separate_dK_dt", "separate_dQ_dt", "separate_norm", "separate_rows"),
    aligned: ("separate_dvalue_dt", "separate_du_dt", "aligned_du_dt"),
    early: ("v_squared",),
    plain: (),
}
checks, report = derivations(COVERS, separate.equations)
