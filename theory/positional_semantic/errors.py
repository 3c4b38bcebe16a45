"""Training loss in three equivalent forms (14, 120, 121), its derivative with respect to alpha, and
the test error (10).
"""

from functools import cache

import sympy as sp

from theory import Equation, proved, symbol, table, vanishes
from theory.positional_semantic import free_entropy, state_evolution
from theory.positional_semantic.free_entropy import RS, TWO
from theory.positional_semantic.symbols import (
    E_M,
    ORDER,
    E_gg,
    E_loss,
    V,
    alpha,
    epsilon_t,
    lam,
    q,
    q_hat,
    ref,
    sigma,
)

NORMALISATIONS = {
    "half": 0.5,
    "full": 1.0,
    "entry": 0.5,
}  # factors of |y - f|^2/d; ``entry``: mean over the d L entries, L = 2
epsilon_full = symbol(
    "epsilon_full", r"\epsilon_{\mathrm{full}}", "test error of a sentence", nonnegative=True
)
S_gap, R_gap = (
    symbol(
        f"E_S_{k}",
        rf"\mathbb{{E}}[(Y_{{{k}}}-S_{{{k}}})^{{2}}]",
        "mean squared error of an attention entry",
        nonnegative=True,
    )
    for k in ("12", "21")
)


@cache
def equations() -> dict[str, Equation]:
    """Training loss in three forms, proved equal at the fixed point; envelope identity; test
    error.
    """
    phi = free_entropy.equations()["free_entropy"].rhs
    fixed = {x: state_evolution.equations()[x.name].rhs for x in ORDER}
    by_envelope = alpha * E_M - q_hat * V / 2 + lam * q / (2 * sigma**2)
    proved(
        vanishes((-phi - by_envelope).subs(fixed, simultaneous=True)),
        "the training loss is not minus the free entropy",
    )
    # The envelope is the sum of its quadratic term, V g^2/2 per token, and the loss.
    by_loss = by_envelope.subs(
        {E_M: E_loss + V * E_gg / 2, q_hat: state_evolution.equations()["q_hat"].rhs}
    )
    by_loss = sp.expand(by_loss)
    gap = sp.Matrix(
        [[S_gap, 0], [0, R_gap]]
    )  # squared differences of the rows; both entries of a row differ equally
    fixed_point = "q_hat at its fixed point"
    return table(
        ref,
        status="closure",
        training_loss=(epsilon_t, by_envelope, "Eqs. (14), (120)", *RS, *TWO),
        training_loss_data=(epsilon_t, by_loss, "Eqs. (14), (117)", *RS, *TWO, fixed_point),
        training_loss_slope=(
            sp.Derivative(epsilon_t, alpha),
            -sp.diff(phi, alpha),  # all other variables are stationary
            "beyond Eq. (121)",
            *RS,
            "along a branch, where the free entropy is stationary",
        ),
        test_error=(epsilon_full, 2 * sigma**2 * gap.trace(), "Eqs. (10), (111)", "exact", *TWO),
    )
