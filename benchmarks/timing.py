"""CPU times of calls and of commands, and tables of them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

AT_LEAST = 1.0  # CPU seconds of a timing


def least(work: Callable[[], Any], at_least: float = AT_LEAST) -> float:
    """Least CPU time of a call, in seconds: other work on the machine adds to a time
    and never takes from it.
    """
    work()  # compilation and caches
    times: list[float] = []
    while sum(times) < at_least or len(times) < 3:
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def command(*words: str) -> float:
    """CPU time of Python with these words, in seconds, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SOLVABLE_TRANSFORMERS_CACHE": folder}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *words], check=True, capture_output=True, env=environment
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user = after.ru_utime - before.ru_utime
    system = after.ru_stime - before.ru_stime
    return user + system


def show(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    print(f"\n{title}")
    for cells in (header, *rows):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        print("  ".join(padded).rstrip(), flush=True)
