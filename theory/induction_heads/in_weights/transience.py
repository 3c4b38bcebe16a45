"""Weight decay: when the head does not begin, when the memory drives it out, and when it cannot.

Both live on the residual. The head needs some of it against its decay; the memory, which grows
slowly, leaves less and less, until the head is lost.
"""

from functools import cache

import sympy as sp

from theory import Equation, proved, symbol, table, vanishes, written_as
from theory.induction_heads.in_weights import emergence
from theory.induction_heads.in_weights.emergence import (
    LONG,
    WHERE,
    L,
    T_head,
    a,
    beta,
    c_0,
    decay,
    fading,
    kappa,
    known,
    n,
    q,
    r,
    tau,
    w,
)

u = symbol("u", means="e^beta over its value at attention 1/2", positive=True)
largest = symbol("decay_largest", r"\lambda_{\max}", "decay at which the head does not begin")
left = symbol("in_weights_left", r"\varphi_{1/2}", "logit of the memory at which attention is 1/2")
begun = symbol("in_weights_head", r"\varphi_{\mathrm{head}}", "logit of the memory at T_head")
T_lost = symbol("T_lost", r"T_{\mathrm{lost}}", "time at which attention falls below 1/2")
behind = symbol("T_lag", r"T_{\mathrm{lag}}", "delay of the head behind where it would stand still")
r_head = symbol("residual_head", r"r_{\mathrm{head}}", "least residual that keeps the head")
r_memory = symbol("residual_memory", r"r_{\mathrm{memory}}", "residual that keeps the memory")
K_lost = symbol("K_lost", r"K_{\mathrm{lost}}", "items below which the head is lost")
SLOW = "slow memory: the head follows it"


@cache
def still() -> tuple[sp.Expr, sp.Expr]:
    """Square of the read-out, and the residual, where the head stands still."""
    needs = sp.solve(sp.Eq(emergence.moved(w), 0), r)[0]
    square = sp.solve(sp.Eq(emergence.moved(beta).subs(r, needs), 0), w)
    squares = {sp.factor(x**2) for x in square if x != 0}
    proved(squares == {sp.factor(beta / (1 - a))}, "the head stands still elsewhere")
    return beta / (1 - a), needs


def kept() -> sp.Expr:
    """The same residual as a function of score and attention."""
    square, needs = still()
    return needs.subs(w, sp.sqrt(square))


@cache
def dormant() -> sp.Expr:
    """Decay above which the head stops growing before it attends to the copies: for many other
    pairs, attention is e^beta/n.
    """
    x = sp.Dummy(positive=True)
    early = sp.limit(kept().subs(a, sp.exp(x) / n).subs(beta, x) / n, n, sp.oo)  # residual over n
    extrema = sp.solve(sp.diff(early, x), x)
    proved(
        len(extrema) == 1 and sp.diff(early, x, 2).subs({x: extrema[0], decay: 1}).is_negative,
        "not the largest residual on the way",
    )
    most = n * early.subs(x, extrema[0])
    return written_as(sp.sqrt(2 * sp.E) / (kappa * n), decay * emergence.start() / most)


@cache
def leaves() -> sp.Expr:
    """Logit that the memory has where the head stands still at attention 1/2."""
    half = {a: sp.Rational(1, 2), beta: sp.log(n)}
    of_head = (sp.sqrt(still()[0]) * a).subs(half)  # logit of the head
    whole = sp.log((L - 1) * (1 / r - 1))
    written_as(r, emergence.residual().subs(w, 0).subs(emergence.c, 1).subs(emergence.delta, whole))
    form = sp.log((L - 1) * (1 / (2 * decay * sp.sqrt(2 * sp.log(n))) - 1)) - sp.sqrt(sp.log(n) / 2)
    return written_as(form, whole.subs(r, kept().subs(half)) - of_head)


@cache
def lag() -> sp.Expr:
    """Time by which attention falls through 1/2 later than where the head stands still, to first
    order in how fast the memory grows.
    """
    whole = w * a + known  # the logit
    residual = emergence.residual().subs(w, 0)
    fall = -r * (1 - r)
    written_as(fall.subs(r, residual), sp.diff(residual, emergence.delta) / emergence.c)
    attention = emergence.attention()
    a_beta = a * (1 - a)
    written_as(a_beta.subs(a, attention), sp.diff(attention, beta))
    rates = sp.Matrix([emergence.moved(x) for x in (w, beta)])

    def slope(x: sp.Symbol) -> sp.Matrix:
        """Derivative by x, of which attention and the residual are functions."""
        by_a = sp.diff(whole, a) * a_beta if x is beta else 0
        of_a = rates.diff(a) * a_beta if x is beta else sp.zeros(2, 1)
        return rates.diff(x) + of_a + rates.diff(r) * fall * (sp.diff(whole, x) + by_a)

    here = {beta: w**2 / 2, decay: r / (2 * w), a: sp.Rational(1, 2)}  # attention 1/2: see `still`
    matrix = sp.Matrix.hstack(slope(w), slope(beta)).subs(here)
    follows = matrix.LUsolve(slope(known).subs(here))
    return sp.factor(-matrix.LUsolve(follows)[1] / follows[1])


@cache
def lost() -> sp.Expr:
    """Time at which the head falls back: the clock of the memory, at the residual of the head."""
    speed = sp.sqrt(c_0**4 * q**4 + 4 * q**2 * known**2)
    on = sp.diff(emergence.remembered(), tau)
    proved(
        vanishes((speed.subs(known, emergence.remembered()) ** 2 - on**2).rewrite(sp.exp)),
        "not the rate of the memory on the clock",
    )
    return T_head + sp.Integral(1 / (r * speed), (known, begun, left)) + behind


@cache
def least() -> sp.Expr:
    """Least residual that keeps the head: for many other pairs, beta hardly changes where it is."""
    of = kept().subs(a, u / (1 + u))
    slope = sp.diff(sp.log(of), u).subs(beta, symbol("b", positive=True))
    (lowest,) = (x for x in sp.solve(slope, u) if x.is_positive)
    smallest = of.subs(u, lowest).subs(beta, sp.log(n * lowest))
    return written_as(decay * 3 * sp.sqrt(3) / 2 * sp.sqrt(sp.log(2 * n)), smallest)


@cache
def held() -> sp.Expr:
    """Residual at which the memory stands still."""
    rates = [emergence.moved(x) for x in (emergence.c, emergence.delta)]
    matrix = sp.Matrix(rates).jacobian([emergence.c, emergence.delta])
    (balanced,) = (x for x in sp.solve(matrix.det(), r) if x.subs({fading: 1, q: 1}) > 0)
    return written_as(fading / q, balanced)


@cache
def exclusion() -> sp.Expr:
    """Items at which both residuals are the same."""
    ratio = (least() / held()) ** 2 / q**2 * kappa
    return written_as(sp.Rational(27, 4) * kappa * (decay / fading) ** 2 * sp.log(2 * n), ratio)


@cache
def equations() -> dict[str, Equation]:
    """Smallest residuals of head and memory, and the time at which the head is lost."""
    exact = {
        "iw_still": (w**2, lambda: still()[0]),
        "iw_still_residual": (r, lambda: still()[1]),
        "iw_left": (left, leaves),
        "iw_memory_residual": (r_memory, held),
    }
    leading = {
        "iw_decay_largest": (largest, dormant, LONG),
        "iw_lag": (behind, lag, SLOW, "read-out and residual at attention 1/2"),
        "iw_lost": (T_lost, lost, SLOW, "residual iw_still_residual, no decay of the memory"),
        "iw_head_residual": (r_head, least, LONG),
        "iw_items_lost": (K_lost, exclusion, LONG),
    }
    return table(WHERE, status="exact", **exact) | table(WHERE, status="leading order", **leading)
