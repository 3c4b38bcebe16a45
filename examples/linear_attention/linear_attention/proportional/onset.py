"""How well a fitted attention regresses in context, over training sequences and training tasks."""

from typing import Any

import numpy as np
import xarray as xr

from linear_attention.proportional.errors import equations
from linear_attention.proportional.numbers import ERRORS, error_new, error_trained, error_unlimited
from linear_attention.proportional.parameters import Parameters
from theory import Onset, ParameterError, scope, sweep
from theory.onset import tabulated

GAPS = np.geomspace(0.9, 0.01, 60)
SEQUENCES = np.concatenate([1 - GAPS, 1 / (1 - GAPS[::-1])])  # tau; none is 1
TASKS = np.geomspace(0.1, 10, 121)  # kappa
LONGER, LONGEST = (1, 10, 100), 1e6  # contexts, in units of the one given; alpha
LINES = "-", "--", "-."


@scope.guard(ERRORS)
@sweep.over_fields
def onset(p: Parameters, until: float | None = None) -> Onset:
    """Errors on trained and on new tasks.

    Parameters
    ----------
    p : Parameters
        Sizes, noise and ridge.
    until : float, optional
        Refused: there is no time.

    Raises
    ------
    ParameterError
        For a time.
    """
    if until is not None:
        raise ParameterError(f"until = {until}: the attention is fitted, there is no time")
    rows = {
        "error_trained": (error_trained(p), "error on the trained tasks"),
        "error_new": (error_new(p), "error on new tasks"),
        "error_unlimited": (error_unlimited(p), "on new tasks, without limit on sequences"),
        "xi": (float(p.values()["xi"]), "effective ridge"),
    }
    used = ("effective_ridge", "error_trained", "error_new", "new_unlimited")
    return tabulated(
        rows,
        curves=lambda: curves(p),
        equations=lambda: [equations()[n] for n in used],
        plot=draw,
        notes=["errors of labels of variance 1 + rho; for d to infinity"],
        setting={n: getattr(p, n) for n in ("alpha", "kappa", "tau", "rho", "ridge")},
    )


def curves(p: Parameters) -> dict[str, xr.Dataset]:
    """Errors over training sequences; error without limit on them over training tasks, for
    contexts that are longer, too.
    """
    both = {"trained": error_trained(p, tau=SEQUENCES), "new": error_new(p, tau=SEQUENCES)}
    alpha = sorted({min(n * p.alpha, LONGEST) for n in LONGER})
    many = [error_unlimited(p, alpha=a, kappa=TASKS) for a in alpha]
    over = {n: ("tau", e) for n, e in both.items()}
    return {
        "sequences": xr.Dataset(over, {"tau": SEQUENCES}),
        "tasks": xr.Dataset({"new": (("alpha", "kappa"), many)}, {"alpha": alpha, "kappa": TASKS}),
    }


def draw(result: Onset, axes: Any) -> None:
    """Double descent (left) and the transition in the number of tasks (right)."""
    from theory.runtime import plotting  # imports matplotlib, needed for figures only

    curves, (left, right) = result.curves(), axes
    for color, name in enumerate(("trained", "new")):
        label = f"{name} tasks"
        left.loglog(curves["sequences"].tau, curves["sequences"][name], f"C{color}", label=label)
    left.axvline(1, color="0.7", lw=0.9, zorder=0)
    left.set(xlabel=r"training sequences $\tau = n/d^2$", ylabel="mean squared error")
    rho = result.setting["rho"]
    for line, curve in zip(LINES, curves["tasks"].new, strict=False):
        label = rf"new tasks, $\tau = \infty$, $\alpha = {float(curve.alpha):g}$"
        right.loglog(curve.kappa, curve, "C1", ls=line, label=label)
    right.axhline(rho, color="k", ls=":", lw=0.9, label=r"label noise $\rho$")
    right.axvline(1, color="0.7", lw=0.9, zorder=0)
    right.set(xlabel=r"training tasks $\kappa = k/d$", ylabel="mean squared error")
    for axis in axes:
        plotting.below(axis)
