"""Effective context length: when the head of a burst emerges, for large N.

What the second layer sees of the queried item is small, of order B/N, until long after
``alpha`` and ``beta`` are of order one. To first order in it the loss is a polynomial
in beta, ``gamma`` follows its best value, and alpha and beta keep a balance.
"""

from functools import cache
from typing import Any

import sympy as sp

from theory import Chapter, Equations, proved, symbol, vanishes, written_as
from theory.induction_heads.bursty import ramp
from theory.induction_heads.symbols import mean_B, mean_B2
from theory.statement import Statement, exp, sizes, sort, statement, total, weight
from theory.statement.derivation import remedies

# An induction head whose context ends in a burst
#
# Its last B pairs are the queried one. A label scores alpha on the item of its own
# place, the query scores beta times what a row retrieved of the queried item, and gamma
# writes what the query attends to.

N, B = sizes("N B")  # pairs in the context, right ones among them


def burst_loss() -> Statement:
    """Loss of three numbers, from what every right pair retrieved."""
    right = sort("right", B, ordered=True)
    other = sort("other", N - B)
    alpha = weight("alpha")[()]
    beta = weight("beta")[()]
    gamma = weight("gamma")[()]

    def before(k: Any) -> Any:
        """Right pairs before the k-th."""
        return total(lambda j: 1, right, below=k)

    def rows(k: Any) -> Any:
        """Rows before the k-th right pair."""
        return 2 * (N - B + before(k))

    def label(k: Any) -> Any:
        """What the label of the k-th right pair retrieved of the queried item."""
        return (exp(alpha) + before(k)) / (exp(alpha) + rows(k))

    def item(k: Any) -> Any:
        """What its item retrieved."""
        return before(k) / rows(k)

    def weighed(score: Any) -> Any:
        """Weight of all right labels, or of all right items: one token, B times."""
        return total(lambda k: exp(beta * score(k)), right)

    labels = weighed(label)
    items = weighed(item)
    others = 2 * total(lambda o: 1, other)  # no right pair is before them
    normaliser = labels + items + others
    squares = labels**2 + items**2 + others
    linear = 2 * gamma * labels / normaliser
    return statement(
        1 - linear + gamma**2 * squares / normaliser**2,
        name="bursty",
        title="Induction head with a burst of right pairs",
        paper="musat2025",
        observables={"attention_second": labels / normaliser},
        values=dict(N=32, B=4, eta=0.25, steps=800, eval_every=4),
    )


stated = burst_loss()


alpha = symbol("alpha", means="first score of the head", real=True)
beta = symbol("beta", means="second score of the head", real=True)
gamma = symbol("gamma", means="read-out of the head", real=True)
theta = symbol("theta", means="threshold of alpha", positive=True)
k = symbol("k", means="number of a right pair", integer=True, positive=True)
T_burst = symbol(
    "T_burst", r"T_{\alpha}(\theta; N, B)", "time of alpha = theta", positive=True
)
N_eff = symbol("N_eff", r"N_{\mathrm{eff}}", "effective context length", positive=True)
best_gamma = symbol("gamma_star", r"\gamma^{\star}", "gamma of least loss at the start")
speed = symbol("alpha_rate", r"\dot\alpha", "rate of alpha", real=True)
lag = symbol("tau_lag", r"\tau", "delay while gamma grows", positive=True)
SEEN = "first order in what the second layer sees, N large, B << N"
seen = symbol("sigma", means="order of what the second layer sees")


@cache
def first() -> sp.Expr:
    """Loss to first order: labels see ``(e^alpha + k - 1)/2N`` of the queried item,
    items ``(k - 1)/2N``.

    Raises
    ------
    ArithmeticError
        If it is not the statement's loss at the start.
    """
    label = sp.factor(sp.summation((sp.exp(alpha) + k - 1) / (2 * N), (k, 1, B)))
    item = sp.factor(sp.summation((k - 1) / (2 * N), (k, 1, B)))
    labels = B + seen * beta * label
    items = B + seen * beta * item
    others = 2 * (N - B)
    normaliser = labels + items + others
    squares = labels**2 + items**2 + others
    loss = 1 - 2 * gamma * labels / normaliser + gamma**2 * squares / normaliser**2
    gap = (remedies.derived(stated).loss - loss).subs(beta, 0).doit()
    proved(vanishes(gap), "not the statement's loss at the start")
    return loss.subs(seen, 0) + sp.diff(loss, seen).subs(seen, 0)


def slope(x: sp.Symbol, share: sp.Expr = sp.S.One) -> sp.Expr:
    """Rate of alpha or beta at a share of the best gamma."""
    return -sp.diff(first(), x).subs(gamma, share * gamma_star())


BRACKET = 2 * N + B**2 - 2 * B  # in the rates
WHERE = "musat2025, Sec. 7.2: beyond, a burst of right pairs"
chapter = Chapter(WHERE, SEEN, status="leading order")


@chapter.derives(best_gamma, name="burst_gamma_star")
@cache
def gamma_star() -> sp.Expr:
    """Value of gamma that minimises the loss while attention is still uniform."""
    best = sp.solve(sp.diff(first().subs(beta, 0), gamma), gamma)[0]
    return written_as(B * N / (N + B**2 - B), best)


@chapter.derives(speed, name="burst_alpha_rate")
@cache
def rate() -> sp.Expr:
    """Rate of alpha."""
    scale = 4 * N * (N + B**2 - B) ** 2
    return written_as(B**2 * beta * sp.exp(alpha) * BRACKET / scale, slope(alpha))


@chapter.derives(beta**2, name="burst_beta_of_alpha")
@cache
def law() -> sp.Expr:
    """Square of beta as a function of alpha. Its second term is there for B > 1, where
    rows retrieve the queried item from earlier right pairs.
    """
    by_burst = 2 * (B - 1) * (N - B) / BRACKET
    form = 2 * alpha + by_burst * (1 - sp.exp(-alpha))
    return ramp.squared(form, alpha, beta, [rate(), slope(beta)])


def over_path(square: sp.Expr) -> sp.Integral:
    """Integral up to the threshold of exp(-alpha) over beta, whose square is given."""
    return sp.Integral(sp.exp(-alpha) / sp.sqrt(square), (alpha, 0, theta))


@chapter.derives(lag, name="burst_delay")
@cache
def delay() -> sp.Expr:
    """Time lost while gamma grows from zero: it relaxes exponentially, and the rate of
    beta has a part linear in it and one quadratic.
    """
    u = symbol("u", positive=True)
    g = sp.Dummy("share")
    decay = sp.diff(first().subs(beta, 0), gamma, 2)
    share_of_rate = sp.factor((slope(beta, g) / slope(beta)).subs(alpha, 0))
    lost = sp.S.Zero
    for (n,), coefficient in sp.Poly(share_of_rate, g).terms():
        missing = sp.expand(1 - (1 - sp.exp(-u)) ** n)
        lost += coefficient * sp.integrate(missing, (u, 0, sp.oo))
    return sp.factor(lost / decay)


@chapter.derives(T_burst, name="burst_time")
def time() -> sp.Expr:
    """Time of alpha = theta."""
    scale = sp.factor(1 / rate() / (sp.exp(-alpha) / beta))
    return scale * over_path(law()) + lag


@chapter.derives(N_eff, "without the delay", name="burst_effective_length")
def effective() -> sp.Expr:
    """Context length at which a single right pair would take as long, without the
    delay.

    Raises
    ------
    ArithmeticError
        If a single pair has another time than Theorem 2 says.
    """
    slowness = sp.factor(1 / rate()).subs(B, 1) * sp.exp(alpha) * beta
    of_one = sp.limit(slowness / N**2, N, sp.oo)
    proved(of_one == 2, "a single pair does not take 2 N^2 times its integral")
    form = (N + B**2 - B) / B * sp.sqrt(2 * N / BRACKET)
    written_as(form**2, sp.exp(alpha) * beta / rate() / of_one)
    ratio = over_path(law()) / over_path(law().subs(B, 1)).doit()
    return form * sp.sqrt(ratio)


def equations() -> Equations:
    """Best gamma, rate, balance, time and effective context length."""
    return chapter.equations


# Bursts of random size
#
# One head learns from contexts with different B. Every rate is the mean over B at the
# same weights: the flow is averaged, not the time. To first order two moments of B
# remain.

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
    proved(max(n for (n,), _ in powers) <= 2, "needs further moments of B")
    return sum(c * known[n] for (n,), c in powers)


RANDOM = "musat2025, Sec. 7.2: beyond, bursts of random size"
mixture_chapter = Chapter(RANDOM, SEEN, MANY, status="leading order")


@mixture_chapter.derives(best_gamma)
@cache
def mixture_gamma_star() -> sp.Expr:
    """Value of gamma that minimises the mean loss while attention is still uniform."""
    best = sp.solve(sp.diff(mean(first().subs(beta, 0)), gamma), gamma)[0]
    return written_as(N * mean_B / (N + mean_B2 - mean_B), best)


@cache
def rates() -> tuple[sp.Expr, sp.Expr]:
    """Rates of alpha and of beta for large N, at the best gamma."""
    small = sp.Dummy("eps", positive=True)
    best = sp.limit(mixture_gamma_star(), N, sp.oo)

    def rate(x: sp.Symbol) -> sp.Expr:
        slope = sp.expand(-sp.diff(first(), x).subs(N, 1 / small))
        leading = sp.limit(slope / small**2, small, 0)  # gamma stays of order one
        return sp.factor(mean(leading).subs(gamma, best) / N**2)

    return rate(alpha), rate(beta)


mixture_chapter.state("mixture_alpha_rate", speed, lambda: rates()[0])


@mixture_chapter.derives(beta**2, name="mixture_beta_of_alpha")
@cache
def mixture_law() -> sp.Expr:
    """Square of beta as a function of alpha: the size-biased mean of B - 1 in place of
    B - 1.
    """
    form = 2 * alpha + (mean_B2 - mean_B) / mean_B * (1 - sp.exp(-alpha))
    return ramp.squared(form, alpha, beta, list(rates()))


@mixture_chapter.derives(N_eff, "without the delay", name="mixture_effective_length")
def mixture_effective() -> sp.Expr:
    """Context length at which a single right pair would take as long, without the
    delay.
    """
    ratio = over_path(mixture_law()) / over_path(2 * alpha).doit()
    written_as(N**2 / mean_B**2, sp.exp(alpha) * beta / rates()[0] / 2)
    return N / mean_B * sp.sqrt(ratio)


def mixture_equations() -> Equations:
    """Best gamma, rate, balance and effective context length."""
    return mixture_chapter.equations
