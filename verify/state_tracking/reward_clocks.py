"""Rewards against labels: the same orbit, and the ratio of the clocks, seed by seed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from theory.state_tracking import Parameters, equations
from theory.state_tracking.numbers.rewards import clock
from verify.check import Band, Check, at_most, listed, sampled
from verify.report import Request
from verify.state_tracking import rewards

WINDOWS = ((0.33, 0.41), (0.53, 0.61), (0.83, 0.90))  # of s
# Measured / law - 1: over the shipped seeds +1.7%, +2.2% and +5.7% in the three windows (reward for
# the last state), with a standard error of 1.5%, 0.6% and 0.3%.
BAND = Band(
    -0.03, 0.09, "steps of a rollout taken as independent; labels have a finite training set"
)
ORBIT = Band(-0.01, 0.01, "2048 rollouts a step against a fixed training set")
EQUATION = {"outcome": "rewards_clock", "grpo": "normalised_gain", "step": "rewards_clock_step"}
# s at which orbits are compared: while attention still moves, some time after rewards took over.
MEET = {"outcome": (0.36,), "grpo": (0.36,), "step": (0.2, 0.36)}
# While attention emerges under rewards (shipped seeds: +0.11 +- 0.02 in A).
EMERGING = Band(-0.01, 0.2, "rewards weigh a row by its own s; labels do not")
EARLY = 0.3  # s below which attention is still small
ENOUGH = 3  # measurements inside a window


def at_equal_R(labels: xr.Dataset, run: xr.Dataset, name: str) -> np.ndarray:
    """A quantity of the supervised student where it has the overlap R of the rewarded one."""
    return np.interp(run.R.values, labels.R.values, labels[name].values)


def rewarded(run: xr.Dataset) -> xr.Dataset:
    """The part of a run that rewards train."""
    return run.isel(alpha=run.rewarded.values > 0.5)


def measured_clock(
    p: Parameters, labels: xr.Dataset, run: xr.Dataset, window: tuple[float, float]
) -> tuple[float, float]:
    """Supervised time per time with rewards, between the same overlaps R, while s is in a window;
    and the mean of the law at the student's own s and its variance over rows. NaN if the run does
    not pass the window.
    """
    run = rewarded(run)
    inside = np.flatnonzero((run.success.values >= window[0]) & (run.success.values <= window[1]))
    if len(inside) < ENOUGH or run.success.values[-1] < window[1]:
        return np.nan, np.nan
    part = slice(inside[0], inside[-1] + 1)
    labelled, alpha = at_equal_R(labels, run, "alpha")[part], run.alpha.values[part]
    s, scatter = (run[name].values[part] for name in ("success", "success_variance"))
    gain = equations()["scatter_gain"].evaluate({"success": s, "success_variance": scatter})
    law = np.trapezoid(clock(p)(s) * gain, alpha) / (alpha[-1] - alpha[0])
    return (labelled[-1] - labelled[0]) / (alpha[-1] - alpha[0]), float(law)


@listed
def clocks(kind: str, p: Parameters, labels: xr.Dataset, runs: xr.Dataset) -> Iterator[Check]:
    """Ratio of the clocks in every window that all seeds pass."""
    for window in WINDOWS:
        pairs = np.array(
            [
                measured_clock(p, labels.sel(seed=k), runs.sel(seed=k), window)
                for k in runs.seed.values
            ]
        )
        if np.isnan(pairs).any():
            continue
        law = pairs[:, 1].mean()
        yield sampled(
            f"clock of rewards, {kind}, s = {window[0]:g} to {window[1]:g}",
            EQUATION[kind],
            float(law),
            pairs[:, 0] / pairs[:, 1] * law,
            band=BAND,
        )


def orbits(kind: str, labels: xr.Dataset, runs: xr.Dataset) -> list[Check]:
    """A and S of both students of a seed where their overlaps R are equal."""
    return [row for level in MEET[kind] for row in _orbit(kind, level, labels, runs)]


def _orbit(kind: str, level: float, labels: xr.Dataset, runs: xr.Dataset) -> list[Check]:
    orbit: dict[str, list[tuple[float, float]]] = {"A": [], "S": []}
    scale = {"A": 1.0, "S": 0.0}
    for k in runs.seed.values:
        run, labelled = rewarded(runs.sel(seed=k)), labels.sel(seed=k)
        meeting = int(np.argmax(run.success.values >= level))
        if not run.success.values[meeting] >= level:
            return []
        scale["S"] = max(scale["S"], abs(float(run.R[meeting])))
        for name, pairs in orbit.items():
            pairs.append((at_equal_R(labelled, run, name)[meeting], float(run[name][meeting])))
    out = []
    for name, pairs in orbit.items():
        label, reward = np.array(pairs).T
        out.append(
            sampled(
                f"orbit of rewards, {name} at equal R, {kind}, s = {level:g}",
                f"d{name}_dalpha",
                float(label.mean()),
                reward - label + label.mean(),
                band=EMERGING if name == "A" and level < EARLY else ORBIT,
                scale=scale[name],
            )
        )
    return out


def scratch(labels: xr.Dataset, runs: xr.Dataset) -> Check:
    """What rewards of guesses move R, by what labels do in the same time."""
    last = float(runs.alpha[-1])
    moved = np.abs(runs.R.isel(alpha=-1) - runs.R.isel(alpha=0)).max()
    taught = (labels.R.interp(alpha=last) - labels.R.isel(alpha=0)).min()
    return at_most(
        f"no learning from scratch, R after alpha = {last:g} by that of labels",
        "rewards_from_scratch",
        0.05,
        float(moved / taught),
        "x = 0 at guessing; students start with rows of random x, whose squares leave a little",
    )


@listed
def compare(ensembles: dict[str, xr.Dataset], base: Parameters) -> Iterator[Check]:
    """All rows for given ensembles by kind; `supervised` is one of them."""
    labels = ensembles["supervised"]
    for kind, runs in ensembles.items():
        if kind == "scratch":
            yield scratch(labels, runs)
        elif kind != "supervised":
            p = rewards.parameters(kind, base)
            yield from [*clocks(kind, p, labels, runs), *orbits(kind, labels, runs)]


def checks(request: Request) -> list[Check]:
    """Rows for shipped ensembles, or for students with other parameters."""
    base = rewards.SMALL
    if request.given:
        base = request.parameters(base)
        seeds = request.seed_list("5")
        options: dict[str, Any] = {"seeds": seeds, "alpha": request.until, **request.training}
        runs = {kind: rewards.train(kind, base, **options) for kind in rewards.KINDS}
    else:
        runs = {kind: rewards.shipped(kind) for kind in rewards.KINDS}
    return compare(runs, base)
