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
    Chapter,
    Equations,
    Flow,
    checked,
    proved,
    symbol,
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


chapter = Chapter(ref, *GIVEN, status="exact")


@chapter.derives(squared_error, "B.3, B.4.1")
@cache
def loss() -> sp.Expr:
    """Loss at q = N. No row follows the last pair; its label has weight s, and 2N - 1
    other rows have weight 1.
    """
    right = sp.exp(beta * network.key_scores()["own_label"].subs(q, N))
    derived = network.derived("strict", N).loss.subs(right, s).subs(right**2, s**2)
    form = 1 - 2 * gamma * s / r + gamma**2 * (s**2 + F) / r**2
    return grouped(form, derived.subs(N, (F + 1) / 2))


def loss_of_s() -> sp.Expr:
    """Loss without r: beta and alpha enter through s = exp(beta p), alpha through p =
    e^alpha / G.
    """
    return loss().subs(r, s + F)


@chapter.derives(sp.Derivative(squared_error, s), "B.4.3")
@cache
def dloss_ds() -> sp.Expr:
    """Derivative of the loss by s."""
    form = 2 * F * (gamma**2 * (s - 1) / r**3 - gamma / r**2)
    return grouped(form, sp.diff(loss_of_s(), s))


def derivative_of_s(variable: sp.Symbol) -> sp.Expr:
    """Derivative of s by beta or p, in terms of s."""
    of_beta_and_p = abbreviations()[s]
    return sp.diff(of_beta_and_p, variable).subs(of_beta_and_p, s)


@chapter.derives(sp.Derivative(s, beta), "B.4.4")
def ds_dbeta() -> sp.Expr:
    """Derivative of s by beta."""
    return derivative_of_s(beta)


@chapter.derives(sp.Derivative(s, alpha), "B.4.4")
@cache
def ds_dalpha() -> sp.Expr:
    """Derivative of s by alpha, through p."""
    short = abbreviations()
    p_by_alpha = p * (2 * N - 2) / G
    of_alpha = short[p].subs(G, short[G])
    written_as(p_by_alpha.subs(p, short[p]).subs(G, short[G]), sp.diff(of_alpha, alpha))
    return derivative_of_s(p) * p_by_alpha


@chapter.derives(sp.Derivative(squared_error, gamma), "B.4.2, B.4.6")
@cache
def dloss_dgamma() -> sp.Expr:
    """Derivative of the loss by gamma."""
    form = 2 * gamma * (s**2 + F) / r**2 - 2 * s / r
    return grouped(form, sp.diff(loss_of_s(), gamma))


CHAIN = "B.4.5, B.4.6"
chapter.state(
    "dloss_dbeta",
    sp.Derivative(squared_error, beta),
    lambda: dloss_ds() * ds_dbeta(),
    CHAIN,
)
chapter.state(
    "dloss_dalpha",
    sp.Derivative(squared_error, alpha),
    lambda: dloss_ds() * ds_dalpha(),
    CHAIN,
)


@chapter.derives(conserved, f"{NEW}: zero along the flow from zero")
@cache
def invariant() -> sp.Expr:
    """Invariant of the flow: d alpha / d beta = beta (2N - 2) / G separates."""
    ratio = factored(ds_dalpha() / ds_dbeta()).subs(G, abbreviations()[G])
    of_alpha = sp.integrate(sp.denom(ratio), (alpha, 0, alpha))
    of_beta = sp.integrate(sp.numer(ratio), (beta, 0, beta))
    form = (2 * N - 2) * alpha + sp.exp(alpha) - 1 - (N - 1) * beta**2
    return written_as(form, of_alpha - of_beta)


SOLVED = f"{NEW}: the invariant solved"


@chapter.derives(alpha, SOLVED, "N >= 2")
@cache
def alpha_of_beta() -> sp.Expr:
    """Alpha as a function of beta on the flow from zero, by W(z) e^W(z) = z."""
    start = sp.Rational(1, 2) * beta**2 + 1 / (2 * N - 2)
    W = sp.Dummy("W")
    exponential = W * (2 * N - 2)  # of the solution start - W
    remainder = invariant().subs(alpha, start - W).expand()
    remainder = remainder.subs(sp.exp(-W), exponential * sp.exp(-start))
    remainder = remainder.subs(sp.exp(start - W), exponential)
    proved(vanishes(remainder), "alpha(beta) does not solve the invariant")
    return start - sp.LambertW(sp.exp(start) / (2 * N - 2))


beta_of_alpha = sp.sqrt(2 * alpha + (sp.exp(alpha) - 1) / (N - 1))
chapter.state("beta_of_alpha", beta, beta_of_alpha, SOLVED, "N >= 2")


@chapter.derives(gamma_star, f"{NEW}: best gamma at given s", name="gamma_star")
@cache
def best_gamma() -> sp.Expr:
    """Value of gamma that minimises the loss at given s."""
    stationary = sp.solve(dloss_dgamma().subs(r, s + F), gamma)[0]
    return written_as(s * (s + F) / (s**2 + F), stationary)


@chapter.derives(loss_star, f"{NEW}: loss at the best gamma", name="loss_star")
@cache
def least_loss() -> sp.Expr:
    """Loss at that gamma."""
    return written_as(F / (s**2 + F), loss_of_s().subs(gamma, best_gamma()))


@chapter.derives(loss_star, f"{NEW}: best loss at alpha beta = 0")
def plateau() -> sp.Expr:
    """Least loss while the second layer attends uniformly."""
    return spelled(least_loss().subs(s, 1))


def equations() -> Equations:
    """Loss at q = N, its gradient by the chain rule, the invariant, and the optimal
    gamma.
    """
    return chapter.equations


@cache
def flow() -> Flow:
    """Gradient flow of alpha, beta, gamma with unit rate on the loss summed over D
    (Assumption 5).

    The gradient flow of the full matrices at unit rate is D times slower: see
    `Parameters.time_per_step`.
    """
    of_beta = 2 * F * s * p * gamma / r**2 * (1 - gamma * (s - 1) / r)
    rates = {
        alpha: beta * (2 * N - 2) / G * of_beta,
        beta: of_beta,
        gamma: 2 * s / r - 2 * gamma * (s**2 + F) / r**2,
    }
    eq = equations()
    for x, rate in rates.items():
        gradient = eq[f"dloss_d{x.name}"].rhs
        proved(vanishes(rate + gradient), "a rate is not minus its gradient")
    unit_rate = "gradient flow of unit rate in the three parameters"
    observables = {
        "loss": eq["loss"].rhs,
        "attention_first": p,
        "attention_second": s / r,
        "conserved": eq["invariant"].rhs,
    }
    return Flow(
        name="induction_heads",
        time=t,
        rhs=rates,
        initial=dict.fromkeys(rates, sp.S.Zero),
        reference=ref("B.5, Assumptions 4-6"),
        status="exact",
        assumptions=(*GIVEN, unit_rate, "zero start"),
        where=abbreviations(),
        observables=observables,
        scope=THREE,
    )


# Uniformly drawn query

UNIFORM = "queried pair uniform over the context"
slope = symbol(
    "initial_slope", r"\left.\dot\beta\right|_{0}", "rate of beta at time 0", real=True
)
gamma_E = symbol("gamma_E", r"\gamma_{\mathrm{E}}", "Euler's constant", positive=True)
query_chapter = Chapter(
    ref("beyond Assumption 8: any q"),
    ORTHONORMAL,
    network.THREE,
    "alpha = beta = 0",
    "strict mask",
    status="exact",
)


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


def scores_at(values: dict[sp.Symbol, int]) -> dict[str, sp.Expr]:
    """Scores of the second layer with the strict mask, at some values."""
    scores = network.key_scores("strict")
    return {name: score.subs(values) for name, score in scores.items()}


@query_chapter.derives(slope)
@cache
def initial_slope() -> sp.Expr:
    """Rate of beta at alpha = beta = 0 for queried pair q: (gamma/N) (score of the
    correct label - mean score), proved equal to -dL/dbeta.

    At beta = 0 attention is uniform, so that only the term of the loss linear in
    attention contributes.
    """
    start = {alpha: 0, beta: 0}
    c = scores_at(start)
    total = c["own_label"] + sp.Sum(c["later_item"] + c["later_label"], (d, 1, N - q))
    slope_at = gamma / N * (c["own_label"] - total / (2 * N))
    rate = -sp.diff(network.loss_of_query("strict"), beta).subs(start)
    gap = sp.expand((rate - slope_at).replace(sp.Sum, taken_out))
    proved(gap == 0, "not the initial slope")
    return slope_at


@query_chapter.derives(slope, UNIFORM)
@cache
def mean_initial_slope() -> sp.Expr:
    """Average of `initial_slope` over q. Pair k is a later pair for k - 1 queries, and
    the sum of its two scores times k - 1 is simple.
    """
    c = scores_at({alpha: 0})
    right = c["own_label"]
    later = sp.expand((c["later_item"] + c["later_label"]).subs(d, k - q))
    weighted = written_as(1 - right.subs(q, k) / 2, factored((k - 1) * later))
    own_sum = sp.Sum(right, (q, 1, N))
    # k = 2..N, as the first pair is never later
    later_sum = N - own_sum / 2 - weighted.subs(k, 1)
    return gamma / N**2 * (own_sum - (own_sum + later_sum) / (2 * N))


@query_chapter.derives(slope, "leading order", UNIFORM, "large N")
@cache
def large_initial_slope() -> sp.Expr:
    """Limit of `mean_initial_slope` for large N, by sum of 1/(2q - 1) = H(2N) - H(N)/2
    and H(n) = ln n + gamma_E + O(1/n).
    """
    total = sp.Symbol("total")
    size = sp.Symbol("size", positive=True)
    odd_numbers = sp.Sum(1 / (2 * q - 1), (q, 1, N))
    scaled = (mean_initial_slope() * N**2 / gamma).subs(odd_numbers, total)
    scaled = sp.expand(scaled)
    of_sum = sp.limit(scaled.coeff(total, 1).subs(N, size), size, sp.oo)
    constant = sp.limit(scaled.coeff(total, 0).subs(N, size), size, sp.oo)
    harmonic = sp.log(2) + sp.log(N) + gamma_E - (sp.log(N) + gamma_E) / 2
    return gamma / (2 * N**2) * sp.expand(2 * (of_sum * harmonic + constant))


def query_equations() -> Equations:
    """Initial rate of beta, for any queried pair and on average."""
    return query_chapter.equations


# Numerical uniform query

HIGHEST = 0.55  # level up to which the flow is integrated
# longest time in N^2; the last pair alone takes 1.71 N^2, averages over q less
HORIZON = 4.0


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
    normaliser = 2 * k - 1 + right + later
    square = gamma**2 * (2 * k - 1 + right**2 + squares) / normaliser**2
    chain = {
        later: after(item + label),
        squares: after(item**2 + label**2),
        real("loss"): mean(1 - 2 * gamma * right / normaliser + square),
    }
    pairs = (k, rows_before)
    return with_gradient(chain, [alpha, beta, gamma], pairs, pairs)


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
    drops = run.t_events[0]
    return {
        "T_gamma": first_crossing(run, 2, 0.5),
        "T_beta": first_crossing(run, 1, level),
        "T_alpha": first_crossing(run, 0, level),
        "T_drop": float(drops[0]) if drops.size else np.inf,
    }
