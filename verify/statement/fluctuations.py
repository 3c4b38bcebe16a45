"""Thousands of students of a statement on batches, against the bias and spread that
theory gives their order parameters.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from simulate.statement import student
from theory.runtime import plotting
from theory.statement import model, onset
from theory.statement.words.stated import Statement
from theory.statement.words.tree import require
from verify.checks import ensemble_source
from verify.checks.check import Check, sampled, with_notes
from verify.checks.report import Report, Request

MANY = 500  # seeds from which on all students are trained at once
ROUNDING = 1e-9  # of the largest order parameter: a bias that is none
POWER = 0.2  # error of a bias or variance that a verdict must be able to see


def wanted(request: Request) -> bool:
    """Whether so many seeds are asked for that they show what batches do."""
    return (
        request.runs is None and len(request.seed_list(ensemble_source.SEEDS)) >= MANY
    )


def report(stated: Statement, request: Request) -> Report:
    """Students of all requested seeds, trained at once, against bias and spread."""
    p = request.parameters(ensemble_source.of(request.model).base).run_to(request.until)
    runs = student.train(stated, p, len(request.seed_list(ensemble_source.SEEDS)))
    curve = model.theory_of(stated).predict(p, fluctuations=True)
    names = [x.name for x in onset.at_sizes(stated, p).flow.state]
    return Report(*checks(names, curve, runs), draw=lambda: draw(names, curve, runs))


@with_notes
def checks(
    names: Sequence[str], curve: xr.Dataset, runs: xr.Dataset
) -> Iterator[Check | str]:
    """Bias of every order parameter along the run, and its variance where theory has
    one.

    The bias of a student is one number: its shift over time, weighted by the predicted
    bias over the measured variance, in units of the predicted one.

    Raises
    ------
    ParameterError
        If nothing is claimed at any time.
    """
    claimed = np.isfinite(curve[f"{names[0]}_bias"].values) & (curve.t.values > 0)
    require(
        claimed.any(),
        "curve: claims no bias at any time; take eta / batch_size smaller",
    )
    size = max(float(abs(curve[name]).max()) for name in names)
    for name in names:
        shift = (runs[name] - curve[name]).transpose("seed", "t").values[:, claimed]
        bias, sd = (curve[f"{name}_{x}"].values[claimed] for x in ("bias", "sd"))
        variance = shift.var(0, ddof=1)
        if (abs(bias) > ROUNDING * size).any():
            weights = bias / np.where(variance > 0, variance, np.inf)
            amplitude = shift @ weights / (bias @ weights)
            what = f"bias of {name} by batches, over that of theory"
            yield sampled(what, "bias", 1.0, amplitude, required=POWER)
        elif sd.any():
            what = f"bias of {name} by batches, in standard deviations"
            yield sampled(
                what, "bias", 0.0, shift[:, -1] / sd[-1], scale=1.0, required=POWER
            )
        if sd.any():
            at = sd.argmax()
            squares = (shift[:, at] - shift[:, at].mean()) ** 2 / sd[at] ** 2
            squares *= len(squares) / (len(squares) - 1)
            what = f"variance of {name} by batches, over that of theory"
            yield sampled(what, "spread", 1.0, squares, required=POWER)
        else:
            largest = np.sqrt(variance.max())
            yield (
                f"{name}: no spread to order (eta / B)^(1/2); measured {largest:.2g},"
                " of order eta / B"
            )


@plotting.panels(1, 2, height=3.0)
def draw(names: Sequence[str], curve: xr.Dataset, runs: xr.Dataset, *axes: Any) -> Any:
    """Bias on the left, standard deviation on the right: theory as lines, students as
    marks.
    """
    for k, name in enumerate(names):
        shift = (runs[name] - curve[name]).isel(t=slice(1, None))
        seeds, color = shift.sizes["seed"], f"C{k}"
        error = shift.std("seed", ddof=1) / np.sqrt(seeds)
        bars = {
            "fmt": "o",
            "ms": 3,
            "color": color,
            "label": f"{name}, {seeds} students",
        }
        axes[0].errorbar(shift.t, shift.mean("seed"), error, **bars)
        axes[0].plot(
            curve.t, curve[f"{name}_bias"], color=color, label=f"{name}, theory"
        )
        axes[1].plot(shift.t, shift.std("seed", ddof=1), "o", ms=3, color=color)
        axes[1].plot(curve.t, curve[f"{name}_sd"], color=color)
    for axis, title in zip(
        axes, ("shift of the mean", "standard deviation"), strict=True
    ):
        axis.set(xlabel="$t$ = learning rate times steps", title=title)
    plotting.below(axes[0])
