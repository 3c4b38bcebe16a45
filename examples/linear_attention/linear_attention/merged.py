"""One matrix for key and query: flow of the heads, invariants, growth from zero; one
effective head at any Lambda; and for white data the logistic drop, balanced or not,
with the effect of a step.
"""

from functools import partial

import sympy as sp

from linear_attention import statement as S
from linear_attention.parameters import MERGED, WHITE_DATA, Parameters, applies
from linear_attention.statement import (
    D,
    U,
    c,
    d,
    g,
    h,
    i,
    j,
    k,
    kappa,
    l,
    lam,
    rate,
    t,
    u,
)
from theory import (
    Equation,
    Flow,
    delta_sum,
    factored,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.dynamics.catalogue import cache, catalogue
from theory.dynamics.clocks import delay
from theory.statement.evaluation.wick import at_size

__all__ = ["Parameters", "applies", "equations", "flows", "sections"]
along, scale, s_0, value = S.along, S.scale, S.s_0, S.value
HEADS = "W = sum_h v_h U_h"
ONE = "U = diag(u_d), one effective head"
WHITE, BALANCED = "Lambda = I, W = s I", "v = u"
LEVEL = "the drop is at c s = 1/2, where three quarters of what goes are gone"
S_DROP = 1 / (2 * c)  # s there
of = sp.Derivative


@cache
def dynamics() -> dict[str, Equation]:
    """Rates of the heads, invariants, early growth, and one effective head for any
    Lambda.
    """
    v, both = S.v, ((i, 1, D), (j, 1, D))
    of_v, of_U = S.rates(v[h] * U[h, i, j], v[g], U[g, k, l], over=())
    moved = sp.S.Zero  # d/dt of v_g v_h - tr(U_g^T U_h), under one sum
    for one, other in ((g, h), (h, g)):
        moved += of_v.function.subs(g, one) * v[other]
        moved -= of_U.subs({g: one, k: i, l: j}) * U[other, i, j]
    proved(sp.expand(moved) == 0, "v_g v_h - tr(U_g^T U_h) is not conserved")
    # Early: G = Lambda^2. Only the component of U along Lambda^2 contributes: u =
    # tr(U^T Lambda^2) / rate.
    size = sp.Sum(
        delta_sum(S.early_force() ** 2, (j, 1, D)), (i, 1, D)
    )  # |Lambda^2|_F^2
    matrix = sp.Matrix([[0, rate], [size / rate, 0]]).subs(size, rate**2)  # of (v, u)
    start = sp.Matrix([value, along])
    grown = start * sp.cosh(rate * t) + start.permute([1, 0]) * sp.sinh(rate * t)
    proved(
        grown.subs(t, 0) == start
        and (grown.diff(t) - matrix * grown).expand().is_zero_matrix,
        "v and u do not grow together",
    )
    pull = S.diagonal_force(value * u[k])  # one head along the eigenvectors stays there
    kept = symbol("kappa_gh", r"\kappa_{gh}", "invariant of two heads")
    heads = dict(
        merged_dv_dt=(of(v[g], t), of_v),
        merged_dU_dt=(of(U[g, k, l], t), of_U),
        merged_invariant=(kept, v[g] * v[h] - sp.Sum(U[g, i, j] * U[h, i, j], *both)),
    )
    early = dict(
        merged_rate=(rate, sp.sqrt(size)),
        merged_v_early=(symbol("v_t", "v(t)", "value at t"), grown[0]),
        merged_u_early=(symbol("u_t", "u(t)", "weight along Lambda^2 at t"), grown[1]),
    )
    one_head = dict(
        merged_dvalue_dt=(of(value, t), sp.Sum(u[d] * pull, (d, 1, D))),
        merged_du_dt=(of(u[d], t), value * pull),
    )
    small = ("W = 0 in the force", "any head; v and u at t = 0")
    return {
        **S.table(
            "merged: gradient flow and conservation law", HEADS, status="exact", **heads
        ),
        **S.table("merged: early dynamics", *small, status="leading order", **early),
        **S.table("merged: any Lambda", ONE, status="exact", **one_head),
    }


@cache
def flow(size: int) -> Flow:
    """Flow of the value and D = ``size`` directions of one effective head, starting
    from sqrt(P_0) along Lambda^2.
    """
    start = sp.sqrt(S.P_0)
    write = partial(at_size, numbers={D: size})
    loss = S.trace - sp.Sum(S.gained(value * u[d]), (d, 1, D))
    of_value, of_u = (dynamics()[f"merged_d{x}_dt"].rhs for x in ("value", "u"))
    each = {n: (u[d], of_u, start * lam[d] ** 2 / rate) for n in range(1, size + 1)}
    rows = [
        (value, of_value, start),
        *([x.subs(d, n) for x in row] for n, row in each.items()),
    ]
    rates, initial = ({write(row[0]): write(row[k]) for row in rows} for k in (1, 2))

    given = (
        "zhang2025, merged: any Lambda",
        "leading order",
        (ONE, "heads collapse to one while W is small"),
    )
    seen = {"loss": write(loss)}
    return Flow(
        f"merged_{size}", t, rates, initial, *given, observables=seen, scope=MERGED
    )


@cache
def rates() -> tuple[sp.Expr, sp.Expr]:
    """White data: rates of the value v and of u = |U|_F, with u_d = u / sqrt(D)."""
    known = dynamics()
    same = {u[d]: along / sp.sqrt(D), lam[d]: 1, S.a[d]: c}
    of_value = D * known["merged_dvalue_dt"].rhs.function.subs(same)
    return of_value, sp.sqrt(D) * known["merged_du_dt"].rhs.subs(same)


@cache
def speed() -> sp.Expr:
    """Rate of s = v u / sqrt(D) at given kappa = v^2 - u^2, which is conserved."""
    of_value, of_u = rates()
    both = sp.sqrt(kappa**2 + 4 * D * scale**2)  # v^2 + u^2
    proved(vanishes(value * of_value - along * of_u), "v^2 - u^2 is not conserved")
    weights = {kappa: value**2 - along**2, scale: value * along / sp.sqrt(D)}
    written_as(both.subs(weights) ** 2, (value**2 + along**2) ** 2)
    moved = (of_value * along + value * of_u) / sp.sqrt(D)
    written_as((value**2 + along**2) * (1 - c * scale).subs(weights), moved)
    return both * (1 - c * scale)


def balanced() -> sp.Expr:
    """Rate of s at v = u."""
    return (
        speed().subs({kappa: 0, scale: s_0}).subs(s_0, scale)
    )  # s_0 > 0: the root of s^2 is s


@cache
def unbalanced_time() -> sp.Expr:
    """Time from s_0 to the drop at kappa > 0, in x where 2 sqrt(D) s = kappa (x - 1/x)
    / 2.
    """
    x, b = sp.symbols("x b", positive=True)  # b = c kappa / (2 sqrt(D))
    of_x = kappa * (x - 1 / x) / (4 * sp.sqrt(D))
    root = kappa * (x + 1 / x) / 2  # sqrt(kappa^2 + 4 D s^2)
    proved(vanishes(root**2 - kappa**2 - 4 * D * of_x**2), "x does not take the root")
    integrand = sp.diff(of_x, x) / (root * (1 - c * of_x)).subs(
        c, 2 * sp.sqrt(D) * b / kappa
    )
    low, high = (
        (1 - sp.sqrt(1 + b**2)) / b,
        (1 + sp.sqrt(1 + b**2)) / b,
    )  # zero of the force
    total = sp.log((x - low) / (high - x)) / (2 * sp.sqrt(D) * sp.sqrt(1 + b**2))
    written_as(factored(integrand), sp.diff(total, x))
    ends = [
        2 * sp.sqrt(D) * y / kappa + sp.sqrt(1 + 4 * D * y**2 / kappa**2)
        for y in (s_0, S_DROP)
    ]
    first, last = (total.subs(x, y).subs(b, c * kappa / (2 * sp.sqrt(D))) for y in ends)
    return last - first


@cache
def step_shift() -> sp.Expr:
    """Correction of the time by Euler steps (v = u)."""
    start, end = (sp.sqrt(sp.sqrt(D) * y) for y in (s_0, S_DROP))
    added = delay(rates()[1].subs(value, along), along, start, end, S.eta)
    return added.replace(sp.log, lambda x: sp.log(factored(x)))


@cache
def drop() -> dict[str, Equation]:
    """Rate, solution and time of the drop, and its corrections by kappa and a finite
    step.
    """
    distance = 1 / (c * scale) - 1  # decays at a constant rate, and is 1 at the drop
    pace = sp.cancel(-sp.diff(sp.log(distance), scale) * balanced())
    away = distance.subs(scale, s_0)
    time = sp.log(away) / pace
    course = 1 / (c * (1 + away * sp.exp(-pace * t)))
    white = (WHITE, BALANCED, LEVEL)
    uneven = (WHITE, "kappa = v^2 - u^2 > 0", LEVEL)
    of_t = symbol("s_t", "s(t)", "value times weight per direction at t")
    logistic = dict(merged_s=(of_t, course), T_drop=(S.drop, time))
    beyond = dict(
        merged_ds_dt=(of(scale, t), speed), T_unbalanced=(S.drop, unbalanced_time)
    )
    stepped = dict(
        T_step=(S.drop, lambda: time + step_shift(), "gradient descent, eta -> 0")
    )
    of_steps = "beyond: merged, white data, finite step"
    return {
        **S.table(
            "merged: white data, time course", *white, status="exact", **logistic
        ),
        **S.table(
            "beyond: merged, white data, unbalanced start",
            *uneven,
            status="exact",
            **beyond,
        ),
        **S.table(of_steps, *white, status="leading order", **stepped),
    }


def white_flow() -> Flow:
    """The logistic flow."""
    given = "zhang2025, merged: white data, time course", "exact", (WHITE, BALANCED)
    return Flow(
        "merged_white", t, {scale: balanced()}, {scale: s_0}, *given, scope=WHITE_DATA
    )


flows, sections, equations = catalogue(
    {"Task": [S], "Merged key and query": [dynamics], "Merged: white data": [drop]},
    white_flow,
    partial(flow, 4),
)
