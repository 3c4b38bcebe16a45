"""Cache of expensive arrays next to the trained students, so that a command that was killed
continues where it stopped.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

from theory.parameters import BaseParameters
from theory.runtime import output
from verify import digests

FOLDER = "kept"  # in a store of runs
_store: ContextVar[Path | None] = ContextVar("store", default=None)
_functions: list[Callable[..., np.ndarray]] = []
P = ParamSpec("P")


@contextmanager
def arrays(store: Path) -> Iterator[None]:
    """Keep in a store, and read from there, what functions marked by `kept` return meanwhile.

    Elsewhere these functions always compute: in tests, and wherever a theory may have been changed
    in memory.
    """
    for function in _functions:
        _code(function)  # of the files as they are now
    token = _store.set(store / FOLDER)
    try:
        yield
    finally:
        _store.reset(token)


def kept(function: Callable[P, np.ndarray]) -> Callable[P, np.ndarray]:
    """Function whose array is computed once for the same arguments and the same code.

    Arguments by position (parameters, numbers, lists of numbers) identify the result, with a digest
    of all definitions that the function may use; arguments by keyword say how to train and do not.
    """
    _functions.append(function)

    @functools.wraps(function)
    def computed(*args: P.args, **training: P.kwargs) -> np.ndarray:
        folder = _store.get()
        if folder is None:
            return function(*args, **training)
        words = [function.__module__, function.__name__, _code(function), *map(_plain, args)]
        key = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
        path = folder / f"{function.__name__}-{key}.npy"
        if path.exists():
            return np.load(path)
        made = function(*args, **training)
        with output.atomic(path) as temporary, temporary.open("wb") as file:
            np.save(file, made)
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
