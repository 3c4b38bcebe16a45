"""Which of head and memory comes first and when, and when the head is lost: formulas, flow,
students; exponent of the memory; a head trained on sequences.
"""

from collections.abc import Sequence
from functools import partial
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
from verify.check import Band, Check, identity, sampled
from verify.emergence import first_crossing
from verify.report import Report, Request
from verify.statement.emergence import LONGER, approached, emergence, setting

# The times of head and memory are exact

ITEMS = (64, 256, 1024)


def of_race() -> list[Check]:
    """Whatever the number of items."""
    settings = [Parameters(C=C) for C in ITEMS]
    level = float(np.log(settings[0].L + 1))
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
FOLLOWS = Band(-0.02, 0.02, "next order in how fast the memory grows: 2% is allowed")


def trained(p: Any, until: float, seeds: Sequence[int], progress: bool) -> tuple[Any, xr.Dataset]:
    """Students, and descent of the flow in the same steps."""
    p = p.run_to(until)
    runs = of(stated).train(p, seeds=tuple(seeds), progress=progress)
    slow = flows()[stated.name].descend(p, p.eta, p.steps).isel(t=runs.step.values)
    return runs, slow.expand_dims("seed")


where = partial(setting, stated)


def shares(p: Any, seeds: Sequence[int], progress: bool) -> Check:
    """Share of the head in the logit when the residual is half its start."""
    runs, _ = trained(p, LONGER * emergence_time(p), seeds, progress)
    times = first_crossing(runs.logit, np.log(p.L + 1)).values
    level = np.log(p.L + 1)
    head_shares = [
        run.in_context.interp(t=time).item() / level
        for (_, run), time in zip(runs.groupby("seed"), times, strict=True)
    ]
    band = Band(-0.03, 0.03, "steps of 0.25, and shares change fast around that time")
    return sampled(
        f"share of the head, students, {where(p)}", "iw_half", head_share(p), head_shares, band=band
    )


def fallen(runs: xr.Dataset, after: float) -> np.ndarray:
    """Times at which attention falls below 1/2, after it was above."""
    return first_crossing(-runs.attention.sel(t=slice(after, None)), -0.5).values


def lost(p: Any, seeds: Sequence[int], progress: bool) -> tuple[list[Check], str]:
    """Time at which the head is lost: formula, flow, students."""
    told = lost_time(p)
    begun = 2 * emergence_time(p.replace(head_decay=0.0))
    runs, slow = trained(p, LONGER * told, seeds, progress)
    exact = float(fallen(slow, begun)[0])
    measured = fallen(runs, begun)
    name = "time at which attention falls below 0.5"
    checks = [
        identity(
            f"{name} by the flow, {where(p)}", "iw_lost", told, exact, FOLLOWS.high, FOLLOWS.why
        ),
        sampled(f"{name}, students, {where(p)}", "iw_lost", told, measured, band=FOLLOWS),
    ]
    return checks, f"{name}: {told:.5g}, {exact:.5g}, {measured.mean():.5g}"


def clocks(p: Any, seeds: Sequence[int], progress: bool) -> tuple[float, np.ndarray]:
    """Integral of the residual over time until the memory halves it: formula, students."""
    e, level = equations(), np.log(p.L + 1)
    sizes = dict(rate_memory=((p.L - 1) * p.C) ** -0.5, in_weights=level, c_0=p.c_0)
    told = float(e["iw_memory_clock"].evaluate(sizes))
    runs, _ = trained(p, LONGER * solved_time(p), seeds, progress)
    ticks = runs.residual.cumulative_integrate("t")
    times = first_crossing(runs.in_weights, level).values
    rows = zip(ticks.transpose("seed", "t"), times, strict=True)
    return told, np.array([float(row.interp(t=time)) for row, time in rows])


def exponents(seeds: Sequence[int], progress: bool) -> tuple[list[Check], str]:
    """Exponent of that clock in the number of items, over all and between neighbours."""
    pairs = [clocks(ALONE.replace(C=C), seeds, progress) for C in POOLS]
    logs = [np.log(np.array([x[k] for x in pairs]).reshape(len(POOLS), -1)) for k in (0, 1)]
    names = [
        "all",
        *(f"{ALONE.L * a} to {ALONE.L * b}" for a, b in zip(POOLS, POOLS[1:], strict=False)),
    ]
    size = np.log(POOLS)

    def slopes(x: np.ndarray) -> np.ndarray:
        return np.array([np.polyfit(size, x, 1)[0], *(np.diff(x, axis=0).T / np.diff(size)).T])

    told, measured = (slopes(x) for x in logs)
    band = Band(-0.01, 0.01, "steps of 0.25")
    checks = [
        sampled(
            f"exponent of the memory's clock, K = {name}", "iw_exponent", float(t[0]), f, band=band
        )
        for name, t, f in zip(names, told, measured, strict=True)
    ]
    error = measured[0].std(ddof=1) / np.sqrt(len(seeds))
    away = abs(measured[0].mean() - OTHERS)
    note = f"exponent over all: {measured[0].mean():.4f} +- {error:.4f}, {away:.3f} from {OTHERS}"
    return checks, note


def perceptrons(seeds: Sequence[int], few: int = 64, many: int = 512) -> str:
    """The same exponent for a perceptron in place of the table."""
    with one_thread():
        pairs = [
            (contexts.perceptron_clocks(few, seed=k), contexts.perceptron_clocks(many, seed=k))
            for k in seeds
        ]
    powers = {
        name: np.log([b[name] / a[name] for a, b in pairs]) / np.log(many / few)
        for name in ("whole", "half")
    }
    said = (
        f"{x.mean():.3f} +- {x.std(ddof=1) / np.sqrt(len(x)):.3f} ({k})" for k, x in powers.items()
    )
    return (
        f"exponent of a perceptron's clock, K = {few} to {many}, until the residual is {contexts.LEFT:g} "
        f"(whole) or half of its start: {', '.join(said)}; theirs {OTHERS}"
    )


def transformer(p: Any) -> Check:
    """Time of the head on sequences."""
    told = emergence_time(p)
    runs = contexts.pool_descent(p.run_to(LONGER * told), 0).expand_dims("seed")
    there = float(first_crossing(runs.attention, 0.5).values[0])
    name = "time of attention = 0.5 on sequences"
    return identity(name, "iw_clock", told, there, FOLLOWS.high, "steps and batches of one student")


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
        checks = [*checks, *solved[0], shares(p, SEEDS, show)]
        notes = [*notes, *solved[1]]
    late = lost(LOST, SEEDS[:2], show)
    power = exponents(SEEDS, show)
    notes = [*notes, late[1], power[1], perceptrons(range(8))]
    return Report([*of_race(), *checks, *late[0], *power[0], transformer(COMMON)], notes)
