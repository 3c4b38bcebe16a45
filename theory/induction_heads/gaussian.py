"""Gaussian items, labels and codes of unit variance, the paper's own data: what that changes.

Vectors have squared norm D, not 1. With D alpha and D beta for alpha and beta the loss over D is
that of normalised vectors; gamma moves D times as fast as there, these two D^3 times. For
D >> N^(1/2) attention therefore forms while gamma is still D t/N, in N^(3/2) / D^2 where gamma = 1
would give N^2 / D^3; the loss drops ln 2 / (4 D) later. Times are of unit rate in the numbers, loss
summed over D, and of three numbers: with a uniform query gamma_4 grows with gamma_3 and shifts the
times of beta and alpha. Inner products over D deviate from their means by 1/D in the square:
the loss over D to first order in 1/D is its second derivatives by them times half their variances.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.algebra import vanishes
from theory.equation import Equation
from theory.induction_heads import dynamics, expansions, query
from theory.induction_heads.expansions import theta
from theory.induction_heads.symbols import D, E, F, N, T_drop, alpha, beta, gamma, r, ref, s, tau, x
from theory.notation import symbol

T_beta_theta = symbol(
    "T_beta_theta_unit", r"T_{\beta}(\theta)", "time of D beta = theta", positive=True
)
var_other, var_own, var_swapped = (
    symbol(f"var_{name}", rf"\mathrm{{Var}}\,({tex} / D)", f"variance of {means}", positive=True)
    for name, tex, means in (
        ("other", r"a \cdot b", "the inner product of two different vectors over D"),
        ("own", "|a|^{2}", "a squared norm over D"),
        ("swapped", r"p M p^{\top}", "a code's inner product with its own swap over D"),
    )
)
GIVEN = ("Gaussian data of unit variance", "strict mask")
FAST = ("D >> N^(1/2)", "three numbers", "leading order in 1/N")


@cache
def variances() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Variances of x.y, |x|^2 and x M x^T over D, coordinates independent and standard normal."""
    v = sp.Symbol("v")

    def moment(order: int) -> sp.Expr:
        return sp.diff(sp.exp(v**2 / 2), v, order).subs(v, 0)  # E exp(v x) = exp(v^2 / 2)

    product = moment(2) ** 2 - moment(1) ** 4  # of two coordinates
    square = moment(4) - moment(2) ** 2
    return D * product / D**2, D * square / D**2, D / 2 * 4 * product / D**2


@cache
def fast_time() -> sp.Expr:
    """Time of D beta = theta for the last pair while gamma = D t/N.

    Behind the first steps d(beta)/dt = gamma E / (2 N^2) to leading order for any gamma of order
    one, and alpha = beta^2/2 whatever gamma does, as the invariant holds at any common speed of
    the two.
    """
    shift = expansions.manifold()[0].coeff(x, 0)
    rate, _ = expansions.scaled_rates({sp.exp(alpha): E * sp.exp(shift)}, 2)
    leading = sp.expand(rate).coeff(x, 1)
    if not vanishes(leading - gamma * E):
        raise ArithmeticError(f"rate of beta: {leading}, not linear in gamma")
    growth = sp.series(expansions.layer()[1].coeff(x, 0), tau, 0, 2).removeO()
    t = sp.Symbol("t", positive=True)
    passed = D**3 * sp.integrate(growth.subs(tau, D * t / N), (t, 0, t))
    needed = expansions.equations()["T_beta_theta"].rhs  # the same at gamma = 1
    scale = sp.Symbol("scale", positive=True)  # passed = scale t^2
    return sp.sqrt(needed / scale).subs(scale, passed / t**2)


@cache
def drop_parts() -> tuple[sp.Expr, sp.Expr]:
    """Time until beta runs away, theta to infinity, and then that of gamma until the loss is 1/2,
    from zero and with all attention on the right label.
    """
    rates, loss = dynamics.flow().rhs, dynamics.equations()["loss"].rhs
    late = [sp.limit(expr.subs(r, s + F), s, sp.oo) for expr in (rates[gamma], loss)]
    half = min(sp.solve(late[1] - sp.Rational(1, 2), gamma))
    return sp.limit(fast_time(), theta, sp.oo), sp.integrate(1 / late[0], (gamma, 0, half)) / D


def drop_time(pace: sp.Expr) -> sp.Expr:
    """Time of loss 1/2 where beta moves ``pace`` times as fast as for the last pair."""
    run_away, after = drop_parts()
    return run_away / sp.sqrt(pace) + sp.expand_log(after, force=True)


@cache
def uniform_pace() -> sp.Expr:
    """Rate of beta at the start for a uniform query over that for the last pair: ln N, and the
    constant of the start, which is kept though it is not the next order.
    """
    last = expansions.scaled_rates({alpha: 0, beta: 0}, 1)[0].coeff(x, 1) / (2 * N**2)
    return sp.expand(query.large_initial_slope() / last)


@cache
def equations() -> dict[str, Equation]:
    """Variances of inner products, and emergence times where attention is fast."""
    new = dynamics.NEW
    found = [
        Equation(
            f"gram_variance_{name}",
            lhs,
            lambda k=k: variances()[k],
            ref(f"{new}: Gaussian data"),
            "exact",
            GIVEN[:1],
        )
        for k, (name, lhs) in enumerate(
            {"other": var_other, "own": var_own, "swapped": var_swapped}.items()
        )
    ]
    for name, lhs, rhs, when in (
        ("T_beta_gaussian", T_beta_theta, fast_time, "q = N"),
        ("T_drop_gaussian_last", T_drop, lambda: drop_time(sp.S.One), "q = N"),
        (
            "T_drop_gaussian_uniform",
            T_drop,
            lambda: drop_time(uniform_pace()),
            "uniform q, leading order in 1 / ln N",
        ),
    ):
        place = ref(f"{new}: fast attention, {when}")
        found.append(Equation(name, lhs, rhs, place, "leading order", (*GIVEN, *FAST, when)))
    return {e.name: e for e in found}
