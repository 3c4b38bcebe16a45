"""Stages with a bypass: times of attention by the exact flow and in students, and whether logic
tells actions apart before.
"""

import numpy as np
import xarray as xr

from simulate.state_tracking import bypass as students
from theory.state_tracking.bypass import Parameters, emergence_time, flow, guess_time
from verify.check import Check, sampled
from verify.emergence import first_crossing
from verify.report import Report, Request

GRID = (Parameters(b=0.0), Parameters(b=1.0), Parameters(b=3.0), Parameters(N=8, d_g=4, b=2.0))
SEEDS = range(700, 708)
LONGER = 1.15  # runs, than the predicted time


def trained(p: Parameters, seeds: range = SEEDS) -> xr.Dataset:
    """Students until attention has emerged, or the guess if it comes first."""
    p = p.run_to(LONGER * emergence_time(p))
    return xr.concat([students.descent(p, seed) for seed in seeds], "seed")


def early(runs: xr.Dataset) -> np.ndarray:
    """1 - S/R by intervention when attention has made a tenth of its way, seed by seed."""
    length = students.LENGTH
    begun = first_crossing(runs.A, (1 + (length - 1) * 0.1) / length).values
    specific = 1 - runs.S / runs.R
    pairs = zip(specific.transpose("seed", "t").values, begun, strict=True)
    return np.array([np.interp(t, runs.t.values[1:], row[1:]) for row, t in pairs])


def timescales(request: Request) -> Report:
    """All settings."""
    request.of_its_own()
    checks: list[Check] = []
    rows = []
    for p in GRID:
        runs = trained(p)
        where = f"N = {p.N}, d_g = {p.d_g}, b = {p.b:g}"
        time = emergence_time(p)
        slow = flow().descend(p, p.eta, runs.t.size - 1).expand_dims("seed")
        told, there = (first_crossing(x.A, 0.5).values for x in (slow, runs))
        name = f"time of A = 1/2 by descent, students, {where}"
        checks.append(sampled(name, "flow", told[0], there))
        guess = guess_time(p)
        if guess < time:  # which is how long they are trained
            level = (1 + p.d_g / p.N) / 2
            told, reached = (first_crossing(x, level).values for x in (slow.possible, runs.mass))
            what = f"time of half the guess from the state by descent, students, {where}"
            checks.append(sampled(what, "flow", told[0], reached))
        rows.append(
            [where, f"{guess:.2f}", f"{time:.2f}", f"{there.mean():.2f}", f"{early(runs).mean():.3f}"]
        )  # fmt: skip
    header = ["setting", "guess (flow)", "A = 1/2 (flow)", "students", "1 - S/R before attention"]
    return Report(checks, tables={"stages with a bypass": (header, rows)})
