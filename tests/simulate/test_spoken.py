"""What training says of itself, read back from its words: durations and gaps of a
store.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr

from simulate.store import joined_runs
from simulate.training import jobs

SECONDS = {"minutes": 60, "hours": 3600, "days": 86400}


def seconds(text: str) -> float:
    """The first duration in a text."""
    number, unit = re.search(rf"([\d.e+]+) ({'|'.join(SECONDS)})", text).groups()
    return float(number) * SECONDS[unit]


@pytest.mark.parametrize("true", [600.0, 5000.0, 6000.0, 1e5, 2e5, 3e6])
def test_durations_are_in_their_unit(true):
    """To two digits."""
    assert seconds(jobs.duration(true)) == pytest.approx(true, rel=0.06)


@pytest.mark.parametrize("workers", [1, 2, None])
def test_announced_durations_are_those_of_the_jobs(workers, capsys):
    """Three settings of known cost: all of it, over the workers where their number is
    known.
    """
    made = [
        jobs.Job(
            "", epochs, lambda tick, wait: True, setting=str(epochs), probe=lambda: 12.0
        )
        for epochs in (1000, 2000, 3000)
    ]
    jobs.announce(made, workers)
    said = capsys.readouterr().err
    assert seconds(said) == pytest.approx(12.0 * 6000 / (workers or 1), rel=0.06)
    assert ("2 of 3 jobs" in said) == (workers == 2)


def test_gaps_of_a_store_are_counted():
    """Points without a run, and the part of each
    coordinate that a run does not have.
    """
    times = {(1, 0): 4, (2, 0): 2, (2, 1): 4}  # measurements by learning rate and seed
    runs = [
        xr.Dataset({"loss": ("t", np.ones(n))}, {"t": np.arange(n)})
        for n in times.values()
    ]
    points, blank = joined_runs.Grid(["eta", "seed"], [*times], runs).blanks()
    assert points.startswith("1 of 4 points of eta x seed have no run")
    share = 1 - sum(times.values()) / (len(times) * max(times.values()))
    assert blank.startswith("t: ") and f"{100 * share:.0f}% blank" in blank
