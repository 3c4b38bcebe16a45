"""Order-parameter updates and the flow (Eqs. 15, 53-61, 64)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from theory import (
    Equation,
    Equations,
    Flow,
    ParameterError,
    delta_sum,
    symbol,
    table,
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


def projected_update(teacher: sp.Symbol, student: sp.Symbol) -> sp.Expr:
    """Tr[M*_teacher^T Delta M_student]/N from the update of single entries, expressed
    in mean overlaps.

    Products of teacher entries summed over the matrix give Tr[M*_a^T M*_c]; a constant
    entry gives Tr[M*^T J] = N, as every permutation matrix has N ones.
    """
    step = sp.expand(mean_field.entry_equations()["update_M"].rhs)
    everyone = delta_sum(definitions.mean_overlap(teacher, c), (c, 1, d_g))
    constant = step.subs({mean_field.OWN: 0, mean_field.ALL: 0})
    to_own = step.coeff(mean_field.OWN) * definitions.mean_overlap(teacher, student)
    return to_own + step.coeff(mean_field.ALL) * everyone + constant


SCALE = eta * EPOCH * g * N / (N - 1)  # common factor of every update


@cache
def update_on_target() -> sp.Expr:
    """Update of R: mean of the projected update over
    matrices and their own teachers.
    """
    on = delta_sum(projected_update(a, b).subs(b, a), (a, 1, d_g)) / d_g
    return written_as(SCALE * (c_R + c_S * tau - 1 / N), on)


@cache
def update_off_target() -> sp.Expr:
    """Update of S: mean over matrices and the teachers of other actions."""
    off = delta_sum(
        (1 - delta(a, b)) * projected_update(a, b), (b, 1, d_g), (a, 1, d_g)
    ) / (d_g * (d_g - 1))
    return written_as(
        SCALE
        * (c_R * tau + c_S * (d_g - 2) / (d_g - 1) * tau + c_S / (d_g - 1) - 1 / N),
        off,
    )


@cache
def update_of_pair() -> sp.Expr:
    """Update of the overlap of a student's matrix with any teacher of a group. It
    depends on that teacher only through its overlap with the matrix's own teacher.
    """
    tau_group = definitions.overlap_equations()["tau_bar_group"].rhs
    update = projected_update(b, a).subs(
        definitions.mean_overlap(b, a), definitions.tau_ab
    )
    update = update.subs(tau, tau_group)
    spell = {c_S: 1 - c_R, c_R: mean_field.logit_equations()["c_R"].rhs}
    return written_as(
        SCALE * A * (definitions.tau_ab - 1 / N), update.subs(c_S, 1 - c_R).subs(spell)
    )


@cache
def overlap_of_pair() -> sp.Expr:
    """Growth of the overlap with any teacher in terms of the growth of R, since the
    ratio of the two updates is constant.
    """
    ratio = update_of_pair() / update_of_pair().subs(definitions.tau_ab, 1)
    return written_as(
        (N * definitions.tau_ab - 1) / (N - 1) * (R - R_0), sp.cancel(ratio) * (R - R_0)
    )


def over_seeds(update: sp.Expr, form: sp.Expr) -> sp.Expr:
    """Update averaged over independent teachers, collected by attention; ``form`` is
    the printed grouping.
    """
    coefficients = {
        c_S: 1 - c_R,
        tau: definitions.overlap_equations()["tau_bar_iid"].rhs,
    }
    mean = update.subs(coefficients).subs(c_R, mean_field.logit_equations()["c_R"].rhs)
    return written_as(eta * EPOCH * g * form, mean)


@cache
def equations() -> Equations:
    """Updates at finite teacher overlap, their averages over teachers, and the equation
    of attention.
    """
    seeds = "averaged over independent permutations"
    return table(
        ref,
        MEAN_FIELD,
        status="exact",
        delta_R=(Delta_R, update_on_target, "Eqs. (53)-(54)"),
        delta_S=(Delta_S, update_off_target, "Eqs. (55)-(56)", "d_g >= 3"),
        delta_R_mean=(
            Delta_R,
            lambda: over_seeds(update_on_target(), A + (1 - A) / d_g),
            "Eq. (59a)",
            seeds,
        ),
        delta_S_mean=(
            Delta_S,
            lambda: over_seeds(update_off_target(), (1 - A) / d_g),
            "Eq. (59b)",
            seeds,
        ),
        delta_S_ab=(
            Delta_S_ab,
            update_of_pair,
            "beyond Eqs. (53)-(56): one pair of a group",
            *definitions.GROUP,
        ),
        S_ab=(
            S_ab - S_ab0,
            overlap_of_pair,
            "beyond Eq. (59): one overlap per class of a^-1 b",
            *definitions.GROUP,
        ),
        # One epoch of descent on W moves A by -eta |grad A|^2 dl/dA, and c(A) = d_g N
        # |grad A|^2.
        dA_dalpha_chain=(
            sp.Derivative(A, alpha),
            lambda: -eta * c_A * mean_field.equations()["dloss_dA"].rhs,
            "Eqs. (60)-(64)",
            "small steps",
            "A is the only route from the loss to W_Q, W_K",
        ),
    )


def _option(field: str, value: str, table: Mapping[str, Any]) -> Any:
    if value not in table:
        raise ParameterError(f"{field} = {value!r}: must be one of {', '.join(table)}")
    return table[value]


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
    eq = equations()
    mean = mean_field.logit_equations()
    spell = {c_S: mean["c_S"].rhs, c_R: mean["c_R"].rhs}
    overlap = _option(
        "teacher_overlap",
        teacher_overlap,
        {
            "iid": None,
            "tau": tau,
            "distinct": definitions.overlap_equations()["tau_bar_distinct"].rhs,
            "group": definitions.overlap_equations()["tau_bar_group"].rhs,
        },
    )
    factor = _option(
        "closure", closure, {"closure": "c_closure", "ansatz": "c_ansatz_mean"}
    )
    if overlap is None:
        dR = eq["delta_R_mean"].rhs / EPOCH
        dS = eq["delta_S_mean"].rhs / EPOCH
    else:
        dR, dS = (
            (eq[x].rhs / EPOCH).subs(spell).subs(tau, overlap)
            for x in ("delta_R", "delta_S")
        )
    closed = attention.equations()[factor]
    c_of_A = closed.rhs
    dA = eq["dA_dalpha_chain"].rhs.subs(c_A, c_of_A)
    return Flow(
        name="state_tracking",
        time=alpha,
        rhs={A: dA, R: dR, S: dS},
        initial={A: A_0, R: R_0, S: S_0},
        reference=ref("Eq. (15)"),
        status="closure",
        assumptions=(
            MEAN_FIELD,
            mean_field.EXCHANGEABLE,
            *closed.assumptions,
            "gradient flow",
        ),
        where=mean_field.abbreviations(),
        observables={
            "logit_correct": mean["logit_correct"].rhs,
            "logit_other": mean["logit_other"].rhs,
            "loss": mean_field.equations()["loss_of_margin"].rhs,
            "c_A": c_of_A,
        },
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
    g_limit = sp.limit(mean_field.equations()["g"].rhs.subs(N, size), size, sp.oo)
    return Flow(
        name="state_tracking, thermodynamic limit",
        time=alpha,
        rhs={
            x: leading(expr.subs(g, g_limit), L if x == A else sp.S.One)
            for x, expr in full.rhs.items()
        },
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
    rate = {x: sp.factor(rhs.subs(at_start)) for x, rhs in flow().expanded.items()}
    grown = {
        f"early_{x.name}": (x, sp.integrate(rate[x], (alpha, 0, alpha))) for x in (R, S)
    }
    return table(
        ref("Eq. (78)"), *ASSUMED, status="leading order", early_A=(A, A_0), **grown
    )


# Momentum and schedules


@cache
def momentum_equations() -> dict[str, Equation]:
    """Those of `theory.dynamics.clocks`."""
    place = ref("beyond the paper: momentum as a filter of gradients")
    return {name: replace(e, reference=place) for name, e in clocks.equations().items()}
