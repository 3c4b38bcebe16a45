"""Rows of ``python -m theory.benchmark``: median times of a call, and its error beside a bar."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np


def measured(work: Callable[[], Any], calls: int = 1) -> tuple[float, Any]:
    """Median time of some calls in seconds, and the last result."""
    seconds = []
    for _ in range(calls):
        started = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds)), result


def row(way: str, points: int, seconds: float, error: float, bar: float) -> dict[str, Any]:
    """A row of the table: time, largest relative error, and whether this is within its bar."""
    each = {"seconds": seconds, "microseconds_per_point": 1e6 * seconds / points}
    return {"way": way, "points": points, **each, "error": error, "within": error <= bar}
