"""Which test calls which function; selects the tests to run for a fault."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOMS = ("theory", "simulate", "verify")


def outer(name: str) -> str:
    """Qualified name of the outermost function; methods keep their class."""
    return name.partition(".<locals>")[0]


class Tracer:
    """Pytest plugin: the functions of the three rooms that each test calls, its
    seconds, whether it passed.

    Functions are known by file and qualified name, inner ones by the outer. Calls while
    a test file is imported have the empty name. Processes that tests start, and machine
    code, are not seen.
    """

    def __init__(self, tree: Path, sink: Path) -> None:
        self.sink, self.tree = sink, tree
        self.rooms = tuple(f"{tree / room}/" for room in ROOMS)
        self.known: dict[str, bool] = {}
        self.calls: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.bad: set[str] = set()
        self.now = self.calls[""]

    def _call(self, frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        name = code.co_filename
        ours = self.known.get(name)
        if ours is None:
            ours = self.known[name] = name.startswith(self.rooms)
        if ours:
            self.now.add((name, code.co_qualname))

    def pytest_sessionstart(self) -> None:
        sys.settrace(self._call)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.now = self.calls[item.nodeid]
        begun = sum(os.times()[:4])  # with the processes that it starts
        sys.settrace(self._call)
        done = yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - begun
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.bad.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        calls = {
            test: sorted(
                {
                    (str(Path(file).relative_to(self.tree)), outer(name))
                    for file, name in called
                }
            )
            for test, called in self.calls.items()
        }
        found = {"calls": calls, "seconds": self.seconds, "bad": sorted(self.bad)}
        self.sink.write_text(json.dumps(found))
