"""Which of head and memory comes first and when, and when the head is lost: formulas, flow,
students; exponent of the memory; a head trained on sequences.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from simulate.induction_heads import contexts
from simulate.pool import one_thread
from simulate.statement import of
from theory.induction_heads.in_weights import (
    Parameters,
    emergence_time,
    equations,
    flows,
    head_share,
    lost_time,
    solved_time,
    stated,
)
from verify.check import Check, identity, sampled
from verify.emergence import first_crossing
from verify.rates import rates as fitted
from verify.report import Report, Request
from verify.statement.emergence import LONGER, NOISE, approached, emergence, setting

# The times of head and memory are exact

ITEMS = (64, 256, 1024)


def of_race() -> list[Check]:
    """Whatever the number of items."""
    settings = [Parameters(C=C) for C in ITEMS]
    level = np.log(settings[0].L + 1)
    half = ("attention", emergence_time, "iw_clock")
    solved = ("logit", solved_time, "iw_half")
    return [
        approached(stated, settings, *half, lambda p: 1 / p.C, None),
        approached(stated, settings, *solved, lambda p: 1 / p.C, None, level),
    ]


rates = (of_race,)


# Which of head and memory comes first and when, and when the head is lost

COMMON = Parameters()
RACE = tuple(COMMON.replace(**x) for x in ({}, dict(B=2, C=64), dict(L=4, R=4, C=128)))
LOST = Parameters(L=4, R=2, C=512, head_decay=0.006, eta=0.5, eval_every=4)
ALONE = COMMON.replace(R=10**6)  # the head takes for ever
POOLS = (16, 64, 256)  # items of each label
OTHERS = 0.7  # the exponent that Nguyen and Reddy measured
SEEDS = (0, 1, 2, 3)
HALVED = 2.0 ** np.arange(2, -1, -1)  # steps, in units of the usual one
# No order is known: the memory's rate is taken at one time, along which it and the head's fade.
FOLLOWS = 0.02


def trained(p: Any, until: float, seeds: Sequence[int], progress: bool) -> tuple[Any, xr.Dataset]:
    """Students, and descent of the flow in the same steps."""
    p = p.run_to(until)
    runs = of(stated).train(p, seeds=tuple(seeds), progress=progress)
    slow = flows()[stated.name].descend(p, p.eta, p.steps).isel(t=runs.step.values)
    return runs, slow.expand_dims("seed")


where = functools.partial(setting, stated)


def when(runs: xr.Dataset, variable: str, level: float, of: xr.DataArray) -> xr.DataArray:
    """Values at the times at which a variable reaches a level, seed by seed."""
    rows = zip(of.transpose("seed", "t"), first_crossing(runs[variable], level).values, strict=True)
    return xr.DataArray([float(row.interp(t=time)) for row, time in rows], dims="seed")


def shares(p: Any, seeds: Sequence[int], progress: bool) -> list[Check]:
    """Share of the head in the logit, when the residual is half its start: how descent approaches
    the formula with its step, and students of the same steps.
    """
    until, level = LONGER * emergence_time(p), np.log(p.L + 1)

    def share(runs: xr.Dataset) -> xr.DataArray:
        return when(runs, "logit", level, runs.in_context / level)

    def descent(eta: float) -> float:
        path = flows()[stated.name].descend(p, eta, round(until / eta))
        return float(share(path.expand_dims("seed"))[0])

    rate = fitted(head_share(p), descent, p.eta * HALVED)
    students = share(trained(p, until, seeds, progress)[0])
    name = f"share of the head, {where(p)}"
    return [
        rate.check(f"power of the step in the {name}", "iw_half"),
        sampled(f"{name}, descent and students", "iw_half", descent(p.eta), students),
    ]


def fallen(runs: xr.Dataset, after: float) -> np.ndarray:
    """Times at which attention falls below 1/2, after it was above."""
    return first_crossing(-runs.attention.sel(t=slice(after, None)), -0.5).values


def lost(p: Any, seeds: Sequence[int], progress: bool) -> tuple[list[Check], str]:
    """Time at which the head is lost: formula, flow, students."""
    told = lost_time(p)
    begun = 2 * emergence_time(p.replace(head_decay=0.0))
    runs, slow = trained(p, LONGER * told, seeds, progress)
    exact = fallen(slow, begun)[0]
    measured = fallen(runs, begun)
    name = "time at which attention falls below 0.5"
    checks = [
        identity(f"{name} by the flow, {where(p)}", "iw_lost", told, exact, FOLLOWS, "next order"),
        sampled(f"{name} by descent, students, {where(p)}", "iw_lost", exact, measured, band=NOISE),
    ]
    return checks, f"{name}: {told:.5g}, {exact:.5g}, {measured.mean():.5g}"


def clocks(seeds: Sequence[int], progress: bool) -> tuple[Check, str]:
    """How the integral of the residual over time, until the memory halves it, approaches the
    formula with the step of students, for all numbers of items; and its exponent in these.
    """
    level = np.log(ALONE.L + 1)
    memory = ((ALONE.L - 1) * np.array(POOLS)) ** -0.5
    sizes = {"rate_memory": memory, "in_weights": level, "c_0": ALONE.c_0}
    told = xr.DataArray(equations()["iw_memory_clock"].evaluate(sizes), dims="C")

    @functools.cache
    def students(eta: float) -> xr.DataArray:
        settings = [ALONE.replace(C=C, eta=eta) for C in POOLS]
        runs = [trained(p, LONGER * solved_time(p), seeds, progress)[0] for p in settings]
        ticks = [when(x, "in_weights", level, x.residual.cumulative_integrate("t")) for x in runs]
        return xr.concat(ticks, "C")

    rate = fitted(told, students, ALONE.eta * HALVED)
    measured = np.polyfit(np.log(POOLS), np.log(students(ALONE.eta)), 1)[0]
    error = measured.std(ddof=1) / np.sqrt(len(seeds))
    away = abs(measured.mean() - OTHERS)
    note = f"exponent over all: {measured.mean():.4f} +- {error:.4f}, {away:.3f} from {OTHERS}"
    return rate.check("power of the step in the memory's clock", "iw_memory_clock"), note


def perceptrons(seeds: Sequence[int]) -> str:
    """The same exponent for a perceptron in place of the table."""
    few, many = 64, 512
    with one_thread():
        clocks = [[contexts.perceptron_clocks(K, seed=k) for K in (few, many)] for k in seeds]
    said = []
    for name in ("whole", "half"):
        x = np.log([b[name] / a[name] for a, b in clocks]) / np.log(many / few)
        said.append(f"{x.mean():.3f} +- {x.std(ddof=1) / np.sqrt(len(x)):.3f} ({name})")
    return (
        f"exponent of a perceptron's clock, K = {few} to {many}, until the residual is {contexts.LEFT:g} "
        f"(whole) or half of its start: {', '.join(said)}; theirs {OTHERS}"
    )


def transformer(p: Any) -> Check:
    """Time of the head on sequences."""
    told = emergence_time(p)
    runs = contexts.pool_descent(p.run_to(LONGER * told), 0).expand_dims("seed")
    there = first_crossing(runs.attention, 0.5).values[0]
    name = "time of attention = 0.5 on sequences"
    return identity(name, "iw_clock", told, there, FOLLOWS, "steps and batches of one student")


def timescales(request: Request) -> Report:
    """All settings; 36 students, and one on sequences."""
    request.of_its_own()
    show = request.progress
    given: dict[str, Any] = dict(seeds=SEEDS, progress=show)
    checks, notes = emergence(stated, RACE, "attention", emergence_time, "iw_clock", **given)
    for p in RACE:
        solved = emergence(
            stated, [p], "logit", solved_time, "iw_half", level=np.log(p.L + 1), **given
        )
        checks = [*checks, *solved[0], *shares(p, SEEDS, show)]
        notes = [*notes, *solved[1]]
    late = lost(LOST, SEEDS, show)
    power = clocks(range(8), show)
    notes = [*notes, late[1], power[1], perceptrons(range(8))]
    return Report([*of_race(), *checks, *late[0], power[0], transformer(COMMON)], notes)
