"""Accuracies along a curve in numbers: of a step, and of a whole rollout."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from theory import numeric, scope, sweep
from theory.special import gaussian_accuracy
from theory.state_tracking import symbols, variance
from theory.state_tracking.dynamics import flow
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.rollout import equations, rho_t, right, wrong
from theory.state_tracking.scope import FLOW
from theory.state_tracking.symbols import accuracy, t


def rollout(accuracies: Any, N: int) -> np.ndarray:
    """Probability that the state is right after each step of a rollout (forner2026, Eqs. 84-86).

    Parameters
    ----------
    accuracies : array_like, shape (..., L)
        Next-token accuracy on a right state, per position.
    N : int
        Number of states.

    Returns
    -------
    ndarray, shape (..., L)
        Last entry: final rollout accuracy.
    """
    steps = np.asarray(accuracies, float)
    reached, out = np.ones(steps.shape[:-1]), []
    step = _step()
    for right_now in np.moveaxis(steps, -1, 0):
        reached = step(reached, right_now, N)
        out.append(reached)
    return np.stack(out, -1)


@cache
def _step() -> Callable:
    """Recursion (84) where wrong states lead anywhere alike (86)."""
    rhs = equations()["rollout_recursion"].rhs.subs(wrong[t], equations()["recovery"].rhs)
    return numeric.function(rhs.subs(right[t], accuracy), [rho_t[t], accuracy, symbols.N])


def with_accuracy(
    curve: xr.Dataset, p: Parameters, variance_correct: Any = None, variance_other: Any = None
) -> xr.Dataset:
    """Add ``accuracy`` (17) and ``rollout_accuracy`` (18) to a trajectory with logit means.

    Parameters
    ----------
    curve : Dataset
        With ``logit_correct`` and ``logit_other``.
    p : Parameters
        Sizes.
    variance_correct, variance_other : array_like, optional
        Logit variances along the curve; the constant initial ones by default, as in Fig. 3.
    """
    constant = variance.initial_variance(p)
    s_k, s_o = (np.sqrt(constant if v is None else v) for v in (variance_correct, variance_other))
    gap = curve.logit_correct - curve.logit_other
    found = gaussian_accuracy(gap, s_k, s_o, p.N)
    final = equations()["rollout_mean"].evaluate({"accuracy": found, "N": p.N, "L": p.L})
    return curve.assign(accuracy=(gap.dims, found), rollout_accuracy=(gap.dims, final))


@scope.guard(FLOW)
@sweep.over_fields
def trajectory(p: Parameters, alpha: float, **options: Any) -> xr.Dataset:
    """Everything theory says about a training run, over ``alpha``: flow, logits, loss, accuracies.

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
    Arrays of fields are dimensions of the result: ``trajectory(p, 12, L=[5, 10, 20])``.
    """
    return with_accuracy(flow(p.permutations).solve(p, alpha=alpha, **options), p)
