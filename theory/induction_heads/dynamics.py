"""Three-parameter loss, its gradient, the flow and its invariant
(B.3-B.5, and beyond).
"""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp

from theory import (
    Allowed,
    Equations,
    Flow,
    checked,
    proved,
    symbol,
    table,
    vanishes,
    written_as,
)
from theory.dynamics.catalogue import cache
from theory.induction_heads import network
from theory.induction_heads.all_weights.running import (
    after,
    mean,
    real,
    rows,
    rows_before,
    with_gradient,
)
from theory.induction_heads.network import ORTHONORMAL
from theory.induction_heads.parameters import THREE
from theory.induction_heads.symbols import (
    F,
    G,
    N,
    alpha,
    beta,
    d,
    gamma,
    k,
    p,
    q,
    r,
    ref,
    s,
    squared_error,
    t,
)
from theory.symbols.fractions import factored
from theory.symbols.notation import Forms
from theory.symbols.special import first_crossing

LAST = "last pair queried, q = N (Assumption 8)"
GIVEN = (
    ORTHONORMAL,
    network.THREE,
    LAST,
    "strict mask",
    "summed over the D coordinates",
)
NEW = "beyond Theorem 2"
gamma_star = symbol(
    "gamma_star", r"\gamma^{\star}", "gamma of least loss at given attention", real=True
)
loss_star = symbol("loss_star", r"\mathcal{L}^{\star}", "loss at that gamma", real=True)
conserved = symbol("conserved", "C", "invariant of the flow", real=True)


@cache
def abbreviations() -> Forms:
    """Definitions of r, F, s, p and G; each may use later ones. p is the score of the
    correct label divided by beta.
    """
    return {
        r: s + F,
        F: 2 * N - 1,
        s: sp.exp(beta * p),
        p: sp.exp(alpha) / G,
        G: sp.exp(alpha) / network.key_scores()["own_label"].subs(q, N),
    }


def spelled(expr: sp.Expr) -> sp.Expr:
    """Expression in alpha, beta, gamma and N only."""
    for short, meaning in abbreviations().items():
        expr = expr.subs(short, meaning)
    return expr


def grouped(form: sp.Expr, derived: sp.Expr) -> sp.Expr:
    """Write a result in terms of s, r and F; the two are proved equal with r
    substituted.
    """
    written_as(form.subs(r, s + F), derived)
    return form


@cache
def equations() -> Equations:
    """Loss at q = N, its gradient by the chain rule, the invariant, and the optimal
    gamma.
    """
    short = abbreviations()
    # No row follows the last pair; its label has weight s, and 2N - 1 other rows have
    # weight 1.
    exponent = sp.exp(beta * network.key_scores()["own_label"].subs(q, N))
    loss = network.derived("strict", N).loss.subs(exponent, s).subs(exponent**2, s**2)
    loss = loss.subs(N, (F + 1) / 2)
    loss = grouped(1 - 2 * gamma * s / r + gamma**2 * (s**2 + F) / r**2, loss)
    # Beta and alpha enter through s = exp(beta p), alpha through p = e^alpha / G.
    inner = loss.subs(r, s + F)
    by_s = grouped(
        2 * F * (gamma**2 * (s - 1) / r**3 - gamma / r**2), sp.diff(inner, s)
    )
    by_gamma = grouped(2 * gamma * (s**2 + F) / r**2 - 2 * s / r, sp.diff(inner, gamma))
    s_by_p, s_by_beta = (sp.diff(short[s], v).subs(short[s], s) for v in (p, beta))
    of_alpha = short[p].subs(G, short[G])
    p_by_alpha = p * (2 * N - 2) / G
    written_as(p_by_alpha.subs(p, short[p]).subs(G, short[G]), sp.diff(of_alpha, alpha))
    # d alpha / d beta = beta (2N - 2) / G separates.
    ratio = factored(s_by_p * p_by_alpha / s_by_beta).subs(G, short[G])
    invariant = sp.integrate(sp.denom(ratio), (alpha, 0, alpha)) - sp.integrate(
        sp.numer(ratio), (beta, 0, beta)
    )
    invariant = written_as(
        (2 * N - 2) * alpha + sp.exp(alpha) - 1 - (N - 1) * beta**2, invariant
    )
    start = sp.Rational(1, 2) * beta**2 + 1 / (2 * N - 2)
    of_beta = start - sp.LambertW(sp.exp(start) / (2 * N - 2))
    # W(z) e^W(z) = z rewrites the exponential of the solution as W.
    W = sp.Dummy("W")
    solved = (
        invariant.subs(alpha, start - W)
        .expand()
        .subs(sp.exp(-W), W * (2 * N - 2) * sp.exp(-start))
    )
    proved(
        vanishes(solved.subs(sp.exp(start - W), W * (2 * N - 2))),
        "alpha(beta) does not solve the invariant",
    )
    best = written_as(
        s * (s + F) / (s**2 + F), sp.solve(by_gamma.subs(r, s + F), gamma)[0]
    )
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
        dloss_dbeta=(
            sp.Derivative(squared_error, beta),
            by_s * s_by_beta,
            "B.4.5, B.4.6",
        ),
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
            spelled(least.subs(s, 1)),
            f"{NEW}: best loss at alpha beta = 0",
        ),
    )


@cache
def flow() -> Flow:
    """Gradient flow of alpha, beta, gamma with unit rate on the loss summed over D
    (Assumption 5).

    The gradient flow of the full matrices at unit rate is D times slower: see
    `Parameters.time_per_step`.
    """
    eq = equations()
    short = abbreviations()
    of_beta = 2 * F * s * p * gamma / r**2 * (1 - gamma * (s - 1) / r)
    rates = {
        alpha: beta * (2 * N - 2) / G * of_beta,
        beta: of_beta,
        gamma: 2 * s / r - 2 * gamma * (s**2 + F) / r**2,
    }
    for x, rate in rates.items():
        proved(
            vanishes(rate + eq[f"dloss_d{x.name}"].rhs),
            "a rate is not minus its gradient",
        )
    return Flow(
        name="induction_heads",
        time=t,
        rhs=rates,
        initial={alpha: sp.S.Zero, beta: sp.S.Zero, gamma: sp.S.Zero},
        reference=ref("B.5, Assumptions 4-6"),
        status="exact",
        assumptions=(
            *GIVEN,
            "gradient flow of unit rate in the three parameters",
            "zero start",
        ),
        where=short,
        observables={
            "loss": eq["loss"].rhs,
            "attention_first": p,
            "attention_second": s / r,
            "conserved": eq["invariant"].rhs,
        },
        scope=THREE,
    )


# Uniformly drawn query

UNIFORM = "queried pair uniform over the context"
slope = symbol(
    "initial_slope", r"\left.\dot\beta\right|_{0}", "rate of beta at time 0", real=True
)
gamma_E = symbol("gamma_E", r"\gamma_{\mathrm{E}}", "Euler's constant", positive=True)


def taken_out(summand: sp.Expr, limit: sp.Tuple) -> sp.Expr:
    """Split a sum into terms and move factors that do
    not depend on its index in front.
    """
    index, low, high = limit
    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(summand)):
        before, summed = sp.factor_terms(term).as_independent(index)
        total += before * (high - low + 1 if summed == 1 else sp.Sum(summed, limit))
    return total


@cache
def initial_slope() -> sp.Expr:
    """Rate of beta at alpha = beta = 0 for queried pair q: (gamma/N) (score of the
    correct label - mean score), proved equal to -dL/dbeta.

    At beta = 0 attention is uniform, so that only the term of the loss linear in
    attention contributes.
    """
    start = {alpha: 0, beta: 0}
    c = {
        name: score.subs(start) for name, score in network.key_scores("strict").items()
    }
    total = c["own_label"] + sp.Sum(c["later_item"] + c["later_label"], (d, 1, N - q))
    slope_at = gamma / N * (c["own_label"] - total / (2 * N))
    rate = -sp.diff(network.loss_of_query("strict"), beta).subs(start)
    proved(
        sp.expand((rate - slope_at).replace(sp.Sum, taken_out)) == 0,
        "not the initial slope",
    )
    return slope_at


@cache
def mean_initial_slope() -> sp.Expr:
    """Average of `initial_slope` over q. Pair k is a later pair for k - 1 queries, and
    the sum of its two scores times k - 1 is simple.
    """
    c = {
        name: score.subs(alpha, 0)
        for name, score in network.key_scores("strict").items()
    }
    right = c["own_label"]
    later = sp.expand((c["later_item"] + c["later_label"]).subs(d, k - q))
    weighted = written_as(1 - right.subs(q, k) / 2, factored((k - 1) * later))
    own_sum = sp.Sum(right, (q, 1, N))
    later_sum = (
        N - own_sum / 2 - weighted.subs(k, 1)
    )  # k = 2..N, as the first pair is never later
    return gamma / N**2 * (own_sum - (own_sum + later_sum) / (2 * N))


@cache
def large_initial_slope() -> sp.Expr:
    """Limit of `mean_initial_slope` for large N, by sum of 1/(2q - 1) = H(2N) - H(N)/2
    and H(n) = ln n + gamma_E + O(1/n).
    """
    total = sp.Symbol("total")
    scaled = sp.expand(
        (mean_initial_slope() * N**2 / gamma).subs(
            sp.Sum(1 / (2 * q - 1), (q, 1, N)), total
        )
    )
    size = sp.Symbol("size", positive=True)
    of_sum, constant = (
        sp.limit(scaled.coeff(total, k).subs(N, size), size, sp.oo) for k in (1, 0)
    )
    harmonic = sp.log(2) + sp.log(N) + gamma_E - (sp.log(N) + gamma_E) / 2
    return gamma / (2 * N**2) * sp.expand(2 * (of_sum * harmonic + constant))


@cache
def query_equations() -> Equations:
    """Initial rate of beta, for any queried pair and on average."""
    given = (ORTHONORMAL, network.THREE, "alpha = beta = 0", "strict mask")
    return table(
        ref("beyond Assumption 8: any q"),
        *given,
        status="exact",
        initial_slope=(slope, initial_slope),
        mean_initial_slope=(slope, mean_initial_slope, UNIFORM),
        large_initial_slope=(
            slope,
            large_initial_slope,
            "leading order",
            UNIFORM,
            "large N",
        ),
    )


# Numerical uniform query

HIGHEST = 0.55  # level up to which the flow is integrated
HORIZON = (
    4.0  # longest time in N^2; the last pair alone takes 1.71 N^2, averages over q less
)


@cache
def compiled() -> Callable:
    """Loss averaged over all q = 1..N, strict mask, and its gradient by (alpha, beta,
    gamma).

    Rows before the queried pair have score 0; its own label and later rows have nonzero
    scores.
    """
    scores = network.key_scores("strict")
    right = sp.exp(beta * scores["own_label"].subs(q, k))
    item = sp.exp(beta * scores["later_item"].subs(q, rows_before / 2 + 1 - d))
    label = sp.exp(beta * scores["later_label"].subs(q, k - d))
    later, squares = real("later squares")
    every = 2 * k - 1 + right + later
    chain = {
        later: after(item + label),
        squares: after(item**2 + label**2),
        real("loss"): mean(
            1
            - 2 * gamma * right / every
            + gamma**2 * (2 * k - 1 + right**2 + squares) / every**2
        ),
    }
    return with_gradient(
        chain, [alpha, beta, gamma], (k, rows_before), (k, rows_before)
    )


def loss_and_gradient(state: Any, size: int) -> tuple[float, np.ndarray]:
    """Loss averaged over all q = 1..N, strict mask, and its gradient by (alpha, beta,
    gamma); one call costs O(N).
    """
    return compiled()(state, *rows(size, "strict")[:2])


@checked
def times(
    size: Annotated[int, Allowed(low=1, high=10**6)],
    level: Annotated[float, Allowed(low=1e-6, high=HIGHEST)] = 0.5,
) -> dict[str, float]:
    """Emergence times for uniform q: ``T_gamma``, ``T_beta``, ``T_alpha``, ``T_drop``;
    infinite if not before 4 N^2.
    """

    def rate(_: float, state: np.ndarray) -> np.ndarray:
        return -loss_and_gradient(state, size)[1]

    def dropped(_: float, state: np.ndarray) -> float:
        return 0.5 - loss_and_gradient(state, size)[0]

    def done(threshold: float, state: np.ndarray) -> float:
        return min(state.min() - HIGHEST, dropped(threshold, state) - 0.05)

    done.terminal = True  # type: ignore[attr-defined]
    run = scipy.integrate.solve_ivp(
        rate,
        (0, HORIZON * size**2),
        np.zeros(3),
        method="LSODA",
        rtol=1e-9,
        atol=1e-12,
        dense_output=True,
        events=(dropped, done),
    )
    crossed = {
        name: first_crossing(run, index, threshold)
        for index, name, threshold in (
            (2, "T_gamma", 0.5),
            (1, "T_beta", level),
            (0, "T_alpha", level),
        )
    }
    return crossed | {
        "T_drop": float(run.t_events[0][0]) if run.t_events[0].size else np.inf
    }
