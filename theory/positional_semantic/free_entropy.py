"""Zero-temperature replica free entropy of the rank-one layer, and its general form for
any L, ranks and covariances.

Conventions: at its stationary point the free entropy is minus the training loss (121);
conjugates (hats) are summed over the two tokens. The derivation follows App. C: trace,
entropic and energetic potentials after the rescaling (99).
"""

from functools import cache

import sympy as sp

from theory import Chapter, Equation, Equations, array, function, linear_root, symbol
from theory.positional_semantic.model.symbols import (
    CONJUGATE,
    E_M,
    ORDER,
    D,
    L,
    Phi,
    V,
    V_hat,
    alpha,
    lam,
    m,
    m_hat,
    q,
    q_hat,
    ref,
    rho,
    sigma,
    theta,
    theta_hat,
)
from theory.symbols.notation import Forms

Psi = symbol("Psi_w", r"\Psi_{w}", "entropic potential", real=True)
RS = ("replica symmetry", "zero temperature", "d and n to infinity at fixed alpha")
TWO = (
    "two tokens of variance sigma^2",
    "p_1 = -p_2 of norm 1",
    "teacher with entries of variance rho/sigma^2",
)
weight, field, noise, tau, pi = sp.symbols("Q_i b xi tau pi", real=True)


def entropic_potential() -> sp.Expr:
    """Gaussian average of the best single weight: ``max_Q [b Q - (lambda + sigma^2
    V_hat) Q^2/2]`` (101), (107).
    """
    gain = field * weight - (lam + sigma**2 * V_hat) * weight**2 / 2
    best = linear_root(sp.diff(gain, weight), weight)
    value = gain.subs(weight, best)
    b = pi * m_hat + sigma**2 * theta_hat * tau + sigma * sp.sqrt(q_hat) * noise
    variances = {noise: 1, tau: rho / sigma**2, pi: 1}
    return gaussian_moments(sp.expand(value.subs(field, b)), variances)


def gaussian_moments(expr: sp.Expr, variances: Forms) -> sp.Expr:
    """Average of a polynomial of degree two over independent variables of mean zero."""
    spread = [sp.diff(expr, x, 2) * variance / 2 for x, variance in variances.items()]
    return sp.Add(expr.subs(dict.fromkeys(variances, 0)), *spread)


@cache
def equations() -> Equations:
    """Entropic potential and free entropy of the rank-one layer, and the general free
    entropy.
    """
    psi = sp.factor(entropic_potential())
    trace = (V_hat * q - q_hat * V) / 2 - m_hat * m - theta_hat * theta
    phi = trace + psi - alpha * E_M
    chapter = Chapter(ref, *RS, status="closure")
    chapter.state("entropic_potential", Psi, psi, "Eqs. (101), (107)", "exact", *TWO)
    chapter.state("free_entropy", Phi, phi, "Eqs. (104), (108)", *TWO)
    chapter.state(
        "free_entropy_general",
        Phi,
        general(),
        "Eqs. (104), (108)",
        "D = lambda + sum_l gamma_l V_hat_l, b = sum_l (pi_l m_hat_l + gamma_l"
        " theta_hat_l tau)",
        "nu: joint law (5) of eigenvalues, projections of p and teacher",
    )
    return chapter.equations


def general() -> sp.Expr:
    """Free entropy for L tokens, student rank r, teacher rank t and jointly diagonal
    covariances.
    """
    r = symbol("r", means="rank of the student", integer=True, positive=True)
    t = symbol("t", means="rank of the teacher", integer=True, positive=True)
    l, a, b, k = sp.symbols("l a b k", integer=True, positive=True)
    qs = array("q", means="self-overlap, by position")
    Vs = array("V", means="variance of the posterior, by position")
    q_hats = array("q_hat", r"\hat{q}", "conjugate of q, by position")
    V_hats = array("V_hat", r"\hat{V}", "conjugate of V, by position")
    ms = array("m", means="overlap with the positional embedding, by position")
    m_hats = array("m_hat", r"\hat{m}", "conjugate of m, by position")
    thetas = array("theta", r"\theta", "overlap with the teacher, by position")
    theta_hats = array("theta_hat", r"\hat{\theta}", "conjugate of theta, by position")
    gamma = array(
        "gamma", r"\gamma", "eigenvalues of the token covariances, by position"
    )
    inverse = array(
        "D_inverse", "(D^{-1})", "inverse of D, matrix over the student's rank"
    )
    outer = array("b", means="field of the student's weights from m and theta")
    tokens = (l, 1, L)
    rows = (a, 1, r)
    columns = (b, 1, r)
    widths = V_hats[l, a, b] * qs[l, b, a] - q_hats[l, a, b] * Vs[l, b, a]
    trace = sp.Sum(widths / 2, tokens, rows, columns)
    trace -= sp.Sum(m_hats[l, a] * ms[l, a], tokens, rows)
    trace -= sp.Sum(theta_hats[l, a, k] * thetas[l, a, k], tokens, rows, (k, 1, t))
    mean = function(r"\mathbb{E}_{\nu}", "mean over the joint law (5)")
    noise = sp.Sum(gamma[l] * q_hats[l, b, a], tokens)
    second_moment = outer[b] * outer[a] + noise
    inner = sp.Sum(inverse[a, b] * second_moment, rows, columns)
    return trace + mean(inner) / 2 - alpha * E_M


def gradient(values: Forms) -> Forms:
    """Derivatives of the free entropy with respect to all eight variables; derivatives
    of ``E_M`` are taken from ``values``.
    """
    phi = equations()["free_entropy"].rhs
    by_envelope = sp.diff(phi, E_M)
    variables = (*ORDER, *CONJUGATE)
    return {x: sp.diff(phi, x) + by_envelope * values.get(x, 0) for x in variables}


D_EQUATION = Equation("D", D, lam + sigma**2 * V_hat, ref("Eq. (109)"), "exact", TWO)
