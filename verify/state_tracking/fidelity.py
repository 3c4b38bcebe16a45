"""Levels of theory of the state-tracking model beside every seed of the shipped
ensembles, in every quantity that they predict.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import sem

from simulate.training import pool
from theory import ParameterError
from theory import state_tracking as st
from theory.equations import titles
from theory.runtime import plotting
from theory.state_tracking import Parameters
from theory.state_tracking.single_students.fixed_disorder import INPUTS
from theory.state_tracking.single_students.levels import BEST, LEVELS
from verify.checks.check import Band, Check, listed, near
from verify.checks.check_table import percent
from verify.checks.report import Report, Request
from verify.compare.emergence import first_crossing
from verify.state_tracking import ensemble

TRAINS = True  # what comes with the code, if asked
PAPER, JUDGED = "flow", "cavity"
SETTINGS = ("table_1", "table_2", "unequal")
# Every third evaluation is compared, on the grid every second.
EVERY, EVERY_ON_GRID = 3, 2
ON_GRID = (PAPER, JUDGED, BEST)
DRAWN = "mixed"  # setting of the figure
TIMES = {
    "half_time": ("A", "time of A = 1/2"),
    "rollout_half_time": ("rollout_accuracy", "rollout half-time"),
}
CURVES = {
    "A": "max |A|",
    "R": "max |R| over largest R",
    "S": "max |S|",
    "loss": "max |loss|",
    "accuracy": "max |accuracy|",
    "rollout_accuracy": "max |rollout|",
}
MEASURES = {name: words for name, (_, words) in TIMES.items()} | CURVES
Errors = dict[str, np.ndarray]  # by measure, an entry per seed
ByLevel = dict[str, Errors]

# How far the level that knows a student's realisation may be off, in every seed at
# every time; accuracies by the sampling of two test sets, too.
AIM, AIM_OF_TIMES = 0.03, 0.01
SAMPLING = 3 * 0.5 * (1 / ensemble.TESTED + 1 / INPUTS) ** 0.5
AIMS = {name: AIM_OF_TIMES if name in TIMES else AIM for name in MEASURES}
AIMS |= {"accuracy": AIM + SAMPLING, "rollout_accuracy": AIM + SAMPLING}

# The paper's curve on the same seeds, mean over seeds: of predicted / measured - 1 for
# times, of max |A| and max |loss|. At fixed seeds only other training sets would change
# these numbers; the error of cavity equations, which do not know these, shows by how
# much.
PAPER_OFF_BY = ("half_time", "rollout_half_time", "A", "loss")
PAPER_OFF = {
    "table_1": (0.2221, -0.3076, 0.2727, 0.2397),
    "table_2": (0.0795, -0.2711, 0.1772, 0.2245),
    "unequal": (0.1380, -0.1777, 0.2354, 0.1149),
}
CRUDE = "closure c(A), one logit variance, of no order"
WIDTH = 4.0  # standard errors of the cavity equations


def report(request: Request) -> Report:
    """Report: levels of theory at every setting, and their verdicts."""
    if request.renew:
        ensemble.renew(request.device, request.progress)
    errors = every_level(SETTINGS, tuple(LEVELS))
    grid = every_level(tuple(ensemble.GRID), ON_GRID) if request.full else {}
    tables = {}
    for setting, levels in (errors | grid).items():
        header = ("error of", *(LEVELS[name].title for name in levels))
        tables[f"{setting}: {ensemble.SETTINGS[setting].title}"] = header, rows(levels)
    further = f"{len(ensemble.GRID)} further settings (twelve minutes)"
    return Report(
        checks(errors | grid),
        request.left_out(further),
        tables,
        {"levels": as_dict(errors), "grid": as_dict(grid)},
        lambda: draw(*ensemble.shipped(DRAWN)),
    )


def every_level(settings: Sequence[str], levels: Sequence[str]) -> dict[str, ByLevel]:
    """Errors of levels at settings, computed in parallel, the longest first."""
    pairs = itertools.product(reversed(levels), settings)
    tasks = [(setting, level) for level, setting in pairs]
    results = pool.each(_at_setting, tasks, "levels of theory", "level")
    errors = dict(zip(tasks, results, strict=True))
    table = {}
    for setting in settings:
        table[setting] = {level: errors[setting, level] for level in levels}
    return table


def _at_setting(setting: str, level: str) -> Errors:
    p, runs = ensemble.shipped(setting)
    every = EVERY if setting in SETTINGS else EVERY_ON_GRID
    runs = runs.isel(alpha=slice(None, None, every))
    return deviations(p, LEVELS[level].curves(p, runs), runs)


def deviations(p: Parameters, theory: xr.Dataset, runs: xr.Dataset) -> Errors:
    """How far curves of each seed are off, by measure: predicted / measured - 1 for
    times, of seeds that get there; the largest absolute deviation along a curve.
    """
    theory, runs = (x.transpose("seed", ...) for x in (theory, runs))
    errors = {}
    for name, (variable, _) in TIMES.items():
        # With two actions, A = 1/2 is the chance level.
        level = 0.75 if name == "half_time" and p.L == 2 else 0.5
        predicted, measured = (
            first_crossing(x[variable], level).values for x in (theory, runs)
        )
        reached = np.isfinite(measured)
        errors[name] = predicted[reached] / measured[reached] - 1
    for name in CURVES:
        gaps = np.abs(theory[name].values - runs[name].values).max(1)
        scale = np.abs(runs[name].values).max(1) if name == "R" else 1.0
        errors[name] = gaps / scale
    return errors


def summary(name: str, errors: np.ndarray) -> tuple[float, float]:
    """Root mean square (times) or mean (deviations) over seeds, with its standard
    error; NaN if no seed got there.
    """
    if not len(errors):
        return np.nan, np.nan
    if name in CURVES:
        return float(errors.mean()), float(sem(errors))
    root = float((errors**2).mean() ** 0.5)
    return root, float(sem(errors**2) / (2 * root)) if root else 0.0


@listed
def checks(errors: Mapping[str, ByLevel]) -> Iterator[Check]:
    """The best level in every quantity against what it is to reach; the paper's curve
    against how far it is known to be off.
    """
    for setting, levels in errors.items():
        title = ensemble.SETTINGS[setting].title
        for name, words in MEASURES.items():
            errors_of_level = levels[BEST][name]
            if not len(errors_of_level):
                continue
            value = float(errors_of_level.max())
            if name in TIMES:
                value = summary(name, errors_of_level)[0]
            yield near(
                f"{words} by our theory, {title}",
                LEVELS[BEST].title,
                0.0,
                value,
                AIMS[name],
                "aim set beforehand; the largest over seeds and times",
                1.0,
            )
        if setting not in PAPER_OFF:
            continue
        for name, centre in zip(PAPER_OFF_BY, PAPER_OFF[setting], strict=True):
            half = WIDTH * float(sem(levels[JUDGED][name]))
            band = Band(centre - half, centre + half, CRUDE)
            yield near(
                f"{MEASURES[name]} by paper Eq. (15), {title}",
                "flow (15)",
                0.0,
                float(levels[PAPER][name].mean()),
                0.0,
                "",
                1.0,
                band,
            )


def rows(levels: ByLevel) -> list[list[str]]:
    """Table of one setting, a column per level: rms relative errors in per cent,
    largest deviations as numbers, each with its standard error in the last digits.
    """
    table = []
    for name, words in MEASURES.items():
        cells = [
            _brief(*summary(name, errors[name]), name in TIMES)
            for errors in levels.values()
        ]
        table.append([words, *cells])
    return table


def _brief(value: float, error: float, relative: bool) -> str:
    """``39.0(52)%``: the standard error in units of the last digits."""
    if np.isnan(value):
        return "never"
    value, error = (100 * value, 100 * error) if relative else (value, error)
    places = max(0, 1 - int(np.floor(np.log10(error)))) if error > 0 else 3
    last = f"({error * 10**places:.0f})" if error > 0 else ""
    return f"{value:.{places}f}{last}{'%' if relative else ''}"


def as_dict(errors: Mapping[str, ByLevel]) -> dict[str, Any]:
    """Errors of all levels as a dictionary for JSON: of each measure its value, the
    standard error and the errors of all seeds.
    """
    found: dict[str, Any] = {}
    for setting, levels in errors.items():
        found[setting] = {}
        for level, measures in levels.items():
            found[setting][level] = {}
            for name, per_seed in measures.items():
                value, error = summary(name, per_seed)
                found[setting][level][name] = {
                    "value": value,
                    "standard_error": error,
                    "per_seed": per_seed,
                }
    return found


@plotting.panels(1, 2, height=3.0)
def draw(p: Parameters, runs: xr.Dataset, *axes: Any) -> Any:
    """Figure: attention and rollout accuracy of single seeds: students, the paper's
    curve, and ours.
    """
    ours, theirs = (LEVELS[level].curves(p, runs) for level in (BEST, PAPER))
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

TITLE = (
    "Levels of theory: rms error of the time of A = 1/2, and largest errors of curves"
)
CLIMBED = ("A", "R", "S")  # curves


def climb(
    p: Parameters, runs: xr.Dataset, levels: Iterable[str] = tuple(LEVELS)
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
    by_level: dict[str, dict[str, float]] = {}
    for level in levels:
        with contextlib.suppress(ParameterError):
            curves = st.predict(p, runs, level=level, accuracies=False)
            off = {"half_time": rms(half_times(curves), half_times(runs))}
            for name in CLIMBED:
                gap = (runs[name] - curves[name].values).mean("seed").values
                off[name] = float(
                    gap[np.abs(gap).argmax()] / np.abs(curves[name]).max()
                )
            by_level[level] = off
    return by_level


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
    return ("level", "half-time", *CLIMBED, "knows of a student"), rows
