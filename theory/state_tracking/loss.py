"""Mean-field loss and its derivatives with respect to the logits and the attention (Eqs. 10, 43,
61).
"""

from functools import cache

import sympy as sp

from theory import Equation, table, written_as
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
    return table(
        ref,
        status="exact",
        loss=(loss, value, "Eq. (10)", "closure", MEAN_FIELD),
        loss_of_margin=(loss, sp.log(of_margin), "Eq. (10), by the margin", "closure", MEAN_FIELD),
        margin=(m, sp.factor(z_k - other), "below Eq. (15)"),
        g=(g, wrong_mass, "Eqs. (15), (59)", "softmax of the mean logits"),
        dloss_dz_k=(sp.Derivative(loss, z_k), opposite * g, "Eq. (43)", MEAN_FIELD),
        dloss_dz_kbar=(sp.Derivative(loss, z_kbar), g, "Eq. (43)", MEAN_FIELD),
        dloss_dA=(sp.Derivative(loss, A), by_A, "Eqs. (61), (64)", MEAN_FIELD),
    )


def margin_of_state() -> sp.Expr:
    """Logit margin as a function of A, R, S and zeta."""
    return equations()["margin"].rhs.subs(z_k, logits.equations()["logit_correct"].rhs)


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
