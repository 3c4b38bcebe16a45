"""Coupled weight decay under descent: the overlap of the learned state, where the gradient of the
loss balances the decay.
"""

from functools import cache
from typing import Any

import numpy as np
import scipy.optimize
import sympy as sp

from theory import Equation, ParameterError, by_dimension, scope, sweep, symbol, table, written_as
from theory.state_tracking import late_time, phases
from theory.state_tracking.norms import BEYOND, decay
from theory.state_tracking.scope import DECAYING
from theory.state_tracking.symbols import A, N, R, d_g, ref

LARGEST = 600.0  # exp(R) is a number
LOCKED = ("A = 1", late_time.INDEPENDENT, "infinite training set")

lambert = symbol("W_r", r"W_{N-1}", "root W of W e^W + (N - 1) W = 1/(decay d_g)", positive=True)
R_inf = symbol("R_inf", r"R_{\infty}", "R in the end", positive=True)


def balance() -> sp.Expr:
    """Decay at which R stands still: the balance of `phases` at A = 1, where S has decayed."""
    R_still, S_still = (x.subs({A: 1, phases.steady: R}) for x in phases.overlaps())
    written_as(R, R_still)
    written_as(sp.S.Zero, S_still)
    form = 1 / (d_g * N * R * (1 + sp.exp(N * R / (N - 1)) / (N - 1)))
    return written_as(form, phases.balance().subs({A: 1, phases.steady: R}))


def by_lambert() -> sp.Expr:
    """R by the generalised Lambert function, whose defining equation is the balance."""
    at_one = phases.by_lambert().subs({A: 1, phases.lambert: lambert})
    return written_as((N - 1) / N * lambert, at_one)


@cache
def equations() -> dict[str, Equation]:
    """Balance of loss and decay, and the overlap in the end."""
    return table(
        ref(BEYOND),
        *LOCKED,
        status="closure",
        decay_of_R=(decay, balance),
        R_decayed=(R_inf, by_lambert),
    )


@by_dimension()
@scope.guard(DECAYING)
def late_overlap(p: Any, **swept: Any) -> np.ndarray:
    """Overlap R in the end under descent with coupled weight decay.

    Parameters
    ----------
    p : Parameters
        With ``weight_decay``; infinite without.
    **swept
        Arrays of fields of the parameters.

    Raises
    ------
    ParameterError
        If decay is so weak that R would be above 600, where probabilities underflow.

    Returns
    -------
    ndarray
        R where attention stays on the right action.
    """
    names = ("weight_decay", "N", "d_g")
    values = sweep.numbers(p, names, **swept)
    of_R = equations()["decay_of_R"].lambdify(R, N, d_g)

    def one(rate: float, states: float, actions: float) -> float:
        if rate == 0:
            return np.inf
        most = min(1 / (rate * actions * states), LARGEST)  # R is largest where g = 1
        if rate < of_R(LARGEST, states, actions):
            raise ParameterError(f"weight_decay = {rate:g}: must be 0, or large enough for R < 600")
        low = 1e-12 * min(most, 1)
        return scipy.optimize.brentq(
            lambda x: np.log(of_R(x, states, actions) / rate), low, most, xtol=1e-14 * most
        )

    return np.vectorize(one, otypes=[float])(*(values[name] for name in names))[()]
