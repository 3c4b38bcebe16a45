"""Frozen, validated parameters, used by both theory and simulation."""

import dataclasses
import functools
import importlib.util
import json
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from theory.call.constants import Constant, with_constants
from theory.call.refusal import (
    ANYTHING,
    MOST,
    Allowed,
    ParameterError,
    admitted,
    nearest,
    number,
    shown,
)
from theory.call.values import Values

NOT_SHOWN = (
    "n_test",
    "eval_every",
    "data_draw",
    "weight_decay",
    "d_model",
)  # not shown on figures
FEW_NAMES = 12  # known names that a message lists
MOST_VALUES = 4  # values shown of a parameter that differs between ensembles


def parameter(
    default: Any,
    doc: str,
    *,
    theory_only: bool = False,
    later: bool = False,
    **allowed: Any,
) -> Any:
    """Declare a field: its default, meaning and allowed values (see `Allowed`).

    ``theory_only`` fields set the start of a theory curve and do not identify a
    training run; a system of students may add some to its ``identity``. ``later``
    fields were added when runs had been stored: at their default they are left out of
    what identifies a run, so that stored runs stay valid.
    """
    metadata = {"doc": doc, "theory_only": theory_only, "later": later}
    metadata["allowed"] = Allowed(**allowed)
    return dataclasses.field(default=default, metadata=metadata)


class Preset(dict[str, Any]):
    """Values of the fields that a preset sets, and what they are good for."""

    def __init__(self, doc: str, **fields: Any) -> None:
        super().__init__(fields)
        self.doc = doc


class Named(type):
    """Class with presets: ``Parameters.NAME()`` makes parameters with the fields that
    it sets.
    """

    def __getattr__(cls, name: str) -> Any:
        """A preset, which takes further fields by keyword."""
        if name not in cls.PRESETS:
            said = f"type object {cls.__name__!r} has no attribute {name!r}"
            raise AttributeError(
                said, name=name, obj=cls
            )  # so that Python names the nearest

        def preset(kind: Any, *values: Any, **changes: Any) -> Any:
            return kind._preset(name, *values, **changes)

        preset.__name__, preset.__qualname__ = name, f"{cls.__qualname__}.{name}"
        sets = ", ".join(f"{field} = {v!r}" for field, v in cls.PRESETS[name].items())
        fields = f"Sets {sets}; all others" if sets else "All fields"
        preset.__doc__ = (
            f"{getattr(cls.PRESETS[name], 'doc', 'The defaults.')}\n\n"
            f"{fields} are those of {cls.__name__}().\n"
            f"Change any by keyword: {cls.__name__}.{name}(FIELD=VALUE)."
        )
        return types.MethodType(preset, cls)

    def __dir__(cls) -> list[str]:
        """Presets among the names that an interpreter offers."""
        return [*super().__dir__(), *cls.PRESETS]

    def __setattr__(cls, name: str, value: Any) -> None:
        """Replace the assignment to fields that `dataclass` writes into every frozen
        class.
        """
        super().__setattr__(
            name, _refuse_assignment if name == "__setattr__" else value
        )


def _refuse_assignment(p: "BaseParameters", name: str, value: Any) -> None:
    """Assignment to an attribute, ``p.N = 5``, which would leave theory and runs
    behind.
    """
    p._known([name])
    change = f"{name}={shown(value)}"
    raise ParameterError(
        f"p.{change}: Parameters do not change; take p = p.replace({change})"
    )


@dataclass(frozen=True)
class BaseParameters(metaclass=Named):
    """Validation, copying, parsing and serialisation shared by every model's
    ``Parameters``.

    Raises
    ------
    ParameterError
        For unknown names and for values out of range.
    """

    INPUTS: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By name of a quantity: the others, no fields, that it is computed from."""
    CONSTANTS: ClassVar[Mapping[str, Constant]] = {}
    """Derived quantities that may be given instead, as ``p.replace(NAME=1.0)``."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    """By name of a preset: the fields that it sets, best a `Preset`.

    ``Parameters.NAME()`` makes it.
    """

    FORMER: ClassVar[Mapping[str, Any]] = {}
    """By name of a field of earlier versions: the value at which a stored run is one
    that today's fields describe.
    """

    constants: ClassVar[Mapping[str, float]] = types.MappingProxyType({})

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse ``values`` in place of ``quantities``, and presets hidden by a field
        or method.
        """
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # otherwise subclasses get the dataclass repr
            cls.__repr__ = BaseParameters.__repr__  # type: ignore[method-assign]
        if "values" in vars(cls):
            raise ParameterError(
                f"{cls.__name__}.values: must not be defined; define quantities, which"
                " values() uses"
            )
        if hidden := [name for name in cls.PRESETS if name in type.__dir__(cls)]:
            raise ParameterError(
                f"{cls.__name__}.PRESETS: {hidden[0]}: is the name of a field or method"
            )

    def __new__(cls, *args: Any, **values: Any) -> Self:
        """Reject unknown names before the dataclass does."""
        cls._known(values)
        return super().__new__(cls)

    @classmethod
    def _known(cls, names: typing.Iterable[str], *more: str) -> None:
        """Reject names that are neither fields nor further arguments of the calling
        function.
        """
        known = [*more, *cls._fields()]
        for name in names:
            if name not in known:
                raise ParameterError(
                    f"{name}: unknown parameter; {cls._advice(name, known)}"
                )

    @classmethod
    def _fields(cls) -> list[str]:
        """Names of the fields, a model's own first."""
        names = [f.name for f in dataclasses.fields(cls)]
        return sorted(names, key=lambda name: name not in cls.__annotations__)

    @classmethod
    def _advice(cls, name: str, known: typing.Sequence[str]) -> str:
        """What to do about an unknown name: a derived quantity is overridden, not set;
        otherwise the nearest name, and some that are known.
        """
        try:
            derived = name in cls().quantities()
        except Exception:  # sizes without a value, or quantities that need one
            derived = False
        if name in cls.CONSTANTS:
            return f"it follows from the others; take .replace({name}=...)"
        if derived:
            values = f"p.values() | {{{name!r}: ...}}"
            return (
                "it follows from the others; in Python, flows and equations take"
                f" {values}"
            )
        more = f" and {len(known) - FEW_NAMES} more" if len(known) > FEW_NAMES else ""
        return f"{nearest(name, known)}known are {', '.join(known[:FEW_NAMES])}{more}"

    @classmethod
    @functools.cache
    def _kinds(cls, name: str) -> tuple[type, ...]:
        hint = typing.get_type_hints(cls)[name]
        many = typing.get_origin(hint) in (types.UnionType, typing.Union)
        return tuple(
            typing.get_origin(k) or k
            for k in (typing.get_args(hint) if many else [hint])
        )

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
        """Allowed values of a field. A field with a plain default, not declared by
        `parameter`, takes any value of its type.
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
        given = ", ".join(f"{name}={v!r}" for name, v in self.constants.items())
        call = f"{type(self).__qualname__}({', '.join(kept)})"
        return f"{call}.replace({given})" if given else call

    def __str__(self) -> str:
        """All values with their meaning, which ``print(p)`` shows."""
        rows = {
            f"{name} = {v!r}": self._doc(name) for name, v in self.as_dict().items()
        }
        rows |= {
            f"{name} = {v!r}": f"{self.CONSTANTS[name].doc}, given"
            for name, v in self.constants.items()
        }
        width = max(map(len, rows), default=0)
        lines = [
            textwrap.fill(
                f"{row:{width}}  {doc}".rstrip(),
                100,
                subsequent_indent=" " * (width + 2),
            )
            for row, doc in rows.items()
        ]
        return "\n".join([f"{type(self).__qualname__}:", *lines])

    @classmethod
    def _doc(cls, name: str) -> str:
        """What a field means; empty if it was not declared by `parameter`."""
        return cls.__dataclass_fields__[name].metadata.get("doc", "")

    @classmethod
    def presets(cls) -> dict[str, typing.Callable[..., Self]]:
        """Named settings."""
        return {name: getattr(cls, name) for name in cls.PRESETS}

    @classmethod
    def _preset(cls, preset: str, /, *given: Any, **changes: Any) -> Self:
        if given:
            raise ParameterError(
                f"{cls.__name__}.{preset}: takes fields by keyword, NAME=VALUE, not"
                f" {shown(given[0])}"
            )
        given = {n: changes.pop(n) for n in cls.CONSTANTS if n in changes}
        made = cls(**{**cls.PRESETS[preset], **changes})
        return made.replace(**given) if given else made

    def replace(self, **changes: Any) -> Self:
        """Copy with some fields changed, or with derived constants that are given
        (those in ``CONSTANTS``).
        """
        self._known(changes, *self.CONSTANTS)
        given = {n: v for n, v in changes.items() if n in self.CONSTANTS}
        fields = {n: v for n, v in changes.items() if n not in given}
        plain = dataclasses.replace(self._plain(), **fields)
        return typing.cast(Self, with_constants(plain, {**self.constants, **given}))

    def _plain(self) -> Self:
        """The same fields, all constants following from them."""
        if not self.constants:
            return self
        kind = next(k for k in type(self).__mro__ if "__dataclass_params__" in vars(k))
        return kind(**{f.name: getattr(self, f.name) for f in dataclasses.fields(kind)})

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
            self._known([name], *self.CONSTANTS)
            changes[name] = self._read(name, raw)
            parts = [self._read(name, part) for part in raw.split(",")]
            if len(parts) > 1 and not any(isinstance(part, str) for part in parts):
                raise ParameterError(
                    f"--set {text}: takes one value{self._several(name, raw)}"
                )
        return self.replace(**changes)

    @classmethod
    def _several(cls, name: str, raw: str) -> str:
        """Message that explains how to pass several values of a field."""
        room = cls.__module__.rpartition(".")[0]
        while room.count(".") > 1 and not importlib.util.find_spec(f"{room}.onset"):
            room = room.rpartition(".")[0]
        call = f"({{}}, {name}=[{', '.join(raw.split(','))}])"
        if room and importlib.util.find_spec(f"{room}.onset"):
            call = (
                f"from {room} import Parameters, onset;"
                f" onset{call.format('Parameters()')}"
            )
        else:
            call = "f" + call.format("p")
        return (
            f"; several in Python: {call}; students: simulate.sweep --grid {name}={raw}"
        )

    @classmethod
    def _read(cls, name: str, raw: str) -> Any:
        if name in cls.CONSTANTS:
            try:
                return float(raw)
            except ValueError:
                return raw
        kinds = cls._kinds(name)
        if type(None) in kinds and raw.lower() in ("none", "null", ""):
            return None
        kind = next(k for k in kinds if k is not type(None))
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}.get(
                raw.lower(), raw
            )
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

    def values(self) -> Values:
        """Numbers by symbol name, as formulas take them: the `quantities`, as one
        immutable object.
        """
        return Values(self)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name: the fields, unless a model says which, and what
        follows from them.
        """
        return {
            name: v
            for name, v in self.as_dict().items()
            if isinstance(v, int | float) and not isinstance(v, bool)
        }

    def formulas(self) -> dict[str, Any]:
        """Expressions of derived quantities in symbols of fields and other quantities;
        in these, sizes are taken as continuous. None by default.
        """
        return {}

    def as_dict(self, *, training_only: bool = False) -> dict[str, Any]:
        """Fields by name, a model's own first; with ``training_only``, only those that
        identify a training run.
        """
        declared = self.__dataclass_fields__
        return {
            name: getattr(self, name)
            for name in self._fields()
            if not (training_only and declared[name].metadata.get("theory_only"))
        }

    def stored(self, *, training_only: bool = False) -> dict[str, Any]:
        """Fields as stored with runs: without those added later that have their
        default.
        """
        later = self.filled({})
        fields = self.as_dict(training_only=training_only)
        return {k: v for k, v in fields.items() if k not in later or v != later[k]}

    @classmethod
    def filled(cls, stored: typing.Mapping[str, Any]) -> dict[str, Any]:
        """Stored fields of this version: those added later have their defaults, those
        of earlier versions are left out.

        Raises
        ------
        ParameterError
            For a field of an earlier version that made another model of the run.
        """
        for name, value in cls.FORMER.items():
            if stored.get(name, value) != value:
                raise ParameterError(
                    f"{name} = {stored[name]}: a field of version 0.1.0, which reads"
                    " such runs (git checkout v0.1.0)"
                )
        later = (f for f in dataclasses.fields(cls) if f.metadata.get("later"))
        today = {k: v for k, v in stored.items() if k not in cls.FORMER}
        return {**{f.name: f.default for f in later}, **today}

    def as_json(self, *, training_only: bool = False) -> str:
        """Canonical JSON text: equal parameters give equal text, that of `stored`."""
        return json.dumps(self.stored(training_only=training_only), sort_keys=True)


@dataclass(frozen=True)
class Stepped(BaseParameters):
    """Parameters whose runs consist of equal steps; the students' time is ``t = eta *
    steps`` by default.
    """

    TIME: ClassVar[str] = "t"
    LENGTH: ClassVar[str] = "steps"  # the field that counts them
    CLOCK: ClassVar[str] = "eta * steps"  # what the time is, for readers

    @property
    def time_per_step(self) -> float:
        """Time of one step."""
        return self.eta  # type: ignore[attr-defined]

    def __str__(self) -> str:
        """All values with their meaning, then what the time is and how long a run."""
        length = getattr(self, self.LENGTH)
        end = f"{self.time_per_step * length:.4g} at {self.LENGTH} = {length}"
        return (
            f"{super().__str__()}\nTime: {self.unit_of_time(self.TIME)}; a run ends at"
            f" {end}"
        )

    def unit_of_time(self, name: str) -> str:
        """Name of a unit of time, and what it is."""
        return f"{name} = {self.CLOCK}" if name == self.TIME else name

    def timed(self, result: Any) -> Any:
        """A result whose times say what they are,
        as does a dataset when it is printed.
        """
        unit = self.unit_of_time(self.TIME)
        variables = getattr(result, "data_vars", {}).values()
        has_time = self.TIME in getattr(result, "coords", ())
        if has_time:
            about = result[self.TIME].attrs.setdefault(
                "long_name", f"training time {unit}"
            )
            unit = about.removeprefix(
                "training time "
            )  # of a flow with a clock of its own
        if variables and (
            has_time or any(x.attrs.get("units") == unit for x in variables)
        ):
            result.attrs.setdefault("time", unit)
        return result

    def run_to(self, time: float | None) -> Self:
        """Copy whose number of steps reaches a time (None: unchanged).

        Raises
        ------
        ParameterError
            Unless the time is positive, finite and corresponds to a valid number of
            steps.
        """
        if time is None:
            return self
        name, unit = self.TIME, self.time_per_step
        if (time := number(name, time)) <= 0:
            raise ParameterError(f"{name} = {time:g}: must be positive and finite")
        if not time / unit < MOST:
            most = f"{MOST * unit:g} here, 2^63 {self.LENGTH}"
            raise ParameterError(f"{name} = {time:g}: must be below {most}")
        return self.replace(**{self.LENGTH: max(1, round(time / unit))})


def stated(values: typing.Mapping[str, Any]) -> str:
    """Names and values on one line, as shown on figures; long lists of values are
    shortened.

    Parameters
    ----------
    values : mapping
        One or several values by name.
    """
    said = []
    for name, value in values.items():
        every = (
            [value]
            if isinstance(value, str) or not hasattr(value, "__iter__")
            else [*value]
        )
        words = list(
            dict.fromkeys(f"{v:.6g}" if isinstance(v, float) else str(v) for v in every)
        )
        few = (
            ", ".join(words)
            if len(words) <= MOST_VALUES
            else f"{words[0]} ... {words[-1]}"
        )
        said.append(f"{name} = {few}")
    return "; ".join(said)
