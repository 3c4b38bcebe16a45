"""Coupled weight decay under descent: the overlaps of the learned state, where the loss pulls as
hard as decay.
"""

from functools import cache
from typing import Any

import numpy as np
import scipy.optimize
import sympy as sp

from theory import Equation, ParameterError, by_dimension, scope, sweep, symbol, written_as
from theory.state_tracking import late_time, logits
from theory.state_tracking import loss as mean_field
from theory.state_tracking.dynamics import flow
from theory.state_tracking.scope import DECAYING
from theory.state_tracking.symbols import A, N, R, S, d_g, eta, g, m, ref, tau, z_k, zeta

BEYOND = "beyond the paper: weight decay"
LARGEST = 600.0  # exp(R) is a number
LOCKED = ("A = 1", late_time.INDEPENDENT, "infinite training set")

decay = symbol("weight_decay", r"\lambda_{\mathrm{w}}", "coupled weight decay", positive=True)
lambert = symbol("W_r", r"W_{N-1}", "root W of W e^W + (N - 1) W = 1/(decay d_g)", positive=True)
R_inf = symbol("R_inf", r"R_{\infty}", "R in the end", positive=True)


def rates() -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Rates of R, S and zeta at A = 1: those of the flow, and what decay takes off every weight,
    -eta decay per step in d_g N steps per unit of time.
    """
    lost = eta * decay * d_g * N
    of_flow = {x: form.subs({A: 1, tau: 1 / N}) for x, form in flow("tau").rhs.items()}
    return of_flow[R] - lost * R, of_flow[S] - lost * S, -lost * zeta


def force() -> sp.Expr:
    """Share of wrong states where S and zeta have decayed."""
    right = logits.equations()["logit_correct"].rhs.subs({A: 1, S: 0})
    at = mean_field.equations()["margin"].rhs.subs({z_k: right, zeta: 0})
    return written_as(
        1 / (1 + sp.exp(N * R / (N - 1)) / (N - 1)), mean_field.equations()["g"].rhs.subs(m, at)
    )


@cache
def balance() -> sp.Expr:
    """Decay at which R stands still."""
    of_R, of_S, of_zeta = rates()
    written_as(sp.S.Zero, of_S.subs(S, 0))  # nothing drives S and zeta
    written_as(sp.S.Zero, of_zeta.subs(zeta, 0))
    (solutions,) = sp.solve(of_R.subs(S, 0).subs(g, force()), decay)
    form = 1 / (d_g * N * R * (1 + sp.exp(N * R / (N - 1)) / (N - 1)))
    return written_as(form, solutions)


def by_lambert() -> sp.Expr:
    """R by the generalised Lambert function, whose defining equation is the balance."""
    form = (N - 1) / N * lambert
    defining = lambert * sp.exp(lambert) + (N - 1) * lambert
    written_as(1 / (d_g * defining), sp.simplify(balance().subs(R, form)))
    return form


@cache
def equations() -> dict[str, Equation]:
    """Balance of loss and decay, and the overlap in the end."""
    rows = [
        Equation("decay_of_R", decay, balance, ref(BEYOND), "closure", LOCKED),
        Equation("R_decayed", R_inf, by_lambert, ref(BEYOND), "closure", LOCKED),
    ]
    return {e.name: e for e in rows}


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
