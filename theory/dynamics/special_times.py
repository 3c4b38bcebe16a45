"""Times at which functions change their sign, jump, or change fast.

Sign changes are found by subdivision: on every part the function is a Chebyshev series,
which shows that there is no zero, at most one, or that the part must be halved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.optimize
import sympy as sp
from sympy.core.relational import Relational

from theory.call.refusal import ParameterError
from theory.numbers import numeric

DEGREE = 8  # of the series
NODES = np.polynomial.chebyshev.chebpts2(DEGREE + 1)
SERIES = np.linalg.inv(np.polynomial.chebyshev.chebvander(NODES, DEGREE)).T
SLOPES = SERIES @ np.polynomial.chebyshev.chebder(np.eye(DEGREE + 1)).T
LEVELS = 48  # of halving
MOST = 2000  # times at which an integration begins anew
MOST_PARTS = 20_000  # that are halved at once
APART = 1e-13  # times that are two, in units of the run
LITTLE = 1.0  # change of an argument in a step
PIECES = 64  # of a run, in which zeros of functions of time are looked for
CLIPPED = 1e300
NONE = 2  # side of zero of what is no number
SMOOTH_POWERS = range(2, 7)
UNDEFINED = (sp.Derivative, sp.DiracDelta, sp.Subs, sp.Sum, sp.Integral)


def sign_changes(
    of: Callable[[Any], Any], edges: np.ndarray
) -> Iterator[tuple[float, float]]:
    """Brackets of the sign changes of a function, in order. ``of`` gives values at
    times and their errors; a smaller value has no sign. Between ``edges`` it is smooth.

    Raises
    ------
    ParameterError
        If the function is no real number, or changes its sign too often.
    """
    parts = np.zeros(len(edges) - 1, int)
    times, sides, _ = _samples(lambda t, _: of(t), edges[:-1], edges[1:], parts)
    for k in np.flatnonzero((sides[1:] != sides[:-1]) | (sides[1:] == NONE)):
        if NONE in sides[k : k + 2]:
            raise ParameterError("is no real number")
        yield times[k], times[k + 1]


def first_sign_changes(
    of: Callable[[Any, Any], Any], low: np.ndarray, high: np.ndarray, owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bracket of the first sign change of each of several functions.

    Parameters
    ----------
    of : callable
        As of `sign_changes`, at times and the numbers of the parts that these lie in.
    low, high, owner : array
        Ends of parts, on which the functions are smooth, and which function that is.

    Returns
    -------
    owner, low, high : array
        Functions that change their sign, and where.
    real : array of bool
        Whether they are real numbers up to there.

    Raises
    ------
    ParameterError
        If functions change their sign too often.
    """
    times, sides, owner = _samples(of, low, high, owner)
    change = (sides[1:] != sides[:-1]) & (owner[1:] == owner[:-1]) | (sides[1:] == NONE)
    changing, first = np.unique(owner[1:][change], return_index=True)
    k = np.flatnonzero(change)[first]
    real = (sides[k] != NONE) & (sides[k + 1] != NONE)
    return changing, times[k], times[k + 1], real


def _samples(
    of: Callable[[Any, Any], Any], low: np.ndarray, high: np.ndarray, owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times between which functions change their sign once at most, the sides of zero
    on which they are there, and which function that is: ordered by functions, then by
    times.
    """
    part = np.arange(len(low))
    most = MOST_PARTS * len(np.unique(owner))
    times = np.empty(0)
    values = np.empty((2, 0))
    parts = np.empty(0, int)
    for _ in range(LEVELS):
        t = (low + high)[:, None] / 2 + (high - low)[:, None] / 2 * NODES
        t[:, 0], t[:, -1] = low, high
        of_part = np.repeat(part, len(NODES))
        both = np.clip(of(t.ravel(), of_part), -CLIPPED, CLIPPED)
        times = np.append(times, t)
        values = np.append(values, both, 1)
        parts = np.append(parts, of_part)
        v, noise = both.reshape(2, *t.shape)
        series = np.abs(v @ SERIES)
        slopes = np.abs(v @ SLOPES)
        # a slope's is larger by the square of the degree
        rest = 4 * series[:, -3:].sum(1)
        clear = 2 * series[:, 0] > series.sum(1) + rest
        clear |= 2 * slopes[:, 0] > slopes.sum(1) + DEGREE**2 * rest
        halved = ~clear & (np.abs(v) > noise).any(1)
        middle = (low + high)[halved] / 2
        low = np.append(low[halved], middle)
        high = np.append(middle, high[halved])
        part = np.tile(part[halved], 2)
        if not 0 < len(middle) <= most:
            break
    if len(middle) > most:
        raise ParameterError("changes its sign too often")
    order = np.lexsort((times, owner[parts]))
    order = order[~(np.abs(values[0, order]) <= values[1, order])]
    value = values[0, order]
    return times[order], np.where(np.isnan(value), NONE, value > 0), owner[parts[order]]


def zero(
    of: Callable[[float], float], low: float, high: float, **tolerances: float
) -> float:
    """Zero in a bracket of `sign_changes`; its middle where ends differ by less than
    rounding, so that one value at a time has other signs than values in arrays.
    """
    if (of(low) > 0) == (of(high) > 0):
        return (low + high) / 2
    return float(scipy.optimize.brentq(of, low, high, **tolerances))


def parts_of(expr: sp.Expr) -> Iterator[tuple[sp.Expr, str]]:
    """Expressions at whose zeros an expression has a jump or a kink, and arguments of
    what has a pole or branch at zero, or may change fast.
    """
    real = {x: sp.Symbol(x.name, real=True) for x in expr.free_symbols}
    for e in sp.postorder_traversal(expr.xreplace(real).rewrite(sp.Piecewise)):
        if isinstance(e, Relational):
            yield e.lhs - e.rhs, "jump"
        elif isinstance(e, sp.floor | sp.ceiling | sp.frac | sp.Mod):
            yield sp.sin(sp.pi * e.args[0] / sp.Mul(*e.args[1:])), "jump"
        elif isinstance(e, sp.Function) or (e.is_Pow and e.exp not in SMOOTH_POWERS):
            kind = "pole" if e.is_Pow or isinstance(e, sp.log) else "fast"
            yield from ((a, kind) for a in e.args if isinstance(a, sp.Expr))


@functools.lru_cache(256)
def all_parts(exprs: tuple[sp.Expr, ...]) -> Mapping[sp.Expr, str]:
    """Parts of several expressions that have numbers, and of what kind they are."""
    parts = dict(part for expr in exprs for part in parts_of(expr))
    return {
        e: kind for e, kind in parts.items() if e.free_symbols and not e.has(*UNDEFINED)
    }


@functools.lru_cache(256)
def values_of(names: tuple[str, ...], parts: tuple[sp.Expr, ...]) -> Callable:
    """Function of the values of these names that gives those of parts."""
    return numeric.system([sp.Symbol(x, real=True) for x in names], list(parts))


def fast(
    parts: Mapping[sp.Expr, str], known: Mapping[str, np.ndarray]
) -> Iterator[np.ndarray]:
    """Steps in which arguments change by more than `LITTLE`; of powers, by a share of
    that. A jump may be in any.
    """
    call = values_of((*known,), (*parts,))
    still = np.zeros(np.broadcast_shapes(*map(np.shape, known.values())))
    with np.errstate(all="ignore"):
        for row, kind in zip(call(*known.values()), parts.values(), strict=True):
            v = np.real(row) + still
            size = np.abs(v[1:]) if kind == "pole" else 1
            yield ~(np.abs(np.diff(v)) <= LITTLE * size) | (kind == "jump")


def special_times(
    parts: Mapping[sp.Expr, str],
    along: Callable[[Any], Mapping[str, Any]],
    steps: np.ndarray | None = None,
) -> np.ndarray:
    """Times from 0 to 1 at which expressions jump, have a kink, or may change fast.

    Parameters
    ----------
    parts, along
        Parts of these expressions (`all_parts`), and a function that gives values of
        symbols at times, by name; what depends on other symbols, or on no time, is
        passed over.
    steps : array, optional
        Times between which these values are smooth, in place of 0 to 1: what changes
        little there does not change fast.

    Raises
    ------
    ParameterError
        If there are more than `MOST` jumps.
    """
    special = np.array([0.0, 1.0]) if steps is None else steps[[0, -1]]
    edges = np.linspace(special[0], special[1], PIECES + 1)
    points = edges if steps is None else np.union1d(steps, (steps[1:] + steps[:-1]) / 2)
    known = along(points)
    moving = {x for x, values in known.items() if np.ndim(values)}

    def usable(part: sp.Expr) -> bool:
        names = {x.name for x in part.free_symbols}
        return (
            names <= known.keys() and bool(names & moving) and not part.has(*UNDEFINED)
        )

    def over_time(part: sp.Expr) -> tuple[Any, Any]:
        used = sorted(part.free_symbols, key=str)
        call = numeric.function(part, used)

        def value(t: Any) -> Any:
            known = along(t)
            with np.errstate(all="ignore"):
                return np.nan_to_num(np.real(call(*(known[x.name] for x in used))))

        return value, lambda t: (value(t), 0 * t)

    parts = {part: kind for part, kind in parts.items() if usable(part)}
    if steps is not None and parts:
        at = zip(parts.items(), fast(parts, known), strict=True)
        parts = dict(item for item, changes in at if changes.any())
    slopes: dict[sp.Expr, str] = {}
    for part, kind in parts.items():
        if kind != "jump":
            variables = (x for x in part.free_symbols if x.name in moving)
            slopes |= {part.diff(x): "fast" for x in variables}
    for part, kind in (slopes | parts).items():
        if not usable(part):
            continue
        value, exact = over_time(part)
        try:
            pairs = [*sign_changes(exact, np.union1d(edges, special))]
            if len(pairs) > MOST:
                raise ParameterError(f"changes its sign {len(pairs)} times")
        except ParameterError as error:
            if kind != "jump":
                continue
            raise ParameterError(f"{part}: {error}; take a shorter run") from None
        zeros = [zero(value, *pair, xtol=1e-17, rtol=1e-15) for pair in pairs]
        special = np.union1d(special, zeros)
    return special[np.append(True, np.diff(special) > APART)]
