"""Three-parameter loss, its gradient, the flow and its invariant (B.3-B.5, and beyond)."""

import sympy as sp

from theory import Equation, Flow, proved, symbol, table, vanishes, written_as
from theory.catalogue import cache
from theory.induction_heads import attention
from theory.induction_heads.network import ORTHONORMAL
from theory.induction_heads.scope import THREE
from theory.induction_heads.symbols import (
    F,
    G,
    N,
    alpha,
    beta,
    gamma,
    p,
    q,
    r,
    ref,
    s,
    squared_error,
    t,
)

LAST = "last pair queried, q = N (Assumption 8)"
GIVEN = (ORTHONORMAL, attention.THREE, LAST, "strict mask", "summed over the D coordinates")
NEW = "beyond Theorem 2"
gamma_star = symbol(
    "gamma_star", r"\gamma^{\star}", "gamma of least loss at given attention", real=True
)
loss_star = symbol("loss_star", r"\mathcal{L}^{\star}", "loss at that gamma", real=True)
conserved = symbol("conserved", "C", "invariant of the flow", real=True)


@cache
def abbreviations() -> dict[sp.Symbol, sp.Expr]:
    """Definitions of r, F, s, p and G; each may use later ones. p is the score of the correct label
    divided by beta.
    """
    own_label = attention.key_scores()["own_label"].subs(q, N)
    return {
        r: s + F,
        F: 2 * N - 1,
        s: sp.exp(beta * p),
        p: sp.exp(alpha) / G,
        G: sp.exp(alpha) / own_label,
    }


def spelled(expr: sp.Expr) -> sp.Expr:
    """Expression in alpha, beta, gamma and N only."""
    for short, meaning in abbreviations().items():
        expr = expr.subs(short, meaning)
    return expr


def grouped(form: sp.Expr, derived: sp.Expr) -> sp.Expr:
    """Write a result in terms of s, r and F; the two are proved equal with r substituted."""
    written_as(form.subs(r, s + F), derived)
    return form


@cache
def equations() -> dict[str, Equation]:
    """Loss at q = N, its gradient by the chain rule, the invariant, and the optimal gamma."""
    short = abbreviations()
    # No row follows the last pair; its label has weight s, and 2N - 1 other rows have weight 1.
    exponent = sp.exp(beta * attention.key_scores()["own_label"].subs(q, N))
    loss = attention.derived("strict", N).loss.subs(exponent, s).subs(exponent**2, s**2)
    loss = loss.subs(N, (F + 1) / 2)
    loss = grouped(1 - 2 * gamma * s / r + gamma**2 * (s**2 + F) / r**2, loss)
    # Beta and alpha enter through s = exp(beta p), alpha through p = e^alpha / G.
    inner = loss.subs(r, s + F)
    by_s = grouped(2 * F * (gamma**2 * (s - 1) / r**3 - gamma / r**2), sp.diff(inner, s))
    by_gamma = grouped(2 * gamma * (s**2 + F) / r**2 - 2 * s / r, sp.diff(inner, gamma))
    s_by_p, s_by_beta = (sp.diff(short[s], v).subs(short[s], s) for v in (p, beta))
    of_alpha = short[p].subs(G, short[G])
    p_by_alpha = p * (2 * N - 2) / G
    written_as(p_by_alpha.subs(p, short[p]).subs(G, short[G]), sp.diff(of_alpha, alpha))
    # d alpha / d beta = beta (2N - 2) / G separates.
    ratio = sp.simplify(s_by_p * p_by_alpha / s_by_beta).subs(G, short[G])
    two_n = sp.numer(ratio) / beta
    invariant = sp.integrate(sp.denom(ratio), (alpha, 0, alpha)) - sp.integrate(
        two_n * beta, (beta, 0, beta)
    )
    invariant = written_as((2 * N - 2) * alpha + sp.exp(alpha) - 1 - (N - 1) * beta**2, invariant)
    start = sp.Rational(1, 2) * beta**2 + 1 / (2 * N - 2)
    of_beta = start - sp.LambertW(sp.exp(start) / (2 * N - 2))
    # W(z) e^W(z) = z rewrites the exponential of the solution as W.
    W = sp.Dummy("W")
    solved = (
        invariant.subs(alpha, start - W).expand().subs(sp.exp(-W), W * (2 * N - 2) * sp.exp(-start))
    )
    proved(
        vanishes(solved.subs(sp.exp(start - W), W * (2 * N - 2))),
        "alpha(beta) does not solve the invariant",
    )
    best = written_as(s * (s + F) / (s**2 + F), sp.solve(by_gamma.subs(r, s + F), gamma)[0])
    least = written_as(F / (s**2 + F), inner.subs(gamma, best))
    return table(
        ref,
        *GIVEN,
        status="exact",
        loss=(squared_error, loss, "B.3, B.4.1"),
        dloss_ds=(sp.Derivative(squared_error, s), by_s, "B.4.3"),
        ds_dbeta=(sp.Derivative(s, beta), s_by_beta, "B.4.4"),
        ds_dalpha=(sp.Derivative(s, alpha), s_by_p * p_by_alpha, "B.4.4"),
        dloss_dgamma=(sp.Derivative(squared_error, gamma), by_gamma, "B.4.2, B.4.6"),
        dloss_dbeta=(sp.Derivative(squared_error, beta), by_s * s_by_beta, "B.4.5, B.4.6"),
        dloss_dalpha=(
            sp.Derivative(squared_error, alpha),
            by_s * s_by_p * p_by_alpha,
            "B.4.5, B.4.6",
        ),
        invariant=(conserved, invariant, f"{NEW}: zero along the flow from zero"),
        alpha_of_beta=(alpha, of_beta, f"{NEW}: the invariant solved", "N >= 2"),
        beta_of_alpha=(
            beta,
            sp.sqrt(2 * alpha + (sp.exp(alpha) - 1) / (N - 1)),
            f"{NEW}: the invariant solved",
            "N >= 2",
        ),
        gamma_star=(gamma_star, best, f"{NEW}: best gamma at given s"),
        loss_star=(loss_star, least, f"{NEW}: loss at the best gamma"),
        plateau=(
            loss_star,
            sp.simplify(spelled(least.subs(s, 1))),
            f"{NEW}: best loss at alpha beta = 0",
        ),
    )


@cache
def flow() -> Flow:
    """Gradient flow of alpha, beta, gamma with unit rate on the loss summed over D (Assumption 5).

    The gradient flow of the full matrices at unit rate is D times slower: see
    `Parameters.time_per_step`.
    """
    eq = equations()
    short = abbreviations()
    of_beta = 2 * F * s * p * gamma / r**2 * (1 - gamma * (s - 1) / r)
    ratio = beta * (2 * N - 2) / G
    rates = {
        alpha: ratio * of_beta,
        beta: of_beta,
        gamma: 2 * s / r - 2 * gamma * (s**2 + F) / r**2,
    }
    for x, rate in rates.items():
        if not vanishes(rate + eq[f"dloss_d{x.name}"].rhs):
            raise ArithmeticError(f"the rate of {x} is not minus its gradient")
    return Flow(
        name="induction_heads",
        time=t,
        rhs=rates,
        initial={alpha: sp.S.Zero, beta: sp.S.Zero, gamma: sp.S.Zero},
        reference=ref("B.5, Assumptions 4-6"),
        status="exact",
        assumptions=(*GIVEN, "gradient flow of unit rate in the three parameters", "zero start"),
        where=short,
        observables={
            "loss": eq["loss"].rhs,
            "attention_first": p,
            "attention_second": s / r,
            "conserved": eq["invariant"].rhs,
        },
        scope=THREE,
    )
