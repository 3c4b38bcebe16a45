"""The ladder of theories of the state-tracking model, each held against every seed of the shipped ensembles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from simulate import pool
from theory import plotting
from theory import state_tracking as st
from theory.state_tracking import Parameters
from theory.state_tracking.per_seed import Columns, Dressed, Start, data_scatter, solve
from verify.check import Z_MAX, Check
from verify.emergence import first_crossing
from verify.state_tracking import ensemble

LADDER = ("table_1", "table_2", "unequal")
SETTINGS = {name: ensemble.SETTINGS[name] for name in LADDER}
FORCES = 16  # draws of the training set's force per seed
EVERY = 3  # evaluations of the students: a third of them changes no error by more than its standard error
LOCKING, LOCKED = 0.2, 0.9  # attention between which it locks
MEASURES = {
    "half_time": "time of A = 1/2", "rollout_half_time": "rollout half-time", "A": "max |A|", "variance_other": "wrong variance",
    "variance_correct": "right variance", "at_equal_A": "variances, equal A", "loss": "max |loss|",
    "rollout_accuracy": "max |rollout|",
}  # fmt: skip


def paper(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Eq. (15) with logit variances held at their initial value: one curve for all seeds."""
    curve = st.trajectory(p, float(runs.alpha[-1]), at=runs.alpha.values)
    return _frozen(p, curve).expand_dims(seed=runs.seed)


def exact(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Exact solution of Eq. (15) from a seed's own A, R, S and zeta; the rest as in the paper."""
    curves = []
    for seed in runs.seed:
        start = runs.sel(seed=seed).isel(alpha=0)
        own = p.replace(A_0=float(start.A), R_0=float(start.R), S_0=float(start.S), zeta=float(start.zeta))
        curves.append(_frozen(p, st.with_accuracy(st.inversion.solve(own, runs.alpha.values), own)))
    return xr.concat(curves, dim=runs.seed)


def _frozen(p: Parameters, curve: xr.Dataset) -> xr.Dataset:
    constant = xr.full_like(curve.A, st.initial_variance(p))
    return curve.assign(variance_correct=constant, variance_other=constant)


def dressed(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Noise of M and exact attention geometry; Gaussian logits."""
    return solve(Dressed(p, Start.measured(runs)), runs.epoch.values)


def columns(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Entries of M by their initial value, with an infinite training set."""
    return solve(Columns(p, Start.measured(runs), finite_data=False), runs.epoch.values)


def finite_data(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Entries of M by their initial value and their column's share of the training set."""
    return solve(Columns(p, Start.measured(runs)), runs.epoch.values)


LEVELS: dict[str, Callable[[Parameters, xr.Dataset], xr.Dataset]] = {
    "paper, Eq. (15)": paper, "exact, own start": exact, "dressed": dressed, "+ column statistics": columns,
    "+ finite training set": finite_data,
}  # fmt: skip
FULL = "+ finite training set"


@dataclass(frozen=True)
class Fidelity:
    """How far one level of theory is off at one setting.

    Attributes
    ----------
    errors : dict of str to ndarray, shape (seeds,)
        Per measure: relative errors (times, signed; variances, rms over evaluations) or largest absolute deviations.
    inside, paired : float
        Share of evaluations at which the mean rollout curve over seeds lies within a standard error
        of the students' mean, and of the mean difference seed by seed (68% for a perfect theory).
    """

    errors: dict[str, np.ndarray]
    inside: float
    paired: float

    def summary(self, name: str) -> tuple[float, float]:
        """Root mean square (times, variances) or mean (deviations) over seeds, with its standard error; NaN if never reached."""
        x = self.errors[name]
        n = np.sqrt(len(x))
        if name in ("A", "loss", "rollout_accuracy"):
            return float(x.mean()), float(x.std(ddof=1) / n)
        rms = float(np.sqrt((x**2).mean()))
        return rms, float((x**2).std(ddof=1) / n / (2 * rms)) if rms else 0.0


def judge(theory: xr.Dataset, runs: xr.Dataset) -> Fidelity:
    """Hold curves per seed against the seeds."""
    theory, runs = theory.transpose("seed", ...), runs.transpose("seed", ...)
    errors = {}
    for name, of in (("half_time", "A"), ("rollout_half_time", "rollout_accuracy")):
        predicted, measured = (first_crossing(d[of], 0.5).values for d in (theory, runs))
        errors[name] = predicted / measured - 1
    for name in ("A", "loss", "rollout_accuracy"):
        errors[name] = np.abs(theory[name].values - runs[name].values).max(1)
    ratios = {}
    for name in ("variance_other", "variance_correct"):
        ratios[name] = theory[name].values / runs[name].values - 1
        errors[name] = np.array([_rms(r[a > LOCKED]) for r, a in zip(ratios[name], runs.A.values, strict=True)])
    errors["at_equal_A"] = np.array([max(_at_equal_A(theory.isel(seed=k), runs.isel(seed=k), name) for name in ratios)
                                     for k in range(runs.sizes["seed"])])  # fmt: skip
    gap = theory.rollout_accuracy.values - runs.rollout_accuracy.values
    shares = []
    for sample in (runs.rollout_accuracy.values, gap):
        error = np.maximum(
            sample.std(0, ddof=1) / np.sqrt(len(gap)), 0.5 / ensemble.TESTED
        )  # a test set's own resolution
        shares.append(float((np.abs(gap.mean(0)) <= error).mean()))
    return Fidelity(errors, *shares)


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean())) if x.size else np.nan


def _at_equal_A(theory: xr.Dataset, run: xr.Dataset, name: str) -> float:
    """Rms relative error of a variance while attention locks, compared at equal attention."""
    during = (run.A.values > LOCKING) & (run.A.values < LOCKED)
    rising = slice(0, int(np.argmax(theory.A.values > (1 + LOCKED) / 2)) + 1)
    at = np.interp(run.A.values[during], theory.A.values[rising], theory[name].values[rising])
    return _rms(at / run[name].values[during] - 1)


def _one(setting: str, level: str, tick: Callable[[int], None]) -> Fidelity:
    p, runs = ensemble.shipped(setting)
    runs = runs.isel(alpha=slice(None, None, EVERY))
    return judge(LEVELS[level](p, runs), runs)


def ladder() -> dict[str, dict[str, Fidelity]]:
    """Every level at every setting, on the cores of this machine; the longest first."""
    tasks = [(setting, level) for level in reversed(LEVELS) for setting in SETTINGS]
    done = dict(
        zip(
            tasks, pool.run([functools.partial(_one, *t) for t in tasks], [1] * len(tasks), progress=False), strict=True
        )
    )
    return {setting: {level: done[setting, level] for level in LEVELS} for setting in SETTINGS}


def rows(levels: dict[str, Fidelity]) -> list[list[str]]:
    """Table of one setting: rms relative errors in per cent, largest deviations as numbers, each with its standard error."""
    out = []
    for level, found in levels.items():
        cells = []
        for name in MEASURES:
            value, error = found.summary(name)
            relative = name not in ("A", "loss", "rollout_accuracy")
            cells.append(
                "never"
                if np.isnan(value)
                else f"{value:.2%} +- {error:.2%}"
                if relative
                else f"{value:.3f} +- {error:.3f}"
            )
        out.append([level, *cells])
    return out


def as_dict(found: dict[str, dict[str, Fidelity]]) -> dict[str, Any]:
    """The ladder for machines: value, standard error and per-seed errors."""
    return {setting: {level: {**{name: dict(zip(("value", "standard_error"), f.summary(name), strict=True),
                                            per_seed=f.errors[name]) for name in MEASURES},
                              "mean_rollout_within_one_se": f.inside, "paired": f.paired}
                      for level, f in levels.items()} for setting, levels in found.items()}  # fmt: skip


# Aims of the theory at Table 1, set before it was built; nothing is fitted.
AIMS = {"half_time": 0.02, "rollout_half_time": 0.01, "A": 0.04, "rollout_accuracy": 0.08, "variance_other": 0.01,
        "variance_correct": 0.05, "at_equal_A": 0.05}  # fmt: skip
AT_CHANCE = (
    "before it rises the s.e. of 5 seeds is that of the test sets, beyond which a true mean lies one time in three"
)
ELSEWHERE = "the aim is for Table 1; why it is missed here is not known"


def checks(found: dict[str, dict[str, Fidelity]]) -> list[Check]:
    """The last level of the ladder against its aims and against the paper's theory, at every setting."""
    out, level = [], "columns, finite data"
    for setting, levels in found.items():
        best, title, main = levels[FULL], SETTINGS[setting].title, setting == "table_1"
        for name, aim in AIMS.items():
            value, error = best.summary(name)
            out.append(Check(f"{title}, {MEASURES[name]}", level, 0.0, value, value, aim,
                             "aim set beforehand" if main else "the aim for Table 1", "" if main else ELSEWHERE, error))  # fmt: skip
        out.append(Check(f"{title}, mean rollout beyond one s.e., share of evaluations", level, 0.0, 1 - best.inside,
                         1 - best.inside, 0.1, "aim set beforehand", AT_CHANCE))  # fmt: skip
        for name in ("half_time", "rollout_half_time"):
            (ours, error), (theirs, _) = best.summary(name), levels["paper, Eq. (15)"].summary(name)
            out.append(Check(f"{title}, {MEASURES[name]}: error over the paper's", level, 0.0,
                             ours / theirs, ours / theirs, 0.25, "the theory is worth its equations", "", error / theirs))  # fmt: skip
    redrawn = [functools.partial(scatter, name) for name in ("draws_2048", "draws_8192")]
    return out + pool.run(redrawn, [1] * len(redrawn), progress=False)


def scatter(name: str, tick: Callable[[int], None]) -> Check:
    """Relative scatter of the time of A = 1/2 over redrawn training sets, pooled over seeds: dressed theory, students."""
    p, runs = ensemble.shipped(name)
    times = np.array([first_crossing(runs.A.sel(data_draw=draw), 0.5).values for draw in runs.data_draw])
    measured = (times.std(0, ddof=1) / times.mean(0), len(times))
    forces = np.random.default_rng(0)
    drawn = data_scatter(p, Start.measured(runs.isel(data_draw=0)), FORCES, forces, 1.2 * float(runs.alpha[-1]))
    pooled, spread = [], 0.0
    for found, draws in ((drawn, FORCES), measured):
        pooled.append(float(np.sqrt((found**2).mean())))
        spread += 1 / (2 * found.size * (draws - 1))  # variance of the log of a pooled standard deviation
    z = float(abs(np.log(pooled[0] / pooled[1])) / np.sqrt(spread))
    error = pooled[1] / np.sqrt(2 * times.shape[1] * (len(times) - 1))
    return Check(f"scatter of the time of A = 1/2 over training sets, n = {p.n_train}", "force_noise", pooled[0], pooled[1], z, Z_MAX,
                 "|z| <= 4; the students' scatter is known to 9%", "", error)  # fmt: skip


def draw(p: Parameters, runs: xr.Dataset) -> Any:
    """Attention and rollout accuracy of single seeds: students, the paper's curve, and ours."""
    ours, theirs = finite_data(p, runs), paper(p, runs)
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
                label="ours (column statistics, finite training set), same seed" if k == 0 else None,
            )
        axis.plot(theirs.alpha, theirs[name].isel(seed=0), "k--", label="paper, Eq. (15)")
        axis.set(
            xlabel=r"training time $\alpha$ = epochs / $(d_g N)$",
            ylabel=label,
            xlim=(0, float(runs.alpha[-1])),
            ylim=(-0.02, 1.05),
        )
    axes[0].legend(fontsize=7, loc="lower right")
    figure.suptitle(rf"$N={p.N}$, $d_g={p.d_g}$, $L={p.L}$, $d_h={p.d_h}$, $n_{{\rm train}}={p.n_train}$", fontsize=9)
    return figure
