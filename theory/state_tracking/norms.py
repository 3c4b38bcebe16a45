"""Keys and queries under coupled weight decay: per rotary block their score and their norms,
and the flow in which these move beside A, R and S; where attention ends then: fixed points and
the decays above which nothing is learned, or what was learned is lost.
"""

from dataclasses import replace

import sympy as sp
from sympy import (
    Derivative,
    Expr,
    Sum,
    Symbol,
    cancel,
    cos,
    diff,
    exp,
    expand,
    limit,
    log,
    numer,
    simplify,
    sin,
    solve,
    sqrt,
    together,
)

from theory import Equations, Flow, array, linear_root, symbol, table, written_as
from theory.catalogue import cache
from theory.notation import Forms
from theory.numeric import dirichlet_kernel
from theory.state_tracking import attention, dynamics, mean_field
from theory.state_tracking.attention import ANSATZ, k1, k2, lambda_, q1, q2, rotation, w
from theory.state_tracking.late_time import INDEPENDENT
from theory.state_tracking.scope import decaying_flow
from theory.state_tracking.symbols import (
    W_K2,
    W_Q2,
    A,
    L,
    N,
    R,
    S,
    alpha,
    c_omega,
    d_g,
    d_h,
    eta,
    g,
    m,
    n,
    ref,
    zeta,
)

ALIKE = "blocks alike: their waves average out over positions; those that turn too slowly left out"

BEYOND = "beyond the paper: weight decay"
decay = symbol("weight_decay", r"\lambda_{\mathrm{w}}", "coupled weight decay", positive=True)
loss_rate = symbol("mu", r"\mu", "share of a weight that decay takes per time", positive=True)
U = array("U", means="scores of the right action by rotary block, times the root of d_h")
U_n = symbol("U_n", "U_{n}", "score of the right action by one block", real=True)
h = symbol(
    "h", means="lead of the score of the right action over the mean of the others", real=True
)
push = symbol("push", r"f_{n}", "rate at which the loss lines up key and query of a block")
force = symbol("force_A", "F", "force on attention, -dl/dA", real=True)
P = symbol("P", means="squared norm of keys, or queries, in all blocks", nonnegative=True)
zeta_now = symbol("zeta_now", r"\zeta", "mean sum of all logits", real=True)
gap = symbol("gap", r"\Gamma", "largest 1 - lambda_n of a block", positive=True)
OBSERVED = ("logit_correct", "logit_other", "loss")
WEIGHTS = (q1, q2, k1, k2)
PER_TIME = eta * decay * d_g * N  # -eta decay per step, d_g N steps per unit of time
WIDEST = L / (L - 1)  # gap of a block whose waves average out over positions


def right_score() -> Expr:
    """Score of the right action, which is L places back, by one block, times the root of d_h."""
    form = expand((attention.QUERY.T * rotation(-w * L) * attention.KEY)[0])
    return written_as(form, sqrt(d_h) * attention.block_logit().subs(attention.offset, -L))


KEYS = W_K2[n]
NAMED = {U[n]: right_score, W_Q2[n]: lambda: q1**2 + q2**2, W_K2[n]: lambda: k1**2 + k2**2}


def in_weights(form: Expr) -> Expr:
    """A form in the score and the norms of a block, in its weights."""
    return form.subs({x: spell() for x, spell in NAMED.items()})


def moved(quantity: Expr) -> Expr:
    """Rate of a function of a block's weights: each follows ``push`` times the derivative of the
    block's score, and decays.
    """
    score, of = right_score(), in_weights(quantity)
    rates = {x: push * diff(score, x) - loss_rate * x for x in WEIGHTS}
    motion = expand(sum(diff(of, x) * rate for x, rate in rates.items()))
    return expand(motion.subs(sin(w * L) ** 2, 1 - cos(w * L) ** 2))


def rate(quantity: Expr, form: Expr) -> Expr:
    """That rate, in the block's score and norms."""
    written_as(expand(in_weights(form)), moved(quantity))
    return form


def of_score() -> Expr:
    """Rate of a block's score: it grows by both norms."""
    return rate(U[n], push * (W_Q2[n] + W_K2[n]) - 2 * loss_rate * U[n])


def of_norm(norm: Expr) -> Expr:
    """Rate of a squared norm of a block: it grows by the score."""
    return rate(norm, 2 * push * U[n] - 2 * loss_rate * norm)


def of_difference() -> Expr:
    """Rate of the difference of both norms, from which the loss drops out."""
    return rate(W_Q2[n] - W_K2[n], -2 * loss_rate * (W_Q2[n] - W_K2[n]))


def attention_of_lead() -> Expr:
    """Attention on the right action if all others share one score, lower by h."""
    return exp(h) / (exp(h) + L - 1)


@cache
def lead() -> Expr:
    """The lead by attention."""
    y = Symbol("y", positive=True)
    odds = linear_root(expand(A * (y + L - 1) - y), y)
    log_odds = log(written_as((L - 1) * A / (1 - A), odds))
    written_as(A, attention_of_lead().subs(h, log_odds))
    return log_odds


@cache
def pushing() -> Expr:
    """Rate at which the loss lines up a block, from the slope of A in the block's score."""
    slope = written_as(A * (1 - A), diff(attention_of_lead(), h).subs(h, lead()))
    in_block = diff(lead_of_blocks().function, U[n])
    return d_g * N * eta * force * slope * in_block


def lead_of_blocks() -> Sum:
    """Lead of the right action: other positions are turned against it, on average over all pairs
    by lambda_n.
    """
    return attention.sum_over_blocks((1 - lambda_[n]) * U[n] / sqrt(d_h))


def gap_of_block() -> Expr:
    """1 - lambda_n, continued to frequencies that do not tell positions apart."""
    form = L / (L - 1) * (1 - dirichlet_kernel(w, L) ** 2)
    generic = 1 - attention.generic_lambda()
    power = attention.power_of_plane_waves()
    written_as(form.subs(dirichlet_kernel(w, L), sqrt(power) / L), generic)
    return form


@cache
def equations() -> Equations:
    """Score and norms of a block and their rates; lead and attention."""

    def rate_of(x: Expr) -> Expr:
        return Derivative(x, alpha)

    return table(
        ref(BEYOND),
        status="exact",
        block_score=(U_n, right_score),
        decay_rate=(loss_rate, PER_TIME),
        block_push=(push, pushing, "closure", ANSATZ),
        dU_dalpha=(rate_of(U[n]), of_score, "small steps"),
        dW_Q2_dalpha=(rate_of(W_Q2[n]), lambda: of_norm(W_Q2[n]), "small steps"),
        dW_K2_dalpha=(rate_of(W_K2[n]), lambda: of_norm(W_K2[n]), "small steps"),
        norms_difference=(rate_of(W_Q2[n] - W_K2[n]), of_difference, "small steps"),
        lead_of_blocks=(h, lead_of_blocks, "average over positions"),
        A_with_norms=(rate_of(A), lambda: blocks_alike()[A], "closure", ANSATZ, ALIKE),
        P_with_norms=(rate_of(P), lambda: blocks_alike()[P], "closure", ANSATZ, ALIKE),
        P_start=(P, norm_at_start, "closure", ANSATZ, "at time 0, by c_omega"),
        gap_of_block=(1 - lambda_[n], gap_of_block, "any frequency omega_n"),
        lead_of_A=(h, lead, "closure", ANSATZ),
    )


def pushing_alike() -> Expr:
    """That rate where all blocks have one gap."""
    known = {1 - lambda_[n]: gap, force: -mean_field.equations()["dloss_dA"].rhs}
    return pushing().subs(known)


@cache
def blocks_alike() -> Forms:
    """Rates of A and P where all blocks have one gap and equal norms of keys and queries."""
    total = sqrt(d_h) / gap * lead()  # score of all blocks
    alike = {U[n]: total, W_Q2[n]: P, W_K2[n]: P, loss_rate: PER_TIME}
    pull = pushing_alike()
    rates = {
        x: form.subs(push, pull).subs(alike) for x, form in ((A, of_score()), (P, of_norm(KEYS)))
    }
    each = written_as(gap * A * (1 - A) / sqrt(d_h), 1 / diff(total, A))
    form = 2 * each * pull * P - 2 * PER_TIME * A * (1 - A) * lead()
    return {A: written_as(form, each * rates[A]), P: rates[P]}


@cache
def norm_at_start() -> Expr:
    """P at the start, for which A moves as by the constant c_omega."""
    aligned = {k1: sqrt(2 * P), k2: 0, q1: 0, q2: 0}
    by_norm = d_g * N / d_h * attention.gradient_squared_under_ansatz(1 - gap).subs(aligned)
    wanted = attention.equations()["c_ansatz_mean"].rhs
    form = c_omega * L**3 * d_h / (2 * (L - 1) * d_g * N * gap**2)
    return written_as(form, linear_root(expand(by_norm - wanted), P))


@cache
def flow(teacher_overlap: str = "iid") -> Flow:
    """Flow of A, of the norm P of keys and queries, and of R and S, under coupled weight decay.

    Parameters
    ----------
    teacher_overlap : {'iid', 'distinct', 'group', 'tau'}
        As for `theory.state_tracking.dynamics.flow`.
    """
    plain = dynamics.flow(teacher_overlap, "ansatz")
    others = {x: form - PER_TIME * x for x, form in plain.rhs.items() if x != A}
    alike = {x: form.subs(gap, WIDEST) for x, form in blocks_alike().items()}
    return replace(
        plain,
        name="state_tracking, weight decay",
        rhs={**alike, **others, zeta_now: -PER_TIME * zeta_now},
        initial={P: norm_at_start().subs(gap, WIDEST), **plain.initial, zeta_now: zeta},
        where={x: meaning.subs(zeta, zeta_now) for x, meaning in plain.where.items()},
        reference=ref(BEYOND),
        assumptions=(*(x for x in plain.assumptions if x != attention.CLOSURE), ANSATZ, ALIKE),
        observables={x: plain.observables[x].subs(zeta, zeta_now) for x in OBSERVED},
        scope=decaying_flow(teacher_overlap),
    )


# Where attention ends under coupled weight decay

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
def overlaps() -> tuple[Expr, Expr]:
    """R and S where they stand still, by their difference per attention."""
    rates = flow().rhs
    still = {x: linear_root(expand(rates[x]), x) for x in (R, S)}
    per_A = written_as(g / (decay * d_g * N), cancel((still[R] - still[S]) / A))
    forms = steady * (A + (1 - A) / d_g), steady * (1 - A) / d_g
    derived = zip(forms, (R, S), strict=True)
    return tuple(
        written_as(f.subs(steady, per_A), still[x]).subs(per_A, steady) for f, x in derived
    )


@cache
def margin() -> Expr:
    """Margin of the logits there."""
    still = dict(zip((R, S), overlaps(), strict=True)) | {zeta: 0}
    derived = mean_field.margin_of_state().subs(still)
    return written_as(N / (N - 1) * steady * (A**2 + (1 - A**2) / d_g), derived)


@cache
def balance() -> Expr:
    """Decay at which R and S stand still, by their difference per attention."""
    left = 1 / (1 + exp(margin()) / (N - 1))
    written_as(left, mean_field.equations()["g"].rhs.subs(m, margin()))
    return left / (d_g * N * steady)


def by_lambert() -> Expr:
    """The difference per attention, by the generalised Lambert function."""
    weight = A**2 + (1 - A**2) / d_g
    form = (N - 1) / N * lambert / weight
    defining = (lambert * exp(lambert) + (N - 1) * lambert) / weight
    written_as(1 / (d_g * defining), simplify(balance().subs(steady, form)))
    return form


@cache
def growing() -> Expr:
    """Growth rate of a small score and small norms near A = 1/L, along the eigenvector with equal
    components: twice the correlation in the gradient minus the decay.
    """
    small = Symbol("small", positive=True)
    score = lead().subs(A, 1 / L + small)
    rates = blocks_alike()
    form = 2 * pushing_alike().subs(A, 1 / L) - 2 * PER_TIME
    lead_ = sqrt(d_h) / gap * diff(score, small).subs(small, 0)  # of P per A - 1/L
    nearby = {A: 1 / L + small, P: lead_ * small}
    first = {x: diff(rate.subs(nearby), small).subs(small, 0) for x, rate in rates.items()}
    written_as(form, first[A])
    written_as(form * lead_, first[P])
    return form


@cache
def standing() -> Expr:
    """Difference per attention at which attention stands still: the loss lines up keys and queries,
    of equal norms and fully lined up, as fast as they decay.
    """
    full = sqrt(d_h) / gap * lead()
    rates = blocks_alike()
    R_at, S_at = overlaps()
    push = pushing_alike()
    for x, size in ((A, 1 / diff(full, A) * full), (P, full)):
        written_as((2 * push - 2 * PER_TIME) * size, rates[x].subs(P, full))
    ratio = cancel((push / PER_TIME).subs({R: R_at, S: S_at, g: decay * d_g * N * steady}))
    form = kappa * steady**2 * A**2 * (1 - A)
    written_as(form.subs(kappa, steepness()), ratio)
    difference = 1 / (A * sqrt(kappa * (1 - A)))
    written_as(sp.S.One, form.subs(steady, difference))
    return difference


def steepness() -> Expr:
    """Factor of the push over the decay that depends neither on the difference nor on A."""
    return gap * N**2 * (d_g - 1) / ((N - 1) * sqrt(d_h))


@cache
def of_attention() -> Expr:
    """Weight decay at which attention is stationary at a given value."""
    return balance().subs(steady, standing())


def lost_large() -> Expr:
    """Largest decay with a learned state, where margins are small: at A = 2/3."""
    inverse = Symbol("inverse", positive=True)
    each = (of_attention() / sqrt(kappa)).subs(kappa, inverse**-2)
    small = limit(each, inverse, 0)
    (attention,) = solve(numer(together(diff(log(small), A))), A)
    form = 2 * sqrt(3) / 9 * (N - 1) * sqrt(kappa) / (d_g * N**2)
    return written_as(form, small.subs(A, attention) * sqrt(kappa))


@cache
def steady_equations() -> Equations:
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
        P_steady=(P, lambda: sqrt(d_h) / gap * lead(), *STEADY),
        decay_of_A=(decay, of_attention, *STEADY),
        decay_unlearned=(unlearned, lambda: of_attention().subs(A, 1 / L), *STEADY),
        decay_lost_large=(lost, lost_large, "leading order", *STEADY, *LARGE),
    )
