"""What students did, as numbers that come with the code: times of some, not their curves.

A function marked by `measured` trains students and returns an array. The arrays of its module are
in ``ensembles/MODULE.json`` beside it, by the function's arguments.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, ParamSpec

import numpy as np

from theory.parameters import BaseParameters
from theory.runtime import output, progress
from verify.check import Check, with_notes

Students = Literal["needed", "shipped", "anew"]
# Trained where no numbers come with the code; never; or all again, and the files written.
_students: ContextVar[Students] = ContextVar("students", default="needed")
P = ParamSpec("P")


class Missing(LookupError):
    """No numbers of these students come with the code."""


@contextmanager
def students(which: Students) -> Iterator[None]:
    """What functions marked by `measured` do meanwhile: train where numbers are missing (default),
    raise `Missing` there, or train all anew and write their files.
    """
    token = _students.set(which)
    try:
        yield
    finally:
        _students.reset(token)


def measured(function: Callable[P, np.ndarray]) -> Callable[P, np.ndarray]:
    """Function whose arrays come with the code.

    Arguments by position (parameters, numbers, lists of numbers) identify the result; arguments by
    keyword say how to train and do not.
    """

    @functools.wraps(function)
    def looked_up(*args: P.args, **training: P.kwargs) -> np.ndarray:
        which = _students.get()
        key = [_plain(x) for x in args]
        place = _place(function)
        with output.intact(place):
            rows = _read(place).get(function.__name__, [])
            same = [np.array(x["values"], float) for x in rows if x["arguments"] == key]
        if same and which != "anew":
            return same[0]
        if which == "shipped":
            raise Missing(function.__name__)
        values = function(*args, **training)
        if which == "anew":
            kept = [row for row in rows if row["arguments"] != key]
            kept.append({"arguments": key, "values": _short(values)})
            _write(place, _read(place) | {function.__name__: kept})
        return values

    return looked_up


def arguments(function: Callable[..., np.ndarray]) -> list[list[Any]]:
    """Arguments of the arrays of a function that come with the code."""
    with output.intact(place := _place(function)):
        return [row["arguments"] for row in _read(place).get(function.__name__, [])]


@with_notes
def known(groups: Mapping[str, Callable[[], list[Check]]]) -> Iterator[Check | str]:
    """Rows of groups of checks by title, and the titles of those whose students are missing."""
    for title, make in progress.each(groups.items(), "laws", lambda item: item[0]):
        try:
            yield from make()
        except Missing:
            yield title


def _place(function: Callable[..., Any]) -> Path:
    file = Path(str(sys.modules[function.__module__].__file__))
    return file.parent / "ensembles" / f"{file.stem}.json"


def _read(place: Path) -> dict[str, list[dict[str, Any]]]:
    if not place.exists():
        return {}
    return dict(json.loads(output.read_text("students", place)))


def _write(place: Path, rows: dict[str, Any]) -> None:
    *_, model, _, name = place.with_suffix("").parts
    rows["command"] = f"python -m verify.laws {model} --train  # {name}"
    lines = json.dumps(rows, sort_keys=True).replace('{"arguments"', '\n{"arguments"')
    with output.atomic(place) as temporary:
        temporary.write_text(lines + "\n")


def _short(values: np.ndarray) -> Any:
    """Nine digits; what was not reached is NaN."""
    return [_short(x) for x in values] if np.ndim(values) else float(f"{values:.9g}")


def _plain(value: Any) -> Any:
    """Arguments as JSON holds them; numbers that follow from a theory to six digits."""
    if isinstance(value, BaseParameters):
        return {k: _plain(v) for k, v in value.stored(training_only=True).items()}
    if isinstance(value, bool | str | int | None):
        return value
    return float(f"{value:.6g}") if np.ndim(value) == 0 else [_plain(x) for x in value]
