"""A, R and S of the exact solution at given times: monotone inversion of alpha(D), then
the closed form at A = 1.
"""

from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize.elementwise import find_root

from theory import Allowed, by_dimension
from theory.call import arrays, scope, sweep
from theory.call.arguments import Times
from theory.state_tracking.dynamics import flow
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import FLOW
from theory.state_tracking.quadrature import CHUNK, NAMES, NODES, TO_INTEGRAL, Points
from theory.symbols.special import log_linear


@scope.guard(FLOW)
@by_dimension(along="alpha")
def states(p: Any, alpha: Any, **swept: Any) -> dict[str, np.ndarray]:
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
    times = arrays.listed("alpha", alpha, Allowed(low=0))
    points = Points.of(values)
    solved = np.empty((3, points.N.size, times.size))
    # If 1/g overflows at the start, nothing changes within representable times.
    moving = points.moving & (points.margin(points.A_0, points.D_0, points.S_0) < 700)
    size = max(1, 32 * CHUNK // (times.size * NODES))
    for which, solution in ((moving, _moving), (~moving, _still)):
        chosen = np.flatnonzero(which)
        for k in range(0, chosen.size, size):
            batch = chosen[k : k + size]
            solved[:, batch] = solution(points[batch], times)
    shape = np.broadcast_shapes(*(np.shape(values[n]) for n in NAMES))
    A, D, S = (q.reshape(*shape, times.size) for q in solved)
    return {"A": A, "R": S + D, "S": S}


def _still(points: Points, times: np.ndarray) -> tuple[np.ndarray, ...]:
    """A, D and S at points where attention, or everything, is constant."""
    c = points[:, None]
    return np.broadcast_arrays(c.A_0, *_coast(c, c.A_0, c.D_0, c.S_0, times))


def _coast(
    c: Points, A: np.ndarray, D: np.ndarray, S: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """D and S at a time ``after`` the given state, at constant attention (`late_time`,
    ``coasting_margin``).
    """
    start = c.margin(A, D, S)
    # rate of S per eta g; that of D is pace A
    rate = c.pace * ((1 - A) / c.d_g + c.drift)
    lift = rate + (A + (1 - A) / c.d_g) * c.pace * A
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        begun = start + np.exp(start) / (c.N - 1)
        X = begun + c.N / (c.N - 1) * lift * c.eta * after
        now = log_linear(X, c.N - 1)
    gained = np.where(np.isfinite(X), now - start, 0)
    mass = gained * (c.N - 1) / c.N / lift  # integral of eta g
    return D + c.pace * A * mass, S + rate * mass


def _reach(points: Points, end: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integration limits in s that cover the times up to ``end``, and the s at which A
    reaches 1.
    """
    start = points.s_of(points.D_0, points.E_0)
    locked = points.locked()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # If attention dies, eta pace alpha is at least the integral of dD/E, which
        # bounds s from above.
        waited = points.eta * points.pace * end * np.abs(points.epsilon)
        waited = waited / points.delta + np.arcsinh(np.exp(start))
        dying = waited + np.log(-np.expm1(-2 * waited)) - np.log(2)
        stop = np.where(points.side < 0, dying, locked)
    # e^m may shorten the range: estimate it with few panels, repeatedly
    for _ in range(40):
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
def _moving(points: Points, times: np.ndarray) -> tuple[np.ndarray, ...]:
    """A, D and S at points where attention changes: monotone inversion of alpha(s),
    then constant attention once A = 1.
    """
    start, stop, locked = _reach(points, times.max())
    run = points.integrate(start, stop, points.panels(start, stop).max())
    row = np.arange(start.size)[:, None]
    begun = (run.alpha[:, None, :] <= times[:, None]).sum(-1)
    k = np.clip(begun - 1, 0, run.alpha.shape[1] - 2)  # panel of each time
    half = np.diff(run.edge)[row, k] / 2
    grown = half[..., None] * (run.alpha_rate @ TO_INTEGRAL.T)[row, k]
    ends = (legendre(np.full(half.shape, t), grown) for t in (-1.0, 1.0))
    wanted = np.clip(times - run.alpha[row, k], *ends)
    series = grown.reshape(-1, grown.shape[-1])

    def gap(t: np.ndarray, time: np.ndarray, number: np.ndarray) -> np.ndarray:
        return legendre(t, series[number.astype(int)]) - time

    numbers = np.arange(wanted.size).reshape(wanted.shape)
    roots = find_root(gap, (-1.0, 1.0), args=(wanted, numbers)).x
    inside = np.nan_to_num(roots)  # in the middle of a panel in which times overflow
    s = run.edge[row, k] + half * (1 + inside)
    c = points[:, None]
    D, E, _ = c.chart(s)
    T_grown = (run.T_rate @ TO_INTEGRAL.T)[row, k]
    T = run.T[row, k] + half * legendre(inside, T_grown)
    S = c.off_target(D, T)
    last = run.alpha[:, -1:]
    late = (times > last) & (stop == locked)[:, None]
    D_late, S_late = _coast(c, np.ones_like(D), D, S, times - last)
    A = np.where(late, 1.0, -np.expm1(-E))
    return A, np.where(late, D_late, D), np.where(late, S_late, S)


def legendre(t: np.ndarray, series: np.ndarray) -> np.ndarray:
    """Legendre series with different coefficients for every t."""
    basis = np.polynomial.legendre.legvander(t, series.shape[-1] - 1)
    return np.einsum("...j,...j", basis, series)


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
        A, R, S and the observables of the flow over ``alpha``; infinite if they
        overflow.
    """
    times = np.asarray(at)
    system = flow(p.teachers)
    along = states(p.values(), times)
    curve = system.observed(p, times, np.array([along[x.name] for x in system.state]))
    return curve.assign_attrs(solver="exact solution by quadrature")
