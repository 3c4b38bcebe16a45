"""Errors of every level of theory, per seed,
at every setting of the shipped ensembles.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import sem

from simulate.training import pool
from theory.state_tracking import Parameters
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.integrate import solve
from theory.state_tracking.single_students.levels import LEVELS
from theory.state_tracking.single_students.realisation import Realisation, Start
from verify.compare.emergence import first_crossing
from verify.state_tracking import ensemble

# Levels of theory by name; settings with all levels, and those with levels `ON_GRID`.
PAPER, OWN, CAVITY = "flow", "own_start", "cavity"
DRAWN, COUNTS, FULL = "disorder_drawn", "disorder_counts", "fixed_disorder"
TITLES = {name: level.title for name, level in LEVELS.items()}
LADDER, GRID = ("table_1", "table_2", "unequal"), ensemble.GRID
# Every third evaluation is compared, on the grid every second: more would change no
# error by more than its standard error.
EVERY, EVERY_ON_GRID = 3, 2
# setting at which every term of the fixed-disorder theory is omitted in turn
TAKEN_APART = "mixed"
LOCKING, LOCKED = 0.2, 0.9  # range of attention during locking
MEASURES = {
    "half_time": "time of A = 1/2",
    "rollout_half_time": "rollout half-time",
    "A": "max |A|",
    "variance_other": "wrong variance",
    "variance_correct": "right variance",
    "at_equal_A": "variances, equal A",
    "loss": "max |loss|",
    "rollout_accuracy": "max |rollout|",
}
SCATTERED = (
    "half_time",
    "rollout_half_time",
)  # compared with the scatter of drawn students
ABSOLUTE = (
    "A",
    "loss",
    "rollout_accuracy",
)  # measures that are deviations, not relative errors
ON_LADDER = tuple(level for level in LEVELS if level not in (DRAWN, COUNTS))
ON_GRID = (PAPER, CAVITY, DRAWN, COUNTS, FULL)


def times(p: Parameters) -> dict[str, tuple[str, float]]:
    """Timed variables and their levels; with two actions,
    A = 1/2 is the chance level.
    """
    return {
        "half_time": ("A", 0.5 if p.L > 2 else 0.75),
        "rollout_half_time": ("rollout_accuracy", 0.5),
    }


def _left(system: FixedDisorder, left: np.ndarray | float) -> FixedDisorder:
    """Variant with another share of the scatter within groups."""
    system.left = left + 0 * system.left
    return system


def _uniform(known: Realisation) -> Realisation:
    """Variant with the same number of rows in each group."""
    return replace(
        known, share=np.full_like(known.share, 1 / known.share[0].size), pairs=None
    )


# Fixed-disorder theory without one of its terms; the last three omissions are
# cumulative.
TERMS: dict[str, Callable[[Parameters, Start, Realisation], FixedDisorder]] = {
    "whole": FixedDisorder,
    "no scatter within groups": lambda p, s, g: _left(FixedDisorder(p, s, g), 0.0),
    "variance about the true mean": lambda p, s, g: _left(
        FixedDisorder(p, s, g), g.share
    ),
    "no pairs": lambda p, s, g: FixedDisorder(p, s, g.without_pairs()),
    "no counts": lambda p, s, g: FixedDisorder(p, s, _uniform(g)),
    "no M": lambda p, s, g: FixedDisorder(
        p, s, _uniform(g).redrawn(s, np.random.default_rng(0))
    ),
}


@dataclass(frozen=True)
class Fidelity:
    """Errors of one level of theory at one setting.

    Attributes
    ----------
    errors : dict of str to ndarray, shape (seeds,)
        Per measure: relative errors (signed for times; rms over evaluations for
        variances) of the seeds that reach the event within their run, or largest
        absolute deviations.
    inside, paired : float
        Fraction of evaluations at which the mean rollout curve over seeds lies within
        one standard error of the students' mean, unpaired and paired by seed (68% for a
        perfect theory).
    scatter : dict of str to float
        Relative standard deviation of times over drawn students of the theory; empty
        without.
    """

    errors: dict[str, np.ndarray]
    inside: float
    paired: float
    scatter: dict[str, float] = field(default_factory=dict)

    def summary(self, name: str) -> tuple[float, float]:
        """Root mean square (times, variances) or mean (deviations) over seeds, with its
        standard error; NaN if never reached.
        """
        x = self.errors[name]
        if not len(x):
            return np.nan, np.nan
        if name in ABSOLUTE:
            return float(x.mean()), float(sem(x))
        return (rms := _rms(x)), float(sem(x**2) / (2 * rms)) if rms else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Dictionary for JSON: value, standard error and errors per seed of each
        measure.
        """
        parts = ("value", "standard_error", "per_seed")
        measures = {
            name: dict(
                zip(parts, (*self.summary(name), self.errors[name]), strict=True)
            )
            for name in MEASURES
        }
        shares = {"mean_rollout_within_one_se": self.inside, "paired": self.paired}
        return {**measures, **shares, "scatter": self.scatter}


Ladder = dict[str, dict[str, Fidelity]]


def judge(p: Parameters, theory: xr.Dataset, runs: xr.Dataset) -> Fidelity:
    """Compare curves per seed with the students; of several draws their mean, with the
    relative scatter of both times.
    """
    drawn = theory.transpose("draw", "seed", ...) if "draw" in theory.dims else None
    theory = theory.transpose("seed", ...) if drawn is None else drawn.mean("draw")
    runs = runs.transpose("seed", ...)
    errors, scatter = {}, {}
    for name, (of, level) in times(p).items():
        predicted, measured = (
            first_crossing(d[of], level).values for d in (theory, runs)
        )
        timed = np.isfinite(measured)
        errors[name] = (predicted / measured - 1)[timed]
        if drawn is not None:
            crossed = np.array(
                [first_crossing(curve, level).values for curve in drawn[of]]
            )
            scatter[name] = _rms((crossed.std(0, ddof=1) / crossed.mean(0))[timed])
    for name in ("A", "loss", "rollout_accuracy"):
        errors[name] = np.abs(theory[name].values - runs[name].values).max(1)
    locked = runs.A.values > LOCKED
    locks, variances = (
        np.flatnonzero(locked.any(1)),
        ("variance_other", "variance_correct"),
    )
    for name in variances:
        ratio = theory[name].values / runs[name].values - 1
        errors[name] = np.array([_rms(ratio[k, locked[k]]) for k in locks])
    errors["at_equal_A"] = np.array(
        [
            max(
                _at_equal_A(theory.isel(seed=k), runs.isel(seed=k), name)
                for name in variances
            )
            for k in locks
        ]
    )
    gap = theory.rollout_accuracy.values - runs.rollout_accuracy.values
    shares = []
    for sample in (runs.rollout_accuracy.values, gap):
        error = np.maximum(
            sem(sample), 0.5 / ensemble.TESTED
        )  # sampling error of the test set
        shares.append(float((np.abs(gap.mean(0)) <= error).mean()))
    return Fidelity(errors, shares[0], shares[1], scatter)


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean())) if x.size else np.nan


def _at_equal_A(theory: xr.Dataset, run: xr.Dataset, name: str) -> float:
    """Rms relative error of a variance during locking, compared at equal attention."""
    during = (run.A.values > LOCKING) & (run.A.values < LOCKED)
    rising = slice(0, int(np.argmax(theory.A.values > (1 + LOCKED) / 2)) + 1)
    interpolated = np.interp(
        run.A.values[during], theory.A.values[rising], theory[name].values[rising]
    )
    return _rms(interpolated / run[name].values[during] - 1)


def _shipped(setting: str) -> tuple[Parameters, xr.Dataset]:
    """Students of a setting at the evaluations used."""
    p, runs = ensemble.shipped(setting)
    every = EVERY if setting in LADDER else EVERY_ON_GRID
    return p, runs.isel(alpha=slice(None, None, every))


def _one(setting: str, level: str) -> Fidelity:
    p, runs = _shipped(setting)
    return judge(p, LEVELS[level].curves(p, runs), runs)


def _without(term: str) -> Fidelity:
    p, runs = _shipped(TAKEN_APART)
    system = TERMS[term](p, Start.measured(runs), Realisation.of(p, runs))
    return judge(p, solve(system, runs.epoch.values), runs)


def terms() -> dict[str, Fidelity]:
    """Errors of the fixed-disorder theory without one of its terms, at one setting."""
    errors = pool.each(
        _without, [(term,) for term in TERMS], "terms of the theory", "term"
    )
    return dict(zip(TERMS, errors, strict=True))


def ladder(whole: bool = True) -> tuple[Ladder, Ladder]:
    """Errors of the levels at every setting and, if ``whole``, at those of the grid,
    computed in parallel, the longest first.
    """
    order = (DRAWN, FULL, COUNTS, *LEVELS)
    wanted = ((LADDER, ON_LADDER), (GRID if whole else {}, ON_GRID))
    tasks = [
        (s, level) for settings, levels in wanted for s in settings for level in levels
    ]
    tasks.sort(key=lambda task: order.index(task[1]))
    errors = pool.each(_one, tasks, "levels of theory", "level")
    done = dict(zip(tasks, errors, strict=True))
    on_ladder, on_grid = (
        {
            setting: {level: done[setting, level] for level in levels}
            for setting in settings
        }
        for settings, levels in wanted
    )
    return on_ladder, on_grid
