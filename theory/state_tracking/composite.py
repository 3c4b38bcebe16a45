"""Finite-size onset, and a uniformly valid composite of the early, onset and late solutions (not in
the paper).
"""

from functools import cache

import sympy as sp

from theory import Equation, function, proved, symbol, table, written_as
from theory.algebra import truncated
from theory.state_tracking import exact
from theory.state_tracking.exact import BEYOND, D_0, D, epsilon, kappa, level, rise, x
from theory.state_tracking.late_time import INDEPENDENT, S_inf, m_0
from theory.state_tracking.symbols import A_0, A, L, N, S, eta, ref

alpha_level = symbol("alpha_level", r"\alpha_{a}", "time at which A = a", positive=True)
steep = symbol("kappa_L", r"\kappa_{L}", "kappa / L", positive=True)
t = symbol("t_", "t", real=True)
H = function("H", "what the saturation of A adds to the proper time")

ZETA_HALF = -1.4603545088095868  # Riemann zeta at 1/2
ERROR = "error O(L^(-3/2)) in D and alpha, O(1/L) in A, at all times, where N and d_g grow like L"


def lock(z: sp.Expr) -> sp.Expr:
    """Difference between 1/A = 1/(1 - e^-E) and its onset form 1/E at E = z^2/2; regular at
    z = 0.
    """
    return 1 / (1 - sp.exp(-(z**2) / 2)) - 2 / z**2


@cache
def waited() -> sp.Expr:
    """T(D) while A is small: the integral of 1/A over D, an arc tangent."""
    up = sp.Symbol("rise", positive=True)
    inverse = (
        sp.sqrt(2)
        * sp.atan(sp.sqrt(2) * x * sp.sqrt(kappa) / (2 * sp.sqrt(up)))
        / (sp.sqrt(kappa) * sp.sqrt(up))
    )
    written_as(1 / rise().subs({epsilon: up, D: x}), inverse.diff(x))
    return (inverse.subs(x, D) - inverse.subs(x, D_0)).subs(up, epsilon)


def large_L() -> sp.Expr:
    """Time of A = a, starting at A_0 = 1/L, R_0 = S_0 = zeta = 0, expanded in powers of L^(-1/2) up
    to 1/L.

    Obtained from the composite T(D) by inserting D_a and epsilon, with kappa = kappa_L L, and g =
    (N-1)/N until D is of order 1.
    """
    e, depth = sp.symbols("e depth", positive=True)  # L^(-1/2) and -ln(1-a)
    begun = exact.equations()["epsilon"].rhs.subs({D_0: 0, A_0: e**2})
    up = sp.sqrt(2 * (depth - begun) / (steep / e**2))  # D_a
    target = exact.equations()["D_of_level"].rhs.subs(
        {D_0: 0, A_0: e**2, level: 1 - sp.exp(-depth), kappa: steep / e**2}
    )
    written_as(up**2, target)
    onset_part = waited().subs({D_0: 0, D: up}).subs({kappa: steep / e**2, epsilon: begun})
    onset_part = onset_part.replace(sp.atan, lambda y: sp.pi / 2 - sp.atan(1 / y))  # y > 0 is large
    series = truncated(onset_part, 2, e)
    argument = up * sp.sqrt(steep) / e
    proved(sp.limit(sp.diff(argument, e), e, 0) == 0, "the lock has a term of order 1/L")
    locking = e / sp.sqrt(steep) * H(sp.sqrt(2 * depth))
    total = sp.expand(series + locking)
    size_at_level = sp.sqrt(-2 * sp.log(1 - level))
    form = (
        sp.pi / sp.sqrt(2)
        + (H(size_at_level) - 2 / size_at_level) / sp.sqrt(L)
        - sp.pi / (4 * sp.sqrt(2) * L)
    ) / sp.sqrt(steep)
    written_as(form.subs(sp.log(1 - level), -depth).subs(L, 1 / e**2), total)
    return N / ((N - 1) * eta) * form


@cache
def proper_time() -> sp.Expr:
    """T(D) from 1/A = 1/E + (1/A - 1/E), with epsilon neglected against kappa D^2/2 in the
    bracket.
    """
    both = waited() + (H(sp.sqrt(kappa) * D) - H(sp.sqrt(kappa) * D_0)) / sp.sqrt(kappa)
    split = 1 / rise() + lock(sp.sqrt(kappa) * D)
    derivative = both.diff(D).subs(
        sp.Subs(sp.Derivative(H(t), t), t, sp.sqrt(kappa) * D), lock(sp.sqrt(kappa) * D)
    )
    derivative = derivative.doit().replace(sp.Subs, lambda f, v, p: lock(p[0]))
    up = sp.Symbol("rise", positive=True)
    written_as(split.subs(epsilon, up), derivative.subs(epsilon, up))
    return both


def training_time() -> sp.Expr:
    """alpha(D), with the margin equal to m_0 until D is of order 1, and to that of A = 1, S = S_inf
    afterwards.
    """
    of_T = sp.Function("T")(D)
    settled = exact.equations()["margin_of_D"].rhs.subs({A: 1, S: S_inf})
    late = sp.exp(settled) / N
    written_as(
        sp.exp(settled) / (N - 1), late.diff(D)
    )  # the integral of e^m/(N-1) over D once A = 1
    return (of_T + sp.exp(m_0) / (N - 1) * (of_T - D + D_0) + late - late.subs(D, D_0)) / eta


@cache
def equations() -> dict[str, Equation]:
    """Lock function, composite solution, and the time of A = a at large L."""
    of_D, start = sp.Function("alpha")(D), "m_0 is the margin at alpha = 0"
    return table(
        ref,
        status="leading order",
        lock=(H(x), sp.Integral(lock(t), (t, 0, x)), BEYOND, "exact"),
        proper_time_composite=(sp.Function("T")(D), proper_time, BEYOND, "epsilon > 0", ERROR),
        alpha_composite=(of_D, training_time, BEYOND, INDEPENDENT, "epsilon > 0", start, ERROR),
        alpha_level_large_L=(
            alpha_level,
            large_L,
            "beyond Eq. (81): finite sizes",
            "A_0 = 1/L, R_0 = S_0 = zeta = 0",
            INDEPENDENT,
            "kappa_L = kappa/L",
            "error O(L^(-3/2))",
        ),
    )
