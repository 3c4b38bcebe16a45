"""The refusal of arguments: allowed values of fields and arguments (`Allowed`), and
one-line errors for all others (`ParameterError`).
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
PLAIN = {int, float, bool, str}  # types that need no unwrapping
MOST = 2**63  # range of integers that files and arrays can hold
_ROOT = Path(__file__).parents[2]
WINGS = tuple(
    f"{_ROOT / wing}{os.sep}" for wing in ("theory", "simulate", "verify", "papers")
)
NEAR = 0.65  # similarity of a name that is proposed: two of three letters agree
LONGEST = 60  # characters of a value, or of a foreign error message, that are quoted


class ParameterError(ValueError):
    """Invalid user input. The message, of one line, names the field, its value and the
    allowed values.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))

    def _render_traceback_(self) -> list[str]:
        """What notebooks show in place of a traceback: as `lines`."""
        return [line.rstrip("\n") for line in self.lines()]

    def lines(self) -> list[str]:
        """The message, then the lines of the caller's code that led to it, without the
        toolkit's (nor those of the notebook that runs the code).
        """
        frames = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if "IPython" not in Path(frame.filename).parts
        ]
        outside = itertools.takewhile(
            lambda frame: not frame.filename.startswith(WINGS), frames
        )
        return [f"error: {self}\n", *traceback.format_list([*outside])]


def report(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Show an error that ends a script: a `ParameterError` by its message first, all
    others as Python does. ``python -X dev`` shows every traceback.
    """
    if isinstance(error, ParameterError) and not sys.flags.dev_mode:
        print("".join(error.lines()), end="", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


# Python leaves no other way to put the message before the traceback in a script. Who
# has set a hook already, or sets one later, keeps it.
if sys.excepthook is sys.__excepthook__:
    sys.excepthook = report


def error_summary(error: BaseException) -> str:
    """Type and first line of an error raised by code outside the toolkit."""
    said = (str(error).strip().splitlines() or [""])[0][:LONGEST]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def nearest(name: str, known: Iterable[str]) -> str:
    """Hint for an unknown name: ``"did you mean 'L'? "``, or an empty text if no known
    name is similar.

    Names that differ only in capitalisation come before the most similar one.
    """
    known = list(known)
    same = [other for other in known if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    return f"did you mean '{near[0]}'? " if near else ""


@dataclass(frozen=True)
class Allowed:
    """Allowed values of a field or argument; they must be finite.

    ``low`` and ``high`` are inclusive, ``above`` and ``below`` exclusive.
    """

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None
    choices: tuple[str | int, ...] | None = None
    or_else: tuple[Callable[[str], bool], str] | None = (
        None  # a test of further words, described
    )
    multiple_of: int | None = None

    def __str__(self) -> str:
        """Description of the allowed values for messages."""
        if self.choices:
            more = f" or {self.or_else[1]}" if self.or_else else ""
            return "one of " + ", ".join(map(str, self.choices)) + more
        bounds = (
            (">=", self.low),
            (">", self.above),
            ("<=", self.high),
            ("<", self.below),
        )
        said = [f"{sign} {value:g}" for sign, value in bounds if value is not None]
        if self.low is not None and self.low == self.high:
            said = [f"{self.low:g}"]
        if self.multiple_of:
            said.append(f"a multiple of {self.multiple_of}")
        return " and ".join(said) or "any finite value"

    def admits(self, value: Any) -> Any:
        """Whether a finite number, or every entry of an array, is allowed."""
        inside = value == value
        if self.low is not None:
            inside = inside & (value >= self.low)
        if self.above is not None:
            inside = inside & (value > self.above)
        if self.high is not None:
            inside = inside & (value <= self.high)
        if self.below is not None:
            inside = inside & (value < self.below)
        return inside & (value % self.multiple_of == 0) if self.multiple_of else inside


ANYTHING = Allowed()


def shown(value: Any) -> str:
    """A value as shown in a one-line message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."


def unwrapped(name: str, value: Any) -> Any:
    """The number in a zero-dimensional array or tensor; other values unchanged.

    Raises
    ------
    ParameterError
        If the number is masked or tracks a gradient.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        if isinstance(value, np.ma.MaskedArray):
            raise ParameterError(
                f"{name} = {shown(value)}: is masked; give the numbers themselves"
            )
        if getattr(value, "requires_grad", False):
            raise ParameterError(
                f"{name} = {shown(value)}: carries a gradient; detach it"
            )
        if not is_time(value):  # of which item() may be a plain int
            return value.item()
    return value


def is_time(value: Any) -> bool:
    """Whether this is a NumPy time or difference of times, a subclass of its integers,
    or an array of them.
    """
    return getattr(getattr(value, "dtype", None), "kind", None) in ("m", "M")


def admitted(name: str, value: Any, kinds: tuple[type, ...], allowed: Allowed) -> Any:
    """Validate a value of a field or argument and convert it to the stored type.

    Parameters
    ----------
    name : str
        Of the field or argument.
    value : object
        Value given by the user.
    kinds : tuple of type
        Allowed types: ``int``, ``float``, ``bool``, ``str`` and others, and
        ``NoneType``.
    allowed : Allowed
        Bounds or choices.

    Raises
    ------
    ParameterError
        Naming the field, its value and the allowed values.
    """
    if value is None and type(None) in kinds:
        return value
    if type(value) not in PLAIN:
        value = unwrapped(name, value)

    def refuse(expected: str) -> ParameterError:
        return ParameterError(f"{name} = {shown(value)}: must be {expected}")

    if isinstance(value, int) and abs(value) >= MOST:
        raise refuse(f"below 2^63 in size, {allowed}")
    if (
        float in kinds
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ):
        value = float(value) + 0.0  # adding 0 turns -0 into 0
    kind = next(k for k in kinds if k is not type(None))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        whole = kind is int and isinstance(value, float) and value.is_integer()
        words = (
            f"a whole number ({int(value)})"
            if whole
            else KINDS.get(kind, f"of type {kind.__name__}")
        )
        raise refuse(
            words if (kind, allowed) == (int, ANYTHING) else f"{words}, {allowed}"
        )
    if allowed.choices:
        further = allowed.or_else is not None and allowed.or_else[0](str(value))
        if value not in allowed.choices and not further:
            raise refuse(str(allowed))
    elif isinstance(value, int | float):
        if not math.isfinite(value):
            raise refuse(f"finite, {allowed}")
        if not allowed.admits(value):
            raise refuse(str(allowed))
    return value


def number(
    name: str, value: Any, allowed: Allowed = ANYTHING, kind: type = float
) -> Any:
    """Validate one finite number, as `admitted`."""
    return admitted(name, value, (kind,), allowed)


def most_extreme(values: Mapping[str, Any]) -> str:
    """Name and value of the number whose magnitude is furthest from 1, as text."""
    sizes = {n: abs(v) for n, v in values.items() if isinstance(v, int | float) and v}
    if not sizes:
        return "initial values"
    name = max(sizes, key=lambda n: abs(math.log10(sizes[n])))
    return f"{name} = {values[name]:g}"
