"""Numerical value of the constant in the late-time law."""

from typing import Any

import numpy as np

from theory import by_dimension, scope, sweep
from theory.state_tracking.numbers import quadrature
from theory.state_tracking.numbers.quadrature import NAMES, Points
from theory.state_tracking.scope import FLOW


@by_dimension()
@np.errstate(over="ignore", invalid="ignore")  # overflow gives no constant
@scope.guard(FLOW)
def late_constant(p: Any, **swept: Any) -> np.ndarray:
    """Constant C of the late-time solution R + e^{(N R - zeta)/(N-1)}/N = eta alpha + C.

    Parameters
    ----------
    p : Parameters or mapping
        As for `theory.state_tracking.numbers.quadrature.emergence_time`.
    **swept
        Arrays of fields of the parameters.

    Returns
    -------
    ndarray
        In units of eta alpha; NaN if attention dies or is constant, or if e^m overflows.
    """
    values = sweep.numbers(p, NAMES, **swept)
    points = Points.of(values)
    shape = np.broadcast_shapes(*(np.shape(values[q]) for q in NAMES))
    constants = np.full(points.N.size, np.nan)
    for k in np.flatnonzero(points.moving & ~points.dying):
        one, depth = points[k : k + 1], quadrature.LOCKED
        start = one.s_of(one.D_0, one.E_0)
        while True:  # the integrand decays as e^(m - E)
            stop = one.locked(depth)
            run = one.integrate(start, stop, int(one.panels(start, stop).max()))
            with np.errstate(invalid="ignore"):
                mass = run.alpha_rate / run.T_rate * one.eta * one.pace - 1  # e^m/(N-1)
            if not mass[0, -1, -1] * np.exp(-depth) > np.exp(-quadrature.LOCKED) or depth > 1e4:
                break
            depth *= 1.5
        half = np.diff(run.edge)[..., None] / 2
        D, E, stretch = one.chart(run.edge[:, :-1, None] + half * (1 + quadrature.X))
        A_now = -np.expm1(-E)
        with np.errstate(over="ignore", invalid="ignore"):
            left = (
                np.exp(-E) * (1 / A_now + mass * (1 + 1 / A_now - one.kappa * D**2)) * stretch * E
            )
            excess = (1 - 1 / one.d_g) * (half * left * quadrature.WEIGHTS).sum()
            begun = np.exp(one.margin(one.A_0, one.D_0, one.S_0)) / one.N
            clock = one.D_0 + one.S_0 + begun - excess
        constants[k] = np.where(np.isfinite(clock), clock, np.nan)[0]
    return constants.reshape(shape)[()]
