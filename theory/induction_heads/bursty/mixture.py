"""Bursts of random size: one head learns from contexts with different numbers B of right pairs.

Its loss is the mean over B, and so is every rate, at the same weights: it is the flow that is to be
averaged, not the time. To first order in what the second layer sees, two moments of B remain.
"""

from functools import cache

import sympy as sp

from theory import Equation, table, written_as
from theory.associative_memory import ramp
from theory.induction_heads.bursty import emergence
from theory.induction_heads.bursty.emergence import (
    N_eff,
    alpha,
    best_gamma,
    beta,
    gamma,
    speed,
    theta,
)
from theory.induction_heads.bursty.statement import B, N
from theory.induction_heads.symbols import mean_B, mean_B2

MANY = "B random, N large, B^2 << N"


def mean(of: sp.Expr) -> sp.Expr:
    """Mean over B of a polynomial in B of second degree.

    Raises
    ------
    ArithmeticError
        For another function.
    """
    known = {0: sp.S.One, 1: mean_B, 2: mean_B2}
    powers = sp.Poly(sp.expand(of), B).terms()
    if max(n for (n,), _ in powers) > 2:
        raise ArithmeticError(f"{of}: needs further moments of B")
    return sum(c * known[n] for (n,), c in powers)


@cache
def gamma_star() -> sp.Expr:
    """Value of gamma that minimises the mean loss while attention is still uniform."""
    before = mean(emergence.first().subs(beta, 0))
    best = sp.solve(sp.diff(before, gamma), gamma)[0]
    return written_as(N * mean_B / (N + mean_B2 - mean_B), best)


@cache
def rates() -> tuple[sp.Expr, sp.Expr]:
    """Rates of alpha and of beta for large N, at the best gamma."""
    small, best = sp.Dummy("eps", positive=True), sp.limit(gamma_star(), N, sp.oo)

    def rate(x: sp.Symbol) -> sp.Expr:
        slope = -sp.diff(emergence.first(), x).subs(N, 1 / small)
        leading = sp.limit(sp.expand(slope) / small**2, small, 0)  # gamma stays of order one
        return sp.factor(mean(leading).subs(gamma, best) / N**2)

    return rate(alpha), rate(beta)


@cache
def law() -> sp.Expr:
    """Square of beta as a function of alpha: the size-biased mean of B - 1 in place of B - 1."""
    form = 2 * alpha + (mean_B2 - mean_B) / mean_B * (1 - sp.exp(-alpha))
    return ramp.squared(form, alpha, beta, list(rates()))


def effective() -> sp.Expr:
    """Context length at which a single right pair would take as long, without the delay."""
    single = sp.integrate(sp.exp(-alpha) / sp.sqrt(2 * alpha), (alpha, 0, theta))
    ratio = sp.Integral(sp.exp(-alpha) / sp.sqrt(law()), (alpha, 0, theta)) / single
    written_as(N**2 / mean_B**2, sp.exp(alpha) * beta / rates()[0] / 2)
    return N / mean_B * sp.sqrt(ratio)


@cache
def equations() -> dict[str, Equation]:
    """Best gamma, rate, balance and effective context length."""
    rows = {
        "mixture_gamma_star": (best_gamma, gamma_star),
        "mixture_alpha_rate": (speed, lambda: rates()[0]),
        "mixture_beta_of_alpha": (beta**2, law),
        "mixture_effective_length": (N_eff, effective, "without the delay"),
    }
    where = "musat2025, Sec. 7.2: beyond, bursts of random size"
    return table(where, emergence.SEEN, MANY, status="leading order", **rows)
