"""Growth rates, end points, basins and shares of random starts of the online theory."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.optimize
import xarray as xr

from theory import Flow, ParameterError, scope, sweep
from theory.positional_semantic.online import dynamics
from theory.positional_semantic.online.dynamics import flow_of
from theory.positional_semantic.online.means import TooWide, coefficients
from theory.positional_semantic.online.parameters import ANY, Parameters
from theory.values import Values

BRANCHES = {
    "positional": ("theta", {"cos_p": 0.9, "cos_teacher": 0.0}),
    "semantic": ("m", {"cos_p": 0.0, "cos_teacher": 0.9}),
}  # overlap that stays zero; start
NEITHER = "neither"
SETTLED = 1e-5  # change over half of a run
FIRST, SHORT, LONGEST = 64.0, 256.0, 2.0**14  # lengths of runs in units of 1/rate
INFORMED = 0.05  # sum of the cosines below which an end is neither
COARSE: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-12}
BISECTIONS = 6  # of the angle between basins: to 1.4 degrees
RADII = 2  # nodes over the length of the random overlaps


class Unsettled(ParameterError):
    """Descent has not come to an end."""


@scope.pointwise(ANY)
def growth_rates(p: Parameters) -> xr.Dataset:
    """Growth rates of both overlaps while they are small, at the initial norm, and the time until
    they are of order one from ``1/sqrt(d)``: infinite for one that does not grow, NaN for free
    weights, whose norm changes meanwhile, and with it both rates (`flow` has the time).

    Parameters
    ----------
    p : Parameters
        Model; its cosines do not enter.

    Returns
    -------
    Dataset
        ``growth_m``, ``growth_theta``, ``T_m``, ``T_theta``.
    """
    results, values = {}, numbers_at(p)
    for x in ("m", "theta"):
        equation = dynamics.early_equations()[f"growth_{x}{'_held' if p.norm == 'held' else ''}"]
        results[f"growth_{x}"] = rate = equation.number(values)
        escape = dynamics.early_equations()["T_escape"]
        time = escape.number({"d": p.d, "growth": rate}) if rate > 0 else math.inf
        results[f"T_{x}"] = math.nan if p.norm == "free" else time
    return xr.Dataset({name: ((), v) for name, v in results.items()})


def numbers_at(p: Parameters) -> Values:
    """Numbers of all equations at zero overlaps and the initial norm."""
    t = coefficients((1, 0), False, 0.0, p.sigma)
    known = p.values() | {
        "q": p.sigma**2 * p.scale**2,
        "m": 0.0,
        "theta": 0.0,
        "T_mean": float(t[0, 0]),
        "T_slope": float(t[1, 1] - math.sqrt(2) * t[2, 0]),
    }
    return known | {"noise": dynamics.equations()["noise"].number(known)}


@scope.pointwise(ANY)
def ends(p: Parameters) -> dict[str, dict[str, float]]:
    """End points of descent with ``theta = 0`` (positional) and with ``m = 0`` (semantic).

    Parameters
    ----------
    p : Parameters
        Model; its start does not enter beyond the norm.

    Returns
    -------
    dict
        By name of the end: ``q``, ``m``, ``theta``, population ``loss``, and ``transverse``, the
        growth rate of the overlap that is zero there: if it is positive, descent leaves.
    """
    return {name: dict(end_of(p, name)) for name in BRANCHES}


@lru_cache(256)
def end_of(p: Parameters, name: str) -> Mapping[str, float]:
    """One of the `ends`."""
    zero, start = BRANCHES[name]
    last = _settle(flow_of(p, zero), p.replace(**start))
    place = {x: float(last[x]) for x in ("q", "m", "theta")}
    whole = flow_of(p)
    _, jacobian, _ = whole._functions(sweep.numbers(p, [s.name for s in whole._compiled[0]]), 1.0)
    row = [*place].index(zero)
    along = float(jacobian(0.0, np.array([*place.values()]))[row, row])
    return {**place, "loss": float(last.loss), "transverse": along}


def _settle(of: Flow, p: Parameters) -> xr.Dataset:
    """State of a flow after a run, doubled from `FIRST` on, whose second half changes little.

    Raises
    ------
    Unsettled
        If it does not come to an end.
    """
    rates = growth_rates(p)
    unit = 1 / max(abs(float(rates.growth_m)), abs(float(rates.growth_theta)), 1e-12)
    where = f"omega = {p.omega:g}, sigma = {p.sigma:g}, norm = {p.norm}: descent ({of.name})"
    # Most runs are short; one that is not is followed at once, as steps of the integrator grow.
    for first, end in ((FIRST, SHORT), (SHORT, LONGEST)):
        times = unit * first * 2.0 ** np.arange(-1, math.log2(end / first) + 1)
        try:
            curve = of.solve(p, t=float(times[-1]), at=times, **COARSE)
        except TooWide as error:
            raise Unsettled(f"{where} leaves the range of the theory: {error}") from None
        for k in range(1, times.size):
            half, last = curve.isel(t=k - 1), curve.isel(t=k)
            size = math.sqrt(max(float(last.q), float(last.m) ** 2))
            if max(abs(float(last[x] - half[x])) for x in ("m", "theta")) < SETTLED * size:
                return last
    raise Unsettled(f"{where} still moves at t = {float(times[-1]):.3g}, no end is known")


@scope.pointwise(ANY)
def basin(p: Parameters) -> xr.Dataset:
    """Where descent ends from the start ``cos_p``, ``cos_teacher``.

    Returns
    -------
    Dataset
        Order parameters, cosines and loss at the end, and ``semantic``: one if the cosine with the
        teacher is the larger one, else zero, NaN where both vanish.
    """
    last = _settle(flow_of(p), p).drop_vars("t")
    teacher = abs(last.cosine_teacher)
    positions = abs(last.cosine_p)
    return last.assign(semantic=(teacher > positions).where(teacher + positions > INFORMED))


def ended(p: Parameters) -> str:
    """Name of the end that descent reaches: ``positional``, ``semantic`` or ``neither``."""
    return {1.0: "semantic", 0.0: "positional"}.get(float(basin(p).semantic), NEITHER)


def boundary(p: Parameters, radius: float) -> tuple[float, str, str]:
    """Angle of the start, ``tan = cos_teacher / cos_p``, at a given length of both cosines, at
    which the end of descent changes, and the ends below and above. Where starts close to both axes
    end alike, all do: a right angle.
    """

    def end(angle: float) -> str:
        start = {"cos_p": radius * math.cos(angle), "cos_teacher": radius * math.sin(angle)}
        return ended(p.replace(**start))

    width = math.pi / 2 / 2**BISECTIONS
    low, high = width, math.pi / 2 - width  # on the axes themselves one overlap stays zero
    below, above = end(low), end(high)
    if below == above:
        return math.pi / 2, below, above
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if end(middle) == below else (low, middle)
    return (low + high) / 2, below, above


@scope.pointwise(ANY)
def shares(p: Parameters) -> dict[str, float]:
    """Shares of random starts in ``d`` dimensions that end semantic, positional, and in neither.

    Both cosines of random weights are Gaussian of variance ``1/d``. Averaged over their length by
    Gauss-Laguerre nodes; their angle is uniform.
    """
    x, weight = np.polynomial.laguerre.laggauss(RADII)
    radii = np.sqrt(2 * x / p.d).clip(max=0.99)
    shares_by_end = dict.fromkeys((*BRANCHES, NEITHER), 0.0)
    for radius, part in zip(radii, weight, strict=True):
        edge, below, above = boundary(p, float(radius))
        shares_by_end[below] += float(part) * edge / (math.pi / 2)
        shares_by_end[above] += float(part) * (1 - edge / (math.pi / 2))
    return shares_by_end


@scope.pointwise(ANY)
def share(p: Parameters) -> float:
    """Share of random starts that end semantic (`shares` has all three)."""
    return shares(p)["semantic"]


@scope.pointwise(ANY)
def window(p: Parameters) -> dict[str, float]:
    """Range of omega in which descent from small overlaps starts positional although the semantic
    end has the lower loss.

    Returns
    -------
    dict
        ``omega_growth``, where both overlaps grow at one rate, and ``omega_loss``, where both ends
        have the same loss; NaN if there is none.
    """
    return {"omega_growth": equal_growth(p), "omega_loss": equal_loss(p)}


@scope.guard(ANY)
def equal_growth(p: Parameters) -> float:
    """Omega at which both overlaps grow at one rate; NaN if there is none."""

    def faster(omega: float) -> float:
        rates = growth_rates(p.replace(omega=omega))
        return float(rates.growth_m - rates.growth_theta)

    return _zero(faster, 0.0, 1.0)


@scope.guard(ANY)
def equal_loss(p: Parameters) -> float:
    """Omega at which both ends have one loss; NaN if there is none.

    Raises
    ------
    Unsettled
        If descent does not come to an end at some omega of the search.
    """

    def lower(omega: float) -> float:
        of = {name: end_of(p.replace(omega=omega), name) for name in BRANCHES}
        return of["positional"]["loss"] - of["semantic"]["loss"]

    try:
        return _zero(lower, 0.05, 0.95)
    except Unsettled as error:
        raise Unsettled(f"omega_loss, looked for from omega = 0.05 to 0.95: at {error}") from None


def _zero(gap: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of omega changes its sign, or NaN."""
    if gap(low) * gap(high) >= 0:
        return math.nan
    return float(scipy.optimize.brentq(gap, low, high, xtol=1e-4))
