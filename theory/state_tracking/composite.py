"""Finite-size onset, and a composite of early, onset and late forms that holds at all times (no Eq.
in the paper).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import sweep
from theory.algebra import written_as
from theory.equation import Equation
from theory.notation import symbol
from theory.parameters import ParameterError
from theory.series import truncated
from theory.special import gauss_legendre
from theory.state_tracking import exact
from theory.state_tracking.exact import BEYOND, D_0, D, epsilon, kappa, level, x
from theory.state_tracking.late_time import INDEPENDENT, S_inf, m_0
from theory.state_tracking.numbers.quadrature import NAMES, Points
from theory.state_tracking.onset import waited
from theory.state_tracking.symbols import A_0, A, L, N, S, eta, ref

alpha_level = symbol("alpha_level", r"\alpha_{a}", positive=True)
steep = symbol("kappa_L", r"\kappa_{L}", positive=True)  # kappa/L
t = symbol("t_", "t", real=True)
H = sp.Function("H")

ZETA_HALF = -1.4603545088095868  # Riemann zeta at 1/2
ERROR = "error O(L^(-3/2)) in D and alpha, O(1/L) in A, at all times, where N and d_g grow like L"


def lock(z: sp.Expr) -> sp.Expr:
    """What 1/A = 1/(1 - e^-E) leaves beside the onset's 1/E, at E = z^2/2: regular at z = 0."""
    return 1 / (1 - sp.exp(-(z**2) / 2)) - 2 / z**2


def large_L() -> sp.Expr:
    """Time of A = a from A_0 = 1/L, R_0 = S_0 = zeta = 0 in powers of L^(-1/2), up to 1/L.

    From the composite T(D): D_a and epsilon are put in, kappa = kappa_L L; g = (N-1)/N until D of
    order 1.
    """
    e, depth = sp.symbols("e depth", positive=True)  # L^(-1/2) and -ln(1-a)
    rise = exact.equations()["epsilon"].rhs.subs({D_0: 0, A_0: e**2})
    up = sp.sqrt(2 * (depth - rise) / (steep / e**2))  # D_a
    target = exact.equations()["D_of_level"].rhs.subs(
        {D_0: 0, A_0: e**2, level: 1 - sp.exp(-depth), kappa: steep / e**2}
    )
    written_as(up**2, target)
    onset_part = waited().subs({D_0: 0, D: up}).subs({kappa: steep / e**2, epsilon: rise})
    onset_part = onset_part.replace(sp.atan, lambda y: sp.pi / 2 - sp.atan(1 / y))  # y > 0 is large
    series = truncated(onset_part, 2, e)
    argument = up * sp.sqrt(steep) / e
    if sp.limit(sp.diff(argument, e), e, 0) != 0:
        raise ArithmeticError("the lock has a term of order 1/L")
    locking = e / sp.sqrt(steep) * H(sp.sqrt(2 * depth))
    total = sp.expand(series + locking)
    at = sp.sqrt(-2 * sp.log(1 - level))
    form = (
        sp.pi / sp.sqrt(2) + (H(at) - 2 / at) / sp.sqrt(L) - sp.pi / (4 * sp.sqrt(2) * L)
    ) / sp.sqrt(steep)
    written_as(form.subs(sp.log(1 - level), -depth).subs(L, 1 / e**2), total)
    return N / ((N - 1) * eta) * form


@cache
def proper_time() -> sp.Expr:
    """T(D): 1/A = 1/E + (1/A - 1/E), where epsilon is dropped beside kappa D^2/2 in the bracket."""
    both = waited() + (H(sp.sqrt(kappa) * D) - H(sp.sqrt(kappa) * D_0)) / sp.sqrt(kappa)
    split = 1 / (epsilon + kappa * D**2 / 2) + lock(sp.sqrt(kappa) * D)
    derivative = both.diff(D).subs(
        sp.Subs(sp.Derivative(H(t), t), t, sp.sqrt(kappa) * D), lock(sp.sqrt(kappa) * D)
    )
    derivative = derivative.doit().replace(sp.Subs, lambda f, v, p: lock(p[0]))
    rise = sp.Symbol("rise", positive=True)
    written_as(split.subs(epsilon, rise), derivative.subs(epsilon, rise))
    return both


def training_time() -> sp.Expr:
    """alpha(D): the margin is m_0 until D is of order 1, and that of A = 1, S = S_inf from there
    on.
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
    """The lock, the composite, and the time of A = a at large L."""
    found = [
        Equation("lock", H(x), sp.Integral(lock(t), (t, 0, x)), ref(BEYOND), "exact"),
        Equation(
            "proper_time_composite",
            sp.Function("T")(D),
            proper_time,
            ref(BEYOND),
            "leading order",
            ("epsilon > 0", ERROR),
        ),
        Equation(
            "alpha_composite",
            sp.Function("alpha")(D),
            training_time,
            ref(BEYOND),
            "leading order",
            (INDEPENDENT, "epsilon > 0", "m_0 is the margin at alpha = 0", ERROR),
        ),
        Equation(
            "alpha_level_large_L",
            alpha_level,
            large_L,
            ref("beyond Eq. (81): finite sizes"),
            "leading order",
            (
                "A_0 = 1/L, R_0 = S_0 = zeta = 0",
                INDEPENDENT,
                "kappa_L = kappa/L",
                "error O(L^(-3/2))",
            ),
        ),
    ]
    return {e.name: e for e in found}


def lock_function(z: Any) -> np.ndarray:
    """H(z), the universal function of the lock; odd, and z + sqrt(pi/2) zeta(1/2) + 2/z for large
    z.

    Parameters
    ----------
    z : array_like
        sqrt(kappa) D.

    Returns
    -------
    ndarray
        To 1e-14: the integrand has its nearest poles at distance 3.5 from the real axis.
    """
    z = np.asarray(z, float)
    far = 9.0  # e^(-z^2/2) is below rounding
    nodes, weights = gauss_legendre(48)
    end = np.minimum(np.abs(z), far)[..., None]
    E = (end * nodes) ** 2 / 2
    small = np.minimum(E, 0.03)
    with np.errstate(divide="ignore", invalid="ignore"):
        bracket = np.where(
            E < 0.03,
            0.5 + small / 12 - small**3 / 720 + small**5 / 30240,
            -1 / np.expm1(-E) - 1 / E,
        )
        beyond = np.where(np.abs(z) > far, np.abs(z) - far + 2 / np.abs(z) - 2 / far, 0)
    return np.sign(z) * ((bracket * weights).sum(-1) * end[..., 0] + beyond)


@sweep.over_fields
def composite(p: Any, D: Any) -> dict[str, np.ndarray]:
    """Composite solution, with D = R - S as the parameter along the curve.

    Parameters
    ----------
    p : Parameters or mapping
        Parameters, or numbers of one point by symbol name, as for
        `theory.state_tracking.numbers.quadrature.emergence_time`.
    D : array_like
        From D_0 upwards.

    Returns
    -------
    dict of str to ndarray
        ``alpha``, ``A``, ``R``, ``S``; the error is O(L^-3/2) in alpha and S + D, O(1/L) in A at
        given alpha.

    Raises
    ------
    ParameterError
        Unless epsilon > 0 and teachers are independent.
    """
    values = sweep.numbers(p, NAMES)
    c, D = Points.of(values), np.asarray(D, float)
    if c.N.size != 1 or c.side[0] != 0 or not c.moving[0] or abs(c.drift[0]) > 1e-12:
        raise ParameterError(
            "composite: must be one point with moving attention, epsilon > 0 and independent teachers"
        )
    numbers = {**values, **{q: getattr(c, q)[0] for q in ("kappa", "epsilon", "D_0")}}
    root = np.sqrt(numbers["kappa"])
    shape = {
        H(sp.sqrt(kappa) * q): lock_function(root * v)
        for q, v in ((exact.D, D), (D_0, numbers["D_0"]))
    }
    T = equations()["proper_time_composite"].evaluate({**numbers, **shape, "D": D})
    # As D grows, T - D comes to rest: H(z) - z at sqrt(pi/2) zeta(1/2), the arc tangent at pi/2.
    rest = np.sqrt(2 / (numbers["kappa"] * numbers["epsilon"])) * (
        np.pi / 2 - np.arctan(numbers["D_0"] / c.delta[0])
    )
    rest += (np.sqrt(np.pi / 2) * ZETA_HALF - lock_function(root * numbers["D_0"])) / root
    numbers["S_inf"] = numbers["S_0"] + (rest + numbers["D_0"]) / numbers["d_g"]
    numbers["m_0"] = c.margin(c.A_0, c.D_0, c.S_0)[0]
    alpha = equations()["alpha_composite"].evaluate(
        {**numbers, sp.Function("T")(exact.D): T, "D": D}
    )
    S = c.off_target(D, T)
    return {"alpha": alpha, "A": -np.expm1(-c.epsilon - c.kappa * D**2 / 2), "R": S + D, "S": S}
