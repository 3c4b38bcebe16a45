"""Frozen, validated parameters: the same object feeds theory and simulation."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.util
import json
import math
import types
import typing
from dataclasses import dataclass
from typing import Any, Self

from theory import derived

LONGEST = 300  # characters of somebody else's error that a line repeats


class ParameterError(ValueError):
    """A value the user gave cannot be used; the message names field, value and what is allowed."""


def brief(error: BaseException) -> str:
    """Kind and first line of an error that somebody else's code raised."""
    said = (str(error).strip().splitlines() or [""])[0][:LONGEST]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def nearest(name: str, known: typing.Iterable[str], cutoff: float = 0.6) -> str:
    """Hint for an unknown name: ``"did you mean 'L'? "``, empty where nothing is alike.

    The same letters in other capitals come before what is most alike.
    """
    known = list(known)
    same = [other for other in known if other.lower() == name.lower()]
    found = same or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"did you mean '{found[0]}'? " if found else ""


UNSAID = (
    "n_test",
    "eval_every",
    "data_draw",
    "weight_decay",
    "d_model",
)  # of no one's interest on a figure
MOST_VALUES = 4  # of a parameter that differs between ensembles, before they are shortened
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
# What a field with a plain default, not declared by `parameter`, is held to: its kind.
UNBOUND: dict[str, Any] = {
    **dict.fromkeys(("doc", "low", "above", "high", "below", "choices", "multiple_of")),
    "theory_only": False,
    "allowed": "any finite value",
}


def parameter(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | None = None,
    multiple_of: int | None = None,
    theory_only: bool = False,
) -> Any:
    """Declare a field: its default, what it means, what is allowed.

    ``low`` and ``high`` are inclusive, ``above`` and ``below`` exclusive. ``theory_only`` fields
    set where a theory curve starts; they do not identify a training run.
    """
    allowed = []
    if choices:
        allowed.append("one of " + ", ".join(choices))
    if low is not None and low == high:
        allowed.append(f"{low:g}")
    else:
        bounds = ((">=", low), (">", above), ("<=", high), ("<", below))
        allowed += [f"{sign} {value:g}" for sign, value in bounds if value is not None]
    if multiple_of:
        allowed.append(f"a multiple of {multiple_of}")
    return dataclasses.field(
        default=default,
        metadata={
            "doc": doc,
            "low": low,
            "above": above,
            "high": high,
            "below": below,
            "choices": choices,
            "multiple_of": multiple_of,
            "theory_only": theory_only,
            "allowed": " and ".join(allowed) or "any finite value",
        },
    )


def _marked(values: typing.Callable) -> typing.Callable:
    """``values()`` whose numbers know the parameters they follow from (`theory.sweep.fresh`)."""

    @functools.wraps(values)
    def call(self: BaseParameters) -> dict[str, Any]:
        own = self.as_dict()
        return {
            name: v if own.get(name) is v else derived.mark(v, self)
            for name, v in values(self).items()
        }

    return call


@dataclass(frozen=True)
class BaseParameters:
    """Validation, copying, parsing and serialisation shared by every model's ``Parameters``.

    Raises
    ------
    ParameterError
        For unknown names and for values out of range.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """What a model's ``values()`` adds to its fields is marked as following from them."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # or every subclass would get that of dataclasses
            cls.__repr__ = BaseParameters.__repr__  # type: ignore[method-assign]
        if "values" in vars(cls):
            cls.values = _marked(cls.values)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **values: Any) -> Self:
        """Refuse unknown names before the dataclass machinery sees them."""
        cls._known(values)
        return super().__new__(cls)

    @classmethod
    def _known(cls, names: typing.Iterable[str], *more: str) -> None:
        """Refuse names that are neither fields nor among those that a function takes besides."""
        known = [*more, *(f.name for f in dataclasses.fields(cls))]
        for name in names:
            if name not in known:
                hint = nearest(name, known, cutoff=0.4)
                raise ParameterError(
                    f"{name}: unknown parameter; {hint}known are {', '.join(known)}"
                )

    @classmethod
    @functools.cache
    def _kinds(cls, name: str) -> tuple[type, ...]:
        hint = typing.get_type_hints(cls)[name]
        many = typing.get_origin(hint) in (types.UnionType, typing.Union)
        return tuple(typing.get_origin(k) or k for k in (typing.get_args(hint) if many else [hint]))

    def __post_init__(self) -> None:
        """Check every field against its declaration."""
        for field in dataclasses.fields(self):
            self._check(field, getattr(self, field.name))

    def _check(self, field: dataclasses.Field, value: Any) -> None:
        m, kinds = field.metadata or UNBOUND, self._kinds(field.name)
        if value is None and type(None) in kinds:
            return
        if hasattr(value, "item") and getattr(value, "shape", None) == ():  # NumPy scalar
            value = value.item()
            object.__setattr__(self, field.name, value)

        def refuse(expected: str) -> ParameterError:
            return ParameterError(f"{field.name} = {value!r}: must be {expected}")

        if isinstance(value, int) and abs(value) >= 2**63:
            raise refuse(f"below 2^63 in size, {m['allowed']}")
        if float in kinds and isinstance(value, int | float) and not isinstance(value, bool):
            value = float(value) + 0.0  # adding 0 makes -0 the same as 0
            object.__setattr__(self, field.name, value)

        kind = next(k for k in kinds if k is not type(None))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            name = KINDS.get(kind, f"of type {kind.__name__}")
            raise refuse(f"{name}, {m['allowed']}")
        if m["choices"]:
            if value not in m["choices"]:
                raise refuse(m["allowed"])
        elif isinstance(value, int | float):
            inside = (
                math.isfinite(value)
                and (m["low"] is None or value >= m["low"])
                and (m["above"] is None or value > m["above"])
                and (m["high"] is None or value <= m["high"])
                and (m["below"] is None or value < m["below"])
                and (not m["multiple_of"] or value % m["multiple_of"] == 0)
            )
            if not inside:
                raise refuse(m["allowed"] if math.isfinite(value) else f"finite, {m['allowed']}")

    def __repr__(self) -> str:
        """What makes them again: the fields that differ from their defaults."""
        fields = dataclasses.fields(self)
        given = [(f.name, getattr(self, f.name)) for f in fields]
        kept = [
            f"{name}={v!r}"
            for (name, v), f in zip(given, fields, strict=True)
            if type(v) is not type(f.default) or v != f.default
        ]
        return f"{type(self).__qualname__}({', '.join(kept)})"

    def replace(self, **changes: Any) -> Self:
        """Copy with some fields changed."""
        self._known(changes)
        return dataclasses.replace(self, **changes)

    def parse(self, assignments: typing.Iterable[str]) -> Self:
        """Copy with fields set from ``NAME=VALUE`` strings.

        Raises
        ------
        ParameterError
            If an assignment has no ``=``, an unknown name or a value of the wrong kind.
        """
        changes: dict[str, Any] = {}
        for text in assignments:
            name, sign, raw = text.partition("=")
            if not sign:
                raise ParameterError(f"--set {text}: must be NAME=VALUE")
            self._known([name])
            changes[name] = self._read(name, raw)
            parts = [self._read(name, part) for part in raw.split(",")]
            if len(parts) > 1 and not any(isinstance(part, str) for part in parts):
                raise ParameterError(f"--set {text}: takes one value{self._several(name, raw)}")
        return self.replace(**changes)

    @classmethod
    def _several(cls, name: str, raw: str) -> str:
        """How to have what was asked for with several values of a field."""
        room = cls.__module__.rpartition(".")[0]
        call = f"({{}}, {name}=[{', '.join(raw.split(','))}])"
        if room and importlib.util.find_spec(f"{room}.onset"):
            call = f"from {room} import Parameters, onset; onset.onset{call.format('Parameters()')}"
        else:
            call = "f" + call.format("p")
        return f"; several in Python: {call}; students: simulate.sweep --grid {name}={raw}"

    @classmethod
    def _read(cls, name: str, raw: str) -> Any:
        kinds = cls._kinds(name)
        if type(None) in kinds and raw.lower() in ("none", "null", ""):
            return None
        kind = next(k for k in kinds if k is not type(None))
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}.get(raw.lower(), raw)
        try:
            return kind(raw)
        except ValueError:
            if kind is int:
                try:  # 1e5 is a fine way to write a whole number
                    value = float(raw)
                    return int(value) if value.is_integer() else value
                except (ValueError, OverflowError):
                    pass
            return raw

    def values(self) -> dict[str, Any]:
        """Numbers by symbol name, as formulas take them; models add what follows from their
        fields.
        """
        return {
            name: v
            for name, v in self.as_dict().items()
            if isinstance(v, int | float) and not isinstance(v, bool)
        }

    def as_dict(self, *, training_only: bool = False) -> dict[str, Any]:
        """Fields by name; with ``training_only``, those that identify a training run."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if not (training_only and f.metadata.get("theory_only"))
        }

    def as_json(self, *, training_only: bool = False) -> str:
        """Canonical JSON text: equal parameters give equal text."""
        return json.dumps(self.as_dict(training_only=training_only), sort_keys=True)


def stated(values: typing.Mapping[str, Any]) -> str:
    """Names with their values in a line, as figures show them; a list of values is shortened.

    Parameters
    ----------
    values : mapping
        A value, or several, by name.
    """
    said = []
    for name, value in values.items():
        every = [value] if isinstance(value, str) or not hasattr(value, "__iter__") else [*value]
        words = list(dict.fromkeys(f"{v:.6g}" if isinstance(v, float) else str(v) for v in every))
        few = ", ".join(words) if len(words) <= MOST_VALUES else f"{words[0]} ... {words[-1]}"
        said.append(f"{name} = {few}")
    return "; ".join(said)


def described(asked: typing.Sequence[tuple[BaseParameters, int]]) -> str:
    """Parameters of ensembles in a line: what they share, all values of what differs, and seeds.

    Parameters
    ----------
    asked : sequence of (Parameters, int)
        Parameters and number of seeds of every ensemble; zero seeds are not mentioned.
    """
    values: dict[str, list[Any]] = {}
    for p, _ in asked:
        for name, value in p.as_dict(training_only=True).items():
            if value is not None and name not in UNSAID:
                values.setdefault(name, []).append(value)
    seeds = sorted({n for _, n in asked if n})
    counts = [" or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")]
    return "; ".join([stated(values), *(counts if seeds else [])])
