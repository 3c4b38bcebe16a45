"""Merged key and query: every rate against autograd of the statement's student on all prompts."""

from __future__ import annotations

import numpy as np

from linear_attention.theory import merged
from linear_attention.theory.parameters import Parameters
from linear_attention.theory.statement import regression
from linear_attention.verify import groups
from theory.statement import kept
from verify.check import Check, Sides
from verify.report import Table, derivations
from verify.statement.entries import invariant, rates
from verify.statement.printed import generic


def heads(table: Table) -> list[Check]:
    """Rates of v and U; the invariants of all pairs of heads."""
    sides, points = Sides(table, *groups.EXACT), groups.points("merged")
    names = {"v": ("merged_dv_dt", "g"), "U": ("merged_dU_dt", "gkl")}
    rates(sides, points, names, "merged rate")
    pairs = lambda w: np.outer(w["v"], w["v"]) - np.einsum("gij,hij->gh", w["U"], w["U"])  # noqa: E731
    still = invariant(sides, points, "merged_invariant", "gh", pairs, groups.EXACT)
    return [*sides.checks(), still]


def one_head(table: Table) -> list[Check]:
    """D + 1 numbers of a head along the eigenvectors; s where Lambda = I."""
    sides, v = Sides(table, *groups.EXACT), 0.7
    for spectrum, N in groups.SMALL:
        D = spectrum.count(",") + 1
        for text, u in ((spectrum, np.linspace(0.3, 0.6, D)), (",".join("1" * D), np.full(D, 0.4))):
            p = Parameters(spectrum=text, N=N, H=1)
            x = groups.point("one head", p, {"v": v, "U": np.diag(u)})
            known, dv, du = x.known | {"u": u}, float(x.rates["v"]), x.rates["U"].diagonal()
            sides.add("rate of the value of one head", "merged_dvalue_dt", known, dv)
            sides.each("rate of its directions", "merged_du_dt", known, "d", du)
            if text != spectrum:
                known |= {"kappa": v**2 - (u**2).sum(), "s": v * u[0]}
                sides.add("rate of s", "merged_ds_dt", known, dv * u[0] + v * du[0])
    return sides.checks()


def derived(_: Table) -> list[Check]:
    """What the engine derives of one head: classes, gradients of all weights, descent."""
    return generic(kept.derived(regression("one head")), 1)


def plain(_: Table) -> list[Check]:
    """The attention on tokens."""
    return groups.plain("merged")


COVERS = {
    groups.moments: ("a", "c"),
    groups.losses: ("loss", "force", "w_best", "loss_least", "plateau"),
    heads: ("merged_dv_dt", "merged_dU_dt", "merged_invariant"),
    one_head: ("merged_dvalue_dt", "merged_du_dt", "merged_ds_dt"),
    groups.drawn: (),  # seen to 1%: its faults in the tests of laws
    derived: (),
    plain: (),
}
checks, report = derivations(COVERS, merged.equations)
