"""Students of a statement against its flow."""

import functools
import types
from typing import Any

import numpy as np
import xarray as xr

from simulate.statement.data import coinciding
from theory.equations import titles
from theory.runtime import plotting
from theory.statement import model, onset
from theory.statement.evaluation.arrays import Data, counted
from theory.statement.randomness import random_starts as random
from theory.statement.words.stated import Statement
from verify.checks import ensemble_source
from verify.checks.check import Band, Check, identity
from verify.checks.report import Report, Request
from verify.checks.verdict import IDENTITY
from verify.statement import fluctuations, starts
from verify.trajectories import compare, overlay

# What drawn inputs add is of second order in the noise, for class means as much as
# their scatter.
NOISE = Band(
    -0.01,
    0.01,
    "noise of batches, of order eta/batch, which the flow leaves out: a percent is"
    " allowed",
)
DISTINCT = "values of a sample are taken to be distinct (injective='leading order')"
WHY = "steps on all inputs in float64: rounding, which grows as the weights do"


def checks(stated: Statement, p: Any, runs: xr.Dataset) -> list[Check]:
    """Students on all inputs are descent to rounding; others are so on average, to a
    percent.
    """
    curve = model.theory_of(stated).predict(p, runs)
    if p.batch_size:
        share = coinciding(stated, Data(counted(p)))
        why = (
            f"{DISTINCT}, and coincide in {share:.0%} of inputs, no order: its size is"
            " not large"
        )
        band = Band(NOISE.low - share, NOISE.high + share, why) if share else NOISE
        return compare(curve, runs, {str(x): band for x in curve.data_vars}).checks
    return [
        identity(
            f"{x} of every student",
            str(x),
            v,
            runs[x].transpose("seed", "t"),
            IDENTITY,
            WHY,
        )
        for x, v in curve.data_vars.items()
    ]


def lag(stated: Statement, p: Any, runs: xr.Dataset) -> str:
    """How far descent is from the flow."""
    steps = model.theory_of(stated).predict(p, runs)
    flow = onset.at_sizes(stated, p).flow.solve(
        p, at=runs.t.values, t=float(runs.t[-1])
    )
    off = {}
    for name, v in steps.data_vars.items():
        largest = np.abs(flow[name]).max() or 1
        off[str(name)] = float(np.abs(flow[name] - v).max() / largest)
    worst = max(off, key=lambda x: off[x])
    return (
        f"compared with descent in steps of eta = {p.eta:g}; the flow differs from it"
        f" by at most {off[worst]:.1%} of the largest size ({worst})"
    )


@plotting.panels(1, 2, height=3.0)
def draw(stated: Statement, p: Any, runs: xr.Dataset, *axes: Any) -> Any:
    """Loss and order parameters over time: students, and descent of the flow."""
    curve = model.theory_of(stated).predict(p, runs)
    words = {x: (x, f"C{k}") for k, x in enumerate(map(str, curve.data_vars))}
    panels = {"loss": {"loss": words.pop("loss")}, "order parameter": words}
    overlay(axes, panels, runs, curve, "$t$ = learning rate times steps", "theory")
    return titles.of_runs(p, runs)


@functools.cache
def of(stated: Statement) -> types.SimpleNamespace:
    """The ``report`` of a statement, for ``verify.trajectories``."""

    def report(request: Request) -> Report:
        """The requested students against the flow."""
        if random.laws(model.theory_of(stated).derived()):
            return starts.report(stated, request)
        if fluctuations.wanted(request):
            return fluctuations.report(stated, request)
        p, runs = ensemble_source.get(request)
        return Report(
            checks(stated, p, runs),
            [lag(stated, p, runs)],
            draw=lambda: draw(stated, p, runs),
        )

    return types.SimpleNamespace(report=report)
