"""Curves of all weights: descent with the closed gradient, step by step, against
students trained on batches of orthonormal data.
"""

from typing import Any

import xarray as xr

from theory.equations import titles
from theory.induction_heads import Parameters, predict
from theory.induction_heads.structure import HEAD
from theory.runtime import plotting
from verify.checks import ensemble_source
from verify.checks.check import Band
from verify.checks.report import Report, Request
from verify.trajectories import compare, overlay

NOISE = "noise of batches of 32, of order 1/batch"
OUTSIDE = "noise of batches of 32, of order 1/batch, outside the 19 directions too"
# (students - descent) over the largest predicted size, from sixteen students of the
# demo preset (seeds 100 to 115) that no check uses; 3.5 standard errors to either side.
BANDS = {
    "alpha": Band(0.019, 0.029, NOISE),
    "beta": Band(0.0105, 0.020, NOISE),
    "gamma": Band(-0.026, -0.0215, NOISE),
    "loss": Band(0.105, 0.196, OUTSIDE),
}


def report(request: Request) -> Report:
    """Compare the three pseudo-parameters and the loss of students with noiseless
    descent.
    """
    p, runs = ensemble_source.get(request)
    comparison = compare(
        predict(p, runs), runs, BANDS if p == Parameters.demo() else None
    )
    return Report(
        comparison.checks,
        [comparison.spoken()],
        numbers={"inside_two_sd": comparison.inside()},
        draw=lambda: draw(p, runs),
    )


@plotting.panels(1, 2, height=3.0)
def draw(p: Parameters, runs: xr.Dataset, *axes: Any) -> Any:
    """Loss and the three pseudo-parameters over time, one line per student."""
    head = {name: (rf"$\{name}$", f"C{k}") for k, name in enumerate(HEAD)}
    panels = {"loss": {"loss": ("loss", "C0")}, "pseudo-parameter": head}
    clock = "$t$ = steps times step in $t$"
    overlay(axes, panels, runs, predict(p, runs), clock, "descent without noise")
    return titles.of_runs(p, runs)
