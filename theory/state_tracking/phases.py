"""Where attention ends under coupled weight decay: fixed points of the flow with norms, the decay
above which nothing is learned from scratch, and the one above which what was learned is lost.
"""

from functools import cache

import sympy as sp

from theory import Equation, linear_root, symbol, table, written_as
from theory.state_tracking import attention, norms
from theory.state_tracking import loss as mean_field
from theory.state_tracking.late_time import INDEPENDENT
from theory.state_tracking.norms import BEYOND, P, decay, gap, pushing_alike
from theory.state_tracking.symbols import A, L, N, R, S, d_g, d_h, g, m, ref, zeta

steady = symbol("r_steady", r"r", "R - S per attention where R and S stand still", positive=True)
lambert = symbol("W_A", r"W_{A}", "root W of W e^W + (N - 1) W = (A^2 + (1 - A^2)/d_g)/(decay d_g)")
kappa = symbol(
    "kappa_w", r"\kappa_{\mathrm{w}}", "steepness of attention under decay", positive=True
)
growth = symbol(
    "growth_unlearned", r"\gamma_{\mathrm{u}}", "rate of keys and queries beside A = 1/L", real=True
)
unlearned = symbol(
    "decay_unlearned", r"\lambda_{\mathrm{u}}", "decay above which A = 1/L is stable", positive=True
)
lost = symbol(
    "decay_lost", r"\lambda_{\mathrm{l}}", "decay above which only A = 1/L is left", positive=True
)
TOP = "only blocks of the largest gap are left"
STEADY = ("late times", TOP, attention.ANSATZ, INDEPENDENT)
LARGE = ("kappa_w to infinity: margins small where attention is lost",)


@cache
def overlaps() -> tuple[sp.Expr, sp.Expr]:
    """R and S where they stand still, by their difference per attention."""
    rates = norms.flow().rhs
    still = {x: linear_root(sp.expand(rates[x]), x) for x in (R, S)}
    per_A = written_as(g / (decay * d_g * N), sp.cancel((still[R] - still[S]) / A))
    forms = steady * (A + (1 - A) / d_g), steady * (1 - A) / d_g
    derived = zip(forms, (R, S), strict=True)
    return tuple(
        written_as(f.subs(steady, per_A), still[x]).subs(per_A, steady) for f, x in derived
    )


@cache
def margin() -> sp.Expr:
    """Margin of the logits there."""
    still = dict(zip((R, S), overlaps(), strict=True)) | {zeta: 0}
    derived = mean_field.margin_of_state().subs(still)
    return written_as(N / (N - 1) * steady * (A**2 + (1 - A**2) / d_g), derived)


@cache
def balance() -> sp.Expr:
    """Decay at which R and S stand still, by their difference per attention."""
    left = 1 / (1 + sp.exp(margin()) / (N - 1))
    written_as(left, mean_field.equations()["g"].rhs.subs(m, margin()))
    return left / (d_g * N * steady)


def by_lambert() -> sp.Expr:
    """The difference per attention, by the generalised Lambert function."""
    weight = A**2 + (1 - A**2) / d_g
    form = (N - 1) / N * lambert / weight
    defining = (lambert * sp.exp(lambert) + (N - 1) * lambert) / weight
    written_as(1 / (d_g * defining), sp.simplify(balance().subs(steady, form)))
    return form


@cache
def growing() -> sp.Expr:
    """Growth rate of a small score and small norms near A = 1/L, along the eigenvector with equal
    components: twice the correlation in the gradient minus the decay.
    """
    small = sp.Symbol("small", positive=True)
    score = norms.lead().subs(A, 1 / L + small)
    rates = norms.blocks_alike()
    form = 2 * pushing_alike().subs(A, 1 / L) - 2 * norms.PER_TIME
    lead = sp.sqrt(d_h) / gap * sp.diff(score, small).subs(small, 0)  # of P per A - 1/L
    nearby = {A: 1 / L + small, P: lead * small}
    first = {x: sp.diff(rate.subs(nearby), small).subs(small, 0) for x, rate in rates.items()}
    written_as(form, first[A])
    written_as(form * lead, first[P])
    return form


@cache
def standing() -> sp.Expr:
    """Difference per attention at which attention stands still: the loss lines up keys and queries,
    of equal norms and fully lined up, as fast as they decay.
    """
    full = sp.sqrt(d_h) / gap * norms.lead()
    rates = norms.blocks_alike()
    R_at, S_at = overlaps()
    push = pushing_alike()
    for x, size in ((A, 1 / sp.diff(full, A) * full), (P, full)):
        written_as((2 * push - 2 * norms.PER_TIME) * size, rates[x].subs(P, full))
    ratio = sp.cancel((push / norms.PER_TIME).subs({R: R_at, S: S_at, g: decay * d_g * N * steady}))
    form = kappa * steady**2 * A**2 * (1 - A)
    written_as(form.subs(kappa, steepness()), ratio)
    difference = 1 / (A * sp.sqrt(kappa * (1 - A)))
    written_as(sp.S.One, form.subs(steady, difference))
    return difference


def steepness() -> sp.Expr:
    """Factor of the push over the decay that depends neither on the difference nor on A."""
    return gap * N**2 * (d_g - 1) / ((N - 1) * sp.sqrt(d_h))


@cache
def of_attention() -> sp.Expr:
    """Weight decay at which attention is stationary at a given value."""
    return balance().subs(steady, standing())


def lost_large() -> sp.Expr:
    """Largest decay with a learned state, where margins are small: at A = 2/3."""
    inverse = sp.Symbol("inverse", positive=True)
    each = (of_attention() / sp.sqrt(kappa)).subs(kappa, inverse**-2)
    small = sp.limit(each, inverse, 0)
    (attention,) = sp.solve(sp.numer(sp.together(sp.diff(sp.log(small), A))), A)
    form = 2 * sp.sqrt(3) / 9 * (N - 1) * sp.sqrt(kappa) / (d_g * N**2)
    return written_as(form, small.subs(A, attention) * sp.sqrt(kappa))


@cache
def equations() -> dict[str, Equation]:
    """Fixed points, growth rate near A = 1/L, and both critical decays."""
    R_at, S_at = overlaps()
    return table(
        ref(BEYOND),
        status="closure",
        R_steady=(R, R_at, *STEADY),
        S_steady=(S, S_at, *STEADY),
        r_lambert=(steady, by_lambert, *STEADY),
        decay_growth=(growth, growing, *STEADY),
        kappa_w=(kappa, steepness, *STEADY),
        r_steady=(steady, standing, *STEADY),
        P_steady=(P, lambda: sp.sqrt(d_h) / gap * norms.lead(), *STEADY),
        decay_of_A=(decay, of_attention, *STEADY),
        decay_unlearned=(unlearned, lambda: of_attention().subs(A, 1 / L), *STEADY),
        decay_lost_large=(lost, lost_large, "leading order", *STEADY, *LARGE),
    )
