"""How far the picture of the solvable student extends to standard transformers: stages of learning
by intervention, their order, and how the time of attention goes with sizes and architecture.
"""

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
from verify.state_tracking import standard_ensemble as ensembles
from verify.state_tracking.standard_ensemble import SOLVABLE

STAGES = ("guess", "attention", "logic", "rollout")
WAITING = 0.1  # share of its way that attention has made at the end of the first stage
# The guess from actions, which the solvable student tends to, is 20 to 70% better.
PLATEAU = Band(-0.05, 0.15, "attention has made up to a tenth of its way")
EARLY = 0.25  # 1 - S/R below which logic hardly tells actions apart
DEFINED = "stages by intervention"  # no equation of the theory
ONE_HEAD = "1 head"
# With four states a quarter of all rollouts are right by chance and seeds scatter most: eight do
# not decide the order of logic and rollouts, nor whether 1 - S/R is below a half.
UNCLEAR = "N = 4"
CLEAR = 3.0  # standard errors of a normal mean, by which a bound must hold
ALONG = {"L": ("L = 3", "base", "L = 9"), "N": ("N = 4", "base", "N = 16")}
ALONG["d_g"] = ("d_g = 4", "base", "d_g = 16")
SLOWER = (
    "L",
    "d_g",
)  # exponents clearly below the flow's; that of N (0.19 to 0.30) is not so clear


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
        when A has made a tenth of its way; ``early`` and ``specific``: 1 - S/R then, and at the
        time of attention.
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
        "early": _at(specific, begun),
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
    """Deviation of a mean over few seeds that is exceeded in one direction once in 700 times
    (Student's t).
    """
    tail = scipy.stats.norm.sf(CLEAR)
    return float(scipy.stats.t.isf(tail, len(values) - 1) * scipy.stats.sem(values))


def above(name: str, bound: float, values: np.ndarray, reason: str) -> Check:
    """That a mean over seeds is above a bound beyond doubt."""
    return at_least(name, DEFINED, bound, float(values.mean()) - margin(values), reason)


def below(name: str, bound: float, values: np.ndarray, reason: str) -> Check:
    """That a mean over seeds is below a bound beyond doubt."""
    return at_most(name, DEFINED, bound, float(values.mean()) + margin(values), reason)


WHY = "mean less (plus) what so few seeds are off by once in 700 times"


def order(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """Stages one after the other, in every setting of standard transformers."""
    rows = []
    for setting, times in found.items():
        if setting in (*SOLVABLE, UNCLEAR):
            continue
        for early, late in zip(STAGES, STAGES[1:], strict=False):
            ratio = np.log(times[late].values / times[early].values)
            rows.append(
                above(f"ln of time of {late} by that of {early}, {setting}", 0.0, ratio, WHY)
            )
    return rows


def first_stage(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """Loss and order parameters before attention emerges: the guess from the state alone."""
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
    """Whether logic knows the actions before attention, and when attention finds the right one."""
    rows = []
    for setting, times in found.items():
        judge = above if setting in SOLVABLE else below
        rows.append(judge(f"1 - S/R before attention, {setting}", EARLY, times.early.values, WHY))
        name = f"1 - S/R at the time of attention, {setting}"
        if setting != UNCLEAR:
            rows.append(judge(name, 0.5, times.specific.values, WHY))
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
        if field in SLOWER:
            checks.append(below(name, flow, own, f"that of the flow (15); {WHY}"))
        else:
            checks.append(sampled(name, "flow (15)", flow, own))
        rows.append([field, f"{flow:.2f}", _said(own, 2)])
    return checks, rows


def flow_steps(p: Parameters) -> float:
    """Steps of the solvable student of these sizes to A half way from 1/L to 1, by the flow."""
    own = Parameters(N=p.N, L=p.L, d_g=p.d_g, d_h=p.d_h)
    return float(emergence_time(own.values(), (1 + 1 / p.L) / 2)) * p.N * p.d_g


def one_head(found: Mapping[str, xr.Dataset]) -> list[Check]:
    """A block of one head answers rollouts later than one of two."""
    ratio = np.log(found[ONE_HEAD].rollout.values / found["base"].rollout.values)
    return [above("ln of time of rollout, one head by two", 0.0, ratio, WHY)]


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
HEADER += [
    "rollout / attention",
    "1 - S/R before",
    "1 - S/R at attention",
    "accuracy before / guess from state",
]


def table(found: Mapping[str, xr.Dataset]) -> list[list[str]]:
    """Stages of every setting, one row each."""
    rows = []
    for setting, t in found.items():
        p = ensembles.parameters(setting)
        tokens = t.attention.values * p.L * (p.batch_size or p.n_train) / 1000
        ratios = (t.logic / t.attention, t.rollout / t.attention)
        values = (*ratios, t.early, t.specific, t.plateau / t.known)
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
    ("learning is staged: a guess, attention, logic, rollouts", "extends", "ln of time of "),
    ("before attention, logic mixes the actions of the sequence", "does not: it knows states alone", "1 - S/R before attention"),
    ("logic knows its actions when attention finds the right one", "does not: attention is first", "1 - S/R at the time of attention"),
    ("the time of attention grows with L and d_g as by the flow", "does not: more slowly (N undecided)", "exponent of the time of attention"),
    ("one head is enough", "in part: rollouts are right later than with two", "ln of time of rollout, one head"),
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
        own, thousand = stages(p, part), p.L * (p.batch_size or p.n_train) / 1000
        for axis, curves in zip(column, CURVES, strict=True):
            for quantity, (word, colour) in curves.items():
                at, values = part.epoch * thousand, part[quantity]
                axis.plot(at, values.median("seed"), color=colour, label=word)
                ends = values.min("seed"), values.max("seed")
                axis.fill_between(at, *ends, color=colour, alpha=0.2, lw=0)
            axis.set(xlim=(0, 1.3 * thousand * float(own.rollout.max())))
        column[0].axhline(
            float(own.known.mean()), color="k", ls=":", lw=1, label="from state alone"
        )
        column[0].set(title=TITLES.get(name, name), ylim=(0, 1.02))
        column[1].set(xlabel="thousand predicted tokens seen")
    for axis, label in zip(axes[:, 0], ("share, accuracy", "overlap"), strict=True):
        axis.set_ylabel(label)
    for axis in axes[:, -1]:
        plotting.beside(axis)
    return figure


TITLES = {
    "base": "standard transformer (Adam)",
    "solvable, Adam": "solvable student, Adam",
    "solvable, descent": "solvable student, descent",
}
CURVES: tuple[dict[str, tuple[str, str]], ...] = (
    {
        "A": ("attention A", "C0"),
        "logic": ("logic", "C1"),
        "heuristic": ("heuristic", "C2"),
        "rollout_accuracy": ("rollout", "C3"),
    },
    {"R": ("R, own teacher", "C0"), "S": ("S, other teachers", "C1")},
)
