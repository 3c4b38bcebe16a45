"""Branches over the sample complexity, by continuation, and the phase diagram."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from theory.positional_semantic.fixed_point import FixedPoint, NotConverged, solve
from theory.positional_semantic.parameters import Parameters

MEANING = {
    "q": "norm of the student sigma^2 |Q|^2/d", "m": "overlap with the positional encoding |p_1.Q|/sqrt(d)",
    "V": "variance of the student", "theta": "overlap with the teacher sigma^2 |Q.Q*|/d",
    "train_loss": "training loss per dimension", "test_mse_half": "half of E|y - f|^2/d",
    "slope": "derivative of the training loss in alpha", "replicon": "replicon without jumps; stable below one",
    "jump": "weight of the jumps of the minimiser",
}  # fmt: skip


def continue_branch(p: Parameters, branch: str, alphas: Iterable[float],
                    near: FixedPoint | None = None) -> list[FixedPoint | None]:  # fmt: skip
    """Fixed points of one branch at every alpha, each started from its neighbour, from the largest alpha down.

    Where the overlap of the branch has vanished, or its fixed point is lost, the branch ends: None there and below.
    """
    points: dict[float, FixedPoint] = {}
    for alpha in sorted({float(a) for a in alphas}, reverse=True):
        try:
            point = solve(p.replace(alpha=alpha), branch, near)
        except NotConverged:
            break
        if not point.exists:
            break
        points[alpha] = near = point
    return [points.get(float(a)) for a in alphas]


def curve(p: Parameters, branch: str, alphas: Iterable[float], near: FixedPoint | None = None) -> xr.Dataset:
    """Order parameters, losses and errors of one branch over alpha; NaN where the branch does not exist.

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
    rows = [{**f.summary(), "slope": f.slope, "replicon": f.replicon, "jump": f.jump} if f is not None
            else dict.fromkeys(MEANING, np.nan) for f in points]  # fmt: skip
    data = {k: ("alpha", np.array([r[k] for r in rows], float), {"long_name": text}) for k, text in MEANING.items()}
    return xr.Dataset(data, coords={"alpha": alphas}, attrs={
        "kind": "theory", "branch": branch, "parameters": p.as_json(), "reference": "cui2024, Eqs. (7)-(14)",
        "status": "closure"})  # fmt: skip


def phase_diagram(p: Parameters, omegas: Iterable[float], alphas: Iterable[float]) -> xr.Dataset:
    """Both branches over (omega, alpha): the variables of `curve` over ``(branch, omega, alpha)``."""
    omegas, alphas = [float(w) for w in omegas], [float(a) for a in alphas]
    both = ("positional", "semantic")
    rows = [xr.concat([curve(p.replace(omega=w), branch, alphas) for w in omegas], "omega", combine_attrs="drop")
            for branch in both]  # fmt: skip
    return xr.concat(rows, "branch").assign_coords(omega=omegas, branch=list(both))
