"""Keys and queries under coupled weight decay: per rotary block their score and their norms,
and the flow in which these move beside A, R and S; where attention ends then: fixed points and
the decays above which nothing is learned, or what was learned is lost.
"""

from dataclasses import replace

import sympy as sp

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


def right_score() -> sp.Expr:
    """Score of the right action, which is L places back, by one block, times the root of d_h."""
    form = sp.expand((attention.QUERY.T * rotation(-w * L) * attention.KEY)[0])
    return written_as(form, sp.sqrt(d_h) * attention.block_logit().subs(attention.offset, -L))


KEYS = W_K2[n]
NAMED = {U[n]: right_score, W_Q2[n]: lambda: q1**2 + q2**2, W_K2[n]: lambda: k1**2 + k2**2}


def in_weights(form: sp.Expr) -> sp.Expr:
    """A form in the score and the norms of a block, in its weights."""
    return form.subs({x: spell() for x, spell in NAMED.items()})


def moved(quantity: sp.Expr) -> sp.Expr:
    """Rate of a function of a block's weights: each follows ``push`` times the derivative of the
    block's score, and decays.
    """
    score, of = right_score(), in_weights(quantity)
    rates = {x: push * sp.diff(score, x) - loss_rate * x for x in WEIGHTS}
    motion = sp.expand(sum(sp.diff(of, x) * rate for x, rate in rates.items()))
    return sp.expand(motion.subs(sp.sin(w * L) ** 2, 1 - sp.cos(w * L) ** 2))


def rate(quantity: sp.Expr, form: sp.Expr) -> sp.Expr:
    """That rate, in the block's score and norms."""
    written_as(sp.expand(in_weights(form)), moved(quantity))
    return form


def of_score() -> sp.Expr:
    """Rate of a block's score: it grows by both norms."""
    return rate(U[n], push * (W_Q2[n] + W_K2[n]) - 2 * loss_rate * U[n])


def of_norm(norm: sp.Expr) -> sp.Expr:
    """Rate of a squared norm of a block: it grows by the score."""
    return rate(norm, 2 * push * U[n] - 2 * loss_rate * norm)


def of_difference() -> sp.Expr:
    """Rate of the difference of both norms, from which the loss drops out."""
    return rate(W_Q2[n] - W_K2[n], -2 * loss_rate * (W_Q2[n] - W_K2[n]))


def attention_of_lead() -> sp.Expr:
    """Attention on the right action if all others share one score, lower by h."""
    return sp.exp(h) / (sp.exp(h) + L - 1)


@cache
def lead() -> sp.Expr:
    """The lead by attention."""
    y = sp.Symbol("y", positive=True)
    odds = linear_root(sp.expand(A * (y + L - 1) - y), y)
    log_odds = sp.log(written_as((L - 1) * A / (1 - A), odds))
    written_as(A, attention_of_lead().subs(h, log_odds))
    return log_odds


@cache
def pushing() -> sp.Expr:
    """Rate at which the loss lines up a block, from the slope of A in the block's score."""
    slope = written_as(A * (1 - A), sp.diff(attention_of_lead(), h).subs(h, lead()))
    in_block = sp.diff(lead_of_blocks().function, U[n])
    return d_g * N * eta * force * slope * in_block


def lead_of_blocks() -> sp.Sum:
    """Lead of the right action: other positions are turned against it, on average over all pairs
    by lambda_n.
    """
    return attention.sum_over_blocks((1 - lambda_[n]) * U[n] / sp.sqrt(d_h))


def gap_of_block() -> sp.Expr:
    """1 - lambda_n, continued to frequencies that do not tell positions apart."""
    form = L / (L - 1) * (1 - dirichlet_kernel(w, L) ** 2)
    generic = 1 - attention.generic_lambda()
    power = attention.power_of_plane_waves()
    written_as(form.subs(dirichlet_kernel(w, L), sp.sqrt(power) / L), generic)
    return form


@cache
def equations() -> Equations:
    """Score and norms of a block and their rates; lead and attention."""

    def rate_of(x: sp.Expr) -> sp.Expr:
        return sp.Derivative(x, alpha)

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


def pushing_alike() -> sp.Expr:
    """That rate where all blocks have one gap."""
    known = {1 - lambda_[n]: gap, force: -mean_field.equations()["dloss_dA"].rhs}
    return pushing().subs(known)


@cache
def blocks_alike() -> Forms:
    """Rates of A and P where all blocks have one gap and equal norms of keys and queries."""
    total = sp.sqrt(d_h) / gap * lead()  # score of all blocks
    alike = {U[n]: total, W_Q2[n]: P, W_K2[n]: P, loss_rate: PER_TIME}
    pull = pushing_alike()
    rates = {
        x: form.subs(push, pull).subs(alike) for x, form in ((A, of_score()), (P, of_norm(KEYS)))
    }
    each = written_as(gap * A * (1 - A) / sp.sqrt(d_h), 1 / sp.diff(total, A))
    form = 2 * each * pull * P - 2 * PER_TIME * A * (1 - A) * lead()
    return {A: written_as(form, each * rates[A]), P: rates[P]}


@cache
def norm_at_start() -> sp.Expr:
    """P at the start, for which A moves as by the constant c_omega."""
    aligned = {k1: sp.sqrt(2 * P), k2: 0, q1: 0, q2: 0}
    by_norm = d_g * N / d_h * attention.gradient_squared_under_ansatz(1 - gap).subs(aligned)
    wanted = attention.equations()["c_ansatz_mean"].rhs
    form = c_omega * L**3 * d_h / (2 * (L - 1) * d_g * N * gap**2)
    return written_as(form, linear_root(sp.expand(by_norm - wanted), P))


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
def overlaps() -> tuple[sp.Expr, sp.Expr]:
    """R and S where they stand still, by their difference per attention."""
    rates = flow().rhs
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
    score = lead().subs(A, 1 / L + small)
    rates = blocks_alike()
    form = 2 * pushing_alike().subs(A, 1 / L) - 2 * PER_TIME
    lead_ = sp.sqrt(d_h) / gap * sp.diff(score, small).subs(small, 0)  # of P per A - 1/L
    nearby = {A: 1 / L + small, P: lead_ * small}
    first = {x: sp.diff(rate.subs(nearby), small).subs(small, 0) for x, rate in rates.items()}
    written_as(form, first[A])
    written_as(form * lead_, first[P])
    return form


@cache
def standing() -> sp.Expr:
    """Difference per attention at which attention stands still: the loss lines up keys and queries,
    of equal norms and fully lined up, as fast as they decay.
    """
    full = sp.sqrt(d_h) / gap * lead()
    rates = blocks_alike()
    R_at, S_at = overlaps()
    push = pushing_alike()
    for x, size in ((A, 1 / sp.diff(full, A) * full), (P, full)):
        written_as((2 * push - 2 * PER_TIME) * size, rates[x].subs(P, full))
    ratio = sp.cancel((push / PER_TIME).subs({R: R_at, S: S_at, g: decay * d_g * N * steady}))
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
        P_steady=(P, lambda: sp.sqrt(d_h) / gap * lead(), *STEADY),
        decay_of_A=(decay, of_attention, *STEADY),
        decay_unlearned=(unlearned, lambda: of_attention().subs(A, 1 / L), *STEADY),
        decay_lost_large=(lost, lost_large, "leading order", *STEADY, *LARGE),
    )
