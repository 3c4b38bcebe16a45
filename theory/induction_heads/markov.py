"""In-context Markov chains: the unigram solution, the plateau, the bigram solution (Edelman et al.,
arXiv:2402.11004); derived from a statement (`theory.statement`).
"""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp
from scipy.optimize import brentq

from theory import Equations, Limit, Scope, numeric, proved, scope, symbol, table, written_as
from theory.associative_memory import ramp
from theory.statement import (
    Statement,
    draw,
    exp,
    fixed,
    log,
    number,
    sample,
    sizes,
    sort,
    statement,
    total,
    weight,
)
from theory.statement.model import package_theory

__all__ = [
    "Parameters",
    "applies",
    "derived",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "onset",
    "plateau_length",
    "predict",
    "sections",
    "stated",
    "unigram_time",
]

# In-context Markov chains (Edelman et al., arXiv:2402.11004)
#
# A chain moves among m of k symbols: with probability rho along a permutation, else to a random
# state. The context is so long that its statistics are those of the chain. The first layer
# reads the previous token or one of D - 1 tokens so far back that the chain has forgotten them;
# what these add to a score is the same for every token and drops out of the second softmax.

k, m, D, U = sizes("k m D U")  # symbols, states of a chain, lags, outputs that are never right
rho = number("rho", "probability of a step along the permutation")


def chain() -> Statement:
    """Cross-entropy of the symbol after the present state."""
    letter = sort("symbol", k)
    state = sort("state", m)
    lag = sort("lag", D)
    unused = sort("unused", U)
    x = sample("x", (state,), letter, injective=True)  # the symbol of every state
    before = sample("before", (state,), state, injective=True)  # inverse of the permutation
    target = draw(state)
    now = before(target)
    W = weight("W", letter, letter)
    v = weight("v", lag)
    c = weight("c")[()]
    previous = exp(v[fixed(lag, 1)]) / total(lambda d: exp(v[d]), lag)

    def score(s: Any) -> Any:
        """Weight of a token in the second layer that comes after state s."""
        return exp(previous * W[x(now), x(s)])

    every = total(score, state)

    def attention(s: Any) -> Any:
        """Attention to all tokens of state s: after its predecessor, or after any state."""
        return rho * score(before(s)) / every + (1 - rho) / m

    known = total(lambda s: exp(c * attention(s)), state)
    others = k - m + total(lambda o: 1, unused)
    return statement(
        log(known + others) - rho * c * attention(target) - (1 - rho) * c / m,
        name="markov",
        title="In-context Markov chains: unigrams, then bigrams",
        paper="musat2025",
        observables={
            "attention_first": previous,
            "attention_second": score(now) / every,
            "unigrams": known / (known + others),
        },
        values=dict(
            k=16, m=4, D=32, U=1, rho=0.8, eta=0.5, steps=500, eval_every=2, batch_size=512
        ),
        bounds=dict(rho=(0, 1)),
    )


stated = chain()


# Unigrams, then bigrams
#
# While attention is even, the read-out c grows as long as unigrams are not known, and the rates
# of both scores are proportional to c. The integral of c is the clock of the second stage,
# which hardly gains speed once unigrams are learnt.

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
    rate = growth().subs(u, 1 - known())
    n = symbol("n", positive=True)
    integral = sp.integrate(sp.expand(sp.factor((of / rate).subs(U, n + m - k))), (c, 0, c))
    return integral.subs(n, k + U - m)


@cache
def seconds() -> sp.Expr:
    """Time until the read-out is c."""
    return written_as(m**2 * (c / m + m * (sp.exp(c / m) - 1) / (k + U - m)), until(sp.S.One))


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
    return written_as(D * m**2 / (rho**2 * (m - 1)) * sp.sqrt(sp.pi * (k - 1) / 2), ticks_needed)


@cache
def saturated() -> sp.Expr:
    """Time of the bigrams long after the unigrams: linear in the required value of the clock, up to
    a logarithm.
    """
    q, y = symbol("q", positive=True), symbol("y", positive=True)  # y = c/m - 1
    late = m**3 * q * y * sp.exp(1 + y), m**2 * q * sp.exp(1 + y)
    whole = [x.subs(c, m * (1 + y)).subs(U, m / q + m - k) for x in (ticks(), seconds())]
    for leading, exact in zip(late, whole, strict=True):
        proved(sp.limit(exact / leading, y, sp.oo) == 1, "not the leading order")
    root = sp.LambertW(needed / (sp.E * m**3 * q)).subs(q, m / (k + U - m))
    return written_as(needed / (m * y), late[1] * needed / late[0]).subs(y, root)


@cache
def free() -> sp.Expr:
    """Time of the bigrams if unigrams would stay unknown: with its root."""
    time, shown = (sp.limit(x, U, sp.oo) for x in (seconds(), ticks()))
    return written_as(sp.sqrt(2 * m * needed), time.subs(c, sp.sqrt(needed / (shown / c**2))))


@cache
def plateau_equations() -> Equations:
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


# Times of unigrams and bigrams as numbers

GAIN = 0.1  # share of the bigrams that has to be left to learn when the previous token is found
LARGEST = 40.0  # read-out over m up to which a root is sought


@cache
def compiled() -> list[Any]:
    """Score of content, rate of the score of position, time and clock of the read-out."""
    sizes = (k, m, D, U, rho)
    return [
        numeric.function(x, (c, v, W, *sizes)) for x in (law(), flow().rhs[v], seconds(), ticks())
    ]


def along(p: Any, x: Any, y: float) -> Any:
    """Rate of the score of position over the read-out, at scores ``x`` on the balance and a
    read-out ``m y``.
    """
    c_now, given = p.m * y, (p.k, p.m, p.D, p.U, p.rho)
    square, rate, *_ = compiled()
    return rate(c_now, x, np.sqrt(square(c_now, x, 0.0, *given)), *given) / c_now


def read_out(p: Any) -> float:
    """Read-out over m when half of the first layer's attention is on the previous token: there its
    clock equals that of the scores; NaN if it never does.
    """
    end = np.array([np.log(p.D - 1)])

    def missing(y: float) -> float:
        shown = compiled()[3](p.m * y, 0.0, 0.0, p.k, p.m, p.D, p.U, p.rho)
        return float(np.log(shown / ramp.over_root(lambda x: 1 / along(p, x, y), end[0])))

    least = GAIN * along(p, end, 1e-6)[0]

    def valid(y: float) -> float:
        return float(along(p, end, y)[0] - least)

    ys = np.geomspace(1e-3, LARGEST, 60)
    signs = np.array([valid(y) > 0 for y in ys])
    if not signs.any():
        return float("nan")
    last_valid = np.flatnonzero(signs)[-1]
    last = (
        ys[last_valid]
        if last_valid == ys.size - 1
        else brentq(valid, ys[last_valid], ys[last_valid + 1])
    )
    return float(brentq(missing, ys[0], last)) if missing(last) > 0 else float("nan")


def bigrams(p: Any) -> float:
    """`emergence_time`, NaN where bigrams do not emerge."""
    return float(compiled()[2](p.m * read_out(p), 0.0, 0.0, p.k, p.m, p.D, p.U, p.rho))


def unigrams(p: Any) -> float:
    """`unigram_time`."""
    return plateau_equations()["markov_unigram"].number(p)


GIVEN = (
    Limit("rho", "from 0.05 to 1", lambda p, runs: 0.05 <= p.rho <= 1),
    Limit("m", "at least 4", lambda p, runs: p.m >= 4),
    Limit("k", "at least 2 m", lambda p, runs: p.k >= 2 * p.m, reads=("m",)),
    Limit("D", "at least 8", lambda p, runs: p.D >= 8),
)


def fits(p: Any) -> bool:
    """Whether sizes and probability are allowed."""
    return all(limit.holds(p, None) for limit in GIVEN)


FOUND = Limit(
    "rho",
    "such that bigrams are not learnt before half of the first layer is on the previous token",
    lambda p, runs: not fits(p) or bool(np.isfinite(bigrams(p))),
    reads=("k", "m", "D", "U"),
)
APART = Limit(
    "D",
    "so large that unigrams take at most half the time of bigrams",
    lambda p, runs: not fits(p) or not unigrams(p) > bigrams(p) / 2,
    reads=("k", "m", "U", "rho"),
)
STUDENTS = "gradient descent in small steps from zero, lags beyond the chain's memory"
FREE = ("eta", "steps", "eval_every", "batch_size")
SCOPE = Scope("markov_time", STUDENTS, (*GIVEN, FOUND), free=FREE)
PLATEAU = Scope("markov_unigram", STUDENTS, (*GIVEN, FOUND, APART), free=FREE)
applies = scope.applies({"emergence": SCOPE, "plateau": PLATEAU})


@scope.pointwise(SCOPE)
def emergence_time(p: Any) -> float:
    """Time at which half of the first layer's attention is on the previous token: `markov_time` at
    the read-out whose clock equals the integral of the exact rate along the balance.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    return bigrams(p)


@scope.pointwise(PLATEAU)
def unigram_time(p: Any) -> float:
    """Time at which half the probability is on the chain's states, `markov_unigram`."""
    return unigrams(p)


@scope.pointwise(PLATEAU)
def plateau_length(p: Any) -> float:
    """Time between both: the loss is near ln m, or falls to it."""
    return bigrams(p) - unigrams(p)


TIMES = {
    "T_unigram": (unigram_time, "time at which half the probability is on states of the chain"),
    "T_bigram": (emergence_time, "time at which half of the first layer is on the previous token"),
}


Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = (
    package_theory(stated, {"In-context Markov chains: plateau": [plateau_equations]}, TIMES)
)
