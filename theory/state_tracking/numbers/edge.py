"""Sharpness along the flow and of the learned state, and the learning rate up to which descent is
stable there, as numbers.
"""

from functools import cache
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import scope, sweep
from theory.arguments import Positive
from theory.numeric import function
from theory.parameters import ParameterError, most_extreme
from theory.state_tracking import edge, norms
from theory.state_tracking.norms import decay, gap
from theory.state_tracking.numbers.decay import late_states, widest
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.scope import LATE_STATES, decaying_flow
from theory.state_tracking.symbols import A, L, N, R, S, d_g, d_h, eta

STATE = (edge.up, edge.down, R, S)
OTHERS = (N, L, d_g, d_h, decay, gap, eta)


@cache
def _hessian() -> Any:
    """Minus the Jacobian of the flow per eta d_g N, without the drift of zeta."""
    flow = norms.flow()
    rates = edge.amplitudes() | {x: r for x, r in flow.rhs.items() if x in (R, S)}
    spelled = [flow._spell(rates[x]).subs(A, edge.of_A()).subs(norms.zeta_now, 0) for x in STATE]
    jacobian = -sp.Matrix(spelled).jacobian(STATE) / (eta * d_g * N)
    return function([*jacobian], (*STATE, *OTHERS))


def sharpest(p: Parameters, state: Any, width: float) -> np.ndarray:
    """Largest eigenvalue of the Hessian in the reduced coordinates, at states ``(4, ...)``."""
    with np.errstate(all="ignore"):
        entries = _hessian()(*state, p.N, p.L, p.d_g, p.d_h, p.weight_decay, width, p.eta)
    matrix = np.moveaxis(np.array(entries), 0, -1)
    if not np.isfinite(matrix).all():
        return np.full(matrix.shape[:-1], np.nan)
    return np.linalg.eigvals(matrix.reshape(*matrix.shape[:-1], 4, 4)).real.max(-1)


@scope.guard(decaying_flow("iid"))
@sweep.over_fields
def sharpness(p: Parameters, alpha: Positive) -> xr.Dataset:
    """Sharpness along the flow with norms: where descent leaves it, at learning rates above
    ``eta_edge`` = 2 / sharpness.

    Parameters
    ----------
    p : Parameters
        Sizes, learning rate of the flow's clock, and weight decay, if any.
    alpha : float
        Length of the curve.

    Returns
    -------
    Dataset
        The curve of `theory.state_tracking.edge.flow`, with ``sharpness`` and ``eta_edge``; its
        loss is infinite where the logits of zeta overflow.

    Raises
    ------
    ParameterError
        If the attention at the start is none of random keys and queries, or numbers overflow.
    """
    try:
        with np.errstate(invalid="raise"):
            curve = edge.flow().solve(p, alpha=alpha)
    except FloatingPointError:
        extreme = most_extreme(p.as_dict())
        raise ParameterError(f"{extreme}: no start of random keys and queries") from None
    state = np.array([curve[x.name].values for x in STATE])
    eigenvalues = sharpest(p, state, p.L / (p.L - 1))
    if not np.isfinite(eigenvalues).all():
        raise ParameterError(f"{most_extreme(p.as_dict())}: the Hessian leaves double precision")
    return curve.assign(sharpness=("alpha", eigenvalues), eta_edge=("alpha", 2 / eigenvalues))


@scope.guard(LATE_STATES)
@sweep.over_fields
def largest_rate(p: Parameters) -> float:
    """Largest learning rate at which descent with weight decay stays in the learned state; NaN
    where there is none.

    Parameters
    ----------
    p : Parameters
        With ``weight_decay``. Fields as arrays by keyword.
    """
    ends = late_states(p).sel(state="learned")
    if np.isnan(ends.A):
        return np.nan
    state = np.array([np.sqrt(2 * float(ends.P)), 0.0, float(ends.R), float(ends.S)])
    return float(2 / sharpest(p, state, widest(p)))
