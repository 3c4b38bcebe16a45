"""Unigrams, then bigrams: length of the plateau between them, and what determines it.

While attention is even, the read-out ``c`` grows as far as the unigrams are not known, and the
rates of both scores are proportional to it. The integral of ``c`` over time is thus the clock of
the second stage, which hardly gains speed once the first stage is learnt.
"""

from functools import cache

import sympy as sp

from theory import Equation, symbol, table, written_as
from theory.associative_memory import ramp
from theory.induction_heads.markov.statement import D, U, k, m, rho, stated
from theory.statement.model import offered

c = symbol("c", means="read-out of what the second layer attends to", real=True)
v = symbol("delta_v", means="score of the previous token minus that of another lag", real=True)
W = symbol("delta_W", means="score of the own symbol minus that of another", real=True)
a, A = (
    symbol(f"attention_{at}", f"a_{n}", f"attention of the {at} layer to {of}", positive=True)
    for n, (at, of) in enumerate(
        (("first", "the previous token"), ("second", "tokens after the present state")), 1
    )
)
u = symbol("u_others", "u", "probability of outputs that are no states of the chain", positive=True)
elapsed = symbol("t_c", "t(c)", "time at which the read-out is c", positive=True)
clock = symbol("tau_c", r"\tau(c)", "integral of the read-out over time, until it is c")
needed = symbol("tau_bigram", r"\tau_{\star}", "integral of the read-out that bigrams take")
T_unigram, T_bigram, T_free = (
    symbol(f"T_{of}", rf"T_{{\mathrm{{{of}}}}}", f"time at which half of {what}")
    for of, what in (
        ("unigram", "the probability is on states of the chain"),
        ("bigram", "the first layer is on the previous token"),
        ("free", "the first layer would be on the previous token if unigrams stayed unknown"),
    )
)
delay = symbol("T_over_free", r"T_{\mathrm{bigram}}/T_{\mathrm{free}}", "delay by the unigrams")
EVEN = "before the bigrams: attention is even"
LATE = "all states equally likely, attention of the second layer almost even"
MANY = "many lags"


flow = cache(offered(stated).flow)  # the flow of the read-out and two scores


@cache
def law() -> sp.Expr:
    """Square of the score of content as a function of that of position: exact, as the ratio of
    their rates separates.
    """
    form = 2 * (D - 1) / (D * (k - 1)) * (v + (sp.exp(v) - 1) / (D - 1))
    return ramp.squared(form, v, W, [flow().rhs[v], flow().rhs[W]])


@cache
def known() -> sp.Expr:
    """Probability of the chain's states while attention is even."""
    return sp.factor(flow().observables["unigrams"].subs(W, 0))


@cache
def growth() -> sp.Expr:
    """Rate of the read-out while attention is uniform: the residual of the unigrams over m."""
    written_as((1 - known()) / m, flow().rhs[c].subs(W, 0))
    return u / m


def until(of: sp.Expr) -> sp.Expr:
    """Integral over time of a function of the read-out, until that is c."""
    rate, n = growth().subs(u, 1 - known()), symbol("n", positive=True)
    integral = sp.integrate(sp.expand(sp.factor((of / rate).subs(U, n + m - k))), (c, 0, c))
    return integral.subs(n, k + U - m)


@cache
def seconds() -> sp.Expr:
    """Time until the read-out is c."""
    form = m**2 * (c / m + m * (sp.exp(c / m) - 1) / (k + U - m))
    return written_as(form, until(sp.S.One))


@cache
def ticks() -> sp.Expr:
    """Integral of the read-out over this time."""
    grown = m * ((c / m - 1) * sp.exp(c / m) + 1) / (k + U - m)
    return written_as(m**3 * (c**2 / (2 * m**2) + grown), until(c))


@cache
def unigram() -> sp.Expr:
    """Time at which half the probability is on states of the chain."""
    half = sp.solve(sp.Eq(known(), sp.Rational(1, 2)), sp.exp(c / m))[0]
    form = m**2 * (sp.log((k + U - m) / m) + (k + U - 2 * m) / (k + U - m))
    return written_as(form, seconds().subs(c, m * sp.log(half)))


@cache
def speed() -> sp.Expr:
    """Rate of the score of position in units of the clock, to first order in that of content."""
    first = sp.diff(flow().rhs[v], W).subs(W, 0) * W
    form = rho**2 * (m - 1) / m**2 * D * sp.exp(v) / (sp.exp(v) + D - 1) ** 2 * W
    return written_as(form, first / c)


@cache
def many_lags() -> sp.Expr:
    """Value of the clock at which the first layer attends to the previous token, for many lags."""
    ticks_needed = ramp.many(sp.limit(D * speed() / W, D, sp.oo), sp.limit(law(), D, sp.oo), v) * D
    form = D * m**2 / (rho**2 * (m - 1)) * sp.sqrt(sp.pi * (k - 1) / 2)
    return written_as(form, ticks_needed)


@cache
def saturated() -> sp.Expr:
    """Time of the bigrams long after the unigrams: linear in the required value of the clock, up to
    a logarithm.
    """
    q, y = symbol("q", positive=True), symbol("y", positive=True)  # y = c/m - 1
    late = m**3 * q * y * sp.exp(1 + y), m**2 * q * sp.exp(1 + y)
    whole = [x.subs(c, m * (1 + y)).subs(U, m / q + m - k) for x in (ticks(), seconds())]
    for leading, exact in zip(late, whole, strict=True):
        if sp.limit(exact / leading, y, sp.oo) != 1:
            raise ArithmeticError(f"{leading} is not the leading order of {exact}")
    root = sp.LambertW(needed / (sp.E * m**3 * q)).subs(q, m / (k + U - m))
    return written_as(needed / (m * y), late[1] * needed / late[0]).subs(y, root)


@cache
def free() -> sp.Expr:
    """Time of the bigrams if unigrams would stay unknown: with its root."""
    time, shown = (sp.limit(x, U, sp.oo) for x in (seconds(), ticks()))
    return written_as(sp.sqrt(2 * m * needed), time.subs(c, sp.sqrt(needed / (shown / c**2))))


@cache
def equations() -> dict[str, Equation]:
    """Attention, balance, clock, and times of both stages."""
    read_out = sp.Derivative(c, symbol("t"))
    observed = flow().observables
    rows = {
        "markov_attention_first": (a, observed["attention_first"], "exact"),
        "markov_attention_second": (A, observed["attention_second"].subs(observed["attention_first"], a), "exact"),
        "markov_balance": (W**2, law, "exact"),
        "markov_read_out": (read_out, growth, EVEN),
        "markov_time": (elapsed, seconds, EVEN),
        "markov_clock": (clock, ticks, EVEN),
        "markov_unigram": (T_unigram, unigram, EVEN),
        "markov_speed": (sp.Derivative(v, clock), speed, LATE),
        "markov_many_lags": (needed, many_lags, LATE, MANY),
        "markov_bigram": (T_bigram, saturated, LATE, "long after the unigrams"),
        "markov_free": (T_free, free, LATE, "while unigrams are not known"),
        "markov_delay": (delay, lambda: saturated() / free(), LATE, "long after the unigrams"),
    }  # fmt: skip
    where = "musat2025, beyond: in-context Markov chains of Edelman et al., arXiv:2402.11004"
    return table(where, status="leading order", **rows)
