"""Numerical values of the composite solution."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import sympy as sp

from theory import arguments, by_dimension, gauss_legendre, scope, sweep
from theory.parameters import ANYTHING, Allowed, ParameterError
from theory.state_tracking import exact
from theory.state_tracking.composite import ZETA_HALF, H, equations
from theory.state_tracking.exact import D_0, kappa
from theory.state_tracking.numbers.quadrature import NAMES, Points
from theory.state_tracking.scope import FLOW

LARGEST = 1e150  # largest D whose square does not overflow


@by_dimension()
@arguments.checked
def lock_function(z: Annotated[Any, ANYTHING]) -> np.ndarray:
    """Lock function H(z): odd, universal, and equal to z + sqrt(pi/2) zeta(1/2) + 2/z for large z.

    Parameters
    ----------
    z : array_like
        sqrt(kappa) D.

    Returns
    -------
    ndarray
        Accurate to 1e-14; the nearest poles of the integrand lie at distance 3.5 from the real
        axis.
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
        `theory.state_tracking.numbers.quadrature.emergence_time`.
    D : array_like
        Values of D, not below D_0.

    Returns
    -------
    dict of str to ndarray
        ``alpha`` (infinite if it overflows), ``A``, ``R``, ``S``. The error is O(L^-3/2) in alpha
        and S + D, and O(1/L) in A at given alpha.

    Raises
    ------
    ParameterError
        If epsilon <= 0, if teachers are not independent, or if a D lies below D_0 or its square
        overflows.
    """
    values = sweep.numbers(p, NAMES)
    c = Points.of(values)
    if c.N.size != 1 or c.side[0] != 0 or not c.moving[0] or abs(c.drift[0]) > 1e-12:
        raise ParameterError(
            "composite: must be one point with moving attention, epsilon > 0 and independent "
            f"teachers, not {_point(values)}"
        )
    D = arguments.array("D", D, Allowed(low=float(c.D_0[0]), high=LARGEST)).astype(float)
    # Plain numbers: epsilon of the orbit is not that of an optimiser, a field of the same name.
    numbers = dict(values.items()) | {q: getattr(c, q)[0] for q in ("kappa", "epsilon", "D_0")}
    root = np.sqrt(numbers["kappa"])
    shape = {
        H(sp.sqrt(kappa) * q): lock_function(root * v)
        for q, v in ((exact.D, D), (D_0, numbers["D_0"]))
    }
    T = equations()["proper_time_composite"].evaluate(numbers | {**shape, "D": D})
    # As D grows, T - D saturates: H(z) - z tends to sqrt(pi/2) zeta(1/2), the arc tangent to pi/2.
    saturated = np.sqrt(2 / (numbers["kappa"] * numbers["epsilon"])) * (
        np.pi / 2 - np.arctan(numbers["D_0"] / c.delta[0])
    )
    saturated += (np.sqrt(np.pi / 2) * ZETA_HALF - lock_function(root * numbers["D_0"])) / root
    numbers["S_inf"] = numbers["S_0"] + (saturated + numbers["D_0"]) / numbers["d_g"]
    numbers["m_0"] = c.margin(c.A_0, c.D_0, c.S_0)[0]
    alpha = equations()["alpha_composite"].evaluate(
        numbers | {sp.Function("T")(exact.D): T, "D": D}
    )
    S = c.off_target(D, T)
    if np.isnan(alpha).any():
        raise ParameterError(
            f"composite: lost in double precision at {_point(values)}; take it less extreme"
        )
    return {"alpha": alpha, "A": -np.expm1(-c.epsilon - c.kappa * D**2 / 2), "R": S + D, "S": S}
