"""Solution at constant attention, late-time solution at A = 1, and saturation of the
off-target overlap S.
"""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import Chapter, Equations, by_dimension, linear_root, symbol, written_as
from theory.call import scope, sweep
from theory.numbers.numeric import wright_omega
from theory.state_tracking import exact, quadrature
from theory.state_tracking.dynamics import flow
from theory.state_tracking.exact import BEYOND, D_0, D, T, drift, kappa, pace, x
from theory.state_tracking.model import mean_field
from theory.state_tracking.model.scope import FLOW
from theory.state_tracking.model.symbols import (
    A_0,
    R_0,
    S_0,
    A,
    N,
    R,
    S,
    alpha,
    d_g,
    eta,
    g,
    loss,
    m,
    n,
    ref,
    zeta,
)
from theory.state_tracking.quadrature import NAMES, Points
from theory.symbols.fractions import factored
from theory.symbols.notation import Forms

m_0 = symbol("m_0", means="margin at time 0", real=True)
lift = symbol(
    "lift",
    r"\ell_{A}",
    "rate of the right logit per eta g at constant A; 1 at A = 1",
    positive=True,
)
X = symbol("X", means="clock of the margin", real=True)
C = symbol("C", means="what the time before A = 1 leaves behind", real=True)
S_inf = symbol("S_inf", r"S_{\infty}", "S in the end", real=True)

FROZEN = "attention constant"
LOCKED = "A = 1: exact up to e^(-kappa (D^2 - D_0^2)/2)"
INDEPENDENT = "independent teachers (tau = 1/N)"

chapter = Chapter(ref(BEYOND), status="exact")


def growth_of_tau() -> Forms:
    """Pace and drift by the mean overlap of teachers."""
    return {pace: exact.speed_of_difference(), drift: exact.off_target_drift()}


@cache
def clock() -> tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr]:
    """Coasting solution: rate of the correct logit per eta g, the variable X as a
    function of the margin and as a function of alpha, and the margin in terms of X.

    At constant A the margin obeys dm/dalpha = N/(N-1) eta g(m) times a constant, so
    that X = integral of dm/g is linear in alpha.
    """
    rate = flow("tau").rhs
    speed = pace * (A * (A + (1 - A) / d_g) + (1 - A) / d_g + drift)
    of_logit = mean_field.weight_of_R() * rate[R] + mean_field.weight_of_S() * rate[S]
    written_as(speed.subs(growth_of_tau()), of_logit / (eta * g))
    of_margin = m + sp.exp(m) / (N - 1)
    written_as(1 / mean_field.wrong_mass(), of_margin.diff(m))
    of_alpha = of_margin.subs(m, m_0) + N / (N - 1) * lift * eta * alpha
    W, shifted = sp.symbols("W shifted", positive=True)
    in_W = sp.expand_log(of_margin.subs(m, sp.log((N - 1) * W)), force=True)
    (solved,) = sp.solve(sp.expand(in_W - sp.log(N - 1)) - shifted, W)
    written_as(wright_omega(shifted).rewrite(sp.LambertW), solved)
    # X minus the Lambert function, written without cancellation
    form = sp.log((N - 1) * wright_omega(X - sp.log(N - 1)))
    return speed, of_margin, of_alpha, form


@chapter.derives(lift, FROZEN, "rate of the correct logit per eta g")
def coasting_lift() -> sp.Expr:
    """Rate of the right logit per eta g, at constant A."""
    return clock()[0]


@chapter.derives(X, FROZEN)
def coasting_clock() -> sp.Expr:
    """X as a function of alpha."""
    return clock()[2]


@chapter.derives(m, FROZEN)
def coasting_margin() -> sp.Expr:
    """The margin in terms of X."""
    return clock()[3]


WHEN = eta * alpha + C
CLOCK = R + sp.exp((N * R - zeta) / (N - 1)) / N  # linear in alpha at A = 1
X_LATE = (N * WHEN - zeta) / (N - 1)  # X of the margin at A = 1


@cache
def locked_clock() -> tuple[sp.Expr, sp.Expr]:
    """Relation of R and alpha at A = 1, where the mean logit <z_k> equals R and grows
    at the rate eta g.
    """
    speed, of_m, _, of_X = clock()
    written_as(sp.S.One, speed.subs(A, 1).subs(growth_of_tau()))
    at_one = sp.expand((N - 1) / N * X + zeta / N)  # <z_k> in terms of the margin
    of_R = at_one.subs(X, of_X).subs(X, X_LATE)
    in_R = (N - 1) * of_m.subs(m, (N * R - zeta) / (N - 1)) + zeta  # X in units of R
    return of_R, written_as(CLOCK, sp.expand(in_R / N))


@chapter.derives(CLOCK, LOCKED)
def late_integral() -> sp.Expr:
    """Integral of the flow at A = 1, the `CLOCK`, which `locked_clock` derives."""
    locked_clock()
    return WHEN


@chapter.derives(R, LOCKED)
def late_R() -> sp.Expr:
    """R as a function of alpha at A = 1."""
    return locked_clock()[0]


@chapter.derives(C, INDEPENDENT, name="late_constant")
def constant() -> sp.Expr:
    """C = lim (R + e^m/N - eta alpha), as the integral over D of the derivative."""
    a = sp.Function("A")(D)
    off = exact.S_of_D().subs({exact.drift: 0, sp.Function("T")(D): T})
    S_rate = off.diff(T) / a + off.diff(D)  # dT/dD = 1/A
    lifted = ((a + (1 - a) / d_g) * D).diff(D)
    # <z_k> = S + c_R D
    z_rate = S_rate + lifted.subs(a.diff(D), kappa * (1 - a) * D)
    decay = sp.exp(-kappa * (D**2 - D_0**2) / 2)
    slope = exact.attention_of_difference().diff(D)
    written_as(kappa * (1 - A) * D, slope.subs(decay, (1 - A) / (1 - A_0)))
    margin = sp.Function("m")(D)
    weight = sp.exp(margin) / (N - 1)
    inverse_g = 1 / mean_field.wrong_mass().subs(m, margin)
    form = -(1 - 1 / d_g) * (1 - a) * (1 / a + weight * (1 + 1 / a - kappa * D**2))
    # R' = 1 + S', m' = N/(N-1) z'
    form = written_as(form, 1 + S_rate + weight * z_rate - inverse_g / a)
    return R_0 + sp.exp(m_0) / N + sp.Integral(form.subs(D, x), (x, D_0, sp.oo))


@chapter.derives(loss, LOCKED, "mean-field loss (10)")
def late_loss() -> sp.Expr:
    """Loss at A = 1."""
    return sp.log(1 + 1 / wright_omega(X_LATE - sp.log(N - 1)))


@chapter.derives(R, "leading order", LOCKED, "alpha to infinity")
def late_growth() -> sp.Expr:
    """R at late times, where the exponential term dominates."""
    exponential = locked_clock()[1] - R
    in_logs = sp.expand_log(sp.log(exponential), force=True)
    dominated = linear_root(in_logs - sp.log(WHEN), R)
    form = (N - 1) / N * sp.log(N * WHEN) + zeta / N
    return written_as(form, sp.expand_log(dominated, force=True))


@chapter.derives(loss, "leading order", LOCKED, "alpha to infinity")
def late_decay() -> sp.Expr:
    """Loss ln(1 + 1/W) at late times, where the Lambert function W is large and linear
    in alpha.
    """
    W = sp.Symbol("W", positive=True)
    return sp.limit(sp.log(1 + 1 / W) * W, W, sp.oo) / (sp.diff(X_LATE, alpha) * alpha)


@chapter.derives(S_inf, INDEPENDENT, "D_0 above the separatrix")
@cache
def off_target_limit() -> sp.Sum:
    """S at D = infinity: (1/A - 1)/d_g is expanded as a geometric series in 1 - A and
    integrated term by term.
    """
    attention = exact.attention_of_difference()
    ratio = (1 - A_0) * sp.exp(kappa * D_0**2 / 2)
    written_as(ratio * sp.exp(-kappa * D**2 / 2), 1 - attention)
    beyond = sp.erfc(D_0 * sp.sqrt(n * kappa / 2))
    term = sp.sqrt(sp.pi / (2 * n * kappa)) * beyond  # Gaussian integral from D_0 on
    written_as(-sp.exp(-n * kappa * D_0**2 / 2), term.diff(D_0))
    written_as(sp.S.Zero, term.subs(D_0, sp.oo))
    return S_0 + sp.Sum(ratio**n * term, (n, 1, sp.oo)) / d_g


@chapter.derives(S_inf, INDEPENDENT, "D_0 = 0")
def off_target_limit_centred() -> sp.Expr:
    """S at D = infinity for D_0 = 0;
    the sum of y^n/n^s is the polylogarithm Li_s(y).
    """
    (total,) = off_target_limit().atoms(sp.Sum)
    centred = factored(total.function.subs(D_0, 0) / (1 - A_0) ** n * sp.sqrt(n))
    return S_0 + centred * sp.polylog(sp.Rational(1, 2), 1 - A_0) / d_g


def equations() -> Equations:
    """Margin at constant attention; R and loss at A = 1 and their late-time forms;
    saturation of S.
    """
    return chapter.equations


# Numerical value of the constant in the late-time law


@by_dimension()
@np.errstate(over="ignore", invalid="ignore")  # overflow gives no constant
@scope.guard(FLOW)
def late_constant(p: Any, **swept: Any) -> np.ndarray:
    """Constant C of the late-time solution R + e^{(N R - zeta)/(N-1)}/N = eta alpha +
    C.

    Parameters
    ----------
    p : Parameters or mapping
        As for `theory.state_tracking.quadrature.emergence_time`.
    **swept
        Arrays of fields of the parameters.

    Returns
    -------
    ndarray
        In units of eta alpha; NaN if attention dies or is constant, or if e^m
        overflows.
    """
    values = sweep.numbers(p, NAMES, **swept)
    points = Points.of(values)
    shape = np.broadcast_shapes(*(np.shape(values[q]) for q in NAMES))
    constants = np.full(points.N.size, np.nan)
    for k in np.flatnonzero(points.moving & ~points.dying):
        one = points[k : k + 1]
        depth = quadrature.LOCKED
        start = one.s_of(one.D_0, one.E_0)
        while True:  # the integrand decays as e^(m - E)
            stop = one.locked(depth)
            run = one.integrate(start, stop, int(one.panels(start, stop).max()))
            mass = run.alpha_rate / run.T_rate * one.eta * one.pace - 1  # e^m/(N-1)
            rest = mass[0, -1, -1] * np.exp(-depth)
            if not rest > np.exp(-quadrature.LOCKED) or depth > 1e4:
                break
            depth *= 1.5
        half = np.diff(run.edge)[..., None] / 2
        D, E, stretch = one.chart(run.edge[:, :-1, None] + half * (1 + quadrature.X))
        A_now = -np.expm1(-E)
        bracket = 1 / A_now + mass * (1 + 1 / A_now - one.kappa * D**2)
        integrand = np.exp(-E) * bracket * stretch * E
        excess = (1 - 1 / one.d_g) * (half * integrand * quadrature.WEIGHTS).sum()
        begun = np.exp(one.margin(one.A_0, one.D_0, one.S_0)) / one.N
        clock = one.D_0 + one.S_0 + begun - excess
        constants[k] = np.where(np.isfinite(clock), clock, np.nan)[0]
    return constants.reshape(shape)[()]
