"""Store of finished runs: one netCDF file per (configuration, seed). A file that exists is
complete.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock

from theory.parameters import BaseParameters
from theory.runtime import output

FORMAT = 3  # to be raised when the meaning of a stored run changes


KIND = "solvable-transformers run"


def default_store() -> Path:
    """``$SOLVABLE_TRANSFORMERS_RUNS``, or ``output/runs`` in the working directory."""
    return Path(os.environ.get("SOLVABLE_TRANSFORMERS_RUNS", "output/runs"))


def configuration(model: str, p: BaseParameters, **more: Any) -> str:
    """Canonical text that identifies a configuration; equal texts mean equal runs."""
    return json.dumps(
        {"format": FORMAT, "model": model, **p.stored(training_only=True), **more}, sort_keys=True
    )


def place(store: Path, config: str, seed: int) -> Path:
    """Path of a run's file."""
    return store / hashlib.sha256(config.encode()).hexdigest()[:16] / f"seed-{seed:05d}.nc"


def provenance(
    model: str, config: str, p: BaseParameters, seed: int, code: str = ""
) -> dict[str, Any]:
    """Attributes of every stored run; ``code`` is the digest (`statements`) of the code that
    trained it.
    """
    versions = {name: _version(name) for name in ("solvable-transformers", "torch", "numpy")}
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "kind": KIND,
        "model": model,
        "parameters": p.as_json(),
        "configuration": config,
        "seed": seed,
        "versions": json.dumps(versions),
        "command": command.encode(errors="backslashreplace").decode(),  # a path may be invalid text
        "code": code,
    }


def code(*makers: Any) -> str:
    """Digest of the package that defines students, given functions or classes that make them."""
    homes = [part.__module__ for made in makers for part in _parts(made)]
    return statements(next((m for m in homes if _of_students(m)), homes[0]))


def _parts(made: Any) -> list[Any]:
    """The function itself, or the functions and classes inside a (nested) partial, in order."""
    if isinstance(made, functools.partial):
        return [part for one in (made.func, *made.args) if callable(one) for part in _parts(one)]
    return [made]


def _of_students(module: str) -> bool:
    """Whether a module belongs to a particular student rather than to the shared code."""
    return sys.modules[module].__package__ != __package__ and (
        module.partition(".")[0] not in sys.stdlib_module_names or module == "__main__"
    )


@functools.cache
def statements(module: str) -> str:
    """Digest of the package that contains a module (of ``simulate.py`` in a flat package), and of
    the task module in theory if there is one; empty for code that is not in a file (a notebook).
    """
    source = sys.modules[module]
    if getattr(source, "__file__", None) is None:
        return ""
    path, package = Path(str(source.__file__)), source.__package__ or ""
    if not package or path.name == "simulate.py":
        return output.digest([path])
    task = sys.modules.get(f"{package.replace('simulate.', 'theory.', 1)}.task")
    law = [] if task is None or package in task.__name__ else [Path(str(task.__file__))]
    return output.digest([*sorted(path.parent.rglob("*.py")), *law])


def _version(package: str) -> str:
    """Version of a package; also works for a checkout that is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def writable(places: Iterable[Path]) -> None:
    """Check, before any work, whether runs can be written, by writing a test file next to each.

    Raises
    ------
    OSError
        Naming the obstacle.
    """
    for folder in dict.fromkeys(place.parent for place in places):
        folder.mkdir(parents=True, exist_ok=True)
        output.writable(str(folder), file=False)


def destination(out: Path | None) -> tuple[Path, Path | None]:
    """Store and single output file for an output path: a path that ends in .nc is the single file,
    any other path is the store.

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
    """File lock to hold while training a run. The operating system releases it if the process dies.

    The lock file is not removed: removing it while others may be about to lock it is a race
    condition.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.stem}.lock"))
