"""Mean-field loss and its derivatives with respect to the logits and the attention
(Eqs. 10, 43, 61).
"""

from functools import cache

import sympy as sp

from theory import (
    Chapter,
    Equations,
    delta_gradient,
    delta_sum,
    function,
    linear_root,
    proved,
    symbol,
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


logits = Chapter(ref, status="exact")


@logits.derives(pair_weight, "Eqs. (30)-(33)", UNIFORM, name="pair_weight")
def average_pair_weight() -> sp.Expr:
    """Mean of sum_j pi_ij [g_j = b] [g_{i-L} = a] over independent uniform actions."""
    g, h = sp.symbols("g h", integer=True, positive=True)
    same = delta_sum(delta(g, a) * delta(g, b), (g, 1, d_g)) / d_g
    on_a = delta_sum(delta(g, a), (g, 1, d_g))
    on_b = delta_sum(delta(h, b), (h, 1, d_g))
    different = on_a * on_b / d_g**2
    return pi_i * same + (1 - pi_i) * different  # rows of the attention sum to one


def average_correct_logit() -> sp.Expr:
    """Sum of w(a, b) Tr[M*_a^T M_b]/N over pairs of actions; the mean of the trace over
    N is R for a = b and S for a != b.
    """
    overlap = delta(a, b) * R + (1 - delta(a, b)) * S
    return delta_sum(average_pair_weight() * overlap, (b, 1, d_g), (a, 1, d_g))


@logits.derives(z_k_i, "Eq. (35)", UNIFORM)
def logit_correct_position() -> sp.Expr:
    """Mean logit of the right state, at one position."""
    return logit_correct().subs(A, pi_i)


@logits.derives(c_R, "Eq. (46)", name="c_R")
@cache
def weight_of_R() -> sp.Expr:
    """Coefficient of R in the mean logit of the right state."""
    at_i = average_correct_logit()
    return written_as(A + (1 - A) / d_g, at_i.coeff(R).subs(pi_i, A))


@logits.derives(c_S, "Eq. (46)", name="c_S")
@cache
def weight_of_S() -> sp.Expr:
    """Coefficient of S in the mean logit of the right state."""
    at_i = average_correct_logit()
    return written_as((d_g - 1) / d_g * (1 - A), at_i.coeff(S).subs(pi_i, A))


@logits.derives(z_k, "Eqs. (11), (36)", UNIFORM, EXCHANGEABLE)
def logit_correct() -> sp.Expr:
    """Mean logit of the right state."""
    return weight_of_R() * R + weight_of_S() * S


@logits.derives(
    zeta, "Eq. (40)", "conserved by descent on the cross-entropy", name="zeta"
)
def mean_column_sum() -> sp.Expr:
    """Sum of a column of M, averaged over all columns."""
    total = sp.Sum(M[a, p, q], (a, 1, d_g), (p, 1, N), (q, 1, N))
    return total / (d_g * N)


@logits.derives(z_kbar, "Eqs. (12), (41)", UNIFORM, "wrong states are alike on average")
@cache
def logit_other() -> sp.Expr:
    """Mean logit of a wrong state: all logits sum to zeta."""
    return linear_root(z_k + (N - 1) * z_kbar - zeta, z_kbar)


def logit_equations() -> Equations:
    """Equations 11-12 and 25-41, with the coefficients of 46."""
    return logits.equations


MEAN_FIELD = "logits replaced by their means"


chapter = Chapter(ref, status="exact")


@chapter.derives(loss, "Eq. (10)", "closure", MEAN_FIELD, name="loss")
def cross_entropy() -> sp.Expr:
    """Cross-entropy of the mean logits."""
    return -z_k + sp.log(sp.exp(z_k) + (N - 1) * sp.exp(z_kbar))


@chapter.derives(loss, "Eq. (10), by the margin", "closure", MEAN_FIELD)
@cache
def loss_of_margin() -> sp.Expr:
    """Loss in terms of the margin."""
    of_margin = sp.exp(cross_entropy().subs(z_k, z_kbar + m))
    return sp.log(written_as(1 + (N - 1) * sp.exp(-m), sp.expand(of_margin)))


@chapter.derives(m, "below Eq. (15)")
def margin() -> sp.Expr:
    """Logit of the right state minus that of a wrong one."""
    return sp.factor(z_k - logit_other())


@cache
def loss_derivatives() -> tuple[sp.Expr, sp.Expr]:
    """Derivatives of the loss by the right logit and by the wrong ones, in terms of the
    margin.
    """
    by_correct, by_other = (sp.diff(cross_entropy(), z) for z in (z_k, z_kbar))
    return by_correct.subs(z_k, z_kbar + m), by_other.subs(z_k, z_kbar + m)


@chapter.derives(g, "Eqs. (15), (59)", "softmax of the mean logits", name="g")
@cache
def wrong_mass() -> sp.Expr:
    """Probability of all wrong states."""
    _, by_other = loss_derivatives()
    return written_as(1 / (1 + sp.exp(m) / (N - 1)), by_other)


@chapter.derives(sp.Derivative(loss, z_k), "Eq. (43)", MEAN_FIELD)
@cache
def dloss_dz_k() -> sp.Expr:
    """Derivative of the loss by the right logit, opposite to that by the wrong ones."""
    by_correct, by_other = loss_derivatives()
    return written_as(-sp.S.One, by_correct / by_other) * g


chapter.state("dloss_dz_kbar", sp.Derivative(loss, z_kbar), g, "Eq. (43)", MEAN_FIELD)


@chapter.derives(sp.Derivative(loss, A), "Eqs. (61), (64)", MEAN_FIELD)
def dloss_dA() -> sp.Expr:
    """Chain rule through both mean logits; the wrong one follows from the right one."""
    through_correct = sp.diff(logit_correct(), A)
    through_other = sp.diff(logit_other(), z_k) * through_correct
    form = -g * N / (N - 1) * (d_g - 1) / d_g * (R - S)
    return written_as(form, dloss_dz_k() * through_correct + g * through_other)


def equations() -> Equations:
    """Loss, margin, and the derivatives that enter gradient descent."""
    return chapter.equations


def margin_of_state() -> sp.Expr:
    """Logit margin as a function of A, R, S and zeta."""
    return margin().subs(z_k, logit_correct())


def abbreviations() -> Forms:
    """Definitions of g, m and the mean logits; each may use later ones."""
    return {g: wrong_mass(), m: margin(), z_kbar: logit_other(), z_k: logit_correct()}


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
    of_block = 1 - dirichlet_kernel(omega[n], L) ** 2
    spread = sigma2**2 * (2 / d_h) * sp.Sum(of_block, (n, 1, d_h / 2))
    difference = sp.expand(row * L - 1)
    proved(
        sp.expand(difference - (square - mean**2)) == 0,
        "the row variance is not the second-order term",
    )
    return (1 + spread) / L


variances = Chapter(
    ref,
    "entries of M independent with variance sigma^2",
    "actions independent and uniform",
    status="exact",
)


@variances.derives(variance, "beyond App. I: variance over the entries of M")
@cache
def logit_variance() -> sp.Expr:
    """Variance of sum_j pi_j M_{g_j}: equal actions share an entry, and two actions are
    equal with probability 1/d_g.
    """
    agree = delta_sum(sp.KroneckerDelta(j, c), (c, 1, d_g)) / d_g
    spread = sp.expand(participation + (1 - participation) * agree) * sigma2
    return written_as(sigma2 * ((1 - 1 / d_g) * participation + 1 / d_g), spread)


@variances.derives(
    variance,
    "beyond App. I: the value the paper measures",
    "leading order",
    "random keys and queries, second order in the attention logits",
)
def logit_variance_initial() -> sp.Expr:
    """Variance at random keys and queries."""
    return logit_variance().subs(participation, initial_participation())


def variance_equations() -> Equations:
    """Variance for given attention, and at random keys and queries."""
    return variances.equations


@scope.guard(ARCHITECTURE)
@sweep.over_fields
def initial_variance(p: Parameters) -> float:
    """Variance of the logits at time 0, to leading order (0.0439 at Table 1, 0.0468 at
    Table 2).
    """
    return variance_equations()["logit_variance_initial"].number(p.values())


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


entries = Chapter(ref, status="exact")


@entries.derives(sp.Derivative(R, ENTRY), "Eq. (47)")
@cache
def dR_dM() -> sp.Expr:
    """Derivative of R by an entry of M."""
    return delta_gradient(definitions.on_target(), ENTRY)


@entries.derives(sp.Derivative(S, ENTRY), "Eq. (47)", "d_g >= 2")
@cache
def dS_dM() -> sp.Expr:
    """Derivative of S by an entry of M."""
    slope = delta_gradient(definitions.off_target(), ENTRY)
    return written_as((ALL - OWN) / (d_g * (d_g - 1) * N), slope)


@entries.derives(sp.Derivative(z_k, ENTRY), "Eqs. (44)-(48)")
def dz_k_dM() -> sp.Expr:
    """Chain rule with c_R, c_S the derivatives of the mean logit."""
    return c_R * dR_dM() + c_S * dS_dM()


@entries.derives(sp.Derivative(z_kbar, ENTRY), "Eq. (49)")
@cache
def dz_kbar_dM() -> sp.Expr:
    """Derivative of the wrong logits, through the right one and through zeta."""
    other = logit_other()
    dzeta = delta_gradient(mean_column_sum(), ENTRY)
    return sp.diff(other, z_k) * dz_k_dM() + sp.diff(other, zeta) * dzeta


@entries.derives(UPDATE, "Eqs. (42), (50)-(52)", MEAN_FIELD)
@cache
def update_M() -> sp.Expr:
    """Step of descent of an entry of M in an epoch."""
    step = -eta * (dloss_dz_k() * dz_k_dM() + g * dz_kbar_dM())
    pull = c_R * OWN + c_S / (d_g - 1) * (ALL - OWN) - 1 / N
    return written_as(eta / (d_g * N) * g * N / (N - 1) * pull, step)


def entry_equations() -> Equations:
    """Equations 47-52: from the definitions to the update of one entry."""
    return entries.equations
