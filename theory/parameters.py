"""Frozen, validated parameters, used by both theory and simulation."""

import dataclasses
import difflib
import functools
import importlib.util
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from theory import derived

LONGEST = 300  # characters of a foreign error message that are quoted


class ParameterError(ValueError):
    """Invalid user input. The message names the field, its value and the allowed values."""


def error_summary(error: BaseException) -> str:
    """Type and first line of an error raised by code outside the toolkit."""
    said = (str(error).strip().splitlines() or [""])[0][:LONGEST]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def nearest(name: str, known: typing.Iterable[str], cutoff: float = 0.6) -> str:
    """Hint for an unknown name: ``"did you mean 'L'? "``, or an empty text if no known name is
    similar.

    Names that differ only in capitalisation come before the most similar one.
    """
    known = list(known)
    same = [other for other in known if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"did you mean '{near[0]}'? " if near else ""


NOT_SHOWN = ("n_test", "eval_every", "data_draw", "weight_decay", "d_model")  # not shown on figures
MOST_VALUES = 4  # values shown of a parameter that differs between ensembles
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
PLAIN = {int, float, bool, str}  # types that need no unwrapping
MOST = 2**63  # range of integers that files and arrays can hold
LONGEST = 60  # characters of a value that a message quotes


@dataclass(frozen=True)
class Allowed:
    """Allowed values of a field or argument; they must be finite.

    ``low`` and ``high`` are inclusive, ``above`` and ``below`` exclusive.
    """

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None
    choices: tuple[str, ...] | None = None
    or_else: tuple[Callable[[str], bool], str] | None = None  # a test of further words, described
    multiple_of: int | None = None

    def __str__(self) -> str:
        """Description of the allowed values for messages."""
        if self.choices:
            more = f" or {self.or_else[1]}" if self.or_else else ""
            return "one of " + ", ".join(self.choices) + more
        bounds = ((">=", self.low), (">", self.above), ("<=", self.high), ("<", self.below))
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
            raise ParameterError(f"{name} = {shown(value)}: is masked; give the numbers themselves")
        if getattr(value, "requires_grad", False):
            raise ParameterError(f"{name} = {shown(value)}: carries a gradient; detach it")
        return value.item()
    return value


def admitted(name: str, value: Any, kinds: tuple[type, ...], allowed: Allowed) -> Any:
    """Validate a value of a field or argument and convert it to the stored type.

    Parameters
    ----------
    name : str
        Of the field or argument.
    value : object
        Value given by the user.
    kinds : tuple of type
        Allowed types: ``int``, ``float``, ``bool``, ``str`` and others, and ``NoneType``.
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
    if float in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        value = float(value) + 0.0  # adding 0 turns -0 into 0
    kind = next(k for k in kinds if k is not type(None))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        whole = kind is int and isinstance(value, float) and value.is_integer()
        words = (
            f"a whole number ({int(value)})"
            if whole
            else KINDS.get(kind, f"of type {kind.__name__}")
        )
        raise refuse(words if (kind, allowed) == (int, ANYTHING) else f"{words}, {allowed}")
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


def number(name: str, value: Any, allowed: Allowed = ANYTHING, kind: type = float) -> Any:
    """Validate one finite number, as `admitted`."""
    return admitted(name, value, (kind,), allowed)


def most_extreme(values: Mapping[str, Any]) -> str:
    """Name and value of the number whose magnitude is furthest from 1, as text."""
    sizes = {n: abs(v) for n, v in values.items() if isinstance(v, int | float) and v}
    name = max(sizes, key=lambda n: abs(math.log10(sizes[n])))
    return f"{name} = {values[name]:g}"


def parameter(
    default: Any, doc: str, *, theory_only: bool = False, later: bool = False, **allowed: Any
) -> Any:
    """Declare a field: its default, meaning and allowed values (see `Allowed`).

    ``theory_only`` fields set the start of a theory curve and do not identify a training run; a
    system of students may add some to its ``identity``. ``later`` fields were added when runs had
    been stored: at their default they are left out of what identifies a run, so that stored runs
    stay valid.
    """
    metadata = {"doc": doc, "theory_only": theory_only, "later": later}
    metadata["allowed"] = Allowed(**allowed)
    return dataclasses.field(default=default, metadata=metadata)


def _marked(values: typing.Callable) -> typing.Callable:
    """Wrap ``values()`` so that derived quantities remember the parameters that they were computed
    from (`theory.sweep.reject_stale`).
    """

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

    INPUTS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By name of a number in ``values()``: those of them, no fields, that it is computed from."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    """By name of a preset: the fields that it sets. ``Parameters.NAME()`` makes it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Mark the quantities that a model's ``values()`` adds to its fields as derived."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # otherwise subclasses get the dataclass repr
            cls.__repr__ = BaseParameters.__repr__  # type: ignore[method-assign]
        if "values" in vars(cls):
            cls.values = _marked(cls.values)  # type: ignore[method-assign]
        for name, changes in vars(cls).get("PRESETS", {}).items():
            setattr(cls, name, functools.partial(cls, **changes))

    def __new__(cls, *args: Any, **values: Any) -> Self:
        """Reject unknown names before the dataclass does."""
        cls._known(values)
        return super().__new__(cls)

    @classmethod
    def _known(cls, names: typing.Iterable[str], *more: str) -> None:
        """Reject names that are neither fields nor further arguments of the calling function."""
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
        allowed = field.metadata.get("allowed", ANYTHING)
        held = admitted(field.name, value, self._kinds(field.name), allowed)
        if held is not value:
            object.__setattr__(self, field.name, held)

    @classmethod
    def _allowed(cls, name: str) -> Allowed:
        """Allowed values of a field. A field with a plain default, not declared by `parameter`,
        takes any value of its type.
        """
        return cls.__dataclass_fields__[name].metadata.get("allowed", ANYTHING)

    def __repr__(self) -> str:
        """Constructor call with the fields that differ from their defaults."""
        fields = dataclasses.fields(self)
        given = [(f.name, getattr(self, f.name)) for f in fields]
        kept = [
            f"{name}={v!r}"
            for (name, v), f in zip(given, fields, strict=True)
            if type(v) is not type(f.default) or v != f.default
        ]
        return f"{type(self).__qualname__}({', '.join(kept)})"

    @classmethod
    def presets(cls) -> dict[str, typing.Callable[[], Self]]:
        """Named settings."""
        return {name: functools.partial(cls, **changes) for name, changes in cls.PRESETS.items()}

    def replace(self, **changes: Any) -> Self:
        """Copy with some fields changed."""
        self._known(changes)
        return dataclasses.replace(self, **changes)

    def _until(self, time: str, value: Any, length: str, unit: float) -> Self:
        """Copy whose run length is set to a time (None: unchanged); one step of the field
        ``length`` takes the time ``unit``.

        Raises
        ------
        ParameterError
            Unless the time is positive, finite and corresponds to a valid number of steps.
        """
        if value is None:
            return self
        if (value := number(time, value)) <= 0:
            raise ParameterError(f"{time} = {value:g}: must be positive and finite")
        steps = value / unit
        if not steps < MOST:
            raise ParameterError(
                f"{time} = {value:g}: must be below {MOST * unit:g} here, 2^63 {length}"
            )
        return self.replace(**{length: max(1, round(steps))})

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
        """Message that explains how to pass several values of a field."""
        room = cls.__module__.rpartition(".")[0]
        call = f"({{}}, {name}=[{', '.join(raw.split(','))}])"
        if room and importlib.util.find_spec(f"{room}.onset"):
            call = f"from {room} import Parameters, onset; onset{call.format('Parameters()')}"
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
                try:  # accepts 1e5 for an integer
                    value = float(raw)
                    return int(value) if value.is_integer() else value
                except (ValueError, OverflowError):
                    pass
            return raw

    def values(self) -> dict[str, Any]:
        """Numbers by symbol name, as formulas take them; models add the quantities derived from
        their fields.
        """
        return {
            name: v
            for name, v in self.as_dict().items()
            if isinstance(v, int | float) and not isinstance(v, bool)
        }

    def as_dict(self, *, training_only: bool = False) -> dict[str, Any]:
        """Fields by name, a model's own first; with ``training_only``, only those that identify a
        training run.
        """
        own = type(self).__annotations__
        return {
            f.name: getattr(self, f.name)
            for f in sorted(dataclasses.fields(self), key=lambda f: f.name not in own)
            if not (training_only and f.metadata.get("theory_only"))
        }

    def stored(self, *, training_only: bool = False) -> dict[str, Any]:
        """Fields as stored with runs: without those added later that have their default."""
        later = self.filled({})
        fields = self.as_dict(training_only=training_only)
        return {k: v for k, v in fields.items() if k not in later or v != later[k]}

    @classmethod
    def filled(cls, stored: typing.Mapping[str, Any]) -> dict[str, Any]:
        """Stored fields with the defaults of those that were added later."""
        later = (f for f in dataclasses.fields(cls) if f.metadata.get("later"))
        return {**{f.name: f.default for f in later}, **stored}

    def as_json(self, *, training_only: bool = False) -> str:
        """Canonical JSON text: equal parameters give equal text, that of `stored`."""
        return json.dumps(self.stored(training_only=training_only), sort_keys=True)


@dataclass(frozen=True)
class Stepped(BaseParameters):
    """Parameters with fields ``eta`` and ``steps``; the students' time is ``t = eta * steps``."""

    def run_to(self, t: float | None) -> Self:
        """Copy whose number of steps reaches the time ``t`` (None: unchanged).

        Raises
        ------
        ParameterError
            Unless ``t`` is positive, finite and at least half a step.
        """
        return self._until("t", t, "steps", self.eta)  # type: ignore[attr-defined]


def stated(values: typing.Mapping[str, Any]) -> str:
    """Names and values on one line, as shown on figures; long lists of values are shortened.

    Parameters
    ----------
    values : mapping
        One or several values by name.
    """
    said = []
    for name, value in values.items():
        every = [value] if isinstance(value, str) or not hasattr(value, "__iter__") else [*value]
        words = list(dict.fromkeys(f"{v:.6g}" if isinstance(v, float) else str(v) for v in every))
        few = ", ".join(words) if len(words) <= MOST_VALUES else f"{words[0]} ... {words[-1]}"
        said.append(f"{name} = {few}")
    return "; ".join(said)


def described(asked: typing.Sequence[tuple[BaseParameters, int]]) -> str:
    """Parameters of several ensembles on one line: the common values, all values of those that
    differ, and the number of seeds.

    Parameters
    ----------
    asked : sequence of (Parameters, int)
        Parameters and number of seeds of every ensemble; zero is not shown.
    """
    values: dict[str, list[Any]] = {}
    for p, _ in asked:
        for name, value in p.stored(training_only=True).items():
            if value is not None and name not in NOT_SHOWN:
                values.setdefault(name, []).append(value)
    seeds = sorted({n for _, n in asked if n})
    counts = [" or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")]
    return "; ".join([stated(values), *(counts if seeds else [])])
