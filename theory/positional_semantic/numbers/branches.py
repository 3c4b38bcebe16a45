"""Branches of fixed points over the sample complexity, by continuation, and the phase diagram."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import joblib
import numpy as np
import xarray as xr

from theory import Allowed, ParameterError, checked, scope, sweep
from theory.positional_semantic.numbers.channel import State
from theory.positional_semantic.numbers.evolution import OVERLAP, Branch
from theory.positional_semantic.numbers.fixed_point import COARSE, FixedPoint, solve
from theory.positional_semantic.numbers.prox import NotConverged
from theory.positional_semantic.parameters import Parameters
from theory.positional_semantic.scope import MINIMUM

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
    p: Parameters, branch: Branch, alphas: Alphas, near: FixedPoint | None = None
) -> list[FixedPoint | None]:
    """Fixed points of one branch at every alpha, by continuation from the largest alpha down.

    The branch ends where its overlap vanishes or its fixed point is lost; the result is None there
    and below. At small omega the positional branch may also end towards large alpha, so it is
    searched for at every alpha until found.
    """
    points: dict[float, FixedPoint] = {}
    for alpha in sorted({float(a) for a in alphas}, reverse=True):
        here = p.replace(alpha=alpha)
        try:
            if branch == "positional" and not points:  # a coarse search is ten times cheaper
                near = solve(here.replace(order=min(COARSE, p.order)), branch, near)
                if not near.exists:
                    near = None
                    continue
            point = solve(here, branch, _predicted(alpha, points, near))
        except NotConverged:
            point = None
        if point is not None and point.exists:
            points[alpha] = point
        elif points or branch != "positional":
            break
    return [points.get(float(a)) for a in alphas]


def _predicted(
    alpha: float, points: dict[float, FixedPoint], near: FixedPoint | None
) -> FixedPoint | None:
    """Starting point at ``alpha``: linear extrapolation of the last two points, if it keeps q and V
    positive.
    """
    last = list(points.values())[-2:]
    if len(last) < 2:
        return last[0] if last else near
    before, here = last
    ahead = (alpha - here.p.complexity) / (here.p.complexity - before.p.complexity)
    state = State(*(b + ahead * (b - a) for a, b in zip(before.state, here.state, strict=True)))
    # Near the end of a branch its overlap vanishes as a square root, which a linear extrapolation
    # overshoots.
    safe = all(s * b > 0.25 * b * b for s, b in zip(state, here.state, strict=True) if b)
    return replace(here, state=state) if safe else here


@scope.guard(MINIMUM)
@sweep.over_fields
def curve(
    p: Parameters, branch: Branch, alphas: Alphas, near: FixedPoint | None = None
) -> xr.Dataset:
    """Order parameters, losses and errors of one branch over alpha; NaN where the branch does not
    exist.

    Parameters
    ----------
    p : Parameters
        Model; its alpha is ignored.
    branch : {'positional', 'semantic', 'agnostic'}
        Branch.
    alphas : iterable of float
        Sample complexities n/d.
    near : FixedPoint, optional
        Solution near the largest alpha.

    Returns
    -------
    Dataset
        Variables of `MEANING` over ``alpha``.
    """
    alphas = [float(a) for a in alphas]
    points = continue_branch(p, branch, alphas, near)
    rows = [
        {**f.summary(), "slope": f.slope, "replicon": f.replicon, "jump": f.jump}
        if f is not None
        else dict.fromkeys(MEANING, np.nan)
        for f in points
    ]
    data = {
        k: ("alpha", np.array([r[k] for r in rows], float), {"long_name": text})
        for k, text in MEANING.items()
    }
    return xr.Dataset(
        data,
        coords={"alpha": alphas},
        attrs={
            "kind": "theory",
            "branch": branch,
            "parameters": p.as_json(),
            "reference": "cui2024, Eqs. (7)-(14)",
            "status": "closure",
        },
    )


@scope.guard(MINIMUM)
@sweep.over_fields
def phase_diagram(
    p: Parameters, omegas: Omegas, alphas: Alphas, jobs: Annotated[int, Allowed(low=-1)] = -1
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
        Variables of `MEANING` over ``(branch, omega, alpha)``; NaN where a branch does not exist.
    """
    if jobs == 0:
        raise ParameterError("jobs = 0: must be a number of processes, or -1 for one per core")
    omegas, alphas = [float(w) for w in omegas], [float(a) for a in alphas]
    tasks = [
        joblib.delayed(curve)(p.replace(omega=w), branch, alphas)
        for branch in OVERLAP
        for w in omegas
    ]
    results = joblib.Parallel(n_jobs=min(jobs, len(tasks)), batch_size=1)(tasks)
    rows = [
        xr.concat(results[k * len(omegas) :][: len(omegas)], "omega", combine_attrs="drop")
        for k in range(2)
    ]
    return xr.concat(rows, "branch").assign_coords(omega=omegas, branch=[*OVERLAP])
