"""Theorem 2 with constants: emergence times expanded in 1/N (Sec. 6, App. B, and
beyond).

With x = 1/(2N) the flow has an initial layer, t ~ N, in which gamma relaxes while beta
= O(x), and a slow manifold, t ~ N^2, on which gamma follows beta. E denotes
exp(beta^2/2), so that dE = beta E d beta.
"""

from collections.abc import Sequence
from functools import cache

import sympy as sp

from theory import Equations, proved, symbol, vanishes
from theory.equations import equation
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
from theory.symbols.algebra import truncated
from theory.symbols.fractions import factored
from theory.symbols.notation import Forms

LARGE = "large N"
TIMES = "Theorem 2"
NEXT = "next term O(1/N)"
HALF = sp.Rational(1, 2)
theta = symbol("theta", means="threshold", positive=True)
T_beta_theta = symbol(
    "T_beta_theta", r"T_{\beta}(\theta)", "time of beta = theta", positive=True
)
T_alpha_theta = symbol(
    "T_alpha_theta", r"T_{\alpha}(\theta)", "time of alpha = theta", positive=True
)
slow_rate = symbol(
    "slow_rate", r"2N^{2}\dot\beta", "scaled rate of beta", positive=True
)
in_x = 1 / (2 * x)  # N


def scaled_rates(first: Forms, order: int) -> tuple[sp.Expr, sp.Expr]:
    """N d beta/dt and N d gamma/dt to the given order in x, after the given
    substitutions.
    """
    short = dynamics.abbreviations()
    rates = dynamics.flow().rhs
    of_p = truncated(short[p].subs(G, short[G]).subs(first).subs(N, in_x), order, x)
    of_s = truncated(sp.exp(beta * p).subs(first).subs(p, of_p), order, x)
    meanings = {r: s + F, F: short[F].subs(N, in_x)}
    scaled = []
    for rate in (rates[beta], rates[gamma]):
        expr = (in_x * rate).subs(first)
        for old, new in meanings.items():
            expr = expr.subs(old, new)
        scaled.append(truncated(expr.subs({s: of_s, p: of_p}), order, x))
    return scaled[0], scaled[1]


@cache
def manifold() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Alpha, gamma and 2 N^2 d beta/dt on the slow manifold, polynomials in x with
    coefficients in beta and E.

    Alpha comes from the invariant by iteration; gamma from d gamma/dt = (d gamma/d
    beta)(d beta/dt), order by order.
    """
    shift = sp.S.Zero  # alpha - beta^2/2
    step = (
        sp.solve(dynamics.equations()["invariant"].rhs, alpha * (2 * N - 2))[0]
        / (2 * N - 2)
        - beta**2 / 2
    )
    step = factored(step.subs(sp.exp(alpha), E * sp.exp(u)).subs(N, in_x))
    for power in (1, 2, 3):
        shift = truncated(step.subs(u, shift), power, x)
    coefficients = sp.symbols("g_1 g_2")
    of_gamma = 1 + sum(c * x**k for k, c in enumerate(coefficients, 1))
    point = {sp.exp(alpha): E * sp.exp(shift), gamma: of_gamma}
    beta_rate, gamma_rate = scaled_rates(point, 3)
    for k, c in enumerate(coefficients, 1):
        along = sp.diff(of_gamma, beta) + beta * E * sp.diff(of_gamma, E)
        value = sp.solve(sp.expand(gamma_rate - along * beta_rate).coeff(x, k), c)[0]
        of_gamma, gamma_rate, beta_rate = (
            e.subs(c, value) for e in (of_gamma, gamma_rate, beta_rate)
        )
    speed = truncated(
        sp.expand(beta_rate / x), 2, x
    )  # 2 N^2 d beta/dt = (N d beta/dt) / x
    return shift, sp.expand(of_gamma), speed


@cache
def layer(order: int = 2) -> tuple[sp.Expr, sp.Expr]:
    """Beta and gamma in the initial layer as functions of tau = t/N, to the given order
    in x (alpha is O(x^2)).
    """
    b, g = (sp.symbols(f"{name}_0:{order + 1}", cls=sp.Function) for name in ("b", "g"))
    of_beta = sum(b[k](tau) * x**k for k in range(1, order + 1))
    of_gamma = sum(g[k](tau) * x**k for k in range(order + 1))
    A = sp.Symbol("A")  # alpha / x^2, which does not occur to this order
    rates = scaled_rates({alpha: A * x**2, beta: of_beta, gamma: of_gamma}, order)
    known = {b[0](tau): sp.S.Zero}
    for k in range(order + 1):
        for function, rate in ((b[k], rates[0]), (g[k], rates[1])):
            if function == b[0]:
                continue
            right = sp.expand(rate.coeff(x, k).subs(known).doit())
            proved(not right.has(A), "alpha enters the layer at this order")
            # Linear: d(path)/dtau = factor path + rest, from 0.
            path = function(tau)
            factor, constant = right.coeff(path), right.subs(path, 0)
            grown = sp.integrate(
                sp.expand(constant * sp.exp(-factor * tau)), tau, manual=True
            )
            known[path] = sp.expand(sp.exp(factor * tau) * (grown - grown.subs(tau, 0)))
            slope = known[path].diff(tau)
            proved(
                vanishes(slope - right.subs(path, known[path])),
                "no solution of the layer",
            )
    return sp.expand(of_beta.subs(known)), sp.expand(of_gamma.subs(known))


def crossing(curve: sp.Expr) -> sp.Expr:
    """Time tau at which a polynomial in x, with coefficients in tau, reaches 1/2, to
    order x^2.
    """
    gap, c = curve - HALF, sp.Dummy("c")
    coefficients = sp.solve(gap.coeff(x, 0), tau)[0]
    for k in (1, 2):
        value = sp.expand(
            truncated(gap.subs(tau, coefficients + c * x**k), k, x)
        ).coeff(x, k)
        coefficients += factored(sp.solve(value, c)[0]) * x**k
    return coefficients


def integrated(polynomial: sp.Expr) -> sp.Expr:
    """Integral from 0 to beta of a polynomial in beta and powers of E, by parts down to
    error functions.

    Raises
    ------
    ArithmeticError
        If the derivative of the result is not the integrand.
    """

    def part(power: int, height: sp.Expr) -> sp.Expr:
        """Integral of beta^power E^height; d E^height = height beta E^height d beta."""
        if height == 0:
            return beta ** (power + 1) / (power + 1)
        if power == 0:
            scale = sp.sqrt(sp.Abs(height) / 2)
            return (
                sp.sqrt(sp.pi)
                / (2 * scale)
                * (sp.erf if height < 0 else sp.erfi)(scale * beta)
            )
        end = beta ** (power - 1) * sp.exp(height * beta**2 / 2) - int(power == 1)
        return (
            end - ((power - 1) * part(power - 2, height) if power > 1 else 0)
        ) / height

    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(polynomial)):
        powers = term.as_powers_dict()
        power = powers.get(beta, 0)
        height = powers.get(E, sp.S.Zero)
        total += term / (beta**power * E**height) * part(int(power), height)
    slope = total.diff(beta) - polynomial.subs(E, sp.exp(beta**2 / 2))
    proved(vanishes(slope), "not the integral of the polynomial")
    return sp.expand(total)


def integral(b: sp.Expr) -> sp.Expr:
    """I(b), the integral of exp(-u^2/2) from 0 to b."""
    return integrated(1 / E).subs(beta, b)


@cache
def slow_time() -> list[sp.Expr]:
    """Coefficients of N^2, N and 1 in the time at which beta is reached on the slow
    manifold, as functions of beta.

    The constant of integration is the delay by the initial layer, in which beta grows
    in proportion to gamma instead of 1.
    """
    speed = manifold()[2]
    # dt/d beta = 2 N^2 / speed = (1/(2 x^2)) / speed
    inverse = truncated(1 / (2 * speed), 2, x)
    parts = [integrated(inverse.coeff(x, k)) for k in range(3)]
    # t = parts[0]/x^2 + parts[1]/x + parts[2] + delay, x = 1/(2N)
    slow = 4 * N**2 * parts[0] + 2 * N * parts[1] + parts[2]
    of_beta = layer()[0].subs(sp.exp(-tau), 0)  # after the initial layer
    delay = sp.expand(
        truncated(tau - (slow / N).subs(N, in_x).subs(beta, of_beta), 1, x)
    )
    proved(not delay.has(tau, x), "layer and slow manifold do not match")
    return [
        sp.expand(4 * parts[0]),
        sp.expand(2 * parts[1] + delay),
        sp.expand(parts[2]),
    ]


def in_powers(coefficients: Sequence[sp.Expr]) -> sp.Expr:
    """Polynomial in N with the given coefficients of N^2, N and 1."""
    return sum((c * N ** (2 - k) for k, c in enumerate(coefficients)), sp.S.Zero)


def time_of_beta() -> sp.Expr:
    """T_beta to O(1)."""
    return in_powers([c.subs(beta, HALF) for c in slow_time()])


def time_of_alpha() -> sp.Expr:
    """T_alpha to O(1): the time at which beta has the value given by the invariant."""
    of_level = dynamics.equations()["beta_of_alpha"].rhs.subs(alpha, HALF).subs(N, in_x)
    scaled = sum(c * x**k / 2 ** (2 - k) for k, c in enumerate(slow_time()))  # t x^2
    expanded = truncated(scaled.subs(beta, truncated(of_level, 2, x)), 2, x)
    return in_powers([expanded.coeff(x, k) * 2 ** (2 - k) for k in range(3)])


@cache
def equations() -> Equations:
    """Curves and emergence times, each to an order such that the next term vanishes as
    N grows.
    """
    given, new = (*dynamics.GIVEN, LARGE), dynamics.NEW
    early, late = "t of order N", "t >> N, beta of order 1"

    def spelled(k: int) -> sp.Expr:
        return manifold()[k].subs(E, sp.exp(beta**2 / 2))

    def leading() -> sp.Expr:
        return 2 * N**2 * integral(theta)

    def time_of_gamma() -> sp.Expr:
        return sp.expand(N * crossing(layer()[1]).subs(x, 1 / (2 * N)))

    return equation.table(
        ref,
        *given,
        status="leading order",
        gamma_layer=(gamma, lambda: sp.collect(layer()[1], x), "Theorem 2, B.6", early),
        beta_layer=(beta, lambda: sp.collect(layer()[0], x), "Theorem 2, B.6", early),
        alpha_slow=(
            alpha,
            lambda: beta**2 / 2 + sp.collect(truncated(spelled(0), 2, x), x),
            new,
            late,
        ),
        gamma_slow=(gamma, lambda: sp.collect(spelled(1), x), new, late),
        slow_rate=(slow_rate, lambda: sp.collect(spelled(2), x), new, late),
        slow_time=(t, lambda: sp.collect(in_powers(slow_time()), N), new, late),
        T_gamma=(
            T_gamma,
            time_of_gamma,
            f"{TIMES}, Eq. (10), {new}",
            "next term O(1/N^2)",
        ),
        T_beta=(T_beta, time_of_beta, f"{TIMES}, Eq. (10), {new}", NEXT),
        T_alpha=(T_alpha, time_of_alpha, f"{TIMES}, Eqs. (10)-(11), {new}", NEXT),
        T_beta_theta=(
            T_beta_theta,
            leading,
            f"{new}: threshold theta for beta",
            "next term O(N)",
        ),
        T_alpha_theta=(
            T_alpha_theta,
            lambda: leading().subs(theta, sp.sqrt(2 * theta)),
            f"{new}: threshold theta for alpha",
            "next term O(N)",
        ),
    )
