"""Theorem 2 with constants: emergence times expanded in 1/N (Sec. 6, App. B, and
beyond).

With x = 1/(2N) the flow has an initial layer, t ~ N, in which gamma relaxes while beta
= O(x), and a slow manifold, t ~ N^2, on which gamma follows beta. E denotes
exp(beta^2/2), so that dE = beta E d beta.
"""

from collections.abc import Sequence
from functools import cache, partial

import sympy as sp

from theory import Chapter, Equations, proved, symbol, vanishes
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
    others = 2 * N - 2
    invariant = dynamics.equations()["invariant"].rhs
    of_alpha = sp.solve(invariant, alpha * others)[0] / others
    step = (of_alpha - beta**2 / 2).subs(sp.exp(alpha), E * sp.exp(u))
    step = factored(step.subs(N, in_x))
    for power in (1, 2, 3):
        shift = truncated(step.subs(u, shift), power, x)
    coefficients = sp.symbols("g_1 g_2")
    of_gamma = 1 + sum(c * x**k for k, c in enumerate(coefficients, 1))
    point = {sp.exp(alpha): E * sp.exp(shift), gamma: of_gamma}
    beta_rate, gamma_rate = scaled_rates(point, 3)
    for k, c in enumerate(coefficients, 1):
        along = sp.diff(of_gamma, beta) + beta * E * sp.diff(of_gamma, E)
        order = sp.expand(gamma_rate - along * beta_rate).coeff(x, k)
        value = sp.solve(order, c)[0]
        of_gamma = of_gamma.subs(c, value)
        gamma_rate = gamma_rate.subs(c, value)
        beta_rate = beta_rate.subs(c, value)
    speed = sp.expand(beta_rate / x)  # 2 N^2 d beta/dt = (N d beta/dt) / x
    return shift, sp.expand(of_gamma), truncated(speed, 2, x)


@cache
def layer(order: int = 2) -> tuple[sp.Expr, sp.Expr]:
    """Beta and gamma in the initial layer as functions of tau = t/N, to the given order
    in x (alpha is O(x^2)).
    """
    b = sp.symbols(f"b_0:{order + 1}", cls=sp.Function)
    g = sp.symbols(f"g_0:{order + 1}", cls=sp.Function)
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
            path = function(tau)
            solution = relaxation(right, path)
            slope = right.subs(path, solution)
            proved(vanishes(solution.diff(tau) - slope), "no solution of the layer")
            known[path] = solution
    return sp.expand(of_beta.subs(known)), sp.expand(of_gamma.subs(known))


def relaxation(rate: sp.Expr, path: sp.Expr) -> sp.Expr:
    """Solution from 0 of d(path)/dtau = rate, which is linear in the path."""
    factor = rate.coeff(path)
    driven = sp.expand(rate.subs(path, 0) * sp.exp(-factor * tau))
    grown = sp.integrate(driven, tau, manual=True)
    return sp.expand(sp.exp(factor * tau) * (grown - grown.subs(tau, 0)))


def crossing(curve: sp.Expr) -> sp.Expr:
    """Time tau at which a polynomial in x, with coefficients in tau, reaches 1/2, to
    order x^2.
    """
    gap = curve - HALF
    c = sp.Dummy("c")
    time = sp.solve(gap.coeff(x, 0), tau)[0]
    for k in (1, 2):
        expanded = truncated(gap.subs(tau, time + c * x**k), k, x)
        order = sp.expand(expanded).coeff(x, k)
        time += factored(sp.solve(order, c)[0]) * x**k
    return time


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
            error_function = sp.erf if height < 0 else sp.erfi
            return sp.sqrt(sp.pi) / (2 * scale) * error_function(scale * beta)
        end = beta ** (power - 1) * sp.exp(height * beta**2 / 2) - int(power == 1)
        if power > 1:
            end -= (power - 1) * part(power - 2, height)
        return end / height

    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(polynomial)):
        powers = term.as_powers_dict()
        power = powers.get(beta, 0)
        height = powers.get(E, sp.S.Zero)
        coefficient = term / (beta**power * E**height)
        total += coefficient * part(int(power), height)
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
    on_manifold = (slow / N).subs(N, in_x).subs(beta, of_beta)
    delay = sp.expand(truncated(tau - on_manifold, 1, x))
    proved(not delay.has(tau, x), "layer and slow manifold do not match")
    return [
        sp.expand(4 * parts[0]),
        sp.expand(2 * parts[1] + delay),
        sp.expand(parts[2]),
    ]


def in_powers(coefficients: Sequence[sp.Expr]) -> sp.Expr:
    """Polynomial in N with the given coefficients of N^2, N and 1."""
    return sum((c * N ** (2 - k) for k, c in enumerate(coefficients)), sp.S.Zero)


def spelled(k: int) -> sp.Expr:
    """A result of `manifold` in beta and x only."""
    return manifold()[k].subs(E, sp.exp(beta**2 / 2))


# Curves and emergence times, each to an order such that the next term vanishes as N
# grows

NEW = dynamics.NEW
EARLY = "t of order N"
LATE = "t >> N, beta of order 1"
chapter = Chapter(ref, *dynamics.GIVEN, LARGE, status="leading order")


in_layer = lambda k: sp.collect(layer()[k], x)
chapter.state("gamma_layer", gamma, partial(in_layer, 1), "Theorem 2, B.6", EARLY)
chapter.state("beta_layer", beta, partial(in_layer, 0), "Theorem 2, B.6", EARLY)


@chapter.derives(alpha, NEW, LATE)
def alpha_slow() -> sp.Expr:
    """Alpha on the slow manifold."""
    return beta**2 / 2 + sp.collect(truncated(spelled(0), 2, x), x)


chapter.state("gamma_slow", gamma, lambda: sp.collect(spelled(1), x), NEW, LATE)
chapter.state("slow_rate", slow_rate, lambda: sp.collect(spelled(2), x), NEW, LATE)
chapter.state("slow_time", t, lambda: sp.collect(in_powers(slow_time()), N), NEW, LATE)


@chapter.derives(
    T_gamma, f"{TIMES}, Eq. (10), {NEW}", "next term O(1/N^2)", name="T_gamma"
)
def time_of_gamma() -> sp.Expr:
    """T_gamma, in the initial layer."""
    return sp.expand(N * crossing(layer()[1]).subs(x, 1 / (2 * N)))


@chapter.derives(T_beta, f"{TIMES}, Eq. (10), {NEW}", NEXT, name="T_beta")
def time_of_beta() -> sp.Expr:
    """T_beta to O(1)."""
    return in_powers([c.subs(beta, HALF) for c in slow_time()])


@chapter.derives(T_alpha, f"{TIMES}, Eqs. (10)-(11), {NEW}", NEXT, name="T_alpha")
def time_of_alpha() -> sp.Expr:
    """T_alpha to O(1): the time at which beta has the value given by the invariant."""
    level = dynamics.equations()["beta_of_alpha"].rhs.subs(alpha, HALF).subs(N, in_x)
    scaled = sum(c * x**k / 2 ** (2 - k) for k, c in enumerate(slow_time()))  # t x^2
    expanded = truncated(scaled.subs(beta, truncated(level, 2, x)), 2, x)
    return in_powers([expanded.coeff(x, k) * 2 ** (2 - k) for k in range(3)])


BETA_THRESHOLD = f"{NEW}: threshold theta for beta"
ALPHA_THRESHOLD = f"{NEW}: threshold theta for alpha"


@chapter.derives(T_beta_theta, BETA_THRESHOLD, "next term O(N)", name="T_beta_theta")
def time_of_beta_at_threshold() -> sp.Expr:
    """Leading time of beta = theta."""
    return 2 * N**2 * integral(theta)


@chapter.derives(T_alpha_theta, ALPHA_THRESHOLD, "next term O(N)", name="T_alpha_theta")
def time_of_alpha_at_threshold() -> sp.Expr:
    """Leading time of alpha = theta, where beta^2 = 2 theta."""
    return time_of_beta_at_threshold().subs(theta, sp.sqrt(2 * theta))


def equations() -> Equations:
    """Curves and emergence times."""
    return chapter.equations
