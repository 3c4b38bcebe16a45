"""Run faults one at a time in a copy of the tree against the tests that call the
function, the most specific tests first.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.faults import process
from tests.faults.reach import Tracer
from tests.faults.sites import Fault

MEASURING = ("tests/docs/", "simulate/test_memory.py")
# These hold times and sizes of this machine, or pages: they would fail for other
# reasons.
MADE = ("output", "build")  # folders
PATIENCE, LEAST = (
    10,
    120.0,
)  # a test file may take ten times its seconds, and two minutes more


class Picked:
    """Pytest plugin: a file without some of its tests; remembers what failed first."""

    def __init__(self, without: set[str], sink: Path) -> None:
        self.without, self.sink = without, sink

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [i for i in items if i.nodeid not in self.without]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.sink.exists():
            self.sink.write_text(report.nodeid)


class Calls:
    """What one test file calls: seconds of its tests that pass, the others, and
    functions.
    """

    def __init__(self, path: Path) -> None:
        traced = json.loads(path.read_text())
        self.bad = set(traced["bad"])
        self.good = {t: s for t, s in traced["seconds"].items() if t not in self.bad}
        self.by = {
            t: {tuple(c) for c in called} for t, called in traced["calls"].items()
        }
        self.all = set().union(*self.by.values())

    def of(self, function: tuple[str, str]) -> dict[str, float]:
        """Tests that call a function; all of them, if it is called while the file is
        imported.
        """
        early = function in self.by.get("", ())
        return {
            t: s
            for t, s in self.good.items()
            if early or function in self.by.get(t, ())
        }


def digest(path: Path) -> str:
    """Of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class Bench:
    """A copy of the tree, what its tests call, and what the trials found: all kept in a
    folder.

    Parameters
    ----------
    source : Path
        The checkout; it is only read.
    folder : Path
        Copy, ``reach/`` and ``found.json``; what is there already is used.
    tests : str
        Pattern of the test files that may run.
    """

    def __init__(self, source: Path, folder: Path, tests: str = "*") -> None:
        self.tree, self.reach, self.store = (
            folder / "tree",
            folder / "reach",
            folder / "found.json",
        )
        self.reach.mkdir(parents=True, exist_ok=True)
        self._copy(source)
        self.found: dict[str, Any] = (
            json.loads(self.store.read_text()) if self.store.exists() else {}
        )
        self.read: dict[Path, Calls] = {}
        named = (
            p.relative_to(self.tree).as_posix()
            for p in self.tree.glob("tests/**/test_*.py")
        )
        self.files = sorted(
            file
            for file in named
            if fnmatch(file, tests) and not any(part in file for part in MEASURING)
        )
        process.load()

    def _copy(self, source: Path) -> None:
        """Copy what is not hidden or made; what is the same keeps its time, and so its
        machine code.
        """
        names = {
            path.relative_to(source).as_posix()
            for top in source.iterdir()
            if not top.name.startswith(".") and top.name not in MADE
            for path in [top, *top.rglob("*")]
            if path.is_file() and "__pycache__" not in path.parts
        }
        for old in self.tree.rglob("*"):
            if (
                old.suffix == ".py"
                and old.relative_to(self.tree).as_posix() not in names
            ):
                old.unlink()
        for name in names:
            new = self.tree / name
            if not new.exists() or new.read_bytes() != (source / name).read_bytes():
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, new)
                _forget(new)

    def calls(self, file: str) -> Calls | None:
        """What the tests of a file call; None if it was not yet traced as it is."""
        path = self._traced(file)
        if path not in self.read and path.exists():
            self.read[path] = Calls(path)
        return self.read.get(path)

    def _traced(self, file: str) -> Path:
        return self.reach / f"{file.replace('/', '.')}-{digest(self.tree / file)}.json"

    def trace(self, file: str) -> None:
        """Run a test file on the untouched tree."""
        sink = self._traced(file)
        process.run(self.tree, ["--maxfail=10000", file], Tracer(self.tree, sink), 1800)

    def candidates(
        self, fault: Fault
    ) -> list[tuple[str, dict[str, float], dict[str, float]]]:
        """Test files that a fault has to pass: those of their tests that call the
        function, and the others, which may read what was derived and kept.

        First what costs little and calls little beyond the fault's file. Where no test
        is seen to call the function (machine code, other processes): files that call
        others in its file, or name it.
        """
        ranked = []
        name = re.compile(rf"\b{Path(fault.file).stem}\b")
        for file in self.files:
            traced = self.calls(file)
            if traced is None or not traced.good:
                continue
            near = sum(called == fault.file for called, _ in traced.all)
            named = name.search((self.tree / file).read_text()) is not None
            if near or named:
                direct = traced.of((fault.file, fault.function))
                price = sum((direct or traced.good).values()) + 1
                share = max(near, 1) / max(len(traced.all), 1) * (4 if named else 1)
                rest = {t: s for t, s in traced.good.items() if t not in direct}
                ranked.append((price / share, file, direct, rest))
        ranked.sort(key=lambda r: r[:2])
        seen = [(file, direct, rest) for _, file, direct, rest in ranked if direct]
        return seen or [(file, rest, {}) for _, file, _, rest in ranked]

    @contextmanager
    def broken(self, fault: Fault) -> Iterator[None]:
        """The copy with exactly this fault."""
        path = self.tree / fault.file
        source, stat = path.read_bytes(), path.stat()
        try:
            path.write_text(fault.applied(source.decode()))
            _forget(path)
            yield
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            _forget(path)

    def try_(self, fault: Fault, budget: float) -> dict[str, Any]:
        """Run tests until one fails, none is left, or the budget of their seconds is
        spent; goes on where an earlier trial ended.

        Returns
        -------
        dict
            ``state`` (caught, survived, open), ``by`` (the test that failed),
            ``passed`` (test files with their digests), ``seconds``.
        """
        own = digest(self.tree / fault.file)
        found = self.found.get(fault.key)
        if not found or found["source"] != own:
            found = {
                "source": own,
                "state": "open",
                "by": "",
                "passed": {},
                "seconds": 0.0,
            }
            self.found[fault.key] = found
        if found["state"] == "caught":
            return found
        found |= {"line": fault.line, "state": "survived"}
        todo = self.candidates(fault)
        spent = 0.0
        for file, tests, part in [
            *((f, direct, "direct") for f, direct, _ in todo),
            *((f, rest, "rest") for f, _, rest in todo if rest),
        ]:
            label = f"{file} {part}"
            if found["passed"].get(label) == digest(self.tree / file):
                continue
            cost = sum(tests.values()) + 1
            if spent + cost > budget:
                found["state"] = "open"
                continue
            spent += cost
            failed, by, seconds = self.run(fault, file, set(tests))
            found["seconds"] += seconds
            if failed:
                found |= {"state": "caught", "by": by}
                break
            found["passed"][label] = digest(self.tree / file)
        self.save()
        return found

    def run(
        self, fault: Fault | None, file: str, tests: set[str]
    ) -> tuple[bool, str, float]:
        """Whether some tests of a file fail, which first, CPU seconds; tests that only
        the faulty tree has run, too.

        Raises
        ------
        RuntimeError
            If pytest itself fails: that says nothing about the tests.
        """
        sink = self.store.with_name("failed")
        sink.unlink(missing_ok=True)
        traced = self.calls(file)
        known = {**traced.good, **dict.fromkeys(traced.bad, 0.0)} if traced else {}
        patience = PATIENCE * sum(known.get(t, 0.0) for t in tests) + LEAST
        picked = Picked(known.keys() - tests, sink)
        with self.broken(fault) if fault else nothing():
            code, seconds = process.run(self.tree, [file], picked, patience)
        if code in (3, 4):
            raise RuntimeError(f"pytest ended with {code} on {file}")
        named = sink.read_text() if sink.exists() else file
        how = {None: " (out of time)", 2: " (cannot be collected)"}
        crashed = " (crashed)" if code is not None and code < 0 else ""
        return code not in (0, 5), named + how.get(code, crashed), seconds

    def save(self) -> None:
        """Write what was found, so that a killed command loses one trial."""
        temporary = self.store.with_suffix(".new")
        temporary.write_text(json.dumps(self.found, indent=1))
        temporary.replace(self.store)


@contextmanager
def nothing() -> Iterator[None]:
    """The copy as it is."""
    yield


def _forget(path: Path) -> None:
    """Bytecode is known by size and whole seconds, which a fault may share."""
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
