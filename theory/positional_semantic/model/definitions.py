"""Definition of the layer, its target and the two-token quantities (Eqs. 1-6, 15-16),
and the output channel (9), (42), (103): its Gaussian fields, the Moreau envelope, and
the averages in the state evolution.
"""

from functools import cache

import sympy as sp

from theory import Chapter, Equations, function, symbol, vanishes, written_as
from theory.positional_semantic.model.symbols import (
    A_12,
    A_21,
    E_M,
    Y_12,
    Y_21,
    E_g,
    E_geta,
    E_gg,
    E_gxi,
    E_loss,
    R_gap,
    S_gap,
    V,
    h_1,
    h_2,
    m,
    nu,
    omega,
    q,
    ref,
    sigma,
    theta,
    w_1,
    w_2,
    z_1,
    z_2,
)

S_12 = symbol("S_12", "S_{12}", "entry of the student's attention", real=True)
S_21 = symbol("S_21", "S_{21}", "entry of the student's attention", real=True)
loss_symbol = symbol("ell", r"\ell", "loss of a sentence")
objective_symbol = symbol(
    "objective", r"\mathcal{O}", "what the proximal point minimises"
)


def logistic(u: sp.Expr) -> sp.Expr:
    """``1/(1 + exp(-u))``, written so that it and its derivatives stay finite for every
    ``u``.
    """
    return (1 + sp.tanh(u / 2)) / 2


def softmax(scores: sp.Matrix) -> sp.Matrix:
    """Row-wise softmax."""
    weights = scores.applyfunc(sp.exp)
    return sp.Matrix(*scores.shape, lambda a, b: weights[a, b] / sum(weights[a, :]))


def tied_attention(fields: sp.Matrix) -> sp.Matrix:
    """Attention matrix ``softmax(h h^T)`` of (15) from the fields ``h``, one row per
    token.
    """
    return softmax(fields * fields.T)


def off_diagonal(first: sp.Expr, second: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Entries (1,2) and (2,1) of the two-token attention matrix, from the softmax, as
    logistic functions.

    A softmax over two entries is the logistic function of their difference; the
    identity is proved.
    """
    S = tied_attention(sp.Matrix([first, second]))
    forms = logistic(first * (second - first)), logistic(second * (first - second))
    for form, entry in zip(forms, (S[0, 1], S[1, 0]), strict=True):
        if not vanishes(form.rewrite(sp.exp) - entry):
            raise ArithmeticError(f"{form} is not the softmax entry {entry}")
    return forms


@cache
def equations() -> Equations:
    """Student and target attention on two tokens, the loss of a sentence, and the
    objective of its Moreau envelope.
    """
    P, R = off_diagonal(z_1, z_2)
    P_h, R_h = off_diagonal(h_1, h_2)
    student = sp.Matrix([[1 - P, P], [R, 1 - R]])
    target = sp.Matrix([[1 - Y_12, Y_12], [Y_21, 1 - Y_21]])
    gap = target - student
    # Gram matrix sigma^2 I (40)
    form = sigma**2 * ((Y_12 - P) ** 2 + (Y_21 - R) ** 2)
    loss = written_as(form, sigma**2 * (gap * gap.T).trace() / 2)
    quadratic = ((z_1 - w_1) ** 2 + (z_2 - w_2) ** 2) / (2 * V)
    chapter = Chapter(ref, "two tokens", "tied rank-one weights", status="exact")
    chapter.state("S_12", S_12, P, "Eq. (15)")
    chapter.state("S_21", S_21, R, "Eq. (15)")
    chapter.state("Y_12", Y_12, (1 - omega) * P_h + omega * A_12, "Eq. (16)")
    chapter.state("Y_21", Y_21, (1 - omega) * R_h + omega * A_21, "Eq. (16)")
    chapter.state(
        "sentence_loss",
        loss_symbol,
        loss,
        "Eqs. (39), (40)",
        "d to infinity: x x^T / d is sigma^2 times the identity",
        "rows of A sum to one",
    )
    chapter.state(
        "objective",
        objective_symbol,
        quadratic + loss,
        "Eqs. (42), (103)",
        "the constant in Y alone is kept",
    )
    return chapter.equations


@cache
def derivatives() -> list[sp.Expr]:
    """Objective, its gradient and its Hessian (entries 11, 12, 22) with respect to the
    student's fields.
    """
    f = equations()["objective"].rhs
    second = [sp.diff(f, z_1, 2), sp.diff(f, z_1, z_2), sp.diff(f, z_2, 2)]
    return [f, sp.diff(f, z_1), sp.diff(f, z_2), *second]


# Output channel (9), (42), (103)

OF_STUDENT = "standard Gaussian of the student's field"
OF_TEACHER = "standard Gaussian of the teacher's field"
xi_1 = symbol("xi_1", r"\xi_{1}", OF_STUDENT, real=True)
xi_2 = symbol("xi_2", r"\xi_{2}", OF_STUDENT, real=True)
eta_1 = symbol("eta_1", r"\eta_{1}", OF_TEACHER, real=True)
eta_2 = symbol("eta_2", r"\eta_{2}", OF_TEACHER, real=True)
GIVEN = (w_1, w_2, Y_12, Y_21)
best = {
    z_1: function(r"z^{\ast}_1", "proximal point")(*GIVEN),
    z_2: function(r"z^{\ast}_2", "proximal point")(*GIVEN),
}
envelope = symbol(
    "envelope",
    r"\bar{\mathcal{M}}",
    "Moreau envelope: least objective",
    nonnegative=True,
)
g_1 = symbol("g_1", means="output channel: (z* - w) / V", real=True)
g_2 = symbol("g_2", means="output channel: (z* - w) / V", real=True)


def average(expr: sp.Expr) -> sp.Expr:
    """Integral over the four independent standard normals."""
    normals = (xi_1, xi_2, eta_1, eta_2)
    density = sp.exp(-sum(x**2 for x in normals) / 2) / (2 * sp.pi) ** 2
    return sp.Integral(expr * density, *((x, -sp.oo, sp.oo) for x in normals))


@cache
def output_channel() -> Equations:
    """Fields, envelope, its derivative g, and the averages as integrals."""
    eq = equations()
    objective = eq["objective"].rhs
    at_w = {z_1: w_1, z_2: w_2}
    channel = Chapter(ref, status="exact")
    state = channel.state
    state("w_1", w_1, m + sp.sqrt(q) * xi_1, "Eq. (7)")
    state("w_2", w_2, -m + sp.sqrt(q) * xi_2, "Eq. (7)")
    variance = "nu is the variance of the teacher field given the student's"
    slope = theta / sp.sqrt(q)
    state("h_1", h_1, slope * xi_1 + sp.sqrt(nu) * eta_1, "Eq. (7)", variance)
    state("h_2", h_2, slope * xi_2 + sp.sqrt(nu) * eta_2, "Eq. (7)", variance)
    smallest = "z^* minimises the objective over z_1, z_2"
    state("envelope", envelope, objective.subs(best), "Eqs. (9), (42), (103)", smallest)
    words = ("Eqs. (42), (103)", "envelope theorem")
    for g, w in ((g_1, w_1), (g_2, w_2)):
        derivative = sp.expand(-sp.diff(objective, w)).subs(best)
        state(g.name, g, derivative, *words)
    state("E_gg", E_gg, average(g_1**2 + g_2**2), "Eq. (7)")
    state("E_g", E_g, average(g_1 - g_2), "Eq. (7)")
    state("E_gxi", E_gxi, average(g_1 * xi_1 + g_2 * xi_2), "Eq. (7)")
    state("E_geta", E_geta, average(g_1 * eta_1 + g_2 * eta_2), "Eq. (7)")
    state("E_M", E_M, average(envelope), "Eq. (14)")
    loss = eq["sentence_loss"].rhs.subs(best)
    state("E_loss", E_loss, average(loss), "Eq. (14)")
    error = ((Y_12 - eq["S_12"].rhs) ** 2).subs(at_w)
    state("E_S_12", S_gap, average(error), "Eq. (10)")
    error = ((Y_21 - eq["S_21"].rhs) ** 2).subs(at_w)
    state("E_S_21", R_gap, average(error), "Eq. (10)")
    return channel.equations
