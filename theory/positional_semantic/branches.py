"""Branches of fixed points over the sample complexity, by continuation, and the phase
diagram; the thresholds alpha_c, where the global minimum changes from positional to
semantic, and alpha_l, above which the semantic layer beats the linear one.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

import joblib
import numpy as np
import xarray as xr

from theory import Allowed, ParameterError, checked
from theory.call import scope
from theory.positional_semantic.errors import baseline
from theory.positional_semantic.fixed_point import COARSE, FixedPoint, solve
from theory.positional_semantic.model.parameters import MINIMUM, Parameters
from theory.positional_semantic.prox import NotConverged
from theory.positional_semantic.state_evolution import OVERLAP, Branch

Alphas = Annotated[Iterable[float], Allowed(above=0)]
Omegas = Annotated[Iterable[float], Allowed(low=0, high=1)]
MEANING = {
    "q": "norm of the student sigma^2 |Q|^2/d",
    "m": "overlap with the positional encoding |p_1.Q|/sqrt(d)",
    "V": "variance of the student",
    "theta": "overlap with the teacher sigma^2 |Q.Q*|/d",
    "train_loss": "training loss per dimension",
    "test_mse_half": "half of E|y - f|^2/d",
    "slope": "derivative of the training loss in alpha",
    "replicon": "replicon without jumps; stable below one",
    "jump": "weight of the jumps of the minimiser",
}


@checked
def continue_branch(
    p: Parameters, branch: Branch, alphas: Alphas
) -> list[FixedPoint | None]:
    """Fixed points of one branch at every alpha, by continuation from the largest alpha
    down.

    The branch ends where its overlap vanishes or its fixed point is lost; the result is
    None there and below. At small omega the positional branch may also end towards
    large alpha, so it is searched for at every alpha until found.
    """
    points: dict[float, FixedPoint] = {}
    near = None
    for alpha in sorted({float(a) for a in alphas}, reverse=True):
        here = p.replace(alpha=alpha)
        try:
            # a coarse search is ten times cheaper
            if branch == "positional" and not points:
                near = solve(here.replace(order=min(COARSE, p.order)), branch, near)
                if not near.exists:
                    near = None
                    continue
            point = solve(here, branch, near)
        except NotConverged:
            point = None
        if point is not None and point.exists:
            points[alpha] = near = point
        elif points or branch != "positional":
            break
    return [points.get(float(a)) for a in alphas]


@scope.pointwise(MINIMUM)
def curve(p: Parameters, branch: Branch, alphas: Alphas) -> xr.Dataset:
    """Order parameters, losses and errors of one branch over alpha; NaN where the
    branch does not exist.

    Parameters
    ----------
    p : Parameters
        Model; its alpha is ignored.
    branch : {'positional', 'semantic', 'agnostic'}
        Branch.
    alphas : iterable of float
        Sample complexities n/d.

    Returns
    -------
    Dataset
        Variables of `MEANING` over ``alpha``.
    """
    alphas = [float(a) for a in alphas]
    rows = [_row(point) for point in continue_branch(p, branch, alphas)]
    data = {}
    for name, meaning in MEANING.items():
        values = np.array([row[name] for row in rows], float)
        data[name] = ("alpha", values, {"long_name": meaning})
    attributes = {
        "kind": "theory",
        "branch": branch,
        "parameters": p.as_json(),
        "reference": "cui2024, Eqs. (7)-(14)",
        "status": "closure",
    }
    return xr.Dataset(data, coords={"alpha": alphas}, attrs=attributes)


def _row(point: FixedPoint | None) -> dict[str, float]:
    """Variables of `MEANING` at a point of a branch; NaN where there is none."""
    if point is None:
        return dict.fromkeys(MEANING, np.nan)
    row = {"slope": point.slope, "replicon": point.replicon, "jump": point.jump}
    return point.summary() | row


@scope.pointwise(MINIMUM)
def phase_diagram(
    p: Parameters,
    omegas: Omegas,
    alphas: Alphas,
    jobs: Annotated[int, Allowed(low=-1)] = -1,
) -> xr.Dataset:
    """Both branches over (omega, alpha), by default on all cores.

    Parameters
    ----------
    p : Parameters
        Model; its omega and alpha are ignored.
    omegas, alphas : iterable of float
        Positional fractions and sample complexities n/d.
    jobs : int
        Processes; -1 is one per core.

    Returns
    -------
    Dataset
        Variables of `MEANING` over ``(branch, omega, alpha)``; NaN where a branch does
        not exist.
    """
    if jobs == 0:
        raise ParameterError(
            "jobs = 0: must be a number of processes, or -1 for one per core"
        )
    omegas = [float(w) for w in omegas]
    alphas = [float(a) for a in alphas]
    task = joblib.delayed(curve)
    tasks = []
    for branch, omega in itertools.product(OVERLAP, omegas):
        tasks.append(task(p.replace(omega=omega), branch, alphas))
    results = joblib.Parallel(n_jobs=min(jobs, len(tasks)), batch_size=1)(tasks)
    rows = []
    for part in (results[: len(omegas)], results[len(omegas) :]):
        rows.append(xr.concat(part, "omega", combine_attrs="drop"))
    return xr.concat(rows, "branch").assign_coords(omega=omegas, branch=[*OVERLAP])


# Thresholds

# default start of the search; both branches exist there in all settings of the paper
FIRST = 2.0
SMALLEST = 0.05  # range of alpha that is searched
LARGEST = 16.0
# Newton stops if its step in alpha is below this; the error is of second order in it
CLOSE = 1e-4
STEPS = 25
# smallest ratio of alphas in the search for a common range of both branches
NARROW = 1.02


@dataclass(frozen=True)
class Thresholds:
    """Critical sample complexities at one omega.

    Attributes
    ----------
    omega, alpha_c, alpha_l : float
        NaN where there is no crossing.
    reasons : dict
        Reasons for missing crossings, by name.
    at_alpha_c : dict
        Fixed points of both branches at alpha_c.
    at_alpha_l : FixedPoint or None
        Semantic fixed point at alpha_l.
    """

    omega: float
    alpha_c: float
    alpha_l: float
    reasons: dict[str, str] = field(default_factory=dict)
    at_alpha_c: dict[str, FixedPoint] = field(default_factory=dict, repr=False)
    at_alpha_l: FixedPoint | None = field(default=None, repr=False)

    def summary(self) -> dict[str, float]:
        """Summary as a dictionary of numbers."""
        return {"alpha_c": self.alpha_c, "alpha_l": self.alpha_l}


class Missing(ParameterError):
    """Curves do not cross; the message has the reason."""


def _critical(
    p: Parameters, near: Thresholds | None
) -> tuple[float, dict[str, FixedPoint]]:
    def at(alpha: float, branch: str, start: FixedPoint | None) -> FixedPoint:
        return solve(p.replace(alpha=alpha), branch, start)

    if near and near.at_alpha_c:
        return crossing(at, near.alpha_c, near.at_alpha_c)
    return crossing(at)


def crossing(
    solve_at: Callable[[float, str, Any], Any],
    alpha: float = FIRST,
    starts: Mapping[str, Any] = MappingProxyType({}),
    close: float = CLOSE,
) -> tuple[float, dict[str, Any]]:
    """Where the training losses of both branches are equal, by Newton's method: the
    derivative of the gap in alpha is the gap of the mean envelopes (``slope``).

    Parameters
    ----------
    solve_at : callable
        ``solve_at(alpha, branch, start)``: the fixed point, from a nearby one or None.
    alpha : float
        Where the search starts.
    starts : mapping
        Fixed points near it by branch.
    close : float
        Size of the last step; the error is of second order in it.

    Raises
    ------
    Missing
        If there is no crossing.
    """
    low = 0.0  # no semantic branch below
    high = math.inf  # no positional branch above
    lost = ""  # what has not converged

    for _ in range(STEPS):
        try:
            semantic = solve_at(alpha, "semantic", starts.get("semantic"))
        except NotConverged as error:
            semantic = None
            lost = f"; not converged: {error}"
        if semantic is None or not semantic.exists:
            # The semantic branch starts at larger alpha, if at all.
            low = max(low, alpha)
            starts = {}
            alpha = _between(low, high, 1.5 * alpha, lost)
            if alpha > LARGEST:
                raise Missing(f"no semantic branch up to alpha = {LARGEST:g}{lost}")
            continue
        positional = solve_at(alpha, "positional", starts.get("positional"))
        if not positional.exists:
            # At small omega the positional branch ends at large alpha, well above the
            # crossing.
            high = min(high, alpha)
            starts = {}
            alpha = _between(low, high, 0.6 * alpha, lost)
            if alpha < SMALLEST:
                raise Missing(
                    f"no positional branch down to alpha = {SMALLEST:g}{lost}"
                )
            continue
        starts = {"semantic": semantic, "positional": positional}
        gap = positional.train_loss - semantic.train_loss
        slope = positional.slope - semantic.slope
        rises = slope > 0  # only above the start of the semantic branch, if at all
        step = -gap / slope if rises else 0.5 * alpha
        if rises and abs(step) < close:
            return alpha + step, starts
        if alpha >= LARGEST and step > 0:
            raise Missing(f"positional below semantic up to alpha = {LARGEST:g}{lost}")
        alpha = min(LARGEST, max(alpha / 2, alpha + min(step, alpha)))
        if alpha < SMALLEST:
            raise Missing(
                f"semantic below positional down to alpha = {SMALLEST:g}{lost}"
            )
        if not rises:
            starts = {}
    raise Missing(
        f"Newton did not settle in {STEPS} steps, last alpha = {alpha:g}{lost}"
    )


def _between(low: float, high: float, free: float, lost: str = "") -> float:
    """Next alpha of the search: between the two bounds, or ``free`` while one of them
    is unknown.
    """
    if not low or math.isinf(high):
        return free
    if high >= NARROW * low:
        return math.sqrt(low * high)
    bounds = f"no semantic one at {low:.4g}, no positional one at {high:.4g}"
    raise Missing(f"no alpha at which both branches exist ({bounds}){lost}")


def _linear(
    p: Parameters, first: FixedPoint, guess: float | None
) -> tuple[float, FixedPoint]:
    """alpha_l by the secant method on the semantic branch."""
    level = baseline(p)["half_test"]
    if level <= 0:
        raise Missing("the linear layer is exact")
    here = first
    place = first.p.complexity
    gap = first.test_mse_half - level
    if guess:
        step = guess - place
    elif gap > 0:
        step = 0.15 * place
    else:
        step = -0.15 * place
    for _ in range(STEPS):
        alpha = place + max(-place / 2, min(step, place))
        if alpha > LARGEST:
            raise Missing(f"the linear layer is better up to alpha = {LARGEST:g}")
        there = solve(p.replace(alpha=alpha), "semantic", here)
        if not there.exists:
            raise Missing(f"no semantic branch at alpha = {alpha:g}")
        gap_there = there.test_mse_half - level
        slope = (gap_there - gap) / (there.p.complexity - place)
        if slope < 0:
            step = -gap_there / slope
        else:  # the error still increases, at small alpha: the crossing lies far above
            step = math.copysign(0.5 * alpha, gap_there)
        if abs(step) < CLOSE:
            return alpha + step, there
        here = there
        place = there.p.complexity
        gap = gap_there
    raise Missing(f"the secant method did not settle in {STEPS} steps")


@scope.pointwise(MINIMUM)
def thresholds(p: Parameters, near: Thresholds | None = None) -> Thresholds:
    """Both thresholds at ``p.omega``; NaN if there is no crossing (``reasons`` says
    why). ``near`` is the result at a nearby omega, used as a start.
    """
    try:
        alpha_c, points = _critical(p, near)
    except Missing as error:
        reasons = {"alpha_c": str(error), "alpha_l": "not looked for without alpha_c"}
        return Thresholds(p.omega, math.nan, math.nan, reasons)
    guess = None
    if near and near.at_alpha_l:
        guess = near.alpha_l / near.alpha_c * alpha_c
    try:
        alpha_l, point = _linear(p, points["semantic"], guess)
    except Missing as error:
        return Thresholds(p.omega, alpha_c, math.nan, {"alpha_l": str(error)}, points)
    return Thresholds(p.omega, alpha_c, alpha_l, {}, points, point)


@checked
def line(
    p: Parameters, omegas: Omegas, near: Thresholds | None = None
) -> list[Thresholds]:
    """Thresholds over omega by continuation; NaN if there is no crossing."""
    points = []
    for omega in omegas:
        result = thresholds(p.replace(omega=float(omega)), near)
        if result.at_alpha_c:
            near = result
        points.append(result)
    return points
