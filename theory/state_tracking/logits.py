"""Mean logits, averaged exactly over independent uniform actions and states (App. D)."""

from functools import cache

import sympy as sp

from theory import Equation, delta_sum, function, linear_root, symbol, table, written_as
from theory.state_tracking.symbols import (
    A,
    M,
    N,
    R,
    S,
    a,
    b,
    c_R,
    c_S,
    d_g,
    p,
    q,
    ref,
    z_k,
    z_kbar,
    zeta,
)

delta = sp.KroneckerDelta
pi_i = symbol("pi_i", r"\pi_{i,i-L}", "attention on the right action at position i", real=True)
z_k_i = symbol(
    "z_k_i", r"\langle z_{i+1,k}\rangle", "mean logit of the right state at position i", real=True
)
pair_weight = function("w", "share of attention on action a while b is right")(a, b)
UNIFORM = "actions and states independent and uniform"
EXCHANGEABLE = "no preferred position: attention on the right action is A at every position"


def average_pair_weight() -> sp.Expr:
    """Mean of sum_j pi_ij [g_j = b] [g_{i-L} = a] over independent uniform actions."""
    g, h = sp.symbols("g h", integer=True, positive=True)
    same = delta_sum(delta(g, a) * delta(g, b), (g, 1, d_g)) / d_g
    different = delta_sum(delta(g, a), (g, 1, d_g)) * delta_sum(delta(h, b), (h, 1, d_g)) / d_g**2
    return pi_i * same + (1 - pi_i) * different  # rows of the attention sum to one


def average_correct_logit() -> sp.Expr:
    """Sum of w(a, b) Tr[M*_a^T M_b]/N over pairs of actions; the mean of the trace over N is R for
    a = b and S for a != b.
    """
    overlap = delta(a, b) * R + (1 - delta(a, b)) * S
    return delta_sum(average_pair_weight() * overlap, (b, 1, d_g), (a, 1, d_g))


@cache
def equations() -> dict[str, Equation]:
    """Equations 11-12 and 25-41, with the coefficients of 46."""
    at_i = average_correct_logit()
    of_R = written_as(A + (1 - A) / d_g, at_i.coeff(R).subs(pi_i, A))
    of_S = written_as((d_g - 1) / d_g * (1 - A), at_i.coeff(S).subs(pi_i, A))
    total = sp.Sum(M[a, p, q], (a, 1, d_g), (p, 1, N), (q, 1, N)) / (d_g * N)
    return table(
        ref,
        status="exact",
        pair_weight=(pair_weight, average_pair_weight(), "Eqs. (30)-(33)", UNIFORM),
        logit_correct_position=(z_k_i, (of_R * R + of_S * S).subs(A, pi_i), "Eq. (35)", UNIFORM),
        c_R=(c_R, of_R, "Eq. (46)"),
        c_S=(c_S, of_S, "Eq. (46)"),
        logit_correct=(z_k, of_R * R + of_S * S, "Eqs. (11), (36)", UNIFORM, EXCHANGEABLE),
        zeta=(zeta, total, "Eq. (40)", "conserved by descent on the cross-entropy"),
        logit_other=(
            z_kbar,
            linear_root(z_k + (N - 1) * z_kbar - zeta, z_kbar),
            "Eqs. (12), (41)",
            UNIFORM,
            "wrong states are alike on average",
        ),
    )
