"""Merged key and query: every rate against autograd of the attention over all prompts."""

from __future__ import annotations

import numpy as np
import torch

from linear_attention.theory import merged
from linear_attention.theory.parameters import Parameters
from linear_attention.verify import groups
from verify.check import Check, Sides
from verify.report import Table, derivations


def heads(table: Table) -> list[Check]:
    """Rates of v and U; the invariants of all pairs of heads."""
    found = groups.entries(table, {"v": "merged_dv_dt", "U": "merged_dU_dt"})
    return found + groups.invariant(table, "merged_invariant", "gh", slice(None))


def one_head(table: Table) -> list[Check]:
    """D + 1 numbers of a head along the eigenvectors; s where Lambda = I."""
    sides, v = Sides(table, *groups.EXACT), 0.7
    for spectrum, N in groups.SMALL:
        D = spectrum.count(",") + 1
        for text, u in ((spectrum, np.linspace(0.3, 0.6, D)), (",".join("1" * D), np.full(D, 0.4))):
            value, U = torch.tensor([v], dtype=torch.float64), torch.as_tensor(u).diag()[None]
            x = groups.Point(Parameters(spectrum=text, N=N, H=1), {"v": value, "U": U})
            known, dv, du = x.known | {"v": v, "u": u}, x.rates["v"], x.rates["U"][0].diagonal()
            sides.add("rate of the value of one head", "merged_dvalue_dt", known, dv)
            for d in range(D):
                sides.add("rate of its directions", "merged_du_dt", known | {"d": d + 1}, du[d])
            if text != spectrum:
                known |= {"kappa": v**2 - (u**2).sum(), "s": v * u[0]}
                sides.add("rate of s", "merged_ds_dt", known, dv * u[0] + v * du[0])
    return sides.checks()


def zeros(_: Table) -> list[Check]:
    """Weights that start at zero."""
    return groups.zeros("merged")


COVERS = {
    groups.moments: ("a", "c"),
    groups.losses: ("loss", "force", "w_best", "loss_least", "plateau"),
    heads: ("merged_dv_dt", "merged_dU_dt", "merged_invariant"),
    one_head: ("merged_dvalue_dt", "merged_du_dt", "merged_ds_dt"),
    groups.drawn: (),  # seen to 1%: its faults in the tests of laws
    zeros: (),
}
checks, report = derivations(COVERS, merged.equations)
