"""How well a fitted attention regresses in context, over training sequences and training tasks:
its parameters, and both errors as numbers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import xarray as xr

from linear_attention.proportional.errors import equations
from theory import Limit, Onset, ParameterError, Preset, Scope, parameter, scope, sweep
from theory.explorer.curves import gridded
from theory.onset import tabulated
from theory.parameters import BaseParameters


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Sizes of task and training set in units of the dimension d, which is that of students alone.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "reference": Preset("As published beside the authors' code."),
        "peak": Preset("Near the peak of the error.", tau=1.1, alpha=10.0, kappa=0.5),
        "few_tasks": Preset("Fewer tasks than dimensions.", kappa=0.5, alpha=20.0, tau=20.0),
    }
    alpha: float = parameter(1.0, "pairs in the context over d", low=1e-3, high=1e6)
    kappa: float = parameter(1.0, "training tasks over d", low=1e-3, high=1e6)
    tau: float = parameter(5.0, "training sequences over d^2", low=1e-3, high=1e6)
    rho: float = parameter(0.01, "variance of label noise, that of labels being 1", low=0, high=1e3)
    ridge: float = parameter(0.0, "ridge, per training sequence", low=0, high=1e3)
    d: int = parameter(40, "dimension of tokens, of students", low=4)
    draws: int = parameter(8, "independent training sets", low=2)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, with the effective ridge and the error on trained tasks."""
        table = equations()
        known = {n: getattr(self, n) for n in ("alpha", "kappa", "tau", "rho")}

        def number(name: str, **more: Any) -> float:
            return table[name].number({**known, **more})

        def at(z: float) -> tuple[float, float]:
            M = number("mp_transform", z=z)
            return M, number("mp_slope", z=z, M_z=M)

        known |= {"ridge": self.ridge, "x_star": (x := number("shown"))}
        known["M_x"], known["dM_x"] = at(x)
        xi = number("xi_below") if self.tau < 1 else 0.0
        if self.ridge:
            off = lambda y: number("effective_ridge", xi=y, M_z=at(x + y)[0]) - self.ridge  # noqa: E731
            xi = scipy.optimize.brentq(off, xi, self.ridge + (1 + x) / self.tau, xtol=1e-15)
        known["xi"], (known["M_z"], known["dM_z"]) = xi, at(x + xi)
        known["s"] = (self.kappa - 1) / x**0.5
        at_peak = self.tau == 1 and not self.ridge
        return known | {"error_trained": float("inf") if at_peak else number("error_trained")}


# Both errors as numbers

OFF_PEAK = Limit(  # nearer, the error is a difference of numbers that agree in all digits
    "tau",
    "at least 1e-9 away from 1 for a ridge below 1e-20",
    lambda p, runs: p.ridge >= 1e-20 or abs(p.tau - 1) >= 1e-9,
    reads=("ridge",),
)
ERRORS = Scope(
    "the error of a fit",
    "fits that do not interpolate just so",
    (OFF_PEAK,),
    ("d", "draws"),
    remedy="the error diverges there; error_peak says how",
)
applies = scope.applies({"errors": ERRORS})


@scope.pointwise(ERRORS)
def error_trained(p: Parameters) -> float:
    """Error on fresh sequences of the training tasks (IDG in the paper)."""
    return float(p.values()["error_trained"])


@scope.pointwise(ERRORS)
def error_new(p: Parameters) -> float:
    """Error on new tasks (ICL in the paper)."""
    return equations()["error_new"].number(p.values())


@sweep.over_fields
def error_unlimited(p: Parameters) -> float:
    """Error on new tasks without limit on training sequences, no ridge."""
    return equations()["new_unlimited"].number(p.values())


GAPS = np.geomspace(0.9, 0.01, 60)
SEQUENCES = np.concatenate([1 - GAPS, 1 / (1 - GAPS[::-1])])  # tau; none is 1
TASKS = np.geomspace(0.1, 10, 121)  # kappa
LONGER, LONGEST = (1, 10, 100), 1e6  # contexts, in units of the one given; alpha
LINES = "-", "--", "-."


@scope.pointwise(ERRORS)
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
    return {
        "sequences": xr.Dataset({n: ("tau", e) for n, e in both.items()}, {"tau": SEQUENCES}),
        "tasks": xr.Dataset({"new": (("alpha", "kappa"), many)}, {"alpha": alpha, "kappa": TASKS}),
    }


def draw(result: Onset, axes: Any) -> None:
    """Double descent (left) and the transition in the number of tasks (right)."""
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


# Tables for the explorer

PLACES = {
    "kappa": [0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0],
    "ridge": [0.0, 0.01, 0.1, 1.0],
    "tau": [round(float(x), 3) for x in np.geomspace(0.1, 10, 20)],  # none is 1
}
WORDS = "mean squared error"
KINDS = {"error_trained": (error_trained, WORDS), "error_new": (error_new, WORDS)}


def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Both errors over (kappa, ridge, tau) at the context and noise of the parameters."""
    note = f"computed beforehand at the places of the sliders, alpha = {p.alpha:g}, rho = {p.rho:g}"
    return {"errors of the fit": gridded(p, PLACES, KINDS, equations()["error_new"], note)}
