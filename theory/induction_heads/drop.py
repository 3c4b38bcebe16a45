"""Drop of the loss: a finite-time blow-up with a universal inner problem, matched
asymptotics, and the power-law tail (beyond Theorem 2).
"""

from functools import cache

import numpy as np
import scipy.integrate
import scipy.special
import sympy as sp

from theory import Chapter, Equations, ParameterError, proved, written_as
from theory.induction_heads import dynamics, expansions
from theory.induction_heads.symbols import (
    F,
    G,
    N,
    T_drop,
    alpha,
    beta,
    beta_c,
    gamma,
    kappa,
    p,
    r,
    ref,
    s,
    squared_error,
    t,
    tau,
    w,
)
from theory.numbers import numeric
from theory.symbols.fractions import factored

INNER = "e^alpha of order N / beta, w = beta p of order 1, N -> infinity"
BLOW_UP = (f"{dynamics.NEW}: loss drop", *dynamics.GIVEN, INNER)
SERIES_ORDER = 24  # order of the asymptotic series of gamma(w)
EARLY = 1e-6  # odds p/(1-p) at which the integration of saturation starts
# w at which integration starts: the series is exact to rounding up to there
SERIES_FROM = 0.01

chapter = Chapter(ref, status="leading order")


def at_fixed_p(rate: sp.Expr) -> sp.Expr:
    """N times a rate for N to infinity; e^alpha = p G and G = e^alpha + 2N - 2."""
    size = sp.Symbol("N", positive=True)
    expr = (N * rate).subs(G, (2 * N - 2) / (1 - p)).subs(r, s + F)
    expr = expr.subs(F, dynamics.abbreviations()[F]).subs(N, size)
    return sp.limit(sp.together(expr), size, sp.oo)


@cache
def inner_rates() -> list[sp.Expr]:
    """Universal rates d w/d tau and d gamma/d tau with tau = t/N: limit N to infinity
    at fixed w, then beta to infinity.
    """
    rates = dynamics.flow().rhs
    slope = p * (2 * N - 2) / G  # dp/dalpha
    of_w = p * rates[beta] + beta * slope * rates[alpha]
    universal = []
    for rate in (of_w, rates[gamma]):
        at_w = at_fixed_p(rate).subs(s, sp.exp(w)).subs(p, w / beta)
        universal.append(sp.factor(sp.limit(sp.expand(at_w), beta, sp.oo)))
    return universal


chapter.state("drop_dw_dtau", sp.Derivative(w, tau), lambda: inner_rates()[0], *BLOW_UP)
chapter.state(
    "drop_dgamma_dtau", sp.Derivative(gamma, tau), lambda: inner_rates()[1], *BLOW_UP
)


@cache
def saturating_rates() -> list[sp.Expr]:
    """N d beta/dt and N d gamma/dt as functions of p, beta and gamma for N to infinity
    at fixed p, to all orders in 1/beta; `inner_rates` are their leading order.
    """
    rates = (dynamics.flow().rhs[x] for x in (beta, gamma))
    return [sp.factor(at_fixed_p(x).subs(s, sp.exp(beta * p))) for x in rates]


@cache
def left_over(N: int) -> float:
    """Remainder of T_drop / N beyond `matched_time`, to all orders in 1/beta_c, without
    powers of 1/N.

    Integrates `saturating_rates` along the invariant beta^2 = 2 ln(2N p/(1-p)) +
    2p/(1-p), from small p with gamma on its slow manifold to the blow-up. The remainder
    decays as 1/beta_c; its largest magnitude is 0.012, at N of about 10^22.

    Parameters
    ----------
    N : int
        At least 10^6: the integration starts at p = 10^-6; earlier times are given by
        the expansion.

    Raises
    ------
    ParameterError
        For a smaller N.
    """
    if N < 1 / EARLY:
        raise ParameterError(
            f"N = {N}: must be >= {1 / EARLY:g}, where saturation is integrated"
        )
    log_2N = np.log(2.0 * N)
    of_beta, of_gamma = (
        numeric.function(x, [p, beta, gamma]) for x in saturating_rates()
    )

    def odds(b: float) -> float:
        return float(scipy.special.wrightomega(b * b / 2 - log_2N).real)

    def slopes(b: float, state: np.ndarray) -> list[float]:
        share = odds(b) / (1 + odds(b))
        pace = of_beta(share, b, state[0])
        return [of_gamma(share, b, state[0]) / pace, 1 / pace]

    begin = np.sqrt(2 * (log_2N + np.log(EARLY) + EARLY))
    critical = np.sqrt(scipy.special.lambertw(4.0 * N**2).real)
    slow = begin * EARLY
    gamma_begin = np.exp(slow) * (1 - slow**2)
    solution = scipy.integrate.solve_ivp(
        slopes,
        (begin, begin + 60),
        [gamma_begin, 0.0],
        method="Radau",
        rtol=1e-10,
        atol=1e-12,
    )
    elapsed = solution.y[1, -1]
    # Earlier: 2 N^2 times the rest of the Gaussian integral, and -(beta - 1)^2 N
    # (`expansions`).
    mills = np.sqrt(np.pi / 2) * scipy.special.erfcx(begin / np.sqrt(2))
    before = -np.exp(-EARLY) / EARLY * mills - (begin - 1) ** 2
    return float(before + elapsed + (critical - 1) ** 2 - blow_up()["kappa"])


@cache
def inner_series(order: int) -> sp.Expr:
    """Gamma as a power series in w on the solution that starts at gamma = 1, w = 0.

    From d gamma/dw = (e^w - gamma) / (gamma w^2 e^w), i.e. gamma = e^w (1 - w^2 gamma d
    gamma/dw); the right side is known to one order more than gamma.
    """
    of_w, of_gamma = inner_rates()
    written_as(sp.exp(w) - gamma, of_gamma)
    growth = factored(of_w / (gamma * sp.exp(w)))  # w^2
    exponential = [sp.Rational(1, sp.factorial(k)) for k in range(order + 1)]
    shift = sp.degree(growth, w)
    g = [sp.S.One]
    for n in range(1, order + 1):
        # Coefficients of gamma gamma' w^2, up to w^n, from those of gamma below n.
        product = [sp.S.Zero] * (n + 1)
        for a, first in enumerate(g):
            for b, second in enumerate(g):
                power = a + b - 1 + shift
                if b and power <= n:
                    product[power] += first * b * second
        coefficient = sp.S.Zero
        for k in range(n + 1):
            coefficient += exponential[n - k] * (int(k == 0) - product[k])
        g.append(coefficient)
    return sum((c * w**k for k, c in enumerate(g)), sp.S.Zero)


chapter.state("drop_gamma_series", gamma, lambda: inner_series(4), *BLOW_UP, "w -> 0")


@cache
def blow_up() -> dict[str, float]:
    """Constants of the inner problem: ``kappa`` and ``gamma_blow_up``.

    With tau = C - 1/w - 2 ln w + o(1) as w -> 0, the solution blows up at tau = C +
    kappa. d tau/dw is integrated over w after subtracting its divergence at w = 0.
    Gamma at the blow-up is obtained from gamma^2 + 2/w, which converges to its square
    up to e^-w.
    """
    of_w, of_gamma = inner_rates()
    time = numeric.function(1 / of_w, [w, gamma])
    slope = numeric.function(of_gamma / of_w, [w, gamma])
    gamma_begin = float(inner_series(SERIES_ORDER).subs(w, SERIES_FROM))

    def rates(v: float, state: np.ndarray) -> list[float]:
        return [slope(v, state[0]), time(v, state[0]) - 1 / v**2 + 2 / v]

    # Below the start the integrand 1 / (gamma w^2 e^w) - 1/w^2 + 2/w is given by its
    # series.
    integrand = (1 / (inner_series(8) * sp.exp(w)) - 1 + 2 * w) / w**2
    regular = sp.series(integrand, w, 0, 6).removeO()
    time_begin = float(sp.integrate(regular, (w, 0, SERIES_FROM)))
    end = 60.0  # e^-60 is below machine precision
    solution = scipy.integrate.solve_ivp(
        rates,
        (SERIES_FROM, end),
        [gamma_begin, time_begin],
        method="Radau",
        rtol=1e-12,
        atol=1e-14,
    )
    last, total = solution.y[:, -1]
    # Undo the subtraction at the upper end; the rest of the integral is negligible.
    return {
        "kappa": float(total - 1 / end - 2 * np.log(end)),
        "gamma_blow_up": float(np.sqrt(last**2 + 2 / end)),
    }


IMPLICIT = f"{dynamics.NEW}: 2N = beta_c exp(beta_c^2/2)"
chapter.state("beta_c", beta_c, sp.sqrt(sp.LambertW(4 * N**2)), IMPLICIT, "exact")


@chapter.derives(
    T_drop,
    f"{dynamics.NEW}: time of loss = 1/2",
    *dynamics.GIVEN,
    "next term o(N)",
    "kappa = 0.9811115 from the inner problem",
    name="T_drop",
)
@cache
def matched_time() -> sp.Expr:
    """T_drop by matching: the slow time, written in w at w = O(1), is joined to the
    inner problem.

    At w = O(1), ln w = ln(beta/beta_c) + (beta^2 - beta_c^2)/2 with 2N = beta_c
    exp(beta_c^2/2), so that beta^2 = beta_c^2 + 2 ln w up to 1/beta_c^2 and N
    exp(-beta^2/2) = beta / (2w).
    """
    of_square, of_line = expansions.slow_time()[:2]
    log_w = sp.Symbol("log_w", real=True)
    end = sp.limit(of_square, beta, sp.oo)
    # N^2 of_square = N^2 end - (N / w) share; the part of I beyond beta decays as
    # exp(-beta^2/2)/beta.
    remainder = (end - of_square).rewrite(sp.erfc)
    share = sp.limit(remainder * sp.exp(beta**2 / 2) * beta / 2, beta, sp.oo)
    near = sp.sqrt(beta_c**2 + 2 * log_w)
    line = of_line.subs(sp.erf(sp.sqrt(2) * beta / 2), 1)
    logs = sp.limit(line.subs(beta, near) - line.subs(beta, beta_c), beta_c, sp.oo)
    # The inner solution starts as tau = C - 1/w - 2 ln w and ends at C + kappa.
    matched = share == 1 and logs == -2 * log_w
    proved(matched, "slow manifold and inner problem do not match")
    square = -((beta_c - 1) ** 2)
    constant = sp.expand(line.subs(beta, beta_c) - square)
    return end * N**2 + N * square + N * (constant + kappa)


def drop_time(N: float) -> float:
    """The time of equation ``T_drop`` at a size."""
    numbers = {"N": float(N), "kappa": blow_up()["kappa"]}
    numbers["beta_c"] = equations()["beta_c"].number(numbers)
    return equations()["T_drop"].number(numbers)


@chapter.derives(
    squared_error,
    f"{dynamics.NEW}: loss long after the drop",
    *dynamics.GIVEN,
    "gamma = gamma_star, p = 1, s >> N^(1/2)",
    name="loss_tail",
)
@cache
def tail() -> sp.Expr:
    """Loss long after the drop: gamma at its optimum gamma_star, first layer saturated
    (p = 1), s large.
    """
    least = dynamics.equations()["loss_star"].rhs
    # d s/dt = s d beta/dt = -s (ds/dbeta) dL*/ds with ds/dbeta = s.
    growth = -(s**2) * sp.diff(least, s)
    pace = sp.limit(growth * s, s, sp.oo)  # rate of s^2/2
    return sp.limit(least * s**2, s, sp.oo) / (2 * pace * t)


def equations() -> Equations:
    """Inner problem, time of the drop, and the tail."""
    return chapter.equations
