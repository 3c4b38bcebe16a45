"""Test files in separate processes, forked from one that has loaded the libraries, so
that imports are paid once.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIBRARIES = (
    "sympy",
    "mpmath",
    "scipy.optimize",
    "scipy.integrate",
    "scipy.stats",
    "xarray",
    "netCDF4",
    "matplotlib.pyplot",
    "numba",
    "torch",
    "pytest",
    "hypothesis",
)
MEMORY = (
    16 * 2**30
)  # bytes of address space: a fault in a size must not take the machine


def load() -> None:
    """Import what the tests import, but nothing of the project."""
    for name in LIBRARIES:
        importlib.import_module(name)


def run(
    tree: Path, arguments: Sequence[str], plugin: Any, seconds: float
) -> tuple[int | None, float]:
    """Exit code of pytest (None: out of time) on a tree, in a process of its own; CPU
    seconds.

    Nothing is kept between processes: the store of students is a fresh folder,
    hypothesis and pytest write no caches.
    """
    with tempfile.TemporaryDirectory() as own:
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            _pytest(tree, arguments, plugin, Path(own))
        while True:
            done, status, used = os.wait4(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return code, used.ru_utime + used.ru_stime
            if time.monotonic() - begun > seconds:
                os.killpg(child, signal.SIGKILL)
                _, _, used = os.wait4(child, 0)
                return None, used.ru_utime + used.ru_stime
            time.sleep(0.02)


def _pytest(tree: Path, arguments: Sequence[str], plugin: Any, own: Path) -> None:
    """Become pytest; does not return."""
    code: int = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.chdir(tree)
        with (own / "output").open("w") as sink:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
        paths = [str(tree), str(tree / "examples" / "linear_attention")]
        here = str(Path(__file__).parents[2])
        sys.path[:] = paths + [p for p in sys.path if p not in ("", here, *paths)]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        os.environ["SOLVABLE_TRANSFORMERS_RUNS"] = str(own / "runs")
        for name in [n for n in sys.modules if n.partition(".")[0] == "tests"]:
            del sys.modules[name]
        import pytest

        code = int(pytest.main(["-n", "0", "-x", *arguments], plugins=[plugin]))
    finally:
        os._exit(code)
