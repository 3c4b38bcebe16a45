"""Mean-field loss and its derivatives with respect to the logits and the attention (Eqs. 10, 43,
61).
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.algebra import written_as
from theory.equation import Equation
from theory.state_tracking import logits
from theory.state_tracking.symbols import A, N, R, S, d_g, g, loss, m, ref, z_k, z_kbar

MEAN_FIELD = "logits replaced by their means"


@cache
def equations() -> dict[str, Equation]:
    """Loss, margin, and the derivatives that enter gradient descent."""
    mean = logits.equations()
    correct, other = mean["logit_correct"].rhs, mean["logit_other"].rhs
    value = -z_k + sp.log(sp.exp(z_k) + (N - 1) * sp.exp(z_kbar))
    by_correct, by_other = (sp.diff(value, z).subs(z_k, z_kbar + m) for z in (z_k, z_kbar))
    wrong_mass = written_as(1 / (1 + sp.exp(m) / (N - 1)), by_other)
    opposite = written_as(
        -sp.S.One, by_correct / by_other
    )  # the two derivatives have opposite sign
    # Chain rule through both mean logits; the second depends on A through the first.
    through_correct = sp.diff(correct, A)
    through_other = sp.diff(other, z_k) * through_correct
    by_A = written_as(
        -g * N / (N - 1) * (d_g - 1) / d_g * (R - S),
        opposite * g * through_correct + g * through_other,
    )
    of_margin = written_as(1 + (N - 1) * sp.exp(-m), sp.expand(sp.exp(value.subs(z_k, z_kbar + m))))
    assumed = (MEAN_FIELD,)
    found = [
        Equation("loss", loss, value, ref("Eq. (10)"), "closure", assumed),
        Equation(
            "loss_of_margin",
            loss,
            sp.log(of_margin),
            ref("Eq. (10), by the margin"),
            "closure",
            assumed,
        ),
        Equation("margin", m, sp.factor(z_k - other), ref("below Eq. (15)"), "exact"),
        Equation(
            "g", g, wrong_mass, ref("Eqs. (15), (59)"), "exact", ("softmax of the mean logits",)
        ),
        Equation(
            "dloss_dz_k", sp.Derivative(loss, z_k), opposite * g, ref("Eq. (43)"), "exact", assumed
        ),
        Equation(
            "dloss_dz_kbar", sp.Derivative(loss, z_kbar), g, ref("Eq. (43)"), "exact", assumed
        ),
        Equation(
            "dloss_dA", sp.Derivative(loss, A), by_A, ref("Eqs. (61), (64)"), "exact", assumed
        ),
    ]
    return {e.name: e for e in found}


def abbreviations() -> dict[sp.Symbol, sp.Expr]:
    """Definitions of g, m and the mean logits; each may use later ones."""
    return {
        e.lhs: e.rhs
        for e in (
            equations()["g"],
            equations()["margin"],
            logits.equations()["logit_other"],
            logits.equations()["logit_correct"],
        )
    }
