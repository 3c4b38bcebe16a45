"""Reports of command lines and expensive arrays, kept in the store of runs: the same
code is not run twice with the same inputs, and a command that was killed continues
where it stopped.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.models.model import Model
from theory.models.registry import TABLE
from theory.runtime import sealed
from verify.checks import digests
from verify.checks.check import Band, Check
from verify.checks.report import Report, Request

FOLDER = "reports"  # in the store of runs
DATA = (".nc", ".csv", ".json", ".npz")
SHORT = 2.0  # seconds; what takes less is not kept
LIBRARIES = ("numpy", "scipy", "sympy", "mpmath", "torch", "xarray", "numba")
# Of the request: by name, or never stored.
NOT_IN_KEY = ("model", "progress", "renew", "runs", "length_flag")


def answer(
    request: Request, command: str, make: Callable[[], Report], anew: bool
) -> tuple[Report, str]:
    """The report of a command, and where it is from if it was not made now.

    Parameters
    ----------
    request : Request
        Arguments of the command.
    make : callable
        Runs the command.
    anew : bool
        Whether to run it even if its report is stored.
    """
    path = None if _once(request) else place(request, command)
    if path is not None and path.is_file() and not anew:
        try:
            record = json.loads(_unsealed(path))
            report = _report(record)
            # An error if anything is of another kind.
            report.text(wide=True)
            report.as_dict()
            date, seconds = record["date"], record["seconds"]
            return report, f"as stored on {date}, when it took {seconds} s"
        except Exception:
            pass  # damaged in any way: made again
    begun = time.monotonic()
    report = make()
    seconds = time.monotonic() - begun
    if path is not None and seconds > SHORT:
        record = {"date": time.strftime("%Y-%m-%d"), "seconds": round(seconds)}
        record |= {
            "checks": [asdict(c) for c in report.checks],
            "notes": list(report.notes),
            "tables": [[title, *table] for title, table in report.tables.items()],
            "numbers": report.numbers,
        }
        _seal(path, json.dumps(record, default=lambda x: x.tolist()).encode())
    return report, ""


def _seal(path: Path, content: bytes) -> None:
    """Keep content with its name; where there is no place to write, it is made again
    next time.
    """
    with contextlib.suppress(OSError):
        sealed.seal(path, path.name.encode() + content)


def _unsealed(path: Path) -> bytes:
    """Content that was kept under this name."""
    content, name = sealed.unseal(path), path.name.encode()
    if not content.startswith(name):
        raise ParameterError(f"{path}: was kept under another name")
    return content.removeprefix(name)


def _once(request: Request) -> bool:
    """Whether the report cannot be stored, as it depends on a file of the user."""
    ours = TABLE.get(request.model.name) is request.model
    return not ours or request.runs is not None or request.renew


def place(request: Request, command: str) -> Path:
    """File of a report, by a digest of all that it depends on: code, shipped data,
    arguments, libraries and the kind of processor.
    """
    from simulate.store.storage import default_store

    names = [f.name for f in fields(request) if f.name not in NOT_IN_KEY]
    key: dict[str, Any] = {
        "code": digests.sources(request.model, command),
        "data": _data(request.model),
        "arguments": {name: getattr(request, name) for name in names},
        "machine": [platform.python_version(), platform.machine()],
    }
    key["libraries"] = {name: importlib.metadata.version(name) for name in LIBRARIES}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return default_store() / FOLDER / f"{command}-{request.model.name}-{digest}.json"


def _data(model: Model) -> str:
    """Digest of the shipped ensembles and other data of the packages."""
    sha = hashlib.sha256()
    for folder in digests.packages(model).values():
        for file in sorted(folder.rglob("*")):
            if file.suffix in DATA:
                sha.update(file.read_bytes())
    return sha.hexdigest()


def _report(record: dict[str, Any]) -> Report:
    checks = []
    for row in record["checks"]:
        band = row["band"] and Band(**row["band"])
        checks.append(Check(**{**row, "band": band}))
    tables = {title: (header, rows) for title, header, rows in record["tables"]}
    return Report(checks, record["notes"], tables, record["numbers"])


ARRAYS = "kept"  # in a store of runs
_store: ContextVar[Path | None] = ContextVar("store", default=None)
_functions: list[Callable[..., np.ndarray]] = []
P = ParamSpec("P")


@contextlib.contextmanager
def arrays(store: Path) -> Iterator[None]:
    """Keep in a store, and read from there, what functions marked by `kept` return
    meanwhile.

    Elsewhere these functions always compute: in tests, and wherever a theory may have
    been changed in memory.
    """
    for function in _functions:
        _code(function)  # of the files as they are now
    token = _store.set(store / ARRAYS)
    try:
        yield
    finally:
        _store.reset(token)


def kept(function: Callable[P, np.ndarray]) -> Callable[P, np.ndarray]:
    """Function whose array is computed once for the same arguments and the same code.

    Arguments by position (parameters, numbers, lists of numbers) identify the result,
    with a digest of all definitions that the function may use; arguments by keyword say
    how to train and do not.
    """
    _functions.append(function)

    @functools.wraps(function)
    def computed(*args: P.args, **training: P.kwargs) -> np.ndarray:
        folder = _store.get()
        if folder is None:
            return function(*args, **training)
        words = [
            function.__module__,
            function.__name__,
            _code(function),
            *map(_plain, args),
        ]
        key = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
        path = folder / f"{function.__name__}-{key}.npy"
        with contextlib.suppress(ValueError, OSError):  # not there, or damaged
            return np.load(io.BytesIO(_unsealed(path)))
        made = function(*args, **training)
        np.save(file := io.BytesIO(), made)
        _seal(path, file.getvalue())
        return made

    return computed


@functools.cache
def _code(function: Callable[..., np.ndarray]) -> str:
    """Digest of the definitions that a function may use."""
    packages = {wing: digests.ROOT / wing for wing in digests.WINGS}
    files = digests.imported([function.__module__], packages, digests.ASIDE).values()
    return digests.used(files, names=[function.__name__])


def _plain(value: Any) -> Any:
    """Arguments in a form that JSON can store."""
    if isinstance(value, BaseParameters):
        return value.as_json()
    return value if isinstance(value, str | int | float) else [_plain(x) for x in value]
