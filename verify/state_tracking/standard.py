"""How far the picture of the solvable student extends to standard transformers: stages of learning
by intervention, their order, and how the time of attention goes with sizes and architecture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
import xarray as xr

from theory.runtime import plotting
from theory.state_tracking import Parameters, task
from theory.state_tracking.numbers.guesses import from_state
from theory.state_tracking.numbers.quadrature import emergence_time
from verify import check
from verify.check import Band, Check, at_least, at_most, sampled
from verify.emergence import first_crossing
from verify.report import Report
from verify.significance import Z_MAX
from verify.state_tracking import standard_ensemble as ensembles
from verify.state_tracking.standard_ensemble import SOLVABLE

STAGES = ("guess", "attention", "logic", "rollout")
WAITING = 0.1  # share of its way that attention has made at the end of the first stage
# Test sequences are few: 1536 guesses of a third have a standard error of 1.2%, of which a student's
# eight seeds share none. The rest is attention that has begun: a tenth of the way is a tenth of
# what it adds to the accuracy.
PLATEAU = Band(-0.05, 0.15, "attention has made up to a tenth of its way")
DEFINED = "stages by intervention"  # no equation of the theory
ENDS_LATE = "1 head"  # setting that does not solve the task in its run
ALONG = {"L": ("L = 3", "base", "L = 9"), "N": ("N = 4", "base", "N = 16")}
ALONG["d_g"] = ("d_g = 4", "base", "d_g = 16")


def stages(p: Parameters, runs: xr.Dataset) -> xr.Dataset:
    """Stages of learning, seed by seed.

    Parameters
    ----------
    p : Parameters
        Of the students.
    runs : Dataset
        Quantities of `interventions.MEANING` over seed and epoch.

    Returns
    -------
    Dataset
        Over seed, each time half of the way: ``guess`` of the accuracy to that of the best guess
        from the state alone, ``attention`` of A from 1/L to 1, ``logic`` of the accuracy with
        attention moved to the right action, and ``rollout`` of that of rollouts; NaN if not
        reached. ``known``: accuracy of that guess, by the seed's teachers; ``plateau``: accuracy
        when A has made a tenth of its way; ``specific``: 1 - S/R at the time of attention.
    """
    known = np.array(
        [
            from_state(task.draw_permutations(p, task.streams(int(seed), p.data_draw)["task"]))
            for seed in runs.seed.values
        ]
    )
    levels = {
        "guess": (runs.accuracy, (1 / p.N + known) / 2),
        "attention": (runs.A, (1 + 1 / p.L) / 2),
        "logic": (runs.logic, (1 + known) / 2),
        "rollout": (runs.rollout_accuracy, 0.5),
    }
    found = {name: _crossing(curve, level) for name, (curve, level) in levels.items()}
    begun = _crossing(runs.A, (1 + WAITING * (p.L - 1)) / p.L)
    specific = 1 - runs.S / runs.R
    found |= {
        "known": known,
        "plateau": _at(runs.accuracy, begun),
        "specific": _at(specific, found["attention"]),
        "end": runs.rollout_accuracy.isel(epoch=-1).values,
    }
    return xr.Dataset({k: ("seed", v) for k, v in found.items()}, {"seed": runs.seed})


def _crossing(curve: xr.DataArray, level: Any) -> np.ndarray:
    level = np.broadcast_to(level, curve.sizes["seed"])
    above = curve.transpose("seed", "epoch") - xr.DataArray(level, dims="seed")
    return first_crossing(above, 0.0).values


def _at(curve: xr.DataArray, epochs: np.ndarray) -> np.ndarray:
    rows = curve.transpose("seed", "epoch").values
    return np.array(
        [np.interp(t, curve.epoch.values, row) for t, row in zip(epochs, rows, strict=True)]
    )


def margin(values: np.ndarray) -> float:
    """Half of the interval that a mean over few seeds leaves once in 16,000 times (Student's t)."""
    tail = scipy.stats.norm.sf(Z_MAX)
    return float(scipy.stats.t.isf(tail, len(values) - 1) * scipy.stats.sem(values))


def above(name: str, bound: float, values: np.ndarray, reason: str) -> Check:
    """That a mean over seeds is above a bound beyond doubt."""
    return at_least(name, DEFINED, bound, float(values.mean()) - margin(values), reason)


def below(name: str, bound: float, values: np.ndarray, reason: str) -> Check:
    """That a mean over seeds is below a bound beyond doubt."""
    return at_most(name, DEFINED, bound, float(values.mean()) + margin(values), reason)


WHY = "mean less (plus) what eight seeds leave open once in 16,000 times"


def order(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """Stages one after the other, in every setting of standard transformers."""
    rows = []
    for setting, times in found.items():
        if setting in SOLVABLE or setting == ENDS_LATE:
            continue
        for early, late in zip(STAGES, STAGES[1:], strict=False):
            ratio = np.log(times[late] / times[early]).values
            rows.append(
                above(f"ln of time of {late} by that of {early}, {setting}", 0.0, ratio, WHY)
            )
    return rows


def first_stage(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """What is known before attention: the guess from the state alone."""
    rows = []
    for setting, times in found.items():
        if setting not in SOLVABLE:
            ratio = (times.plateau / times.known).values
            rows.append(
                sampled(
                    f"accuracy before attention by the best guess from the state, {setting}",
                    "from_state",
                    1.0,
                    ratio,
                    band=PLATEAU,
                )
            )
    return rows


def specificity(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """Whether logic knows the actions when attention finds the right one."""
    rows = []
    for setting, times in found.items():
        name, values = f"1 - S/R at the time of attention, {setting}", times.specific.values
        solvable = setting in SOLVABLE
        if setting != ENDS_LATE:
            rows.append((above if solvable else below)(name, 0.5, values, WHY))
    return rows


def exponents(found: Mapping[str, xr.Dataset]) -> tuple[list[Check], list[list[str]]]:
    """Exponents of the time of attention, in steps, in L, N and d_g: the flow (15), descent on the
    solvable student, and standard transformers; rows of a table.
    """
    checks, rows = [], []
    for field, settings in ALONG.items():
        parameters = [ensembles.parameters(name) for name in settings]
        x = np.log([getattr(p, field) for p in parameters])
        weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        own = weights @ np.log([found[name].attention.values for name in settings])
        flow = float(weights @ np.log([flow_steps(p) for p in parameters]))
        name = f"exponent of the time of attention, {field}"
        checks.append(below(name, flow, own, f"that of the flow (15); {WHY}"))
        rows.append([field, f"{flow:.2f}", _said(own, 2)])
    return checks, rows


def flow_steps(p: Parameters) -> float:
    """Steps of the solvable student of these sizes to A half way from 1/L to 1, by the flow (15)."""
    own = Parameters(N=p.N, L=p.L, d_g=p.d_g, d_h=p.d_h)
    return float(emergence_time(own.values(), (1 + 1 / p.L) / 2)) * p.N * p.d_g


def one_head(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """A block of one head waits: at the end of its run, the longer one, it answers fewer rollouts
    than two heads.
    """
    gap = (found["base"].end - found[ENDS_LATE].end).values
    return [above("rollout accuracy of two heads less that of one head, at the end", 0.1, gap, WHY)]


def report(runs: Mapping[str, xr.Dataset] | None = None) -> Report:
    """All rows and tables, for the shipped ensembles or for given ones."""
    runs = ensembles.shipped() if runs is None else runs
    found = {name: stages(ensembles.parameters(name), part) for name, part in runs.items()}
    scaling, rows = exponents(found)
    checks = [*first_stage(found), *order(found), *specificity(found), *scaling, *one_head(found)]
    tables = {
        "stages of learning (mean and standard error over seeds)": (HEADER, table(found)),
        "exponents of the time of attention in steps": (
            ["in", "flow (15)", "standard transformers"],
            rows,
        ),
        "how far the picture extends": (
            ["of the solvable student", "here", "rows"],
            picture(checks),
        ),
    }
    return Report(checks, tables=tables)


HEADER = ["setting", "attention: step", "thousand tokens", "logic / attention"]
HEADER += ["rollout / attention", "1 - S/R at attention", "plateau / guess from state"]


def table(found: Mapping[str, xr.Dataset]) -> list[list[str]]:
    """Stages of every setting, one row each."""
    rows = []
    for setting, t in found.items():
        p = ensembles.parameters(setting)
        tokens = t.attention.values * p.L * (p.batch_size or p.n_train) / 1000
        values = (t.logic / t.attention, t.rollout / t.attention, t.specific, t.plateau / t.known)
        said = [_said(v.values, 2) for v in values]
        rows.append([setting, _said(t.attention.values, 0), _said(tokens, 0), *said])
    return rows


def _said(values: np.ndarray, digits: int) -> str:
    """Mean and standard error over the seeds that got there, and how many did not."""
    there = values[np.isfinite(values)]
    if len(there) < 2:
        return "not reached"
    missing = f" ({len(values) - len(there)} not)" if len(there) < len(values) else ""
    return f"{there.mean():.{digits}f} +- {scipy.stats.sem(there):.{digits}f}{missing}"


PICTURE = (
    ("learning is staged: a guess, attention, logic, rollouts", "extends", "ln of time of"),
    ("the first guess mixes the actions of the sequence", "does not: it is of the state alone", "accuracy before attention"),
    ("logic knows its actions when attention finds the right one", "does not: attention is first", "1 - S/R at the time of attention"),
    ("the time of attention grows with L, N and d_g as by the flow", "does not: more slowly", "exponent of the time of attention"),
    ("one head is enough", "does not: one head waits, with its rollouts wrong", "rollout accuracy of two heads"),
)  # fmt: skip


def picture(checks: Sequence[Check]) -> list[list[str]]:
    """What extends: a statement counts as found if all of its rows hold."""
    rows = []
    for said, here, start in PICTURE:
        own = [c for c in checks if c.name.startswith(start)]
        rows.append([said, here if own and not check.failed(own) else "undecided", str(len(own))])
    return rows


def draw(runs: Mapping[str, xr.Dataset] | None = None, names: Sequence[str] = ()) -> Any:
    """Figure: order parameters by intervention over tokens seen, mean and scatter of the seeds."""
    runs = ensembles.shipped() if runs is None else runs
    names = names or ("base", "solvable, Adam", "solvable, descent")
    figure, axes = plotting.figure(2, len(names), width=3.4, height=2.5)
    for column, name in zip(axes.T, names, strict=True):
        p, part = ensembles.parameters(name), runs[name]
        thousand = part.epoch * p.L * (p.batch_size or p.n_train) / 1000
        part = part.assign_coords(epoch=thousand)
        for axis, curves in zip(column, CURVES, strict=True):
            for quantity, (word, colour) in curves.items():
                plotting.band(axis, part[quantity], colour, word)
            axis.set(xlabel="thousand predicted tokens seen", xlim=(0, None))
            plotting.inside(axis)
        column[0].set(
            title=name if name in SOLVABLE else "standard: one block, two heads", ylim=(0, 1)
        )
        guess = float(stages(p, runs[name]).known.mean())
        column[0].axhline(guess, color="0.5", ls=":", lw=1)
    axes[0, 0].set_ylabel("share, accuracy")
    axes[1, 0].set_ylabel("overlap")
    return figure


CURVES: tuple[dict[str, tuple[str, str]], ...] = (
    {
        "A": ("attention A", "C0"),
        "logic": ("logic", "C1"),
        "heuristic": ("heuristic", "C2"),
        "rollout_accuracy": ("rollout", "C3"),
    },
    {"R": ("R, own teacher", "C0"), "S": ("S, other teachers", "C1")},
)
