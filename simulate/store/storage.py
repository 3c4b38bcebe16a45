"""Store of finished runs: one sealed file per (configuration, seed). Signals wait while
it is written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from filelock import FileLock

from theory.call.parameters import BaseParameters
from theory.runtime import output
from theory.runtime.sealed import KIND

FORMAT = 3  # to be raised when the meaning of a stored run changes


def default_store() -> Path:
    """``$SOLVABLE_TRANSFORMERS_RUNS``, or ``output/runs`` in the working directory."""
    return Path(os.environ.get("SOLVABLE_TRANSFORMERS_RUNS", "output/runs"))


def configuration(model: str, p: BaseParameters, **more: Any) -> str:
    """Canonical text that identifies a configuration; equal texts mean equal runs."""
    return json.dumps(
        {"format": FORMAT, "model": model, **p.stored(training_only=True), **more},
        sort_keys=True,
    )


def place(store: Path, config: str, seed: int) -> Path:
    """Path of a run's file."""
    return (
        store / hashlib.sha256(config.encode()).hexdigest()[:16] / f"seed-{seed:05d}.nc"
    )


def provenance(
    model: str, config: str, p: BaseParameters, seed: int, code: str = ""
) -> dict[str, Any]:
    """Attributes of every stored run; ``code`` is the digest (`statements`) of the code
    that trained it.
    """
    versions = {
        name: _version(name) for name in ("solvable-transformers", "torch", "numpy")
    }
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "kind": KIND,
        "model": model,
        "parameters": p.as_json(),
        "configuration": config,
        "seed": seed,
        "versions": json.dumps(versions),
        "command": (
            command.encode(errors="backslashreplace").decode()
        ),  # a path may be invalid text
        "code": code,
    }


def code(*makers: Any) -> str:
    """Digest of the package that defines students, given functions or classes that make
    them.
    """
    return statements(home(*makers))


def home(*makers: Any) -> str:
    """Module that defines students."""
    parts = itertools.chain.from_iterable(map(_parts, makers))
    homes = [part.__module__ for part in parts]
    return next((m for m in homes if _of_students(m)), homes[0])


def _parts(made: Any) -> list[Any]:
    """The function itself, or the functions and classes inside a (nested) partial, in
    order.
    """
    if not isinstance(made, functools.partial):
        return [made]
    parts = []
    for inner in (made.func, *made.args):
        if callable(inner):
            parts += _parts(inner)
    return parts


# Packages with code that all students share.
SHARED = ("simulate", "simulate.store", "simulate.training")


def _of_students(module: str) -> bool:
    """Whether a module belongs to a particular student
    rather than to the shared code.
    """
    return sys.modules[module].__package__ not in SHARED and (
        module.partition(".")[0] not in sys.stdlib_module_names or module == "__main__"
    )


@functools.cache
def statements(module: str) -> str:
    """Digest of the package that contains a module (of ``simulate.py`` in a flat
    package), and of the task module in theory if there is one; empty for code that is
    not in a file (a notebook).
    """
    source = sys.modules[module]
    if getattr(source, "__file__", None) is None:
        return ""
    path = Path(str(source.__file__))
    package = source.__package__ or ""
    if not package or path.name == "simulate.py":
        return output.digest([path])
    model = package.replace("simulate.", "theory.", 1)
    task = sys.modules.get(f"{model}.model.task") or sys.modules.get(f"{model}.task")
    law = [] if task is None or package in task.__name__ else [Path(str(task.__file__))]
    return output.digest([*sorted(path.parent.rglob("*.py")), *law])


@functools.cache
def _version(package: str) -> str:
    """Version of a package; also works for a checkout that is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def writable(places: Iterable[Path]) -> None:
    """Check, before any work, whether runs can be written, by writing a test file next
    to each.

    Raises
    ------
    OSError
        Naming the obstacle.
    """
    for folder in dict.fromkeys(place.parent for place in places):
        folder.mkdir(parents=True, exist_ok=True)
        output.writable(str(folder), file=False)


def destination(out: Path | None) -> tuple[Path, Path | None]:
    """Store and single output file for an output path: a path that ends in .nc is the
    single file, any other path is the store.

    Raises
    ------
    OSError
        If that file could not be written.
    """
    if out is None or out.suffix != ".nc":
        return out or default_store(), None
    output.writable(str(out))
    return default_store(), out


def lock(path: Path) -> FileLock:
    """File lock to hold while training a run. The system releases it if the process
    dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.stem}.lock"))


def sweep_lock(path: Path, lock: FileLock) -> None:
    """Remove the lock file if the run is finished; the caller holds the lock. Who locks
    the removed file or a new one afterwards finds the run.
    """
    with contextlib.suppress(PermissionError):  # Windows keeps open files
        if path.exists():
            Path(lock.lock_file).unlink()


class DeferSignals:
    """Defer SIGINT and SIGTERM to the end of the current step, so that a checkpoint can
    be written. A second SIGINT takes effect immediately unless ``endless``.

    Parameters
    ----------
    endless : bool
        Also defer a second SIGINT; for short steps that must not be interrupted.

    Attributes
    ----------
    torn : bool
        A step was interrupted: the weights do not correspond to the step number.
    """

    def __init__(self, endless: bool = False) -> None:
        self.endless, self.torn, self.stepping = endless, False, False
        self.pending: int | None = None
        self.before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> DeferSignals:
        """Install handlers in place of the current ones; only the main thread receives
        signals.
        """
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers, unless other handlers were installed in
        between.
        """
        for number, handler in self.before.items():
            if signal.getsignal(number) == self._hear:
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        waits = self.endless or self.pending is None or number == signal.SIGTERM
        if self.stepping and waits:
            self.pending = number
        else:
            self.before[number](number, frame)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Context manager for one step that must not be interrupted."""
        self.stepping = self.torn = True
        try:
            yield
            self.torn = False
        finally:
            self.stepping = False
            if self.pending is not None:
                number, self.pending = self.pending, None
                self.before[number](number, None)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Context manager that defers signals during netCDF calls. An exception raised
    inside the library could leave its locks taken, and the next call would wait
    forever.
    """
    with DeferSignals(endless=True) as patience, patience.step():
        yield
