"""Accuracy of the levels of theory of the state-tracking model for every seed of the
shipped ensembles.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from theory import ParameterError
from theory import state_tracking as st
from theory.equations import titles
from theory.runtime import plotting
from theory.state_tracking import Parameters
from theory.state_tracking.single_students.levels import BEST, LEVELS
from verify.checks.check_table import percent
from verify.checks.report import Report, Request
from verify.compare.emergence import first_crossing
from verify.state_tracking import ensemble
from verify.state_tracking.ladder import (
    ABSOLUTE,
    DRAWN,
    FULL,
    GRID,
    MEASURES,
    ON_GRID,
    PAPER,
    TAKEN_APART,
    TITLES,
    Fidelity,
    Ladder,
    ladder,
    terms,
)
from verify.state_tracking.ladder_checks import checks, ladder_checks

TRAINS = True  # what comes with the code, if asked
ON_GRID_SHOWN = (
    "half_time",
    "rollout_half_time",
    "A",
    "variance_other",
    "variance_correct",
)


def report(request: Request) -> Report:
    """Report: levels of theory at every setting, the grid, and their verdicts."""
    if request.renew:
        ensemble.renew(request.device, request.progress)
    errors, grid = ladder(whole=request.full)
    tables = {
        f"{setting}: {ensemble.SETTINGS[setting].title}": (
            ("error of", *(TITLES[x] for x in levels)),
            rows(levels),
        )
        for setting, levels in errors.items()
    }

    def figure() -> Any:
        return draw(*ensemble.shipped(TAKEN_APART))

    if not request.full:
        left_out = request.left_out(
            f"{len(GRID)} further settings, every term left out in turn, training sets"
            " redrawn (twelve minutes)"
        )
        return Report(
            ladder_checks(errors), left_out, tables, {"ladder": as_dict(errors)}, figure
        )
    apart = terms()
    title = ensemble.SETTINGS[TAKEN_APART].title
    tables[f"fixed disorder, {title}"] = (("error of", *apart), rows(apart))
    for name in ON_GRID_SHOWN:
        tables[f"grid: {MEASURES[name]}"] = (
            ("setting", *(TITLES[x] for x in ON_GRID), "scatter"),
            across(grid, name),
        )
    return Report(
        checks(errors, grid),
        tables=tables,
        numbers={"ladder": as_dict(errors), "grid": as_dict(grid)},
        draw=figure,
    )


def across(grid: Ladder, name: str) -> list[list[str]]:
    """Table of one measure with a row per setting of the grid: errors of every level,
    and the scatter of the time over the unknown disorder.
    """
    table = []
    for setting, levels in grid.items():
        held = " (held out)" if setting in ensemble.HELD_OUT else ""
        errors = [
            _brief(*f.summary(name), name not in ABSOLUTE) for f in levels.values()
        ]
        scatter = levels[DRAWN].scatter.get(name)
        table.append(
            [setting + held, *errors, "" if scatter is None else f"{scatter:.2%}"]
        )
    return table


def rows(levels: dict[str, Fidelity]) -> list[list[str]]:
    """Table of one setting, a column per theory: rms relative errors in per cent,
    largest deviations as numbers, each with its standard error in the last digits.
    """
    return [
        [
            meaning,
            *(_brief(*f.summary(name), name not in ABSOLUTE) for f in levels.values()),
        ]
        for name, meaning in MEASURES.items()
    ]


def _brief(value: float, error: float, relative: bool) -> str:
    """``39.0(52)%``: the standard error in units of the last digits."""
    if np.isnan(value):
        return "never"
    value, error = (100 * value, 100 * error) if relative else (value, error)
    places = max(0, 1 - int(np.floor(np.log10(error)))) if error > 0 else 3
    last = f"({error * 10**places:.0f})" if error > 0 else ""
    return f"{value:.{places}f}{last}{'%' if relative else ''}"


def as_dict(errors: Ladder) -> dict[str, Any]:
    """Errors of all levels as a dictionary for JSON."""
    return {
        setting: {level: f.as_dict() for level, f in levels.items()}
        for setting, levels in errors.items()
    }


@plotting.panels(1, 2, height=3.0)
def draw(p: Parameters, runs: xr.Dataset, *axes: Any) -> Any:
    """Figure: attention and rollout accuracy of single seeds: students, the paper's
    curve, and ours.
    """
    ours, theirs = (LEVELS[level].curves(p, runs) for level in (FULL, PAPER))
    for axis, name, label in zip(
        axes,
        ("A", "rollout_accuracy"),
        ("attention $A$", "final rollout accuracy"),
        strict=True,
    ):
        for k in range(runs.sizes["seed"]):
            axis.plot(
                runs.alpha,
                runs[name].isel(seed=k),
                color=f"C{k}",
                lw=3,
                alpha=0.35,
                label="students, one\ncolour per seed" if k == 0 else None,
            )
            axis.plot(
                ours.alpha,
                ours[name].isel(seed=k),
                color=f"C{k}",
                lw=1.2,
                label="our theory\nof each seed" if k == 0 else None,
            )
        axis.plot(
            theirs.alpha, theirs[name].isel(seed=0), "k--", label="paper, Eq. (15)"
        )
        axis.set(
            xlabel=r"training time $\alpha$ = epochs / $(d_g N)$",
            ylabel=label,
            xlim=(0, float(runs.alpha[-1])),
            ylim=(-0.02, 1.05),
        )
    plotting.below(axes[1])
    return titles.of_runs(p, runs)


# Why theory and students differ

CLIMBED = (
    "flow",
    "own_start",
    "cavity",
    "disorder_counts",
    BEST,
)  # each differs from its neighbours
TITLE = (
    "Levels of theory: rms error of the time of A = 1/2, and largest errors of curves"
)
CURVES = ("A", "R", "S")


def climb(
    p: Parameters, runs: xr.Dataset, levels: Iterable[str] = CLIMBED
) -> dict[str, dict[str, float]]:
    """How far levels of theory are from students.

    Parameters
    ----------
    p, runs : Parameters, Dataset
        Students over ``(seed, alpha)``, measured at time 0.
    levels : iterable of str
        Names in `theory.state_tracking.single_students.levels.LEVELS`.

    Returns
    -------
    dict of str to dict of str to float
        By level, without those that do not describe these students: ``half_time``, root
        mean square over seeds of predicted / measured - 1 for the time of A = 1/2; and
        of each curve the largest deviation, measured minus predicted mean over seeds,
        relative to the largest predicted size.
    """
    deviations: dict[str, dict[str, float]] = {}
    for level in levels:
        with contextlib.suppress(ParameterError):
            curves = st.predict(p, runs, level=level, accuracies=False)
            curves = curves.mean({"draw"} & {*curves.dims})
            off = {"half_time": rms(half_times(curves), half_times(runs))}
            for name in CURVES:
                gap = (runs[name] - curves[name].values).mean("seed").values
                off[name] = float(
                    gap[np.abs(gap).argmax()] / np.abs(curves[name]).max()
                )
            deviations[level] = off
    return deviations


def half_times(curves: xr.Dataset) -> np.ndarray:
    """Time of A = 1/2 of each student, in alpha; NaN if it is not reached."""
    return first_crossing(curves.A, 0.5).values


def rms(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Root mean square of the relative error, over students whose times are known."""
    return float(((xr.DataArray(predicted) / measured - 1) ** 2).mean()) ** 0.5


def table(
    levels: Mapping[str, Mapping[str, float]],
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Levels of theory with their errors as a table: head and rows."""
    rows = [
        (level, *map(percent, off.values()), LEVELS[level].knows)
        for level, off in levels.items()
    ]
    return ("level", "half-time", *CURVES, "knows of a student"), rows
