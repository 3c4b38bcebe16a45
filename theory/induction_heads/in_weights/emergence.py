"""The race of a head against a memory: both logits run on one clock, the integral of the residual.

Every rate is the residual times a function of the part of the network that moves: head and memory
meet in the clock alone. Which of them is first on it wins; when, the residual tells.
"""

from functools import cache, partial
from typing import Any

import sympy as sp

from theory import Equation, proved, table, vanishes, written_as
from theory.associative_memory import ramp
from theory.notation import symbol
from theory.statement import (
    Statement,
    cross_entropy,
    draw,
    eq,
    exp,
    number,
    sizes,
    sort,
    statement,
    total,
    weight,
)
from theory.statement.model import theory_of

# In-context against in-weights learning (Nguyen and Reddy, arXiv:2412.00104)
#
# The pool has C items of each of L labels. A context shows B copies of the queried item and R
# other items of every label, so that these tell nothing of the answer. Items are orthonormal
# and their match has one score beta: attention is not learnt item by item, the memory is.

L, C, R, B = sizes("L C R B")  # labels, items and other pairs of each, copies of the queried pair
c_0 = number("c_0", "read-out of the memory at the start")
decay = symbol("head_decay", r"\lambda", "weight decay of the head", real=True)
fading = symbol("fading", r"\mu", "weight decay of the memory", real=True)


def pool() -> Statement:
    """Cross-entropy of the sum of both logits, and weight decay."""
    label = sort("label", L)
    other = sort("other", R)
    copy = sort("copy", B)
    item = sort("item", C, of=label)
    beta = weight("beta")[()]
    w = weight("w")[()]
    c = weight("c", start=c_0)[()]
    M = weight("M", label, item, label)
    answer = draw(label)
    asked = draw(item, of=answer)
    right = exp(beta) * total(lambda k: 1, copy)
    others = total(lambda k: 1, other)  # of every label
    every = right + L * others

    def logit(a: Any) -> Any:
        """Logit of a label: attention of the head to it, plus the memory of the item."""
        return w * (right * eq(a, answer) + others) / every + c * M[answer, asked, a]

    mean = total(lambda b: M[answer, asked, b], label) / L
    learnt = c * (M[answer, asked, answer] - mean) * L / (L - 1)  # right minus wrong
    squares = total(lambda a, k, b: M[a, k, b] ** 2, label, item, label)
    loss = cross_entropy(logit, over=label, target=answer)
    return statement(
        loss + decay / 2 * (w**2 + beta**2) + fading / 2 * (c**2 + squares),
        name="in_weights",
        title="In-context against in-weights learning",
        paper="musat2025",
        observables={
            "attention": right / every,
            "in_context": w * right / every,
            "in_weights": learnt,
            "logit": w * right / every + learnt,
            "residual": 1 - exp(-loss),
        },
        values=dict(L=2, C=256, R=8, B=1, c_0=1.0, head_decay=0.0, fading=0.0)
        | dict(eta=0.25, steps=400, eval_every=2, batch_size=256),
        bounds=dict(c_0=(0, 100), head_decay=(0, 1), fading=(0, 1)),
    )


stated = pool()


w = symbol("w", means="read-out of the head", real=True)
beta = symbol("beta", means="score of equal items", real=True)
c = symbol("c", means="read-out of the memory", real=True)
delta = symbol("delta_M", means="memory of right minus wrong labels", real=True)
a = symbol("attention", "a", "attention to the copies of the queried pair", positive=True)
r = symbol("residual", "r", "probability that is not on the right label", positive=True)
n = symbol("pairs_per_copy", "n", "other pairs per copy of the queried one", positive=True)
K = symbol("K", means="items of the pool", positive=True)
kappa = symbol("kappa_labels", r"\kappa", "L/(L - 1)", positive=True)
q = symbol("rate_memory", "q", "rate of the memory, on the clock", positive=True)
tau = symbol("tau_clock", r"\tau", "clock: integral of the residual over time", nonnegative=True)
known = symbol("in_weights", r"\varphi", "logit of the memory", nonnegative=True)
half = symbol(
    "logit_half", r"\Phi_{1/2}", "logit at which the residual is half its start", positive=True
)
needed = symbol("tau_head", r"\tau_{\mathrm{head}}", "clock that the head takes", positive=True)
learnt = symbol("tau_memory", r"\tau_{\mathrm{memory}}", "clock that the memory takes")
T_head = symbol("T_head", r"T_{\mathrm{head}}", "time at which attention is 1/2", positive=True)
t = symbol("t")
few, many = (
    symbol(f"K_{x}", rf"K_{{\star}}^{{\mathrm{{{x}}}}}", f"items at which both are as fast, {x}")
    for x in ("few", "many")
)
exponent = symbol("nu_memory", r"\nu", "exponent of the memory's clock in K", positive=True)
WHERE = (
    "musat2025, beyond: in-context against in-weights learning, Nguyen and Reddy, arXiv:2412.00104"
)
PLAIN = "no weight decay"
LONG = "many other pairs per copy"
SCORE = sp.log(a * L * R / ((1 - a) * B))  # beta, at an attention
SIZES = {n: L * R / B, K: L * C, kappa: L / (L - 1), q: sp.sqrt(1 / ((L - 1) * C))}


flow = cache(theory_of(stated).flow)  # the flow of all classes of weights


def read(x: sp.Expr) -> sp.Expr:
    """An expression in the flow's numbers, at a memory with mean zero and in attention."""
    M_1, M_0 = (s for s in flow().state if s.name in ("M_1", "M_0"))
    x = x.subs({M_1: (L - 1) * delta / L, M_0: -delta / L})
    return x.subs(beta, SCORE).replace(sp.exp, lambda e: sp.exp(sp.expand(sp.cancel(e))))


def reads(form: sp.Expr, of: sp.Expr) -> sp.Expr:
    """Return a printed form after proving it equal to ``of``, with the residual and sizes written
    out.

    Raises
    ------
    ArithmeticError
        If it is not.
    """
    shown = form.subs(r, residual()).subs(SIZES).subs(beta, SCORE)
    off = sp.expand_power_exp((shown - read(of)).replace(sp.exp, lambda e: sp.exp(sp.expand(e))))
    proved(vanishes(off), "the printed form is not what is derived")
    return form


def residual() -> sp.Expr:
    """The residual, in the sum of both logits."""
    return (L - 1) / (L - 1 + sp.exp(w * a + c * delta))


@cache
def moved(x: sp.Symbol) -> sp.Expr:
    """Rate of a number, in attention and the residual."""
    form, derived = {
        w: (r * a - decay * w, "w"),
        beta: (r * w * a * (1 - a) - decay * beta, "beta"),
        c: (r * delta - fading * c, "c"),
        delta: (r * q**2 * c - fading * delta, "M_1 M_0"),
    }[x]
    rates = [next(v for s, v in flow().rhs.items() if s.name == k) for k in derived.split()]
    return reads(form, rates[0] - sum(rates[1:]))


@cache
def plain(x: sp.Symbol) -> sp.Expr:
    """Rate on the clock, without decay."""
    return sp.factor((moved(x) / r).subs({decay: 0, fading: 0}))


def attention() -> sp.Expr:
    """Attention as a function of the score."""
    form = sp.exp(beta) / (sp.exp(beta) + n)
    return written_as(form.subs(SIZES), flow().observables["attention"]) and form


@cache
def law() -> sp.Expr:
    """Square of the head's read-out as a function of its score."""
    rates = [plain(x).subs(a, attention()) for x in (beta, w)]
    return ramp.squared(2 * (beta + (sp.exp(beta) - 1) / n), beta, w, rates)


@cache
def speed() -> sp.Expr:
    """Rate of the score on the clock."""
    return written_as(
        w * n * sp.exp(beta) / (sp.exp(beta) + n) ** 2, plain(beta).subs(a, attention())
    )


@cache
def head() -> sp.Expr:
    """Clock that the head takes, among many other pairs."""
    rate = sp.limit(n * speed() / w, n, sp.oo)
    return written_as(n * sp.sqrt(sp.pi / 2), ramp.many(rate, sp.limit(law(), n, sp.oo), beta) * n)


@cache
def remembered() -> sp.Expr:
    """Logit of the memory as a function of the clock."""
    path = {c: c_0 * sp.cosh(q * tau), delta: c_0 * q * sp.sinh(q * tau)}
    for x, of in path.items():
        proved(vanishes(sp.diff(of, tau) - plain(x).subs(path)), f"{x}: no solution")
    return written_as(c_0**2 * q * sp.sinh(2 * q * tau) / 2, sp.expand_trig((c * delta).subs(path)))


@cache
def memory() -> sp.Expr:
    """Clock that the memory takes to a logit."""
    form = sp.asinh(2 * known / (q * c_0**2)) / (2 * q)
    written_as(known, remembered().subs(tau, form))
    return form


@cache
def halved() -> sp.Expr:
    """Logit at which the residual is half of what it was at the start."""
    of = residual().subs(w, 0).subs(c, 1)  # the residual knows but the sum
    return written_as(sp.log(L + 1), sp.solve(sp.Eq(of, of.subs(delta, 0) / 2), delta)[0])


def start() -> sp.Expr:
    """The residual at the start: the clock runs at this speed while both logits are small."""
    return written_as(1 / kappa.subs(SIZES), residual().subs({w: 0, c: 0})) and 1 / kappa


@cache
def race() -> tuple[sp.Expr, sp.Expr]:
    """Items at which head and memory each have half the logit when the residual is half its start:
    with the memory's read-out as at the start, and with a learnt one.
    """
    y, b, slow = (sp.Dummy(x, positive=True) for x in "ybs")  # y = 1/q, s = c_0^2
    clock = memory().subs(c_0, sp.sqrt(slow)).subs(known, half / 2)
    early = sp.limit(clock * q**2, q, sp.oo)
    late = sp.limit(sp.exp(2 * q * clock).rewrite(sp.log) * q, q, 0)  # exp(2 q tau) = late/q
    root = sp.solve(sp.Eq(y * sp.log(b * y), 2 * needed), y)[0]
    root = root.replace(sp.exp, lambda W: W.args[0] / W).subs(b, late)  # e^W(z) = z/W(z)
    few = written_as(2 * kappa * needed * slow / half, kappa * needed / early)
    form = kappa * (2 * needed / sp.LambertW(4 * needed * half / slow)) ** 2
    return few.subs(slow, c_0**2), written_as(form, kappa * root**2).subs(slow, c_0**2)


@cache
def power() -> sp.Expr:
    """Local exponent of the memory's clock in the number of items."""
    of = memory().subs(q, sp.sqrt(kappa / K)).subs(c_0, sp.sqrt(fast := sp.Dummy(positive=True)))
    x = 2 * known / (q * c_0**2)
    form = (1 + x / (sp.sqrt(1 + x**2) * sp.asinh(x))) / 2
    of_items = form.subs(q, sp.sqrt(kappa / K)).subs(c_0, sp.sqrt(fast))
    return written_as(of_items, K * sp.diff(of, K) / of) and form


@cache
def equations() -> dict[str, Equation]:
    """Rates, clocks of head and memory, and the condition for the head to be first."""
    pair = {
        "few": (few, 0, "the read-out of the memory as at its start"),
        "many": (many, 1, "a learnt read-out"),
    }
    return table(
        WHERE,
        status="exact",
        **{
            f"iw_rate_{x.name}": (sp.Derivative(x, t), partial(moved, x))
            for x in (w, beta, c, delta)
        },
        iw_attention=(a, attention),
        iw_residual=(r, residual),
        iw_clock=(sp.Derivative(tau, t), r),
        iw_head=(w**2, law, PLAIN),
        iw_memory=(known, remembered, PLAIN),
        iw_half=(half, halved),
        iw_memory_clock=(learnt, memory, PLAIN),
        iw_exponent=(exponent, power, PLAIN),
    ) | table(
        WHERE,
        PLAIN,
        status="leading order",
        iw_head_clock=(needed, head, LONG),
        iw_head_time=(T_head, lambda: needed / start(), "both logits small until then"),
        **{f"iw_items_{k}": (x, lambda j=j: race()[j], of) for k, (x, j, of) in pair.items()},
    )
