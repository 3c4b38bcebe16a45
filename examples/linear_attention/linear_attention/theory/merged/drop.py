"""White data (Lambda = I), one matrix: the logistic drop, balanced or not, and the effect of a
finite step.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from linear_attention.theory import symbols as S
from linear_attention.theory import task
from linear_attention.theory.merged import dynamics
from linear_attention.theory.scope import WHITE_DATA
from linear_attention.theory.symbols import D, along, c, d, kappa, s_0, scale, t, value
from theory.algebra import vanishes, written_as
from theory.equation import Equation
from theory.flow import Flow
from theory.notation import symbol

WHITE = "Lambda = I, W = s I"
BALANCED = "v = u"
LEVEL = "the drop is at c s = 1/2, where three quarters of what goes are gone"
HALF = 1 / (2 * c)


@cache
def rates() -> tuple[sp.Expr, sp.Expr]:
    """Rates of the value v and of u = |U|_F, with u_d = u / sqrt(D)."""
    known = dynamics.equations()
    same = {S.u[d]: along / sp.sqrt(D), S.lam[d]: 1, S.a[d]: c}
    of_value = D * known["merged_dvalue_dt"].rhs.function.subs(same)
    return of_value, sp.sqrt(D) * known["merged_du_dt"].rhs.subs(same)


@cache
def speed() -> sp.Expr:
    """Rate of s = v u / sqrt(D) at given kappa = v^2 - u^2, which is conserved."""
    of_value, of_u = rates()
    both = sp.sqrt(kappa**2 + 4 * D * scale**2)  # v^2 + u^2
    if not vanishes(value * of_value - along * of_u):
        raise ArithmeticError("v^2 - u^2 is not conserved")
    weights = {kappa: value**2 - along**2, scale: value * along / sp.sqrt(D)}
    written_as(both.subs(weights) ** 2, (value**2 + along**2) ** 2)
    moved = (of_value * along + value * of_u) / sp.sqrt(D)
    written_as((value**2 + along**2) * (1 - c * scale).subs(weights), moved)
    return both * (1 - c * scale)


def balanced(at: sp.Expr = scale) -> sp.Expr:
    """Rate of s at v = u."""
    return speed().subs({kappa: 0, scale: s_0}).subs(s_0, at)


@cache
def unbalanced_time() -> sp.Expr:
    """Time from s_0 to the drop at kappa > 0, in x where 2 sqrt(D) s = kappa (x - 1/x) / 2."""
    x, b = sp.symbols("x b", positive=True)  # b = c kappa / (2 sqrt(D))
    of_x = kappa * (x - 1 / x) / (4 * sp.sqrt(D))
    root = kappa * (x + 1 / x) / 2  # sqrt(kappa^2 + 4 D s^2)
    if not vanishes(root**2 - kappa**2 - 4 * D * of_x**2):
        raise ArithmeticError("x does not take the root")
    integrand = sp.diff(of_x, x) / (root * (1 - c * of_x)).subs(c, 2 * sp.sqrt(D) * b / kappa)
    low, high = (1 - sp.sqrt(1 + b**2)) / b, (1 + sp.sqrt(1 + b**2)) / b  # zero of the force
    total = sp.log((x - low) / (high - x)) / (2 * sp.sqrt(D) * sp.sqrt(1 + b**2))
    written_as(sp.simplify(integrand), sp.diff(total, x))
    ends = [2 * sp.sqrt(D) * y / kappa + sp.sqrt(1 + 4 * D * y**2 / kappa**2) for y in (s_0, HALF)]
    first, last = (total.subs(x, y).subs(b, c * kappa / (2 * sp.sqrt(D))) for y in ends)
    return last - first


@cache
def step_shift() -> sp.Expr:
    """Correction of the time by Euler steps (v = u)."""
    start, end = (sp.sqrt(sp.sqrt(D) * y) for y in (s_0, HALF))
    added = task.euler(rates()[1].subs(value, along), along, start, end)
    return added.replace(sp.log, lambda x: sp.log(sp.simplify(x)))


@cache
def equations() -> dict[str, Equation]:
    """Rate, solution and time of the drop, and its corrections by kappa and a finite step."""
    distance = 1 / (c * scale) - 1  # decays at a constant rate
    pace = sp.cancel(-sp.diff(sp.log(distance), scale) * balanced())
    away = distance.subs(scale, s_0)
    time = sp.log(away) / pace  # the distance is 1 at the drop
    given = (WHITE, BALANCED, LEVEL)
    course = 1 / (c * (1 + away * sp.exp(-pace * t)))
    return {
        **S.table(
            "merged: white data, time course",
            *given,
            status="exact",
            merged_s=(symbol("s_t", "s(t)", "value times weight per direction at t"), course),
            T_drop=(S.drop, time),
        ),
        **S.table(
            "beyond: merged, white data, unbalanced start",
            WHITE,
            "kappa = v^2 - u^2 > 0",
            LEVEL,
            status="exact",
            merged_ds_dt=(sp.Derivative(scale, t), speed),
            T_unbalanced=(S.drop, unbalanced_time),
        ),
        **S.table(
            "beyond: merged, white data, finite step",
            *given,
            "gradient descent, eta -> 0",
            status="leading order",
            T_step=(S.drop, lambda: time + step_shift()),
        ),
    }


def flow() -> Flow:
    """The logistic flow."""
    place, given = "zhang2025, merged: white data, time course", (WHITE, BALANCED)
    return Flow(
        "merged_white",
        t,
        {scale: balanced()},
        {scale: s_0},
        place,
        "exact",
        given,
        scope=WHITE_DATA,
    )
