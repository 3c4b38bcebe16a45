"""Finite-size onset, and a uniformly valid composite of the early, onset and late
solutions (not in the paper).
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import numpy as np
import sympy as sp

from theory import (
    Chapter,
    Equations,
    by_dimension,
    function,
    gauss_legendre,
    proved,
    symbol,
    written_as,
)
from theory.call import arguments, arrays, scope, sweep
from theory.call.refusal import ANYTHING, Allowed, ParameterError
from theory.state_tracking import exact
from theory.state_tracking.exact import BEYOND, D_0, D, epsilon, kappa, level, rise, x
from theory.state_tracking.late_time import INDEPENDENT, S_inf, m_0
from theory.state_tracking.model.scope import FLOW
from theory.state_tracking.model.symbols import A_0, A, L, N, S, eta, ref
from theory.state_tracking.quadrature import NAMES, Points
from theory.symbols.algebra import truncated

alpha_level = symbol("alpha_level", r"\alpha_{a}", "time at which A = a", positive=True)
steep = symbol("kappa_L", r"\kappa_{L}", "kappa / L", positive=True)
t = symbol("t_", "t", real=True)
H = function("H", "what the saturation of A adds to the proper time")

ZETA_HALF = -1.4603545088095868  # Riemann zeta at 1/2
ERROR = (
    "error O(L^(-3/2)) in D and alpha, O(1/L) in A, at all times, where N and d_g grow"
    " like L"
)


chapter = Chapter(ref, status="leading order")


def lock(z: sp.Expr) -> sp.Expr:
    """Difference between 1/A = 1/(1 - e^-E) and its onset form 1/E at E = z^2/2;
    regular at z = 0.
    """
    return 1 / (1 - sp.exp(-(z**2) / 2)) - 2 / z**2


chapter.state("lock", H(x), sp.Integral(lock(t), (t, 0, x)), BEYOND, "exact")


@cache
def waited() -> sp.Expr:
    """T(D) while A is small: the integral of 1/A over D, an arc tangent."""
    up = sp.Symbol("rise", positive=True)
    turned = sp.atan(sp.sqrt(2) * x * sp.sqrt(kappa) / (2 * sp.sqrt(up)))
    inverse = sp.sqrt(2) * turned / (sp.sqrt(kappa) * sp.sqrt(up))
    written_as(1 / rise().subs({epsilon: up, D: x}), inverse.diff(x))
    return (inverse.subs(x, D) - inverse.subs(x, D_0)).subs(up, epsilon)


@chapter.derives(
    sp.Function("T")(D), BEYOND, "epsilon > 0", ERROR, name="proper_time_composite"
)
@cache
def proper_time() -> sp.Expr:
    """T(D) from 1/A = 1/E + (1/A - 1/E), with epsilon neglected against kappa D^2/2 in
    the bracket.
    """
    scaled = sp.sqrt(kappa) * D
    scaled_start = sp.sqrt(kappa) * D_0
    both = waited() + (H(scaled) - H(scaled_start)) / sp.sqrt(kappa)
    split = 1 / rise() + lock(scaled)
    slope_of_H = sp.Subs(sp.Derivative(H(t), t), t, scaled)
    derivative = both.diff(D).subs(slope_of_H, lock(scaled))
    derivative = derivative.doit().replace(sp.Subs, lambda f, v, p: lock(p[0]))
    up = sp.Symbol("rise", positive=True)
    written_as(split.subs(epsilon, up), derivative.subs(epsilon, up))
    return both


@chapter.derives(
    sp.Function("alpha")(D),
    BEYOND,
    INDEPENDENT,
    "epsilon > 0",
    "m_0 is the margin at alpha = 0",
    ERROR,
    name="alpha_composite",
)
def training_time() -> sp.Expr:
    """alpha(D), with the margin equal to m_0 until D is of order 1, and to that of A =
    1, S = S_inf afterwards.
    """
    of_T = sp.Function("T")(D)
    settled = exact.margin().subs({A: 1, S: S_inf})
    late = sp.exp(settled) / N
    # the integral of e^m/(N-1) over D once A = 1
    written_as(sp.exp(settled) / (N - 1), late.diff(D))
    early = sp.exp(m_0) / (N - 1) * (of_T - D + D_0)
    return (of_T + early + late - late.subs(D, D_0)) / eta


@chapter.derives(
    alpha_level,
    "beyond Eq. (81): finite sizes",
    "A_0 = 1/L, R_0 = S_0 = zeta = 0",
    INDEPENDENT,
    "kappa_L = kappa/L",
    "error O(L^(-3/2))",
    name="alpha_level_large_L",
)
def large_L() -> sp.Expr:
    """Time of A = a, starting at A_0 = 1/L, R_0 = S_0 = zeta = 0, expanded in powers of
    L^(-1/2) up to 1/L.

    Obtained from the composite T(D) by inserting D_a and epsilon, with kappa = kappa_L
    L, and g = (N-1)/N until D is of order 1.
    """
    e, depth = sp.symbols("e depth", positive=True)  # L^(-1/2) and -ln(1-a)
    centred = {D_0: 0, A_0: e**2}
    begun = exact.height().subs(centred)
    up = sp.sqrt(2 * (depth - begun) / (steep / e**2))  # D_a
    at_level = centred | {level: 1 - sp.exp(-depth), kappa: steep / e**2}
    written_as(up**2, exact.D_of_level().subs(at_level))
    onset_part = waited().subs({D_0: 0, D: up})
    onset_part = onset_part.subs({kappa: steep / e**2, epsilon: begun})
    # the argument of the arc tangent is positive and large
    onset_part = onset_part.replace(sp.atan, lambda y: sp.pi / 2 - sp.atan(1 / y))
    series = truncated(onset_part, 2, e)
    argument = up * sp.sqrt(steep) / e
    proved(
        sp.limit(sp.diff(argument, e), e, 0) == 0, "the lock has a term of order 1/L"
    )
    locking = e / sp.sqrt(steep) * H(sp.sqrt(2 * depth))
    total = sp.expand(series + locking)
    size_at_level = sp.sqrt(-2 * sp.log(1 - level))
    at_order_half = (H(size_at_level) - 2 / size_at_level) / sp.sqrt(L)
    at_order_one = sp.pi / (4 * sp.sqrt(2) * L)
    form = (sp.pi / sp.sqrt(2) + at_order_half - at_order_one) / sp.sqrt(steep)
    written_as(form.subs(sp.log(1 - level), -depth).subs(L, 1 / e**2), total)
    return N / ((N - 1) * eta) * form


def equations() -> Equations:
    """Lock function, composite solution, and the time of A = a at large L."""
    return chapter.equations


# Numerical values of the composite solution

LARGEST = 1e150  # largest D whose square does not overflow


@by_dimension()
@arguments.checked
def lock_function(z: Annotated[Any, ANYTHING]) -> np.ndarray:
    """Lock function H(z): odd, universal, and equal to z + sqrt(pi/2) zeta(1/2) + 2/z
    for large z.

    Parameters
    ----------
    z : array_like
        sqrt(kappa) D.

    Returns
    -------
    ndarray
        Accurate to 1e-14; the nearest poles of the integrand lie at distance 3.5 from
        the real axis.
    """
    z = np.asarray(z, float)
    far = 9.0  # e^(-z^2/2) is below rounding
    nodes, weights = gauss_legendre(48)
    end = np.minimum(np.abs(z), far)[..., None]
    E = (end * nodes) ** 2 / 2
    small = np.minimum(E, 0.03)
    series = 0.5 + small / 12 - small**3 / 720 + small**5 / 30240
    with np.errstate(divide="ignore", invalid="ignore"):
        bracket = np.where(E < 0.03, series, -1 / np.expm1(-E) - 1 / E)
        tail = np.abs(z) - far + 2 / np.abs(z) - 2 / far
    beyond = np.where(np.abs(z) > far, tail, 0)
    inside = (bracket * weights).sum(-1) * end[..., 0]
    return np.sign(z) * (inside + beyond)


def _point(values: Mapping[str, Any]) -> str:
    """Parameter point, for an error message."""
    return ", ".join(f"{n} = {np.ravel(values[n])[0]:g}" for n in NAMES)


@scope.guard(FLOW)
@sweep.over_fields
@np.errstate(over="ignore", invalid="ignore")  # overflow is detected at the end
def composite(p: Any, D: Annotated[Any, ANYTHING]) -> dict[str, np.ndarray]:
    """Composite solution, parametrised by D = R - S.

    Parameters
    ----------
    p : Parameters or mapping
        Parameters, or numbers of one parameter point by symbol name, as for
        `theory.state_tracking.quadrature.emergence_time`.
    D : array_like
        Values of D, not below D_0.

    Returns
    -------
    dict of str to ndarray
        ``alpha`` (infinite if it overflows), ``A``, ``R``, ``S``. The error is
        O(L^-3/2) in alpha and S + D, and O(1/L) in A at given alpha.

    Raises
    ------
    ParameterError
        If epsilon <= 0, if teachers are not independent, or if a D lies below D_0 or
        its square overflows.
    """
    values = sweep.numbers(p, NAMES)
    c = Points.of(values)
    if c.N.size != 1 or c.side[0] != 0 or not c.moving[0] or abs(c.drift[0]) > 1e-12:
        raise ParameterError(
            "composite: must be one point with moving attention, epsilon > 0 and"
            f" independent teachers, not {_point(values)}"
        )
    D = arrays.array("D", D, Allowed(low=float(c.D_0[0]), high=LARGEST)).astype(float)
    # Plain numbers: epsilon of the orbit is not that of an optimiser, a field of the
    # same name.
    numbers = dict(values.items())
    numbers |= {q: getattr(c, q)[0] for q in ("kappa", "epsilon", "D_0")}
    root = np.sqrt(numbers["kappa"])
    locked = {
        H(sp.sqrt(kappa) * exact.D): lock_function(root * D),
        H(sp.sqrt(kappa) * D_0): lock_function(root * numbers["D_0"]),
    }
    T = equations()["proper_time_composite"].evaluate(numbers | {**locked, "D": D})
    # As D grows, T - D saturates: H(z) - z tends to sqrt(pi/2) zeta(1/2), the arc
    # tangent to pi/2.
    turned = np.pi / 2 - np.arctan(numbers["D_0"] / c.delta[0])
    saturated = np.sqrt(2 / (numbers["kappa"] * numbers["epsilon"])) * turned
    at_start = lock_function(root * numbers["D_0"])
    saturated += (np.sqrt(np.pi / 2) * ZETA_HALF - at_start) / root
    numbers["S_inf"] = numbers["S_0"] + (saturated + numbers["D_0"]) / numbers["d_g"]
    numbers["m_0"] = c.margin(c.A_0, c.D_0, c.S_0)[0]
    along = numbers | {sp.Function("T")(exact.D): T, "D": D}
    alpha = equations()["alpha_composite"].evaluate(along)
    S = c.off_target(D, T)
    if np.isnan(alpha).any():
        raise ParameterError(
            f"composite: lost in double precision at {_point(values)}; take it less"
            " extreme"
        )
    return {
        "alpha": alpha,
        "A": -np.expm1(-c.epsilon - c.kappa * D**2 / 2),
        "R": S + D,
        "S": S,
    }
