"""Rows of the verify commands that tests build, and tiny students, are held to numbers
that were frozen before, `golden/numbers.json`.

Could see: samples left out, seeds used twice, a prediction taken from the measurement,
in every row that any test builds; rows that a test no longer builds. A change that is
meant: ``pytest --freeze`` adds what is new; after removing the file, all tests write it
anew. Of two sides that are equal up to rounding mean, root mean square and number of
their entries are frozen (which entry differs most depends on the machine), of what has
to vanish the number of entries. Not frozen: residues of rounding, and names with an
empty list in the file, such as angles between such residues.
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests/golden/numbers.json"
VALUES = ("predicted", "measured", "tolerance", "standard_error", "resolution")
# Students in single precision differ by rounding between machines, amplified by
# training: measured with and without AVX2 and AVX-512, up to 1e-4 in values, 3e-3 in
# standard errors, and 3e-2 in resolutions, where the rule for largest deviations reads
# the correlation of neighbouring times.
PART, OF_SCATTER, OF_RESOLUTION = 1e-3, 1e-2, 1e-1
ROUNDING = 1e-8  # absolute; no row means to measure less
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PLACE = re.compile(r", \(\d")  # an entry of an array, in the name of an equation
MOST = 8  # of more settings of one row, as where a test simulates a rule, none is held
built: list[tuple[str, list[float | None]]] = []
rows: list[str] = []  # names of all rows
reading: list[
    str
] = []  # a test of `verify`, of which notes and number of rows are held, too


def hold(key: str, *values: float | None) -> None:
    """Compare numbers with the frozen ones of their name when the test ends; the first
    two are of one size.
    """
    built.append((key, [None if v is None else float(f"{v:.7g}") for v in values]))


def hold_all(key: str, found: Any, loosely: bool = False) -> None:
    """Hold whatever is in mappings, sequences, datasets, arrays, and the numbers in
    texts, but for residues; loosely, where the last printed digit of a text may be
    another on other machines.
    """
    if isinstance(found, str):  # printed with few digits
        seen = [
            float(n) for n in NUMBER.findall(found) if "e" not in n
        ]  # others are residues
        if loosely:
            hold(key, 1.0, 1.0, None, None, *seen)
        found = [] if loosely else seen
    if isinstance(found, Mapping | xr.Dataset):
        for name, part in found.items():
            hold_all(f"{key} | {name}", part, loosely)
    elif isinstance(found, list | tuple) and not all(
        isinstance(x, int | float) for x in found
    ):
        for k, part in enumerate(found):
            hold_all(f"{key} | {k}", part, loosely)
    elif (x := np.asarray(found)).dtype.kind in "fiub" and x.size:
        x = x.astype(float)
        size = float(np.sqrt(np.mean(x**2)))
        if not size <= ROUNDING:
            hold(key, x.mean(), size, x.size)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--freeze``."""
    parser.addoption(
        "--freeze",
        action="store_true",
        help="add rows and ends of students as they are now",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Where rows come together: this process, or that of the workers' controller."""
    if config.getoption("freeze") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Keeper(), "frozen rows")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test whose rows are not those that were frozen."""
    _watch()
    built.clear()
    rows.clear()
    reading[:] = [item.nodeid] * item.nodeid.startswith("tests/verify/")
    yield
    if rows and reading:
        hold(f"{item.nodeid} | rows", len(rows))
    if item.config.getoption("freeze"):
        item.user_properties.append(("rows", list(built)))
        return
    if not item.get_closest_marker("slow"):  # of larger sizes
        for key, row in built:
            assert holds(key, row, _all()), f"{key}: {row}, frozen: {_all().get(key)}"


def holds(key: str, row: list[Any], frozen: dict[str, list[Any]]) -> bool:
    """Whether a row is one of those of its name."""
    return any(same(row, was) for was in frozen.get(key, [])) or frozen.get(key) == []


def same(row: list[Any], was: list[Any]) -> bool:
    """Whether all values of two rows agree, predicted and measured on their common
    scale.
    """
    scale = max((abs(x) for x in (*was[:2], *row[:2]) if x == x), default=0.0)
    parts = (PART * scale, PART * scale, *(OF_SCATTER * abs(x or 0) for x in was[2:4]))
    apart = (*parts, *(OF_RESOLUTION * abs(x or 0) for x in was[4:]))
    return len(row) == len(was) and all(
        (a is None) == (b is None)
        and (
            a == b
            or a is None
            or (math.isnan(a) and math.isnan(b))
            or abs(a - b) <= most
        )
        for a, b, most in zip(row, was, apart, strict=False)
    )


@functools.cache
def _all() -> dict[str, list[list[float]]]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


@functools.cache
def _watch() -> None:
    """Remember every row and report that code of verify builds,
    once verify is there.
    """
    from verify.checks import check, report

    right, whole = check.Check.__init__, report.Report.__init__

    @functools.wraps(right)
    def remember(self: Any, *given: Any, **more: Any) -> None:
        right(self, *given, **more)
        frame, sides, entries = sys._getframe(1), None, None
        while frame.f_code.co_filename in (
            check.__file__,
            "<string>",
        ):  # its own functions
            sides = (
                frame.f_locals.get("right") if "gap" in frame.f_locals else sides
            )  # identity
            entries = frame.f_locals.get("off", frame.f_locals.get("measured", entries))
            frame = frame.f_back
        if not _ours(frame):
            return
        key = f"{self.equation} | {self.name}"
        rows.append(key)
        if PLACE.search(
            self.equation
        ):  # of the entry that differs most: depends on the machine
            return
        differs = abs(self.predicted) * PART / 10 < abs(self.predicted - self.measured)
        seen = self.standard_error is not None and (
            differs or "largest deviation" not in self.name
        )
        sized = seen or (self.predicted and differs) or self.bound
        if sized and max(abs(self.predicted), abs(self.measured)) > ROUNDING:
            hold(key, *(getattr(self, name) for name in VALUES))
        if sides is not None and np.abs(sides).max() > ROUNDING:
            hold(f"{key} | sides", sides.mean(), np.sqrt(np.mean(sides**2)), sides.size)
        elif self.standard_error is None:
            hold(f"{key} | entries", np.asarray(entries).size)

    @functools.wraps(whole)
    def read(self: Any, *given: Any, **more: Any) -> None:
        whole(self, *given, **more)
        frame = sys._getframe(1)
        if _ours(frame) and report.__file__ != frame.f_code.co_filename and reading:
            where = Path(frame.f_code.co_filename).relative_to(ROOT).as_posix()
            hold_all(f"notes of {where}", [*self.notes], loosely=True)

    check.Check.__init__, report.Report.__init__ = remember, read


def _ours(frame: Any) -> bool:
    """Whether code is of the project and no test."""
    path = Path(frame.f_code.co_filename)
    return path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "tests")


class Keeper:
    """Writes the rows of a session."""

    def __init__(self) -> None:
        self.rows = _all()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Rows of one test, each once."""
        if report.when == "call":
            for key, row in dict(report.user_properties).get("rows", []):
                if not holds(key, row, self.rows):
                    self.rows.setdefault(key, []).append(row)
                    if len(self.rows[key]) > MOST:
                        self.rows[key] = []

    def pytest_sessionfinish(self) -> None:
        """One row name a line."""
        lines = (
            f"{json.dumps(key)}: {json.dumps(self.rows[key])}"
            for key in sorted(self.rows)
        )
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
