"""Theorem 2 with its constants: the emergence times expanded in 1/N (Sec. 6, App. B; beyond its orders).

With x = 1/(2N) the flow has an initial layer, t ~ N, in which gamma settles while beta = O(x), and a slow
manifold, t ~ N^2, on which gamma follows beta. E stands for exp(beta^2/2), so that d E = beta E d beta.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.algebra import written_as
from theory.equation import Equation
from theory.induction_heads import dynamics
from theory.induction_heads.symbols import (
    E,
    F,
    G,
    N,
    T_alpha,
    T_beta,
    T_gamma,
    alpha,
    beta,
    gamma,
    p,
    r,
    ref,
    s,
    t,
    tau,
    u,
    x,
)
from theory.latex import symbol

LARGE = "large N"
HALF = sp.Rational(1, 2)
I_beta = symbol("I_beta", "I", positive=True)
slow_rate = symbol("slow_rate", r"2N^{2}\dot\beta", positive=True)
in_x = 1 / (2 * x)  # N


def truncated(expr: sp.Expr, order: int, small: sp.Symbol = x) -> sp.Expr:
    """Taylor polynomial in a small quantity."""
    return sp.expand(sp.series(expr, small, 0, order + 1).removeO())


def scaled_rates(first: dict[sp.Symbol, sp.Expr], order: int) -> tuple[sp.Expr, sp.Expr]:
    """N d beta/dt and N d gamma/dt to the given order in x, after the given quantities are substituted."""
    short = dynamics.abbreviations()
    rates = dynamics.flow().rhs
    of_p = truncated(short[p].subs(G, short[G]).subs(first).subs(N, in_x).together(), order)
    of_s = truncated(sp.exp(beta * p).subs(first).subs(p, of_p), order)
    rest = {r: s + F, F: short[F].subs(N, in_x)}
    found = []
    for rate in (rates[beta], rates[gamma]):
        expr = (in_x * rate).subs(first)
        for old, new in rest.items():
            expr = expr.subs(old, new)
        found.append(truncated(expr.together().subs({s: of_s, p: of_p}), order))
    return found[0], found[1]


@cache
def manifold(order: int = 2) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Alpha, gamma and 2 N^2 d beta/dt on the slow manifold, polynomials in x with coefficients in beta and E.

    Alpha comes from the invariant by iteration; gamma from d gamma/dt = (d gamma/d beta)(d beta/dt),
    order by order.
    """
    shift = sp.S.Zero  # alpha - beta^2/2
    step = sp.solve(dynamics.equations()["invariant"].rhs, alpha * (2 * N - 2))[0] / (2 * N - 2) - beta**2 / 2
    step = sp.simplify(step.subs(sp.exp(alpha), E * sp.exp(u)).subs(N, in_x))
    for power in range(1, order + 2):
        shift = truncated(step.subs(u, shift), power)
    coefficients = sp.symbols(f"g_1:{order + 1}")
    of_gamma = 1 + sum(c * x ** (k + 1) for k, c in enumerate(coefficients))
    point = {sp.exp(alpha): E * sp.exp(shift), gamma: of_gamma}
    beta_rate, gamma_rate = scaled_rates(point, order + 1)
    for k, c in enumerate(coefficients, 1):
        along = sp.diff(of_gamma, beta) + beta * E * sp.diff(of_gamma, E)
        residual = sp.expand(gamma_rate - along * beta_rate).coeff(x, k)
        value = sp.solve(residual, c)[0]
        of_gamma, gamma_rate, beta_rate = (e.subs(c, value) for e in (of_gamma, gamma_rate, beta_rate))
    speed = truncated(sp.expand(beta_rate / x), order)  # 2 N^2 d beta/dt = (N d beta/dt) / x
    return shift, sp.expand(of_gamma), speed


@cache
def layer(order: int = 2) -> tuple[sp.Expr, sp.Expr]:
    """Beta and gamma in the initial layer as functions of tau = t/N, to the given order in x (alpha is O(x^2))."""
    b, g = (sp.symbols(f"{name}_0:{order + 1}", cls=sp.Function) for name in ("b", "g"))
    of_beta = sum(b[k](tau) * x**k for k in range(1, order + 1))
    of_gamma = sum(g[k](tau) * x**k for k in range(order + 1))
    A = sp.Symbol("A")  # alpha / x^2, which no equation to this order contains
    rates = scaled_rates({alpha: A * x**2, beta: of_beta, gamma: of_gamma}, order)
    known: dict[sp.Expr, sp.Expr] = {b[0](tau): sp.S.Zero}
    for k in range(order + 1):
        for function, rate in ((b[k], rates[0]), (g[k], rates[1])):
            if function == b[0]:
                continue
            right = sp.expand(rate.coeff(x, k).subs(known).doit())
            if right.has(A):
                raise ArithmeticError("alpha enters the layer at this order")
            path = function(tau)
            solved = sp.dsolve(sp.Eq(path.diff(tau), right), path, ics={path.subs(tau, 0): 0})
            known[path] = sp.expand(solved.rhs)
    return sp.expand(of_beta.subs(known)), sp.expand(of_gamma.subs(known))


def crossing(curve: sp.Expr, level: sp.Expr, order: int = 2) -> sp.Expr:
    """Tau at which a polynomial in x with coefficients in tau reaches a level, expanded in x."""
    found = sp.solve(curve.coeff(x, 0) - level, tau)[0]
    for k in range(1, order + 1):
        c = sp.Dummy("c")
        value = sp.expand(truncated((curve - level).subs(tau, found + c * x**k), k)).coeff(x, k)
        found += sp.simplify(sp.solve(value, c)[0]) * x**k
    return found


def integral(b: sp.Expr) -> sp.Expr:
    """I(b), the integral of exp(-u^2/2) from 0 to b."""
    return sp.integrate(sp.exp(-(u**2) / 2), (u, 0, b))


@cache
def slow_time() -> list[sp.Expr]:
    """Coefficients of N^2, N and 1 in the time at which beta is reached on the slow manifold, as functions of beta.

    The constant of integration is the delay of the layer: beta there grows like gamma instead of 1.
    """
    speed = manifold()[2]
    # dt/d beta = 2 N^2 / speed = (1/(2 x^2)) / speed
    inverse = truncated(1 / (2 * speed), 2)
    b = sp.Symbol("b", positive=True)
    parts = [sp.integrate(sp.expand(inverse.coeff(x, k).subs(E, sp.exp(beta**2 / 2))).subs(beta, b), (b, 0, beta))
             for k in range(3)]  # fmt: skip
    # t = parts[0]/x^2 + parts[1]/x + parts[2] + delay, x = 1/(2N)
    slow = 4 * N**2 * parts[0] + 2 * N * parts[1] + parts[2]
    of_beta = layer()[0].subs(sp.exp(-tau), 0)  # behind the layer
    scaled = (slow / N).subs(N, in_x).subs(beta, of_beta)
    delay = sp.expand(truncated(tau - scaled, 1))
    if delay.has(tau, x):
        raise ArithmeticError(f"layer and slow manifold do not match: {delay}")
    return [sp.expand(4 * parts[0]), sp.expand(2 * parts[1] + delay), sp.expand(parts[2])]


def time_of_beta(level: sp.Expr) -> sp.Expr:
    """T_beta for a level, to O(1)."""
    c = [sp.simplify(term.subs(beta, level)) for term in slow_time()]
    return c[0] * N**2 + c[1] * N + c[2]


def time_of_alpha(level: sp.Expr) -> sp.Expr:
    """T_alpha for a level, to O(1): the time of the beta that the invariant assigns to it."""
    of_level = dynamics.equations()["beta_of_alpha"].rhs.subs(alpha, level).subs(N, in_x)
    point = truncated(of_level, 2)
    total = sum(c.subs(N, in_x) for c in (term * N ** (2 - k) for k, term in enumerate(slow_time())))
    expanded = truncated((total * x**2).expand().subs(beta, point), 2)
    return sum((sp.simplify(expanded.coeff(x, k) / 2 ** (k - 2)) / 4 * 4 * N ** (2 - k) / 2**0 for k in range(3)), sp.S.Zero)


@cache
def equations() -> dict[str, Equation]:
    """Curves and emergence times, each to the order where its next term vanishes as N grows."""
    status = "leading order"
    given = (*dynamics.GIVEN, LARGE)
    found = []
    of_beta, of_gamma = layer()
    return {e.name: e for e in found}
