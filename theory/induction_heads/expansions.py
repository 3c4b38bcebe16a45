"""Theorem 2 with its constants: the emergence times expanded in 1/N (Sec. 6, App. B; beyond its orders).

With x = 1/(2N) the flow has an initial layer, t ~ N, in which gamma settles while beta = O(x), and a slow
manifold, t ~ N^2, on which gamma follows beta. E stands for exp(beta^2/2), so that d E = beta E d beta.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

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
theta = symbol("theta", positive=True)  # threshold
T_beta_theta = symbol("T_beta_theta", r"T_{\beta}(\theta)", positive=True)
T_alpha_theta = symbol("T_alpha_theta", r"T_{\alpha}(\theta)", positive=True)
slow_rate = symbol("slow_rate", r"2N^{2}\dot\beta", positive=True)
in_x = 1 / (2 * x)  # N
MARGIN = 4  # orders that leading powers of x may cancel on the way


def truncated(expr: sp.Expr, order: int, small: sp.Symbol = x) -> sp.Expr:
    """Taylor polynomial of an expression built from sums, products, powers and functions.

    The same as ``sympy.series`` but by arithmetic on coefficients, several times faster.
    """
    size = order + MARGIN
    first, coefficients = _laurent(sp.sympify(expr, strict=True), size, small)
    return sp.expand(
        sum((c * small ** (first + k) for k, c in enumerate(coefficients) if first + k <= order), sp.S.Zero)
    )


def _laurent(expr: sp.Expr, size: int, small: sp.Symbol) -> tuple[int, list[sp.Expr]]:
    """Lowest power and the coefficients from there on, the first of them not zero."""
    if not expr.has(small):
        return 0, [expr] + [sp.S.Zero] * (size - 1)
    if expr == small:
        return 1, [sp.S.One] + [sp.S.Zero] * (size - 1)
    if expr.is_Add:
        parts = [_laurent(a, size, small) for a in expr.args]
        low = min(v for v, _ in parts)
        total = [sp.Add(*(c[k - v + low] for v, c in parts if 0 <= k - v + low < size)) for k in range(size)]
        return _leading(low, [sp.expand(c) for c in total])
    if expr.is_Mul:
        low, product = 0, [sp.S.One] + [sp.S.Zero] * (size - 1)
        for v, c in (_laurent(a, size, small) for a in expr.args):
            low += v
            product = [sp.expand(sp.Add(*(product[i] * c[k - i] for i in range(k + 1)))) for k in range(size)]
        return low, product
    if isinstance(expr, sp.exp):
        v, c = _laurent(expr.exp, size, small)
        if v < 0:
            raise ValueError(f"{expr}: no Taylor series")
        shifted = ([sp.S.Zero] * v + c)[:size]
        found = [sp.exp(shifted[0])]
        for k in range(1, size):  # f' = g' f
            found.append(sp.expand(sp.Add(*(i * shifted[i] * found[k - i] for i in range(1, k + 1))) / k))
        return 0, found
    if expr.is_Pow and not expr.exp.has(small):
        v, c = _laurent(expr.base, size, small)
        power = expr.exp
        found = [c[0] ** power]
        for k in range(1, size):  # g f' = power g' f
            terms = ((power * i - (k - i)) * c[i] * found[k - i] for i in range(1, k + 1))
            found.append(sp.expand(sp.Add(*terms) / (k * c[0])))
        return int(v * power), found
    if isinstance(expr, sp.Function) and len(expr.args) == 1:
        v, c = _laurent(expr.args[0], size, small)
        if v < 0:
            raise ValueError(f"{expr}: no Taylor series")
        shifted = ([sp.S.Zero] * v + c)[:size]
        z = sp.Dummy("z")
        low, rate = _laurent(sp.diff(expr.func(z), z).subs(z, expr.args[0]), size, small)
        rate = ([sp.S.Zero] * low + rate)[:size]
        found = [expr.func(shifted[0])]
        for k in range(1, size):  # h' = f'(g) g'
            found.append(sp.expand(sp.Add(*(i * shifted[i] * rate[k - i] for i in range(1, k + 1))) / k))
        return _leading(0, found)
    raise ValueError(f"{expr}: not a sum, product, power or function")


def _leading(low: int, coefficients: list[sp.Expr]) -> tuple[int, list[sp.Expr]]:
    """Drop leading zeros."""
    zeros = next((k for k, c in enumerate(coefficients) if c != 0), 0)
    return low + zeros, coefficients[zeros:] + [sp.S.Zero] * zeros


def scaled_rates(first: dict[sp.Symbol, sp.Expr], order: int) -> tuple[sp.Expr, sp.Expr]:
    """N d beta/dt and N d gamma/dt to the given order in x, after the given quantities are substituted."""
    short = dynamics.abbreviations()
    rates = dynamics.flow().rhs
    of_p = truncated(short[p].subs(G, short[G]).subs(first).subs(N, in_x), order)
    of_s = truncated(sp.exp(beta * p).subs(first).subs(p, of_p), order)
    rest = {r: s + F, F: short[F].subs(N, in_x)}
    found = []
    for rate in (rates[beta], rates[gamma]):
        expr = (in_x * rate).subs(first)
        for old, new in rest.items():
            expr = expr.subs(old, new)
        found.append(truncated(expr.subs({s: of_s, p: of_p}), order))
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
    return sum((sp.simplify(c.subs(beta, level)) * N ** (2 - k) for k, c in enumerate(slow_time())), sp.S.Zero)


def time_of_alpha(level: sp.Expr) -> sp.Expr:
    """T_alpha for a level, to O(1): the time of the beta that the invariant assigns to it."""
    of_level = dynamics.equations()["beta_of_alpha"].rhs.subs(alpha, level).subs(N, in_x)
    scaled = sum(c * x**k / 2 ** (2 - k) for k, c in enumerate(slow_time()))  # t x^2
    expanded = truncated(scaled.subs(beta, truncated(of_level, 2)), 2)
    return sum((sp.simplify(expanded.coeff(x, k)) * (2 * N) ** (2 - k) for k in range(3)), sp.S.Zero)


@cache
def equations() -> dict[str, Equation]:
    """Curves and emergence times, each to the order where its next term vanishes as N grows."""
    of_beta, of_gamma = layer()
    shift, slow_gamma, speed = (part.subs(E, sp.exp(beta**2 / 2)) for part in manifold())
    given, new = (*dynamics.GIVEN, LARGE), dynamics.NEW
    early, late = "t of order N", "t >> N, beta of order 1"
    half_gamma = sp.expand(N * crossing(of_gamma, HALF).subs(x, 1 / (2 * N)))
    total = sum(c * N ** (2 - k) for k, c in enumerate(slow_time()))
    leading = 2 * N**2 * integral(theta)
    rows = [
        ("gamma_layer", gamma, sp.collect(of_gamma, x), "Theorem 2, B.6", early),
        ("beta_layer", beta, sp.collect(of_beta, x), "Theorem 2, B.6", early),
        ("alpha_slow", alpha, beta**2 / 2 + sp.collect(truncated(shift, 2), x), new, late),
        ("gamma_slow", gamma, sp.collect(slow_gamma, x), new, late),
        ("slow_rate", slow_rate, sp.collect(speed, x), new, late),
        ("slow_time", t, sp.collect(total, N), new, late),
        ("T_gamma", T_gamma, half_gamma, f"Theorem 2, Eq. (10), {new}", "next term O(1/N^2)"),
        ("T_beta", T_beta, time_of_beta(HALF), f"Theorem 2, Eq. (10), {new}", "next term O(1/N)"),
        ("T_alpha", T_alpha, time_of_alpha(HALF), f"Theorem 2, Eqs. (10)-(11), {new}", "next term O(1/N)"),
        ("T_beta_theta", T_beta_theta, leading, f"{new}: threshold theta for beta", "next term O(N)"),
        ("T_alpha_theta", T_alpha_theta, leading.subs(theta, sp.sqrt(2 * theta)), f"{new}: threshold theta for alpha",
         "next term O(N)"),
    ]  # fmt: skip
    return {name: Equation(name, lhs, rhs, ref(place), "leading order", (*given, when))
            for name, lhs, rhs, place, when in rows}  # fmt: skip
