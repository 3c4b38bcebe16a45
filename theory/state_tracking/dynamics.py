"""Order-parameter updates and the flow (Eqs. 15, 53-61, 64)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from theory import (
    Chapter,
    Equation,
    Equations,
    Flow,
    ParameterError,
    delta_sum,
    symbol,
    written_as,
)
from theory.dynamics import clocks
from theory.dynamics.catalogue import cache
from theory.state_tracking import attention
from theory.state_tracking.model import definitions, mean_field
from theory.state_tracking.model.mean_field import MEAN_FIELD
from theory.state_tracking.model.scope import flow_of
from theory.state_tracking.model.symbols import (
    A_0,
    R_0,
    S_0,
    A,
    L,
    N,
    R,
    S,
    a,
    alpha,
    b,
    c,
    c_A,
    c_R,
    c_S,
    d_g,
    eta,
    g,
    ref,
    tau,
    zeta,
)
from theory.symbols.fractions import factored

delta = sp.KroneckerDelta
Delta_S_ab = symbol(
    "Delta_S_ab", r"\Delta S_{ab}", "change of S_ab in an epoch", real=True
)
S_ab = symbol(
    "S_ab",
    "S_{ab}",
    "overlap of the matrix of action a with the teacher of b",
    real=True,
)
S_ab0 = symbol("S_ab0", "S_{ab}(0)", "S_ab at time 0", real=True)
Delta_R = symbol("Delta_R", r"\Delta R", "change of R in an epoch", real=True)
Delta_S = symbol("Delta_S", r"\Delta S", "change of S in an epoch", real=True)
EPOCH = 1 / (d_g * N)  # training time alpha of one epoch

chapter = Chapter(ref, MEAN_FIELD, status="exact")


def projected_update(teacher: sp.Symbol, student: sp.Symbol) -> sp.Expr:
    """Tr[M*_teacher^T Delta M_student]/N from the update of single entries, expressed
    in mean overlaps.

    Products of teacher entries summed over the matrix give Tr[M*_a^T M*_c]; a constant
    entry gives Tr[M*^T J] = N, as every permutation matrix has N ones.
    """
    step = sp.expand(mean_field.update_M())
    everyone = delta_sum(definitions.mean_overlap(teacher, c), (c, 1, d_g))
    constant = step.subs({mean_field.OWN: 0, mean_field.ALL: 0})
    to_own = step.coeff(mean_field.OWN) * definitions.mean_overlap(teacher, student)
    return to_own + step.coeff(mean_field.ALL) * everyone + constant


SCALE = eta * EPOCH * g * N / (N - 1)  # common factor of every update


@chapter.derives(Delta_R, "Eqs. (53)-(54)", name="delta_R")
@cache
def update_on_target() -> sp.Expr:
    """Update of R: mean of the projected update over
    matrices and their own teachers.
    """
    on = delta_sum(projected_update(a, b).subs(b, a), (a, 1, d_g)) / d_g
    return written_as(SCALE * (c_R + c_S * tau - 1 / N), on)


@chapter.derives(Delta_S, "Eqs. (55)-(56)", "d_g >= 3", name="delta_S")
@cache
def update_off_target() -> sp.Expr:
    """Update of S: mean over matrices and the teachers of other actions."""
    others = (1 - delta(a, b)) * projected_update(a, b)
    off = delta_sum(others, (b, 1, d_g), (a, 1, d_g)) / (d_g * (d_g - 1))
    by_S = c_S * (d_g - 2) / (d_g - 1) * tau + c_S / (d_g - 1)
    return written_as(SCALE * (c_R * tau + by_S - 1 / N), off)


def over_seeds(update: sp.Expr, form: sp.Expr) -> sp.Expr:
    """Update averaged over independent teachers, collected by attention; ``form`` is
    the printed grouping.
    """
    mean = update.subs({c_S: 1 - c_R, tau: definitions.independent_overlap()})
    mean = mean.subs(c_R, mean_field.weight_of_R())
    return written_as(eta * EPOCH * g * form, mean)


SEEDS = "averaged over independent permutations"


@chapter.derives(Delta_R, "Eq. (59a)", SEEDS)
def delta_R_mean() -> sp.Expr:
    """Update of R, averaged over teachers."""
    return over_seeds(update_on_target(), A + (1 - A) / d_g)


@chapter.derives(Delta_S, "Eq. (59b)", SEEDS)
def delta_S_mean() -> sp.Expr:
    """Update of S, averaged over teachers."""
    return over_seeds(update_off_target(), (1 - A) / d_g)


@chapter.derives(
    Delta_S_ab,
    "beyond Eqs. (53)-(56): one pair of a group",
    *definitions.GROUP,
    name="delta_S_ab",
)
@cache
def update_of_pair() -> sp.Expr:
    """Update of the overlap of a student's matrix with any teacher of a group. It
    depends on that teacher only through its overlap with the matrix's own teacher.
    """
    of_pair = definitions.mean_overlap(b, a)
    update = projected_update(b, a).subs(of_pair, definitions.tau_ab)
    update = update.subs(tau, definitions.group_overlap()).subs(c_S, 1 - c_R)
    spelled = update.subs(c_R, mean_field.weight_of_R())
    return written_as(SCALE * A * (definitions.tau_ab - 1 / N), spelled)


@chapter.derives(
    S_ab - S_ab0,
    "beyond Eq. (59): one overlap per class of a^-1 b",
    *definitions.GROUP,
    name="S_ab",
)
@cache
def overlap_of_pair() -> sp.Expr:
    """Growth of the overlap with any teacher in terms of the growth of R, since the
    ratio of the two updates is constant.
    """
    ratio = update_of_pair() / update_of_pair().subs(definitions.tau_ab, 1)
    form = (N * definitions.tau_ab - 1) / (N - 1) * (R - R_0)
    return written_as(form, sp.cancel(ratio) * (R - R_0))


@chapter.derives(
    sp.Derivative(A, alpha),
    "Eqs. (60)-(64)",
    "small steps",
    "A is the only route from the loss to W_Q, W_K",
)
def dA_dalpha_chain() -> sp.Expr:
    """One epoch of descent on W moves A by -eta |grad A|^2 dl/dA, and c(A) = d_g N
    |grad A|^2.
    """
    return -eta * c_A * mean_field.dloss_dA()


def equations() -> Equations:
    """Updates at finite teacher overlap, their averages over teachers, and the equation
    of attention.
    """
    return chapter.equations


def _option(field: str, value: str, options: Mapping[str, Any]) -> Any:
    if value not in options:
        known = ", ".join(options)
        raise ParameterError(f"{field} = {value!r}: must be one of {known}")
    return options[value]


@cache
def flow(teacher_overlap: str = "iid", closure: str = "closure") -> Flow:
    """Flow (15) of A, R and S in the training time alpha = epochs / (d_g N).

    Parameters
    ----------
    teacher_overlap : {'iid', 'distinct', 'group', 'tau'}
        Mean overlap of distinct teachers: 1/N for independent permutations, Eq. (77)
        for distinct ones, that of all elements of a group, or the symbol ``tau``.
    closure : {'closure', 'ansatz'}
        Attention factor c(A): the paper's L c_omega A (1 - A), or Eq. (69) averaged
        over the initialisation and used at all times.

    Raises
    ------
    ParameterError
        For any other word.
    """
    spell = {c_S: mean_field.weight_of_S(), c_R: mean_field.weight_of_R()}
    overlaps = {
        "iid": None,
        "tau": tau,
        "distinct": definitions.distinct_overlap(),
        "group": definitions.group_overlap(),
    }
    factors = {"closure": "c_closure", "ansatz": "c_ansatz_mean"}
    overlap = _option("teacher_overlap", teacher_overlap, overlaps)
    factor = _option("closure", closure, factors)
    if overlap is None:
        dR = delta_R_mean() / EPOCH
        dS = delta_S_mean() / EPOCH
    else:
        dR = (update_on_target() / EPOCH).subs(spell).subs(tau, overlap)
        dS = (update_off_target() / EPOCH).subs(spell).subs(tau, overlap)
    closed = attention.equations()[factor]
    c_of_A = closed.rhs
    dA = dA_dalpha_chain().subs(c_A, c_of_A)
    observables = {
        "logit_correct": mean_field.logit_correct(),
        "logit_other": mean_field.logit_other(),
        "loss": mean_field.loss_of_margin(),
        "c_A": c_of_A,
    }
    assumptions = (MEAN_FIELD, mean_field.EXCHANGEABLE, *closed.assumptions)
    return Flow(
        name="state_tracking",
        time=alpha,
        rhs={A: dA, R: dR, S: dS},
        initial={A: A_0, R: R_0, S: S_0},
        reference=ref("Eq. (15)"),
        status="closure",
        assumptions=(*assumptions, "gradient flow"),
        where=mean_field.abbreviations(),
        observables=observables,
        scope=flow_of(teacher_overlap),
    )


@cache
def thermodynamic_limit() -> Flow:
    """Flow for d_g, N, L, d_h -> infinity at fixed ratios and fixed A, R, S.

    The attention equation is of order L; its leading term is kept. Valid while e^m <<
    N, that is until R grows to order ln N.
    """
    ratio, length = sp.symbols("gamma ell", positive=True)
    size = sp.Symbol("N", positive=True)
    large = {d_g: ratio * size, L: length * size, N: size}

    def leading(expr: sp.Expr, order: sp.Expr) -> sp.Expr:
        return sp.limit(factored((expr / order).subs(large)), size, sp.oo) * order

    full = flow()
    g_limit = sp.limit(mean_field.wrong_mass().subs(N, size), size, sp.oo)
    rhs = {}
    for x, expr in full.rhs.items():
        order = L if x == A else sp.S.One
        rhs[x] = leading(expr.subs(g, g_limit), order)
    return Flow(
        name="state_tracking, thermodynamic limit",
        time=alpha,
        rhs=rhs,
        initial=full.initial,
        reference=ref("Sec. 4.3, limit of Eq. (15)"),
        status="leading order",
        assumptions=(*full.assumptions, "sizes to infinity at fixed ratios, e^m << N"),
        scope=full.scope,
    )


# Early training

ASSUMED = ("loss linear in the logits", "A = A_0", "R(0) = S(0) = zeta = 0")


@cache
def early_equations() -> Equations:
    """A, R and S to first order in the logits."""
    at_start = {A: A_0, R: 0, S: 0, zeta: 0}
    early = Chapter(ref("Eq. (78)"), *ASSUMED, status="leading order")
    early.state("early_A", A, A_0)
    for x in (R, S):
        rate = sp.factor(flow().expanded[x].subs(at_start))
        early.state(f"early_{x.name}", x, sp.integrate(rate, (alpha, 0, alpha)))
    return early.equations


# Momentum and schedules


@cache
def momentum_equations() -> dict[str, Equation]:
    """Those of `theory.dynamics.clocks`."""
    place = ref("beyond the paper: momentum as a filter of gradients")
    return {name: replace(e, reference=place) for name, e in clocks.equations().items()}
