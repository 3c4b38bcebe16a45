"""Accuracy of the levels of theory of the state-tracking model for every seed of the shipped
ensembles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.stats
import xarray as xr

from simulate import pool
from theory import titles
from theory.parameters import described
from theory.runtime import plotting
from theory.state_tracking import Parameters
from theory.state_tracking.levels import DRAWS, LEVELS
from theory.state_tracking.numbers.per_seed import (
    FixedDisorder,
    Realisation,
    Start,
    data_scatter,
    half_times,
    solve,
)
from verify.check import Band, Check, at_most, estimated, near
from verify.emergence import first_crossing
from verify.report import Report, Request
from verify.state_tracking import ensemble
from verify.state_tracking.terms import TERMS, times

PAPER, OWN, CAVITY = "flow", "own_start", "cavity"
DRAWN, COUNTS, FULL = "disorder_drawn", "disorder_counts", "fixed_disorder"
TITLES = {name: level.title for name, level in LEVELS.items()}
LADDER = ("table_1", "table_2", "unequal")
SETTINGS = {name: ensemble.SETTINGS[name] for name in LADDER}
GRID = ensemble.GRID
FORCES = 16  # draws of the training set's random force per seed
EVERY = 3  # evaluations used; with a third of them no error changes by more than its standard error
EVERY_ON_GRID = 2
TAKEN_APART = "mixed"  # setting at which every term of the fixed-disorder theory is omitted in turn
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
ON_GRID_SHOWN = ("half_time", "rollout_half_time", "A", "variance_other", "variance_correct")
SCATTERED = ("half_time", "rollout_half_time")
ABSOLUTE = ("A", "loss", "rollout_accuracy")  # measures that are deviations, not relative errors


ON_LADDER = tuple(level for level in LEVELS if level not in (DRAWN, COUNTS))
ON_GRID = (PAPER, CAVITY, DRAWN, COUNTS, FULL)


@dataclass(frozen=True)
class Fidelity:
    """Errors of one level of theory at one setting.

    Attributes
    ----------
    errors : dict of str to ndarray, shape (seeds,)
        Per measure: relative errors (signed for times; rms over evaluations for variances) of the
        seeds that reach the event within their run, or largest absolute deviations.
    inside, paired : float
        Fraction of evaluations at which the mean rollout curve over seeds lies within one standard
        error of the students' mean, unpaired and paired by seed (68% for a perfect theory).
    """

    errors: dict[str, np.ndarray]
    inside: float
    paired: float
    scatter: dict[str, float] = field(default_factory=dict)

    def summary(self, name: str) -> tuple[float, float]:
        """Root mean square (times, variances) or mean (deviations) over seeds, with its standard
        error; NaN if never reached.
        """
        x = self.errors[name]
        if not len(x):
            return np.nan, np.nan
        n = np.sqrt(len(x))
        if name in ABSOLUTE:
            return float(x.mean()), float(x.std(ddof=1) / n)
        rms = float(np.sqrt((x**2).mean()))
        return rms, float((x**2).std(ddof=1) / n / (2 * rms)) if rms else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Dictionary for JSON: value, standard error and errors per seed of each measure."""
        measures = {}
        for name in MEASURES:
            value, error = self.summary(name)
            per_seed = self.errors[name]
            measures[name] = {"value": value, "standard_error": error, "per_seed": per_seed}
        shares = {"mean_rollout_within_one_se": self.inside, "paired": self.paired}
        return {**measures, **shares, "scatter": self.scatter}


Ladder = dict[str, dict[str, Fidelity]]


def judge(p: Parameters, theory: xr.Dataset, runs: xr.Dataset) -> Fidelity:
    """Compare curves per seed with the students; of several draws their mean, with the relative
    scatter of both times.
    """
    drawn = theory.transpose("draw", "seed", ...) if "draw" in theory.dims else None
    theory = theory.transpose("seed", ...) if drawn is None else drawn.mean("draw")
    runs = runs.transpose("seed", ...)
    errors, scatter = {}, {}
    for name, (of, level) in times(p).items():
        predicted, measured = (first_crossing(d[of], level).values for d in (theory, runs))
        timed = np.isfinite(measured)
        errors[name] = (predicted / measured - 1)[timed]
        if drawn is not None:
            at = np.array([first_crossing(curve, level).values for curve in drawn[of]])
            scatter[name] = _rms((at.std(0, ddof=1) / at.mean(0))[timed])
    for name in ("A", "loss", "rollout_accuracy"):
        errors[name] = np.abs(theory[name].values - runs[name].values).max(1)
    ratios = {}
    locks = (runs.A.values > LOCKED).any(1)
    for name in ("variance_other", "variance_correct"):
        ratios[name] = (theory[name].values / runs[name].values - 1)[locks]
        errors[name] = np.array(
            [_rms(r[a > LOCKED]) for r, a in zip(ratios[name], runs.A.values[locks], strict=True)]
        )
    errors["at_equal_A"] = np.array(
        [
            max(_at_equal_A(theory.isel(seed=k), runs.isel(seed=k), name) for name in ratios)
            for k in np.flatnonzero(locks)
        ]
    )
    gap = theory.rollout_accuracy.values - runs.rollout_accuracy.values
    shares = []
    for sample in (runs.rollout_accuracy.values, gap):
        error = np.maximum(
            sample.std(0, ddof=1) / np.sqrt(len(gap)), 0.5 / ensemble.TESTED
        )  # sampling error of the test set
        shares.append(float((np.abs(gap.mean(0)) <= error).mean()))
    return Fidelity(errors, shares[0], shares[1], scatter)


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean())) if x.size else np.nan


def _at_equal_A(theory: xr.Dataset, run: xr.Dataset, name: str) -> float:
    """Rms relative error of a variance during locking, compared at equal attention."""
    during = (run.A.values > LOCKING) & (run.A.values < LOCKED)
    rising = slice(0, int(np.argmax(theory.A.values > (1 + LOCKED) / 2)) + 1)
    at = np.interp(run.A.values[during], theory.A.values[rising], theory[name].values[rising])
    return _rms(at / run[name].values[during] - 1)


def _one(setting: str, level: str, tick: Callable[[int], None]) -> Fidelity:
    p, runs = ensemble.shipped(setting)
    every = EVERY if setting in LADDER else EVERY_ON_GRID
    runs = runs.isel(alpha=slice(None, None, every))
    errors = judge(p, LEVELS[level].curves(p, runs), runs)
    tick(1)
    return errors


def _without(term: str, tick: Callable[[int], None]) -> Fidelity:
    p, runs = ensemble.shipped(TAKEN_APART)
    runs = runs.isel(alpha=slice(None, None, EVERY_ON_GRID))
    system = TERMS[term](p, Start.measured(runs), Realisation.of(p, runs))
    errors = judge(p, solve(system, runs.epoch.values), runs)
    tick(1)
    return errors


def terms() -> dict[str, Fidelity]:
    """Errors of the fixed-disorder theory without one of its terms, at one setting."""
    errors = pool.run(
        [functools.partial(_without, term) for term in TERMS],
        [1] * len(TERMS),
        progress=False,
        what="terms of the theory",
        unit="term",
    )
    return dict(zip(TERMS, errors, strict=True))


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
            f"{len(GRID)} further settings, every term left out in turn, training sets redrawn "
            "(twelve minutes)"
        )
        return Report(ladder_checks(errors), left_out, tables, {"ladder": as_dict(errors)}, figure)
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


def ladder(whole: bool = True) -> tuple[Ladder, Ladder]:
    """Errors of the levels at every setting and, if ``whole``, at those of the grid, computed in
    parallel, the longest first.
    """
    order = (DRAWN, FULL, COUNTS, *LEVELS)
    wanted = ((SETTINGS, ON_LADDER), (GRID if whole else {}, ON_GRID))
    tasks = [(s, level) for settings, levels in wanted for s in settings for level in levels]
    tasks.sort(key=lambda task: order.index(task[1]))
    done = dict(
        zip(
            tasks,
            pool.run(
                [functools.partial(_one, *t) for t in tasks],
                [1] * len(tasks),
                progress=False,
                what="levels of theory",
                unit="level",
            ),
            strict=True,
        )
    )
    errors, grid = (
        {setting: {level: done[setting, level] for level in levels} for setting in settings}
        for settings, levels in wanted
    )
    return errors, grid


def across(grid: Ladder, name: str) -> list[list[str]]:
    """Table of one measure with a row per setting of the grid: errors of every level, and the
    scatter of the time over the unknown disorder.
    """
    table = []
    for setting, levels in grid.items():
        held = " (held out)" if setting in ensemble.HELD_OUT else ""
        errors = [_brief(*f.summary(name), name not in ABSOLUTE) for f in levels.values()]
        scatter = levels[DRAWN].scatter.get(name)
        table.append([setting + held, *errors, "" if scatter is None else f"{scatter:.2%}"])
    return table


def rows(levels: dict[str, Fidelity]) -> list[list[str]]:
    """Table of one setting, a column per theory: rms relative errors in per cent, largest
    deviations as numbers, each with its standard error in the last digits.
    """
    return [
        [meaning, *(_brief(*f.summary(name), name not in ABSOLUTE) for f in levels.values())]
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


def as_dict(found: Ladder) -> dict[str, Any]:
    """Errors of all levels as a dictionary for JSON."""
    return {
        setting: {level: f.as_dict() for level, f in levels.items()}
        for setting, levels in found.items()
    }


# Targets for the theory that knows the training set, set before the grid was trained; nothing is
# fitted.
AIMS = {
    "half_time": 0.01,
    "rollout_half_time": 0.01,
    "A": 0.03,
    "rollout_accuracy": 0.08,
    "variance_other": 0.01,
    "variance_correct": 0.05,
    "at_equal_A": 0.05,
}
# Targets for the theory that knows a seed's initial values only; for times this, or 1.2 times their
# scatter.
AIMS_DRAWN = {
    "half_time": 0.01,
    "rollout_half_time": 0.01,
    "variance_other": 0.03,
    "variance_correct": 0.08,
}
ABOVE_SCATTER = 1.2
AT_CHANCE = "before it rises the s.e. of 5 seeds is that of the test sets, beyond which a true mean lies one time in three"
FEW_SEEDS = "what a start does not fix scatters; the rms of some five seeds is known to a third"
# Where targets are missed: the measured value, with a tenth to either side (with fixed seeds
# nothing is random).
MISSED = {
    ("table_1", "outside"): 0.182,
    ("table_2", "outside"): 0.113,
    ("unequal", "outside"): 0.176,
}
MISSED_DRAWN = {
    ("d_g_4", "rollout_half_time"): 0.0284,
    ("d_g_4", "variance_correct"): 0.1147,
    ("L_2", "half_time"): 0.0318,
    ("L_32", "rollout_half_time"): 0.0108,
    ("N_64", "half_time"): 0.0437,
    ("d_h_8", "rollout_half_time"): 0.0192,
    ("d_h_256", "rollout_half_time"): 0.0136,
    ("n_train_2048", "half_time"): 0.0328,
    ("mixed", "half_time"): 0.0164,
    ("mixed", "rollout_half_time"): 0.0172,
}
# The paper's levels on the same seeds, mean over seeds: of predicted / measured - 1 for times, and
# of max |A| and max |loss|. At fixed seeds only other training sets would change these numbers; the
# error of a level that does not know them shows by how much.
OFF = {
    ("table_1", PAPER): {
        "half_time": 0.2221,
        "rollout_half_time": -0.3076,
        "A": 0.2727,
        "loss": 0.2397,
    },
    ("table_1", OWN): {
        "half_time": 0.1200,
        "rollout_half_time": -0.3297,
        "A": 0.2046,
        "loss": 0.0689,
    },
    ("table_2", PAPER): {
        "half_time": 0.0795,
        "rollout_half_time": -0.2711,
        "A": 0.1772,
        "loss": 0.2245,
    },
    ("table_2", OWN): {
        "half_time": -0.0152,
        "rollout_half_time": -0.3129,
        "A": 0.1423,
        "loss": 0.2775,
    },
    ("unequal", PAPER): {
        "half_time": 0.1380,
        "rollout_half_time": -0.1777,
        "A": 0.2354,
        "loss": 0.1149,
    },
    ("unequal", OWN): {
        "half_time": 0.0774,
        "rollout_half_time": -0.1944,
        "A": 0.1557,
        "loss": 0.0803,
    },
}
WIDTH = 4.0  # standard errors of this level


def checks(found: Ladder, grid: Ladder) -> list[Check]:
    """Checks: the last level against its targets at every setting; the level that knows initial
    values only against the scatter that it predicts; the paper's levels against their measured
    bands.
    """
    out = ladder_checks(found)
    for setting, levels in grid.items():
        out += [*aims(setting, levels), *drawn_aims(setting, levels)]
    out += [calibration(grid, name) for name in SCATTERED]
    redrawn = [
        functools.partial(check, name)
        for name in ("draws_2048", "draws_8192")
        for check in (each_training_set, scatter)
    ]
    return out + pool.run(
        redrawn, [1] * len(redrawn), progress=False, what="training sets redrawn", unit="ensemble"
    )


def ladder_checks(found: Ladder) -> list[Check]:
    """Checks of the three settings of the ladder."""
    return [
        c
        for setting, levels in found.items()
        for c in (*aims(setting, levels), *off(setting, levels))
    ]


def aims(setting: str, levels: dict[str, Fidelity]) -> list[Check]:
    """The last level against targets set beforehand; if one is missed, against its known
    deviation.
    """
    best, title = levels[FULL], ensemble.SETTINGS[setting].title
    out = [
        _aim(
            f"{MEASURES[name]} by our theory, {title}",
            TITLES[FULL],
            best.summary(name)[0],
            aim,
            MISSED.get((setting, name)),
            AT_CHANCE,
        )
        for name, aim in AIMS.items()
    ]
    if setting in LADDER:
        label = f"share of evaluations with the mean rollout beyond one s.e., {title}"
        known = MISSED.get((setting, "outside"))
        out.append(_aim(label, TITLES[FULL], 1 - best.inside, 0.1, known, AT_CHANCE))
    for name in SCATTERED:
        (ours, _), (theirs, _) = best.summary(name), levels[PAPER].summary(name)
        out.append(
            at_most(
                f"error of the {MEASURES[name]} by our theory over the paper's, {title}",
                TITLES[FULL],
                0.25,
                ours / theirs if np.isfinite(theirs) else 0.0,  # it may never reach it
                "the theory is worth its equations",
            )
        )
    return out


def drawn_aims(setting: str, levels: dict[str, Fidelity]) -> list[Check]:
    """The level that knows a seed's initial values only, against its targets."""
    level, title = levels[DRAWN], ensemble.SETTINGS[setting].title
    return [
        _aim(
            f"{MEASURES[name]} by our theory of a start alone, {title}",
            TITLES[DRAWN],
            level.summary(name)[0],
            max(aim, ABOVE_SCATTER * level.scatter.get(name, 0.0)),
            MISSED_DRAWN.get((setting, name)),
            FEW_SEEDS,
        )
        for name, aim in AIMS_DRAWN.items()
    ]


def _aim(
    label: str, level: str, value: float, aim: float, known: float | None, limit: str
) -> Check:
    band = None if known is None else Band(0.9 * known, 1.1 * known, limit)
    return near(label, level, 0.0, value, aim, "aim set beforehand", 1.0, band)


def calibration(grid: Ladder, name: str) -> Check:
    """Whether seeds deviate from the mean over draws as predicted by the scatter of draws, over the
    whole grid.

    The mean of squared errors over the squared scatter of the draws follows an F distribution.
    """
    ratios, expected, variance = [], 0.0, 0.0
    for levels in grid.values():
        errors = levels[DRAWN].errors[name]
        own, drawn_ = len(errors), len(errors) * (DRAWS - 1)
        scatter_ = levels[DRAWN].scatter[name] ** 2 * (1 + 1 / DRAWS)
        ratios.append(float((errors**2).mean()) / scatter_)
        mean, spread = scipy.stats.f.stats(own, drawn_, moments="mv")
        expected, variance = expected + mean / len(grid), variance + spread / len(grid) ** 2
    predicted = float(np.sqrt(expected))
    return estimated(
        f"{MEASURES[name]} of single seeds over the scatter predicted, whole grid",
        TITLES[DRAWN],
        predicted,
        float(np.sqrt(np.mean(ratios))),
        float(np.sqrt(variance)) / (2 * predicted),
        required=0.5,
        reason="|z| <= 4; the ratio of rms of 14 settings is known to an eighth",
    )


def each_training_set(name: str, tick: Callable[[int], None]) -> Check:
    """Rms relative error of the time of A = 1/2 over all seeds and training sets of an ensemble."""
    p, runs = ensemble.shipped(name)
    errors = []
    for draw in runs.data_draw.values:
        one = runs.sel(data_draw=draw)
        known = Realisation.of(p.replace(data_draw=int(draw)), one)
        predicted = half_times(FixedDisorder(p, Start.measured(one), known), p.epochs)
        errors += list(predicted / first_crossing(one.A, 0.5).values - 1)
    return near(
        f"time of A = 1/2 of {len(errors)} students, each with its training set, n = {p.n_train}",
        TITLES[FULL],
        0.0,
        _rms(np.array(errors)),
        0.01,
        "aim set beforehand; training sets move it by 1.5 to 3%",
        1.0,
    )


def off(setting: str, levels: dict[str, Fidelity]) -> list[Check]:
    """Errors of the paper's levels on these seeds against their measured bands."""
    out, title = [], ensemble.SETTINGS[setting].title
    for level in (PAPER, OWN):
        for name, centre in OFF.get((setting, level), {}).items():
            errors, ours = levels[level].errors[name], levels[CAVITY].errors[name]
            half = WIDTH * float(ours.std(ddof=1) / np.sqrt(len(ours)))
            band = Band(centre - half, centre + half, "closure c(A), one logit variance")
            out.append(
                near(
                    f"{MEASURES[name]} by {TITLES[level].replace(', ', ' ')}, {title}",
                    "flow (15)",
                    0.0,
                    float(errors.mean()),
                    0.0,
                    "",
                    1.0,
                    band,
                )
            )
    return out


def scatter(name: str, tick: Callable[[int], None]) -> Check:
    """Relative scatter of the time of A = 1/2 over redrawn training sets, pooled over seeds:
    dressed theory against students.
    """
    p, runs = ensemble.shipped(name)
    times = np.array(
        [first_crossing(runs.A.sel(data_draw=draw), 0.5).values for draw in runs.data_draw]
    )
    measured = (times.std(0, ddof=1) / times.mean(0), len(times))
    forces = np.random.default_rng(0)
    drawn = data_scatter(
        p, Start.measured(runs.isel(data_draw=0)), FORCES, forces, 1.2 * float(runs.alpha[-1])
    )
    pooled, spread = [], 0.0
    for scatters, draws in ((drawn, FORCES), measured):
        pooled.append(float(np.sqrt((scatters**2).mean())))
        spread += 1 / (
            2 * scatters.size * (draws - 1)
        )  # variance of the log of a pooled standard deviation
    relative = float(np.sqrt(spread))
    return estimated(
        f"scatter of the time of A = 1/2 over training sets, n = {p.n_train}",
        "force_noise",
        pooled[0],
        pooled[1],
        relative * pooled[0],
        required=0.5,
        reason="|z| <= 4; the students' scatter is known to 9%",
    )


def draw(p: Parameters, runs: xr.Dataset) -> Any:
    """Figure: attention and rollout accuracy of single seeds: students, the paper's curve, and
    ours.
    """
    ours, theirs = (LEVELS[level].curves(p, runs) for level in (FULL, PAPER))
    figure, axes = plotting.figure(1, 2, width=3.9, height=3.0)
    for axis, name, label in zip(
        axes, ("A", "rollout_accuracy"), ("attention $A$", "final rollout accuracy"), strict=True
    ):
        for k in range(runs.sizes["seed"]):
            axis.plot(
                runs.alpha,
                runs[name].isel(seed=k),
                color=f"C{k}",
                lw=3,
                alpha=0.35,
                label="students, one colour per seed" if k == 0 else None,
            )
            axis.plot(
                ours.alpha,
                ours[name].isel(seed=k),
                color=f"C{k}",
                lw=1.2,
                label="ours, from the seed's teachers,\ninitial weights and training set"
                if k == 0
                else None,
            )
        axis.plot(theirs.alpha, theirs[name].isel(seed=0), "k--", label="paper, Eq. (15)")
        axis.set(
            xlabel=r"training time $\alpha$ = epochs / $(d_g N)$",
            ylabel=label,
            xlim=(0, float(runs.alpha[-1])),
            ylim=(-0.02, 1.05),
        )
    plotting.inside(axes[0])
    asked = [(p, runs.sizes["seed"])]
    plotting.headline(figure, titles.title(asked), described(asked))
    return figure
