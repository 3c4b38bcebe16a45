"""Effective context length: when the head of a burst emerges, for large N.

What the second layer sees of the queried item is small, of order B/N, until long after ``alpha``
and ``beta`` are of order one. To first order in it the loss is a polynomial in beta, ``gamma``
follows its best value, and alpha and beta keep a balance.
"""

from functools import cache

import sympy as sp

from theory import Equation, proved, symbol, table, vanishes, written_as
from theory.associative_memory import ramp
from theory.induction_heads.bursty.statement import B, N, stated
from theory.statement import kept

alpha, beta, gamma = (
    symbol(name, means=f"{of} of the head", real=True)
    for name, of in (("alpha", "first score"), ("beta", "second score"), ("gamma", "read-out"))
)
theta = symbol("theta", means="threshold of alpha", positive=True)
k = symbol("k", means="number of a right pair", integer=True, positive=True)
T_burst = symbol("T_burst", r"T_{\alpha}(\theta; N, B)", "time of alpha = theta", positive=True)
N_eff = symbol("N_eff", r"N_{\mathrm{eff}}", "effective context length", positive=True)
best_gamma = symbol("gamma_star", r"\gamma^{\star}", "gamma of least loss at the start")
speed = symbol("alpha_rate", r"\dot\alpha", "rate of alpha", real=True)
lag = symbol("tau_lag", r"\tau", "delay while gamma grows", positive=True)
SEEN = "first order in what the second layer sees, N large, B << N"
seen = symbol("sigma", means="order of what the second layer sees")


@cache
def first() -> sp.Expr:
    """Loss to first order: labels see ``(e^alpha + k - 1)/2N`` of the queried item, items
    ``(k - 1)/2N``.

    Raises
    ------
    ArithmeticError
        If it is not the statement's loss at the start.
    """
    label = sp.factor(sp.summation((sp.exp(alpha) + k - 1) / (2 * N), (k, 1, B)))
    item = sp.factor(sp.summation((k - 1) / (2 * N), (k, 1, B)))
    labels, items, others = B + seen * beta * label, B + seen * beta * item, 2 * (N - B)
    every, squares = labels + items + others, labels**2 + items**2 + others
    loss = 1 - 2 * gamma * labels / every + gamma**2 * squares / every**2
    proved(
        vanishes((kept.derived(stated).loss - loss).subs(beta, 0).doit()),
        "not the statement's loss at the start",
    )
    return loss.subs(seen, 0) + sp.diff(loss, seen).subs(seen, 0)


def slope(x: sp.Symbol, share: sp.Expr = sp.S.One) -> sp.Expr:
    """Rate of alpha or beta at a share of the best gamma."""
    return -sp.diff(first(), x).subs(gamma, share * gamma_star())


@cache
def gamma_star() -> sp.Expr:
    """Value of gamma that minimises the loss while attention is still uniform."""
    best = sp.solve(sp.diff(first().subs(beta, 0), gamma), gamma)[0]
    return written_as(B * N / (N + B**2 - B), best)


@cache
def rate() -> sp.Expr:
    """Rate of alpha."""
    form = B**2 * beta * sp.exp(alpha) * (2 * N + B**2 - 2 * B) / (4 * N * (N + B**2 - B) ** 2)
    return written_as(form, slope(alpha))


@cache
def law() -> sp.Expr:
    """Square of beta as a function of alpha. Its second term is there for B > 1, where rows
    retrieve the queried item from earlier right pairs.
    """
    gain = (B - 1) * (N - B) / (2 * N + B**2 - 2 * B)
    form = 2 * alpha + 2 * gain * (1 - sp.exp(-alpha))
    return ramp.squared(form, alpha, beta, [rate(), slope(beta)])


@cache
def delay() -> sp.Expr:
    """Time lost while gamma grows from zero: it relaxes exponentially, and the rate of beta has a
    part linear in it and one quadratic.
    """
    u, g = symbol("u", positive=True), sp.Dummy("share")
    decay = sp.diff(first().subs(beta, 0), gamma, 2)
    growth = sp.Poly(sp.factor((slope(beta, g) / slope(beta)).subs(alpha, 0)), g)
    lost = sum(
        c * sp.integrate(sp.expand(1 - (1 - sp.exp(-u)) ** n), (u, 0, sp.oo))
        for (n,), c in growth.terms()
    )
    return sp.factor(lost / decay)


def time() -> sp.Expr:
    """Time of alpha = theta."""
    scale = sp.factor(1 / rate() / (sp.exp(-alpha) / beta))
    return scale * sp.Integral(sp.exp(-alpha) / sp.sqrt(law()), (alpha, 0, theta)) + lag


def effective() -> sp.Expr:
    """Context length at which a single right pair would take as long, without the delay.

    Raises
    ------
    ArithmeticError
        If a single pair has another time than Theorem 2 says.
    """
    single = sp.integrate(sp.exp(-alpha) / sp.sqrt(law().subs(B, 1)), (alpha, 0, theta))
    of_one = sp.limit(sp.factor(1 / rate()).subs(B, 1) * sp.exp(alpha) * beta / N**2, N, sp.oo)
    proved(of_one == 2, "a single pair does not take 2 N^2 times its integral")
    ratio = sp.Integral(sp.exp(-alpha) / sp.sqrt(law()), (alpha, 0, theta)) / single
    form = (N + B**2 - B) / B * sp.sqrt(2 * N / (2 * N + B**2 - 2 * B))
    written_as(form**2, sp.exp(alpha) * beta / rate() / of_one)
    return form * sp.sqrt(ratio)


@cache
def equations() -> dict[str, Equation]:
    """Best gamma, rate, balance, time and effective context length."""
    where = "musat2025, Sec. 7.2: beyond, a burst of right pairs"
    rows = {
        "burst_gamma_star": (best_gamma, gamma_star),
        "burst_alpha_rate": (speed, rate),
        "burst_beta_of_alpha": (beta**2, law),
        "burst_delay": (lag, delay),
        "burst_time": (T_burst, time),
        "burst_effective_length": (N_eff, effective, "without the delay"),
    }
    return table(where, SEEN, status="leading order", **rows)
