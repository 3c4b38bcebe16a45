"""Mean-field loss and its derivatives with respect to the logits and the attention
(Eqs. 10, 43, 61).
"""

from functools import cache

import sympy as sp

from theory import (
    Equations,
    delta_gradient,
    delta_sum,
    function,
    linear_root,
    proved,
    symbol,
    table,
    written_as,
)
from theory.call import scope, sweep
from theory.numbers.numeric import dirichlet_kernel
from theory.state_tracking.model import definitions
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import ARCHITECTURE
from theory.state_tracking.model.symbols import (
    A,
    L,
    M,
    M_star,
    N,
    R,
    S,
    a,
    b,
    c,
    c_R,
    c_S,
    d_g,
    d_h,
    eta,
    g,
    j,
    loss,
    m,
    n,
    omega,
    p,
    q,
    r,
    ref,
    s,
    sigma2,
    z_k,
    z_kbar,
    zeta,
)
from theory.symbols.notation import Forms

# Mean logits, averaged exactly over independent uniform actions and states (App. D)

delta = sp.KroneckerDelta
pi_i = symbol(
    "pi_i", r"\pi_{i,i-L}", "attention on the right action at position i", real=True
)
z_k_i = symbol(
    "z_k_i",
    r"\langle z_{i+1,k}\rangle",
    "mean logit of the right state at position i",
    real=True,
)
pair_weight = function("w", "share of attention on action a while b is right")(a, b)
UNIFORM = "actions and states independent and uniform"
EXCHANGEABLE = (
    "no preferred position: attention on the right action is A at every position"
)


def average_pair_weight() -> sp.Expr:
    """Mean of sum_j pi_ij [g_j = b] [g_{i-L} = a] over independent uniform actions."""
    g, h = sp.symbols("g h", integer=True, positive=True)
    same = delta_sum(delta(g, a) * delta(g, b), (g, 1, d_g)) / d_g
    different = (
        delta_sum(delta(g, a), (g, 1, d_g))
        * delta_sum(delta(h, b), (h, 1, d_g))
        / d_g**2
    )
    return pi_i * same + (1 - pi_i) * different  # rows of the attention sum to one


def average_correct_logit() -> sp.Expr:
    """Sum of w(a, b) Tr[M*_a^T M_b]/N over pairs of actions; the mean of the trace over
    N is R for a = b and S for a != b.
    """
    overlap = delta(a, b) * R + (1 - delta(a, b)) * S
    return delta_sum(average_pair_weight() * overlap, (b, 1, d_g), (a, 1, d_g))


@cache
def logit_equations() -> Equations:
    """Equations 11-12 and 25-41, with the coefficients of 46."""
    at_i = average_correct_logit()
    of_R = written_as(A + (1 - A) / d_g, at_i.coeff(R).subs(pi_i, A))
    of_S = written_as((d_g - 1) / d_g * (1 - A), at_i.coeff(S).subs(pi_i, A))
    total = sp.Sum(M[a, p, q], (a, 1, d_g), (p, 1, N), (q, 1, N)) / (d_g * N)
    return table(
        ref,
        status="exact",
        pair_weight=(pair_weight, average_pair_weight(), "Eqs. (30)-(33)", UNIFORM),
        logit_correct_position=(
            z_k_i,
            (of_R * R + of_S * S).subs(A, pi_i),
            "Eq. (35)",
            UNIFORM,
        ),
        c_R=(c_R, of_R, "Eq. (46)"),
        c_S=(c_S, of_S, "Eq. (46)"),
        logit_correct=(
            z_k,
            of_R * R + of_S * S,
            "Eqs. (11), (36)",
            UNIFORM,
            EXCHANGEABLE,
        ),
        zeta=(zeta, total, "Eq. (40)", "conserved by descent on the cross-entropy"),
        logit_other=(
            z_kbar,
            linear_root(z_k + (N - 1) * z_kbar - zeta, z_kbar),
            "Eqs. (12), (41)",
            UNIFORM,
            "wrong states are alike on average",
        ),
    )


MEAN_FIELD = "logits replaced by their means"


@cache
def equations() -> Equations:
    """Loss, margin, and the derivatives that enter gradient descent."""
    mean = logit_equations()
    correct = mean["logit_correct"].rhs
    other = mean["logit_other"].rhs
    value = -z_k + sp.log(sp.exp(z_k) + (N - 1) * sp.exp(z_kbar))
    by_correct, by_other = (
        sp.diff(value, z).subs(z_k, z_kbar + m) for z in (z_k, z_kbar)
    )
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
    of_margin = written_as(
        1 + (N - 1) * sp.exp(-m), sp.expand(sp.exp(value.subs(z_k, z_kbar + m)))
    )
    return table(
        ref,
        status="exact",
        loss=(loss, value, "Eq. (10)", "closure", MEAN_FIELD),
        loss_of_margin=(
            loss,
            sp.log(of_margin),
            "Eq. (10), by the margin",
            "closure",
            MEAN_FIELD,
        ),
        margin=(m, sp.factor(z_k - other), "below Eq. (15)"),
        g=(g, wrong_mass, "Eqs. (15), (59)", "softmax of the mean logits"),
        dloss_dz_k=(sp.Derivative(loss, z_k), opposite * g, "Eq. (43)", MEAN_FIELD),
        dloss_dz_kbar=(sp.Derivative(loss, z_kbar), g, "Eq. (43)", MEAN_FIELD),
        dloss_dA=(sp.Derivative(loss, A), by_A, "Eqs. (61), (64)", MEAN_FIELD),
    )


def margin_of_state() -> sp.Expr:
    """Logit margin as a function of A, R, S and zeta."""
    return equations()["margin"].rhs.subs(z_k, logit_equations()["logit_correct"].rhs)


def abbreviations() -> Forms:
    """Definitions of g, m and the mean logits; each may use later ones."""
    return {
        e.lhs: e.rhs
        for e in (
            equations()["g"],
            equations()["margin"],
            logit_equations()["logit_other"],
            logit_equations()["logit_correct"],
        )
    }


# Variance of the logits over the entries of M; gives a formula for the initial value
# that the paper measures

participation = symbol(
    "participation",
    r"\sum_{j}\pi_{ij}^{2}",
    "sum of squared attention at a position",
    positive=True,
)
variance = symbol(
    "logit_variance", r"\sigma_{z}^{2}", "variance of logits", positive=True
)


def initial_participation() -> sp.Expr:
    """Mean of sum_j pi_ij^2 at random keys and queries, to second order in the
    attention logits.

    The third order vanishes, since W_Q and -W_Q are equally likely.
    """
    small = sp.Symbol("epsilon", positive=True)
    mean, square = sp.symbols("lbar l2bar")  # mean of l_j and of l_j^2 along a row
    # exp(eps l) to second order, summed over a row of L entries.
    weight = 1 + small * mean + small**2 * square / 2
    weight2 = 1 + 2 * small * mean + 2 * small**2 * square
    row = sp.series(weight2 / (L * weight**2), small, 0, 3).removeO().subs(small, 1)
    # <l_ij l_ij'> = sigma^4 (2/d_h) sum_n cos(omega_n (j - j')), whose mean over j, j'
    # is a Dirichlet kernel squared.
    blocks = (n, 1, d_h / 2)
    spread = (
        sigma2**2 * (2 / d_h) * sp.Sum(1 - dirichlet_kernel(omega[n], L) ** 2, blocks)
    )
    difference = sp.expand(row * L - 1)
    proved(
        sp.expand(difference - (square - mean**2)) == 0,
        "the row variance is not the second-order term",
    )
    return (1 + spread) / L


@cache
def variance_equations() -> Equations:
    """Variance for given attention, and at random keys and queries."""
    # Var_M of sum_j pi_j M_{g_j}: equal actions share an entry, and two actions are
    # equal with probability 1/d_g.
    agree = delta_sum(sp.KroneckerDelta(j, c), (c, 1, d_g)) / d_g
    spread = sp.expand(participation + (1 - participation) * agree) * sigma2
    spread = written_as(sigma2 * ((1 - 1 / d_g) * participation + 1 / d_g), spread)
    return table(
        ref,
        "entries of M independent with variance sigma^2",
        "actions independent and uniform",
        status="exact",
        logit_variance=(
            variance,
            spread,
            "beyond App. I: variance over the entries of M",
        ),
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
    """Variance of the logits at time 0, to leading order (0.0439 at Table 1, 0.0468 at
    Table 2).
    """
    return float(variance_equations()["logit_variance_initial"].evaluate(p.values()))


@scope.guard(ARCHITECTURE)
@sweep.over_fields
def c_omega(parameters: Parameters) -> float:
    """Attention constant c_omega (forner2026, Eq. 14).

    Dimensionless in the time unit ``alpha = epochs/(d_g N)``. It is 0 for L = 1, where
    attention cannot change.
    """
    return parameters.values()["c_omega"]


# Gradients with respect to single entries of the logic matrices, and their update (Eqs.
# 42-52)

ENTRY = M[b, r, s]
OWN = M_star[b, r, s]  # entry of the matrix's own teacher
ALL = sp.Sum(M_star[c, r, s], (c, 1, d_g))  # entry of the sum of all teachers
UPDATE = symbol(
    "Delta_M", r"\Delta [M_{b}]_{rs}", "change of an entry of M in an epoch"
)


@cache
def entry_equations() -> Equations:
    """Equations 47-52: from the definitions to the update of one entry."""
    definition = definitions.equations()
    dR = delta_gradient(definition["R"].rhs, ENTRY)
    dS = written_as(
        (ALL - OWN) / (d_g * (d_g - 1) * N), delta_gradient(definition["S"].rhs, ENTRY)
    )
    dzeta = delta_gradient(logit_equations()["zeta"].rhs, ENTRY)
    dz_k = (
        c_R * dR + c_S * dS
    )  # chain rule with c_R, c_S the derivatives of the mean logit
    other = logit_equations()["logit_other"].rhs
    dz_kbar = sp.diff(other, z_k) * dz_k + sp.diff(other, zeta) * dzeta
    by = equations()
    step = -eta * (by["dloss_dz_k"].rhs * dz_k + by["dloss_dz_kbar"].rhs * dz_kbar)
    others = ALL - OWN
    step = written_as(
        eta
        / (d_g * N)
        * g
        * N
        / (N - 1)
        * (c_R * OWN + c_S / (d_g - 1) * others - 1 / N),
        step,
    )
    return table(
        ref,
        status="exact",
        dR_dM=(sp.Derivative(R, ENTRY), dR, "Eq. (47)"),
        dS_dM=(sp.Derivative(S, ENTRY), dS, "Eq. (47)", "d_g >= 2"),
        dz_k_dM=(sp.Derivative(z_k, ENTRY), dz_k, "Eqs. (44)-(48)"),
        dz_kbar_dM=(sp.Derivative(z_kbar, ENTRY), dz_kbar, "Eq. (49)"),
        update_M=(UPDATE, step, "Eqs. (42), (50)-(52)", MEAN_FIELD),
    )
