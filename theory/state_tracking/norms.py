"""Keys and queries under coupled weight decay: per rotary block their score and their norms, and
the flow in which these move beside A, R and S.
"""

from dataclasses import replace

import sympy as sp

from theory import Equation, Flow, array, linear_root, symbol, table, written_as
from theory.catalogue import cache
from theory.numeric import dirichlet_kernel
from theory.state_tracking import attention, dynamics, loss
from theory.state_tracking.attention import ANSATZ, k1, k2, lambda_, q1, q2, rotation, w
from theory.state_tracking.scope import decaying_flow
from theory.state_tracking.symbols import (
    W_K2,
    W_Q2,
    A,
    L,
    N,
    alpha,
    c_omega,
    d_g,
    d_h,
    eta,
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
    key, query = sp.Matrix([k1, k2]), sp.Matrix([q1, q2])
    form = sp.expand((query.T * rotation(-w * L) * key)[0])
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
def equations() -> dict[str, Equation]:
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
    known = {1 - lambda_[n]: gap, force: -loss.equations()["dloss_dA"].rhs}
    return pushing().subs(known)


@cache
def blocks_alike() -> dict[sp.Symbol, sp.Expr]:
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
