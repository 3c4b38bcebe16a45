"""Thresholds: alpha_c, where the global minimum changes from positional to semantic, and alpha_l,
above which the semantic layer beats the linear one.
"""

import math
from dataclasses import dataclass, field, replace

from theory import ParameterError, checked, scope, sweep
from theory.positional_semantic.numbers.branches import Omegas
from theory.positional_semantic.numbers.fixed_point import FixedPoint, solve
from theory.positional_semantic.numbers.linear import baseline
from theory.positional_semantic.numbers.prox import NotConverged
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import MINIMUM

FIRST = 2.0  # default start of the search; both branches exist there in all settings of the paper
SMALLEST, LARGEST = 0.05, 16.0  # range of alpha that is searched
CLOSE = 1e-4  # Newton stops if its step in alpha is below this; the error is of second order in it
STEPS = 25
NARROW = 1.02  # smallest ratio of alphas in the search for a common range of both branches


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


class _Missing(Exception):
    """Raised if curves do not cross; the message has the reason."""


@checked
def critical(p: Parameters, near: Thresholds | None = None) -> tuple[float, dict[str, FixedPoint]]:
    """alpha_c by Newton's method. The derivative of the loss gap with respect to alpha is the gap
    of the mean envelopes.

    Raises
    ------
    ParameterError
        If there is no crossing; the message gives the reason.
    """
    try:
        return _critical(p, near)
    except _Missing as error:
        raise ParameterError(f"alpha_c: {error}") from None


def _critical(p: Parameters, near: Thresholds | None) -> tuple[float, dict[str, FixedPoint]]:
    lost: list[str] = []
    try:
        return _crossing(p, near, lost)
    except _Missing as error:
        raise _Missing("; ".join([str(error), *lost[-1:]])) from None


def _crossing(
    p: Parameters, near: Thresholds | None, lost: list[str]
) -> tuple[float, dict[str, FixedPoint]]:
    """As `critical`. Points at which no fixed point was found, although one may exist, are appended
    to ``lost``.
    """
    alpha = near.alpha_c if near and near.at_alpha_c else FIRST
    starts = dict(near.at_alpha_c) if near else {}
    points: dict[str, FixedPoint] = {}
    low, high = 0.0, math.inf  # no semantic branch below, no positional branch above
    for _ in range(STEPS):
        at = p.replace(alpha=alpha)
        points = {}
        try:
            points["semantic"] = solve(at, "semantic", starts.get("semantic"))
        except NotConverged as error:
            lost.append(f"looked for in vain: {error}")
        if not points or not points["semantic"].exists:
            # The semantic branch starts at larger alpha, if at all.
            low, starts = max(low, alpha), {}
            alpha = _between(low, high, 1.5 * alpha)
            if alpha > LARGEST:
                raise _Missing(f"no semantic branch up to alpha = {LARGEST:g}")
            continue
        points["positional"] = solve(at, "positional", starts.get("positional"))
        if not points["positional"].exists:
            # At small omega the positional branch ends at large alpha, well above the crossing.
            high, starts = min(high, alpha), {}
            alpha = _between(low, high, 0.6 * alpha)
            if alpha < SMALLEST:
                raise _Missing(f"no positional branch down to alpha = {SMALLEST:g}")
            continue
        starts = points
        gap = points["positional"].train_loss - points["semantic"].train_loss
        slope = points["positional"].slope - points["semantic"].slope
        if slope <= 0:
            # The gap increases with alpha only above the start of the semantic branch, if at all.
            if alpha >= LARGEST:
                raise _Missing(f"positional below semantic up to alpha = {LARGEST:g}")
            alpha, starts = min(LARGEST, 1.5 * alpha), {}
            continue
        step = -gap / slope
        if abs(step) < CLOSE:
            return alpha + step, points
        if alpha >= LARGEST and step > 0:
            raise _Missing(f"positional below semantic up to alpha = {LARGEST:g}")
        alpha = min(LARGEST, max(alpha / 2, alpha + min(step, alpha)))
        if alpha < SMALLEST:
            raise _Missing(f"semantic below positional down to alpha = {SMALLEST:g}")
    raise _Missing(f"Newton did not settle in {STEPS} steps, last alpha = {alpha:g}")


def _between(low: float, high: float, free: float) -> float:
    """Next alpha of the search: between the two bounds, or ``free`` while one of them is
    unknown.
    """
    if not low or math.isinf(high):
        return free
    if high < NARROW * low:
        raise _Missing(
            f"no alpha at which both branches exist (no semantic one at {low:.4g}, no positional one at {high:.4g})"
        )
    return math.sqrt(low * high)


def _linear(p: Parameters, first: FixedPoint, guess: float | None) -> tuple[float, FixedPoint]:
    """alpha_l by the secant method on the semantic branch."""
    level = baseline(p)["half_test"]
    if level <= 0:
        raise _Missing("the linear layer is exact")
    here, gap = first, first.test_mse_half - level
    step = (
        guess - first.p.complexity if guess else 0.15 * first.p.complexity * (1 if gap > 0 else -1)
    )
    for _ in range(STEPS):
        alpha = here.p.complexity + max(-here.p.complexity / 2, min(step, here.p.complexity))
        if alpha > LARGEST:
            raise _Missing(f"the linear layer is better up to alpha = {LARGEST:g}")
        there = solve(p.replace(alpha=alpha), "semantic", here)
        if not there.exists:
            raise _Missing(f"no semantic branch at alpha = {alpha:g}")
        gap_there = there.test_mse_half - level
        slope = (gap_there - gap) / (there.p.complexity - here.p.complexity)
        # If the error still increases, at small alpha, the crossing lies far above.
        step = -gap_there / slope if slope < 0 else math.copysign(0.5 * alpha, gap_there)
        if abs(step) < CLOSE:
            return alpha + step, there
        here, gap = there, gap_there
    raise _Missing(f"the secant method did not settle in {STEPS} steps")


@scope.guard(MINIMUM)
@sweep.over_fields
def thresholds(p: Parameters, near: Thresholds | None = None) -> Thresholds:
    """Both thresholds at ``p.omega``; NaN if there is no crossing (``reasons`` says why). ``near``
    is the result at a nearby omega, used as a start.
    """
    result = Thresholds(p.omega, math.nan, math.nan)
    try:
        alpha, points = _critical(p, near)
        result = replace(result, alpha_c=alpha, at_alpha_c=points)
    except _Missing as error:
        return replace(
            result, reasons={"alpha_c": str(error), "alpha_l": "not looked for without alpha_c"}
        )
    try:
        ratio = near.alpha_l / near.alpha_c if near and near.at_alpha_l else None
        alpha, point = _linear(p, points["semantic"], ratio and ratio * alpha)
        result = replace(result, alpha_l=alpha, at_alpha_l=point)
    except _Missing as error:
        result = replace(result, reasons={"alpha_l": str(error)})
    return result


@checked
def line(p: Parameters, omegas: Omegas, near: Thresholds | None = None) -> list[Thresholds]:
    """Thresholds over omega by continuation; NaN if there is no crossing."""
    points = []
    for omega in omegas:
        result = thresholds(p.replace(omega=float(omega)), near)
        near = result if result.at_alpha_c else near
        points.append(result)
    return points
