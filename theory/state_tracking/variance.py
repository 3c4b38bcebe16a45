"""Variance of the logits over the entries of M; gives a formula for the initial value that the
paper measures.
"""

from functools import cache

import sympy as sp

from theory import Equation, delta_sum, proved, scope, sweep, symbol, table, written_as
from theory.numeric import dirichlet_kernel
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import ARCHITECTURE
from theory.state_tracking.symbols import L, c, d_g, d_h, j, n, omega, ref, sigma2

participation = symbol(
    "participation",
    r"\sum_{j}\pi_{ij}^{2}",
    "sum of squared attention at a position",
    positive=True,
)
variance = symbol("logit_variance", r"\sigma_{z}^{2}", "variance of logits", positive=True)


def initial_participation() -> sp.Expr:
    """Mean of sum_j pi_ij^2 at random keys and queries, to second order in the attention logits.

    The third order vanishes, since W_Q and -W_Q are equally likely.
    """
    small = sp.Symbol("epsilon", positive=True)
    mean, square = sp.symbols("lbar l2bar")  # mean of l_j and of l_j^2 along a row
    # exp(eps l) to second order, summed over a row of L entries.
    weight = 1 + small * mean + small**2 * square / 2
    weight2 = 1 + 2 * small * mean + 2 * small**2 * square
    row = sp.series(weight2 / (L * weight**2), small, 0, 3).removeO().subs(small, 1)
    # <l_ij l_ij'> = sigma^4 (2/d_h) sum_n cos(omega_n (j - j')), whose mean over j, j' is a
    # Dirichlet kernel squared.
    blocks = (n, 1, d_h / 2)
    spread = sigma2**2 * (2 / d_h) * sp.Sum(1 - dirichlet_kernel(omega[n], L) ** 2, blocks)
    difference = sp.expand(row * L - 1)
    proved(
        sp.expand(difference - (square - mean**2)) == 0,
        "the row variance is not the second-order term",
    )
    return (1 + spread) / L


@cache
def equations() -> dict[str, Equation]:
    """Variance for given attention, and at random keys and queries."""
    # Var_M of sum_j pi_j M_{g_j}: equal actions share an entry, and two actions are equal with
    # probability 1/d_g.
    agree = delta_sum(sp.KroneckerDelta(j, c), (c, 1, d_g)) / d_g
    spread = sp.expand(participation + (1 - participation) * agree) * sigma2
    spread = written_as(sigma2 * ((1 - 1 / d_g) * participation + 1 / d_g), spread)
    return table(
        ref,
        "entries of M independent with variance sigma^2",
        "actions independent and uniform",
        status="exact",
        logit_variance=(variance, spread, "beyond App. I: variance over the entries of M"),
        logit_variance_initial=(
            variance,
            spread.subs(participation, initial_participation()),
            "beyond App. I: the value the paper measures",
            "leading order",
            "random keys and queries, second order in the attention logits",
        ),
    )


@scope.guard(ARCHITECTURE)
@sweep.over_fields
def initial_variance(p: Parameters) -> float:
    """Variance of the logits at time 0, to leading order (0.0439 at Table 1, 0.0468 at Table 2)."""
    return float(equations()["logit_variance_initial"].evaluate(p.values()))
