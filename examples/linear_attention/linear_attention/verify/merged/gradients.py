"""Merged key and query: every rate against autograd of the attention over all prompts."""

from __future__ import annotations

import numpy as np
import torch

from linear_attention.theory import merged
from linear_attention.theory.parameters import Parameters
from linear_attention.verify import groups
from linear_attention.verify.groups import SMALL, Found, Point, Table
from verify.check import Check
from verify.report import Report, Request, with_device


def heads(table: Table) -> list[Check]:
    """Rates of v and U; the invariants of all pairs of heads."""
    found = groups.entries(table, "merged", {"v": "merged_dv_dt", "U": "merged_dU_dt"})
    return found + groups.invariant(table, "merged_invariant", "gh", slice(None))


def one_head(table: Table) -> list[Check]:
    """D + 1 numbers of a head along the eigenvectors; s where Lambda = I."""
    found, v = Found(table), 0.7
    for spectrum, N in SMALL:
        D = spectrum.count(",") + 1
        for text, u in ((spectrum, np.linspace(0.3, 0.6, D)), (",".join("1" * D), np.full(D, 0.4))):
            p = Parameters(spectrum=text, N=N, H=1)
            rows = {
                "v": torch.tensor([v], dtype=torch.float64),
                "U": torch.as_tensor(u).diag()[None],
            }
            x = Point(p, rows)
            known, dv, du = x.known | {"v": v, "u": u}, x.rates["v"], x.rates["U"][0].diagonal()
            found.add("merged_dvalue_dt", known, dv)
            for d in range(D):
                found.add("merged_du_dt", known | {"d": d + 1}, du[d])
            if text != spectrum:
                known |= {"kappa": v**2 - (u**2).sum(), "s": v * u[0]}
                found.add("merged_ds_dt", known, dv * u[0] + v * du[0])
    return found.checks(
        merged_dvalue_dt="rate of the value of one head",
        merged_du_dt="rate of its directions",
        merged_ds_dt="rate of s",
    )


COVERS = {
    groups.moments: ("a", "c"),
    groups.losses: ("loss", "force", "w_best", "loss_least", "plateau"),
    heads: ("merged_dv_dt", "merged_dU_dt", "merged_invariant"),
    one_head: ("merged_dvalue_dt", "merged_du_dt", "merged_ds_dt"),
}


def report(request: Request) -> Report:
    """Every group on the derived equations, drawn prompts, and the weights that start at zero."""
    table = merged.equations()
    rows = [c for group in (*COVERS, groups.drawn) for c in group(table)]
    return with_device(request, [*rows, *groups.zeros("merged")])
