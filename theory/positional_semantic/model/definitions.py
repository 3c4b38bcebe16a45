"""Definition of the layer, its target and the two-token quantities (Eqs. 1-6, 15-16),
and the output channel (9), (42), (103): its Gaussian fields, the Moreau envelope, and
the averages in the state evolution.
"""

from functools import cache

import sympy as sp

from theory import Equations, function, symbol, table, vanishes, written_as
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

S_12, S_21 = (
    symbol(f"S_{k}", f"S_{{{k}}}", "entry of the student's attention", real=True)
    for k in ("12", "21")
)
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
    loss = written_as(
        sigma**2 * ((Y_12 - P) ** 2 + (Y_21 - R) ** 2),
        sigma**2 * (gap * gap.T).trace() / 2,
    )
    quadratic = ((z_1 - w_1) ** 2 + (z_2 - w_2) ** 2) / (2 * V)
    kept = "the constant in Y alone is kept"
    return table(
        ref,
        "two tokens",
        "tied rank-one weights",
        status="exact",
        S_12=(S_12, P, "Eq. (15)"),
        S_21=(S_21, R, "Eq. (15)"),
        Y_12=(Y_12, (1 - omega) * P_h + omega * A_12, "Eq. (16)"),
        Y_21=(Y_21, (1 - omega) * R_h + omega * A_21, "Eq. (16)"),
        sentence_loss=(
            loss_symbol,
            loss,
            "Eqs. (39), (40)",
            "d to infinity: x x^T / d is sigma^2 times the identity",
            "rows of A sum to one",
        ),
        objective=(objective_symbol, quadratic + loss, "Eqs. (42), (103)", kept),
    )


@cache
def derivatives() -> list[sp.Expr]:
    """Objective, its gradient and its Hessian (entries 11, 12, 22) with respect to the
    student's fields.
    """
    f = equations()["objective"].rhs
    return [
        f,
        *(sp.diff(f, a) for a in (z_1, z_2)),
        sp.diff(f, z_1, 2),
        sp.diff(f, z_1, z_2),
        sp.diff(f, z_2, 2),
    ]


# Output channel (9), (42), (103)

xi_1, xi_2 = (
    symbol(
        f"xi_{k}",
        rf"\xi_{{{k}}}",
        "standard Gaussian of the student's field",
        real=True,
    )
    for k in "12"
)
eta_1, eta_2 = (
    symbol(
        f"eta_{k}",
        rf"\eta_{{{k}}}",
        "standard Gaussian of the teacher's field",
        real=True,
    )
    for k in "12"
)
best = {
    x: function(f"{x.name[0]}^{{\\ast}}_{x.name[2]}", "proximal point")(
        w_1, w_2, Y_12, Y_21
    )
    for x in (z_1, z_2)
}
envelope = symbol(
    "envelope",
    r"\bar{\mathcal{M}}",
    "Moreau envelope: least objective",
    nonnegative=True,
)
g_1, g_2 = (
    symbol(f"g_{k}", means="output channel: (z* - w) / V", real=True) for k in "12"
)


def average(expr: sp.Expr) -> sp.Expr:
    """Integral over the four independent standard normals."""
    normals = (xi_1, xi_2, eta_1, eta_2)
    density = sp.exp(-sum(x**2 for x in normals) / 2) / (2 * sp.pi) ** 2
    return sp.Integral(expr * density, *((x, -sp.oo, sp.oo) for x in normals))


@cache
def output_channel() -> Equations:
    """Fields, envelope, its derivative g, and the averages as integrals."""
    at_best = {z_1: best[z_1], z_2: best[z_2]}
    objective = equations()["objective"].rhs
    loss = equations()["sentence_loss"].rhs
    gap = Y_12 - equations()["S_12"].rhs, Y_21 - equations()["S_21"].rhs
    at_w = {z_1: w_1, z_2: w_2}
    h = [
        theta / sp.sqrt(q) * x + sp.sqrt(nu) * e
        for x, e in ((xi_1, eta_1), (xi_2, eta_2))
    ]
    g = [sp.expand(-sp.diff(objective, w)).subs(at_best) for w in (w_1, w_2)]
    variance = "nu is the variance of the teacher field given the student's"
    smallest = "z^* minimises the objective over z_1, z_2"
    return table(
        ref,
        status="exact",
        w_1=(w_1, m + sp.sqrt(q) * xi_1, "Eq. (7)"),
        w_2=(w_2, -m + sp.sqrt(q) * xi_2, "Eq. (7)"),
        h_1=(h_1, h[0], "Eq. (7)", variance),
        h_2=(h_2, h[1], "Eq. (7)", variance),
        envelope=(envelope, objective.subs(at_best), "Eqs. (9), (42), (103)", smallest),
        g_1=(g_1, g[0], "Eqs. (42), (103)", "envelope theorem"),
        g_2=(g_2, g[1], "Eqs. (42), (103)", "envelope theorem"),
        E_gg=(E_gg, average(g_1**2 + g_2**2), "Eq. (7)"),
        E_g=(E_g, average(g_1 - g_2), "Eq. (7)"),
        E_gxi=(E_gxi, average(g_1 * xi_1 + g_2 * xi_2), "Eq. (7)"),
        E_geta=(E_geta, average(g_1 * eta_1 + g_2 * eta_2), "Eq. (7)"),
        E_M=(E_M, average(envelope), "Eq. (14)"),
        E_loss=(E_loss, average(loss.subs(at_best)), "Eq. (14)"),
        E_S_12=(S_gap, average((gap[0] ** 2).subs(at_w)), "Eq. (10)"),
        E_S_21=(R_gap, average((gap[1] ** 2).subs(at_w)), "Eq. (10)"),
    )
