"""Validation of training arguments (seeds, time, store, workers, options), done before
any work.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from simulate.store import storage
from theory.call.refusal import ParameterError, is_time, nearest
from theory.runtime.cli import MOST_SEEDS


def _plain(value: Any) -> Any:
    """Convert a NumPy or torch number to a Python number."""
    scalar = getattr(value, "ndim", None) == 0 and not is_time(value)
    return value.item() if scalar else value


def is_whole(value: Any) -> bool:
    """Whether a value is an integer; booleans and differences of times are not."""
    return isinstance(value, int | np.integer) and not isinstance(
        value, bool | np.timedelta64
    )


def seeds(asked: Any) -> list[int]:
    """Seeds from a sequence, or from their number.

    Raises
    ------
    ParameterError
        Unless they are distinct integers that netCDF and file names can hold.
    """
    number = _plain(asked)
    listed: list[Any]
    if is_whole(number) and 0 <= number <= MOST_SEEDS:
        listed = list(range(number))
    elif (
        hasattr(asked, "__iter__")
        and number is asked
        and not isinstance(asked, str | bytes)
    ):
        listed = [_plain(s) for s in itertools.islice(asked, MOST_SEEDS + 1)]
    else:
        listed = [None]
    good = all(is_whole(s) and 0 <= s < 2**63 for s in listed)
    if not good or len(set(listed)) < len(listed) or len(listed) > MOST_SEEDS:
        raise ParameterError(
            f"seeds = {repr(asked):.80}: must be distinct whole numbers >= 0 and below"
            f" 2^63, or how many of them; at most {MOST_SEEDS}"
        )
    return [int(s) for s in listed]


def time(asked: Any, name: str) -> float:
    """A run length in the model's time.

    Raises
    ------
    ParameterError
        Unless it is a positive, finite number.
    """
    value = _plain(asked)
    number = is_whole(value) or isinstance(value, float)
    if not number or not 0 < value < math.inf or value > 1e300:
        raise ParameterError(f"{name} = {repr(asked):.80}: must be positive and finite")
    return float(value)


def store(asked: Any) -> Path:
    """Folder of runs; the default folder if none is given.

    Raises
    ------
    ParameterError
        If it is not a path.
    """
    if asked is None:
        return storage.default_store()
    path = os.fspath(asked) if isinstance(asked, str | os.PathLike) else b""
    if not isinstance(path, str) or not path or "\0" in path:
        raise ParameterError(f"store = {repr(asked):.80}: must be the path of a folder")
    return Path(path)


def workers(asked: Any) -> int | None:
    """Number of processes; None for automatic.

    Raises
    ------
    ParameterError
        Unless it is an integer >= 1.
    """
    if asked is not None and not (is_whole(asked) and asked >= 1):
        raise ParameterError(
            f"workers = {repr(asked):.80}: must be a whole number >= 1"
        )
    return asked


def keywords(system: Any, p: Any, own: Iterable[str]) -> None:
    """Check further keywords of ``System.train``.

    Raises
    ------
    ParameterError
        For one that is no option of this kind of student.
    """
    options = list(inspect.signature(system.identity).parameters)[1:]
    fields = [f.name for f in dataclasses.fields(p)]
    taken = [*filter(None, (system.time, system.sweep_parameter)), *options]
    taken += [
        x for x in inspect.signature(system.train).parameters if x not in ("p", "own")
    ]
    for name in own:
        if name == system.time:
            raise ParameterError(f"{name}: says the same as until; give one of them")
        if name in fields and name not in options:
            raise ParameterError(
                f"{name}: belongs to the parameters: p.replace({name}=...)"
            )
        if name not in options:
            hint = nearest(name, [*taken, *fields])
            raise ParameterError(
                f"{name}: unknown keyword; {hint}known are {', '.join(taken)}"
            )
