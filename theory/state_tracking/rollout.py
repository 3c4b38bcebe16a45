"""Next-token and rollout accuracy (Eqs. 16-18, App. I, Eqs. 82-91)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from theory import (
    Chapter,
    Equations,
    array,
    function,
    proved,
    symbol,
    vanishes,
    written_as,
)
from theory.call import arguments, arrays, refusal, scope, sweep
from theory.call.refusal import Allowed, ParameterError, shown
from theory.numbers import numeric
from theory.state_tracking.dynamics import flow
from theory.state_tracking.model import mean_field, symbols
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import FLOW
from theory.state_tracking.model.symbols import (
    L,
    N,
    accuracy,
    i,
    mu_k,
    mu_kbar,
    recovery,
    ref,
    rho,
    sigma_k,
    sigma_kbar,
    t,
)
from theory.symbols.special import gaussian_accuracy

right = array("step_accuracy", r"\mathcal{A}", "accuracy after a right state, by step")
wrong = array("step_recovery", r"\mathcal{B}", "accuracy after a wrong state, by step")
rho_t = array(
    "rho", r"\varrho", "probability that a rolled-out state is right, by step"
)
GAUSSIAN = "logits independent and Gaussian"
ALIKE = "wrong states lead anywhere alike"

chapter = Chapter(ref, status="closure")


@chapter.derives(
    rho_t[t + 1],
    "Eqs. (16), (82)-(84)",
    "a step is right or wrong whatever came before, given the state",
)
def rollout_recursion() -> sp.Expr:
    """Probability that the next state is right."""
    return rho_t[t] * (right[t] - wrong[t]) + wrong[t]


def closed_form(steps: sp.Expr) -> sp.Expr:
    """Solution (85) of the recursion after ``steps`` steps, from rho_0 = 1."""
    gain = right[i] - wrong[i]
    later = sp.Product(gain, (i, t + 1, steps - 1))
    never_wrong = right[0] * sp.Product(gain, (i, 1, steps - 1))
    return never_wrong + sp.Sum(wrong[t] * later, (t, 1, steps - 1))


def prove_closed_form() -> None:
    """Proof by induction: rho_1 = A_0, and one step of (84) turns the form for L into
    the form for L + 1.

    Raises
    ------
    ArithmeticError
        If either step fails.
    """
    last = (right[i] - wrong[i]).subs(i, L)

    def split(product: sp.Product) -> sp.Expr:
        """Split off the last factor of a product that ends at L."""
        ((index, low, high),) = product.limits
        others = sp.Product(product.function, (index, low, high - 1))
        return others * product.function.subs(index, high)

    following = closed_form(L + 1)
    (total,) = following.atoms(sp.Sum)
    at_end = total.function.subs(t, L).doit()  # empty product
    following = following.subs(total, sp.Sum(total.function, (t, 1, L - 1)) + at_end)
    following = following.replace(lambda e: isinstance(e, sp.Product), split)
    following = following.replace(
        lambda e: isinstance(e, sp.Sum),
        lambda e: sp.Sum(e.function / last, *e.limits) * last,
    )
    step = closed_form(L) * last + wrong[L]
    proved(
        vanishes(following - step) and closed_form(sp.Integer(1)).doit() == right[0],
        "the closed form does not solve the recursion",
    )


@chapter.derives(rho_t[L], "Eq. (85)", "exact", "proved by induction on L")
def rollout_closed() -> sp.Expr:
    """Solution of the recursion, once it is proved."""
    prove_closed_form()
    return closed_form(L)


# recovery with uniform transitions from wrong states
UNIFORM = (1 - accuracy) / (N - 1)
chapter.state("recovery", recovery, UNIFORM, "Eq. (86)", ALIKE)

u = symbol("u", means="a logit in units of its deviation", real=True)
x = sp.Symbol("x", real=True)
NORMAL = sp.exp(-(u**2) / 2) / sp.sqrt(2 * sp.pi)
BELOW = function(r"\Phi", "standard normal distribution function")
LINE = (-sp.oo, sp.oo)


@chapter.derives(
    rho, "Eqs. (18), (87)", "one accuracy for all positions", ALIKE, name="rollout_mean"
)
def constant_gain() -> sp.Expr:
    """Solution of the recursion with the same accuracy at all positions."""
    path = sp.Function("rho")
    step = path(t + 1) - path(t) * (accuracy - UNIFORM) - UNIFORM
    solved = sp.rsolve(step, path(t), {path(0): 1}).subs(t, L)
    form = (N - 1) / N * ((N * accuracy - 1) / (N - 1)) ** L + 1 / N
    return written_as(form, solved)


@chapter.derives(BELOW(u), "Eq. (90)", "exact")
def normal_below() -> sp.Expr:
    """Standard normal distribution function."""
    y = sp.Symbol("y", real=True)
    return sp.Integral(NORMAL.subs(u, y), (y, -sp.oo, u))


def density_of_right() -> sp.Expr:
    """Density of the correct logit times the probability that all wrong logits lie
    below it.
    """
    norm = sp.sqrt(2 * sp.pi) * sigma_k
    density = sp.exp(-((x - mu_k) ** 2) / (2 * sigma_k**2)) / norm
    return density * BELOW((x - mu_kbar) / sigma_kbar) ** (N - 1)


@chapter.derives(accuracy, "Eqs. (88)-(89)", GAUSSIAN)
def accuracy_density() -> sp.Expr:
    """Probability that the right logit is the largest."""
    return sp.Integral(density_of_right(), (x, *LINE))


def standardised() -> sp.Expr:
    """The same in the standard variable u, dx = sigma_k du."""
    standard = density_of_right().subs(x, mu_k + sigma_k * u) * sigma_k
    ratio = sigma_k / sigma_kbar * u + (mu_k - mu_kbar) / sigma_kbar
    (below,) = standard.atoms(BELOW)
    written_as(NORMAL, standard.subs(below, 1))
    return NORMAL * BELOW(written_as(ratio, below.args[0])) ** (N - 1)


@chapter.derives(accuracy, "Eqs. (17), (91)", GAUSSIAN, name="accuracy")
def accuracy_standard() -> sp.Expr:
    """Probability that the right logit is the largest, over a standard variable."""
    return sp.Integral(standardised(), (u, *LINE))


def equations() -> Equations:
    """Recursion, its solutions, and the Gaussian one-step accuracy."""
    return chapter.equations


# Numerical accuracies along a curve

POSITIVE = Allowed(above=0)
BY_ROUNDING = Allowed(low=-1e-12, high=1 + 1e-12)  # rounding of a quadrature


def rollout(accuracies: Any, N: int) -> np.ndarray:
    """Probability that the state is correct after each step of a rollout (forner2026,
    Eqs. 84-86).

    Parameters
    ----------
    accuracies : array_like, shape (..., L)
        Next-token accuracy given a correct state, per position; NaN if unknown.
    N : int
        Number of states.

    Returns
    -------
    ndarray, shape (..., L)
        The last entry is the final rollout accuracy. NaN from the first unknown
        accuracy on.

    Raises
    ------
    ParameterError
        For accuracies outside [0, 1] or without an axis, or fewer than two states.
    """
    steps = arrays.array("accuracies", accuracies).astype(float)
    if not steps.ndim:
        raise ParameterError(
            f"accuracies = {shown(accuracies)}: must be a list, one per position"
        )
    known = steps[~np.isnan(steps)]
    arrays.array("accuracies", known, BY_ROUNDING, empty=True)
    N = refusal.number("N", N, Allowed(low=2), int)
    reached = np.ones(steps.shape[:-1])
    out = []
    step = _step()
    for right_now in np.moveaxis(steps, -1, 0):
        reached = step(reached, right_now, N)
        out.append(reached)
    return np.stack(out, -1)


@cache
def _step() -> Callable:
    """One step of the recursion
    (84) with uniform transitions from wrong states (86).
    """
    rhs = rollout_recursion().subs(wrong[t], UNIFORM).subs(right[t], accuracy)
    return numeric.function(rhs, [rho_t[t], accuracy, symbols.N])


@arguments.checked
def with_accuracy(
    curve: xr.Dataset,
    p: Parameters,
    variance_correct: Any = None,
    variance_other: Any = None,
) -> xr.Dataset:
    """Add ``accuracy`` (17) and ``rollout_accuracy`` (18) to a trajectory that contains
    the mean logits.

    Parameters
    ----------
    curve : Dataset
        With ``logit_correct`` and ``logit_other``.
    p : Parameters
        Sizes.
    variance_correct, variance_other : array_like, optional
        Logit variances along the curve; the constant initial ones by default, as in
        Fig. 3.

    Raises
    ------
    ParameterError
        If the curve lacks the mean logits, or a variance is not positive.
    """
    if missing := {"logit_correct", "logit_other"} - {*curve.variables}:
        raise ParameterError(f"curve: variable {', '.join(sorted(missing))} is missing")
    gap = curve.logit_correct - curve.logit_other
    constant = xr.DataArray(mean_field.initial_variance(p))
    of_correct = _along(gap, "variance_correct", variance_correct, constant)
    of_other = _along(gap, "variance_other", variance_other, constant)
    accuracies = gaussian_accuracy(gap, np.sqrt(of_correct), np.sqrt(of_other), p.N)
    sizes = {"accuracy": accuracies, "N": p.N, "L": p.L}
    final = equations()["rollout_mean"].evaluate(sizes)
    return curve.assign(accuracy=accuracies, rollout_accuracy=final)


def _along(
    curve: xr.DataArray, name: str, value: Any, usual: xr.DataArray
) -> xr.DataArray:
    """Check that numbers are positive, and give them the curve's dimensions if they
    have none; the usual ones for None.
    """
    if value is None:
        return usual
    if isinstance(value, xr.DataArray):
        arrays.array(name, value.values, POSITIVE)
        return value
    plain = arrays.array(name, value, POSITIVE)
    if plain.shape not in ((), curve.shape):
        raise ParameterError(
            f"{name}: has shape {plain.shape}, must be {curve.shape} as the curve"
        )
    return xr.DataArray(plain, dims=curve.dims[: plain.ndim])


@scope.guard(FLOW)
@sweep.over_fields
def trajectory(p: Parameters, alpha: float, **options: Any) -> xr.Dataset:
    """The theory of a training run over ``alpha``: order parameters, logits, loss,
    accuracies.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    alpha : float
        Run length.
    **options
        For `theory.dynamics.flow.Flow.solve` (``at``, ``rtol``, ...).

    Notes
    -----
    Values that overflow are infinite.

    Arrays of fields are dimensions of the result: ``trajectory(p, 12, L=[5, 10, 20])``.
    """
    return with_accuracy(flow(p.teachers).solve(p, alpha=alpha, **options), p)
