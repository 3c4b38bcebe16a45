"""Numerical accuracies along a curve: of a single step and of a whole rollout."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from theory import arguments, numeric, scope, sweep
from theory.parameters import Allowed, ParameterError, shown
from theory.special import gaussian_accuracy
from theory.state_tracking import symbols, variance
from theory.state_tracking.dynamics import flow
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.rollout import equations, rho_t, right, wrong
from theory.state_tracking.scope import FLOW
from theory.state_tracking.symbols import accuracy, t

POSITIVE = Allowed(above=0)
BY_ROUNDING = Allowed(low=-1e-12, high=1 + 1e-12)  # rounding of a quadrature


def rollout(accuracies: Any, N: int) -> np.ndarray:
    """Probability that the state is correct after each step of a rollout (forner2026, Eqs. 84-86).

    Parameters
    ----------
    accuracies : array_like, shape (..., L)
        Next-token accuracy given a correct state, per position; NaN if unknown.
    N : int
        Number of states.

    Returns
    -------
    ndarray, shape (..., L)
        The last entry is the final rollout accuracy. NaN from the first unknown accuracy on.

    Raises
    ------
    ParameterError
        For accuracies outside [0, 1] or without an axis, or fewer than two states.
    """
    steps = arguments.array("accuracies", accuracies).astype(float)
    if not steps.ndim:
        raise ParameterError(f"accuracies = {shown(accuracies)}: must be a list, one per position")
    known = steps[~np.isnan(steps)]
    arguments.array("accuracies", known, BY_ROUNDING, empty=True)
    N = arguments.number("N", N, Allowed(low=2), int)
    reached, out = np.ones(steps.shape[:-1]), []
    step = _step()
    for right_now in np.moveaxis(steps, -1, 0):
        reached = step(reached, right_now, N)
        out.append(reached)
    return np.stack(out, -1)


@cache
def _step() -> Callable:
    """One step of the recursion (84) with uniform transitions from wrong states (86)."""
    rhs = equations()["rollout_recursion"].rhs.subs(wrong[t], equations()["recovery"].rhs)
    return numeric.function(rhs.subs(right[t], accuracy), [rho_t[t], accuracy, symbols.N])


@arguments.checked
def with_accuracy(
    curve: xr.Dataset, p: Parameters, variance_correct: Any = None, variance_other: Any = None
) -> xr.Dataset:
    """Add ``accuracy`` (17) and ``rollout_accuracy`` (18) to a trajectory that contains the mean
    logits.

    Parameters
    ----------
    curve : Dataset
        With ``logit_correct`` and ``logit_other``.
    p : Parameters
        Sizes.
    variance_correct, variance_other : array_like, optional
        Logit variances along the curve; the constant initial ones by default, as in Fig. 3.

    Raises
    ------
    ParameterError
        If the curve lacks the mean logits, or a variance is not positive.
    """
    if missing := {"logit_correct", "logit_other"} - {*curve.variables}:
        raise ParameterError(f"curve: variable {', '.join(sorted(missing))} is missing")
    gap = curve.logit_correct - curve.logit_other
    constant = xr.DataArray(variance.initial_variance(p))
    s_k, s_o = (
        np.sqrt(constant if v is None else _along(gap, name, v))
        for name, v in (("variance_correct", variance_correct), ("variance_other", variance_other))
    )
    accuracies = gaussian_accuracy(gap, s_k, s_o, p.N)
    final = equations()["rollout_mean"].evaluate({"accuracy": accuracies, "N": p.N, "L": p.L})
    return curve.assign(accuracy=accuracies, rollout_accuracy=final)


def _along(curve: xr.DataArray, name: str, value: Any) -> xr.DataArray:
    """Check that numbers are positive, and give them the curve's dimensions if they have none."""
    if isinstance(value, xr.DataArray):
        arguments.array(name, value.values, POSITIVE)
        return value
    plain = arguments.array(name, value, POSITIVE)
    if plain.shape not in ((), curve.shape):
        raise ParameterError(f"{name}: has shape {plain.shape}, must be {curve.shape} as the curve")
    return xr.DataArray(plain, dims=curve.dims[: plain.ndim])


@scope.guard(FLOW)
@sweep.over_fields
def trajectory(p: Parameters, alpha: float, **options: Any) -> xr.Dataset:
    """The theory of a training run over ``alpha``: order parameters, logits, loss, accuracies.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    alpha : float
        Run length.
    **options
        For `theory.flow.Flow.solve` (``at``, ``rtol``, ...).

    Notes
    -----
    Values that overflow are infinite.

    Arrays of fields are dimensions of the result: ``trajectory(p, 12, L=[5, 10, 20])``.
    """
    return with_accuracy(flow(p.teachers).solve(p, alpha=alpha, **options), p)
