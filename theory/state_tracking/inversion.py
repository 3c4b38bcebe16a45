"""A, R and S of the exact solution at given times: monotone inversion of alpha(D), then the closed
form at A = 1.
"""

from typing import Any

import numpy as np
import xarray as xr
from numpy import ndarray

from theory import Allowed, arguments, by_dimension, scope, sweep
from theory.arguments import Times
from theory.special import log_linear
from theory.state_tracking.dynamics import flow
from theory.state_tracking.parameters import Parameters
from theory.state_tracking.quadrature import CHUNK, NAMES, NODES, TO_INTEGRAL, TO_LEGENDRE, Points
from theory.state_tracking.scope import FLOW

ROUNDING = 4e-16  # of numbers up to 1


@scope.guard(FLOW)
@by_dimension(along="alpha")
def states(p: Any, alpha: Any, **swept: Any) -> dict[str, ndarray]:
    """A, R and S of the exact solution at given times, for many parameter points.

    Parameters
    ----------
    p : Parameters or mapping
        As for `emergence_time`.
    alpha : array_like, shape (times,)
        Training times, >= 0, in any order.
    **swept
        Arrays of fields of the parameters.

    Returns
    -------
    dict of str to ndarray
        Arrays of the broadcast shape of the parameters, with the times as last axis.

    Raises
    ------
    ParameterError
        If a time is negative or not finite.
    """
    values = sweep.numbers(p, NAMES, **swept)
    times = arguments.listed("alpha", alpha, Allowed(low=0))
    points = Points.of(values)
    solved = np.empty((3, points.N.size, times.size))
    # If 1/g overflows at the start, nothing changes within representable times.
    moving = points.moving & (points.margin(points.A_0, points.D_0, points.S_0) < 700)
    batch = max(1, 32 * CHUNK // (times.size * NODES))
    for which, road in ((moving, _moving), (~moving, _still)):
        chosen = np.flatnonzero(which)
        for k in range(0, chosen.size, batch):
            solved[:, chosen[k : k + batch]] = road(points[chosen[k : k + batch]], times)
    shape = (*np.broadcast_shapes(*(np.shape(values[n]) for n in NAMES)), times.size)
    A, D, S = (q.reshape(shape) for q in solved)
    return {"A": A, "R": S + D, "S": S}


def _still(points: Points, times: ndarray) -> tuple[ndarray, ...]:
    """A, D and S at points where attention, or everything, is constant."""
    c = points[:, None]
    return np.broadcast_arrays(c.A_0, *_coast(c, c.A_0, c.D_0, c.S_0, times))


def _coast(
    c: Points, A: ndarray, D: ndarray, S: ndarray, after: ndarray
) -> tuple[ndarray, ndarray]:
    """D and S at a time ``after`` the given state, at constant attention (`late_time`,
    ``coasting_margin``).
    """
    start = c.margin(A, D, S)
    rate = c.pace * ((1 - A) / c.d_g + c.drift)  # rate of S per eta g; that of D is pace A
    lift = rate + (A + (1 - A) / c.d_g) * c.pace * A
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        X = start + np.exp(start) / (c.N - 1) + c.N / (c.N - 1) * lift * c.eta * after
        now = log_linear(X, c.N - 1)
    mass = np.where(np.isfinite(X), now - start, 0) * (c.N - 1) / c.N / lift  # integral of eta g
    return D + c.pace * A * mass, S + rate * mass


def _reach(points: Points, end: float) -> tuple[ndarray, ndarray, ndarray]:
    """Integration limits in s that cover the times up to ``end``, and the s at which A
    reaches 1.
    """
    start = points.s_of(points.D_0, points.E_0)
    locked = points.locked()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # If attention dies, eta pace alpha is at least the integral of dD/E, which bounds s from
        # above.
        waited = points.eta * points.pace * end * np.abs(
            points.epsilon
        ) / points.delta + np.arcsinh(np.exp(start))
        stop = np.where(
            points.side < 0, waited + np.log(-np.expm1(-2 * waited)) - np.log(2), locked
        )
    for _ in range(40):  # e^m may shorten the range: estimate it with few panels, repeatedly
        if points.panels(start, stop).max() <= 64:
            break
        seen = points.integrate(start, stop, 64)
        late = np.argmax(~(seen.alpha <= end), 1)
        late = np.where(late == 0, 64, np.minimum(late + 1, 64))
        nearer = seen.edge[np.arange(late.size), late]
        if np.all(nearer == stop):
            break
        stop = nearer
    return start, stop, locked


@np.errstate(over="ignore", invalid="ignore")  # times may overflow
def _moving(points: Points, times: ndarray) -> tuple[ndarray, ...]:
    """A, D and S at points where attention changes: monotone inversion of alpha(s), then constant
    attention once A = 1.
    """
    start, stop, locked = _reach(points, times.max())
    run = points.integrate(start, stop, points.panels(start, stop).max())
    row = np.arange(start.size)[:, None]
    k = np.clip((run.alpha[:, None, :] <= times[:, None]).sum(-1) - 1, 0, run.alpha.shape[1] - 2)
    half = np.diff(run.edge)[row, k] / 2
    grown, rate = (
        half[..., None] * (run.alpha_rate @ to.T)[row, k] for to in (TO_INTEGRAL, TO_LEGENDRE)
    )
    wanted = times - run.alpha[row, k]
    inside = solve_monotone(lambda t: legendre(t, grown, rate), wanted)
    s = run.edge[row, k] + half * (1 + inside)
    c = points[:, None]
    D, E, _ = c.chart(s)
    (within,) = legendre(inside, (run.T_rate @ TO_INTEGRAL.T)[row, k])
    T = run.T[row, k] + half * within
    S = c.off_target(D, T)
    over = (times > run.alpha[:, -1:]) & (stop == locked)[:, None]
    D_late, S_late = _coast(c, np.ones_like(D), D, S, times - run.alpha[:, -1:])
    return np.where(over, 1.0, -np.expm1(-E)), np.where(over, D_late, D), np.where(over, S_late, S)


def legendre(t: ndarray, *series: ndarray) -> list[ndarray]:
    """Legendre series with different coefficients for every t."""
    most = max(c.shape[-1] for c in series)
    basis = np.polynomial.legendre.legvander(t, most - 1)
    return [np.einsum("...j,...j", basis[..., : c.shape[-1]], c) for c in series]


def solve_monotone(of: Any, wanted: ndarray) -> ndarray:
    """Solve ``value(t) = wanted`` for an increasing function on [-1, 1] by bracketed Newton
    steps, to rounding; ``of(t)`` gives value and slope.
    """
    low = np.full(wanted.shape, -1.0)
    high = np.full(wanted.shape, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.clip(np.nan_to_num(2 * wanted / of(high)[0], nan=1.0) - 1, low, high)  # a line
    finest = ROUNDING * np.abs(wanted)  # where it is flat, t is known less well
    for _ in range(100):
        value, slope = of(t)
        gap = value - wanted
        low = np.where(gap < 0, t, low)
        high = np.where(gap < 0, high, t)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = t - gap / slope
        step = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        step = np.where(np.abs(gap) > finest, step, t)  # also where the value is no number
        done = np.all(np.abs(step - t) <= ROUNDING)
        t = step
        if done:
            break
    return t


@scope.guard(FLOW)
@sweep.over_fields
def solve(p: Parameters, at: Times) -> xr.Dataset:
    """Trajectory at one parameter point, with the variables of ``flow(...).solve``.

    Parameters
    ----------
    p : Parameters
        Model parameters.
    at : array_like
        Training times in alpha, >= 0.

    Returns
    -------
    Dataset
        A, R, S and the observables of the flow over ``alpha``; infinite if they overflow.
    """
    times, system = np.asarray(at), flow(p.teachers)
    along = states(p.values(), times)
    curve = system.observed(p, times, np.array([along[x.name] for x in system.state]))
    return curve.assign_attrs(solver="exact solution by quadrature")
