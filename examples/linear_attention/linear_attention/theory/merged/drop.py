"""White data (Lambda = I), one matrix: the logistic drop, balanced or not, and what a finite step
adds.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from linear_attention.theory import symbols as S
from linear_attention.theory.merged import dynamics
from linear_attention.theory.symbols import (
    D,
    a,
    along,
    c,
    d,
    eta,
    kappa,
    lam,
    s_0,
    scale,
    t,
    u,
    value,
)
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
    """Of the value v and of u = |U|_F, where u_d = u / sqrt(D)."""
    known = dynamics.equations()
    same = {u[d]: along / sp.sqrt(D), lam[d]: 1, a[d]: c}
    of_value = D * known["merged_dvalue_dt"].rhs.function.subs(same)
    return of_value, sp.sqrt(D) * known["merged_du_dt"].rhs.subs(same)


@cache
def speed() -> sp.Expr:
    """Of s = v u / sqrt(D) at given kappa = v^2 - u^2, which is conserved."""
    of_value, of_u = rates()
    product = {value: sp.sqrt(D) * scale / along}
    moved = (of_value * along + value * of_u) / sp.sqrt(D)
    both = sp.sqrt(kappa**2 + 4 * D * scale**2)  # v^2 + u^2 = sqrt((v^2 - u^2)^2 + 4 v^2 u^2)
    if not vanishes(value * of_value - along * of_u):
        raise ArithmeticError("v^2 - u^2 is not conserved")
    written_as((value**2 + along**2).subs(product) * (1 - c * scale), moved.subs(product))
    written_as(
        both.subs(kappa, value**2 - along**2) ** 2,
        (value**2 + along**2) ** 2 + 4 * D * scale**2 - 4 * value**2 * along**2,
    )
    return both * (1 - c * scale)


@cache
def decay() -> tuple[sp.Expr, sp.Expr]:
    """At kappa = 0 the distance y = 1/(c s) - 1 decays at a constant rate: y_0, and that rate."""
    distance = 1 / (c * scale) - 1
    pace = sp.simplify(
        sp.diff(distance, scale) * speed().subs(kappa, 0).subs(scale, s_0).subs(s_0, scale)
    )
    return distance.subs(scale, s_0), sp.simplify(-pace / distance)


@cache
def unbalanced_time() -> sp.Expr:
    """Time from s_0 to the drop at kappa > 0, in x where 2 sqrt(D) s = kappa (x - 1/x) / 2."""
    x, b = sp.symbols("x b", positive=True)  # b = c kappa / (2 sqrt(D))
    of_x = kappa * (x - 1 / x) / (4 * sp.sqrt(D))
    root = kappa * (x + 1 / x) / 2  # sqrt(kappa^2 + 4 D s^2)
    if not vanishes(root**2 - kappa**2 - 4 * D * of_x**2):
        raise ArithmeticError("x does not take the root")
    force = speed().subs(kappa, 0) / sp.sqrt(4 * D * scale**2)
    integrand = sp.simplify(
        (sp.diff(of_x, x) / (root * force.subs(scale, of_x))).subs(c, 2 * sp.sqrt(D) * b / kappa)
    )
    low, high = (1 - sp.sqrt(1 + b**2)) / b, (1 + sp.sqrt(1 + b**2)) / b  # where the force vanishes
    total = sp.log((x - low) / (high - x)) / (2 * sp.sqrt(D) * sp.sqrt(1 + b**2))
    written_as(integrand, sp.diff(total, x))
    ends = [2 * sp.sqrt(D) * y / kappa + sp.sqrt(1 + 4 * D * y**2 / kappa**2) for y in (s_0, HALF)]
    first, last = (total.subs(x, y).subs(b, c * kappa / (2 * sp.sqrt(D))) for y in ends)
    return last - first


@cache
def step_shift() -> sp.Expr:
    """What Euler steps add to the time: they follow du/dt = f - (eta/2) f f' (v = u)."""
    pace = rates()[1].subs(value, along)
    ratio = [pace.subs(along, sp.sqrt(sp.sqrt(D) * y)) for y in (HALF, s_0)]
    return eta / 2 * sp.log(sp.simplify(ratio[0] / ratio[1]))


@cache
def equations() -> dict[str, Equation]:
    """Speed, solution and time of the drop; what kappa and a finite step do to it."""
    away, pace = decay()
    given, time = (WHITE, BALANCED, LEVEL), sp.log(away) / pace  # y = 1 at the drop
    course = 1 / (c * (1 + away * sp.exp(-pace * t)))
    return {
        **S.table(
            "merged: white data, time course",
            given,
            merged_s=(symbol("s_t", "s(t)"), course),
            T_drop=(S.drop, time),
        ),
        **S.table(
            "beyond: merged, white data, unbalanced start",
            (WHITE, "kappa = v^2 - u^2 > 0", LEVEL),
            merged_ds_dt=(sp.Derivative(scale, t), speed),
            T_unbalanced=(S.drop, unbalanced_time),
        ),
        **S.table(
            "beyond: merged, white data, finite step",
            (*given, "gradient descent, eta -> 0"),
            "leading order",
            T_step=(S.drop, lambda: time + step_shift()),
        ),
    }


def flow() -> Flow:
    """The logistic flow."""
    pace = equations()["merged_ds_dt"].rhs.subs(kappa, 0)
    balanced = sp.simplify(pace.subs(scale, s_0)).subs(s_0, scale)
    return Flow(
        "merged_white",
        t,
        {scale: balanced},
        {scale: s_0},
        "zhang2025, merged: white data, time course",
        "exact",
        (WHITE, BALANCED),
    )
