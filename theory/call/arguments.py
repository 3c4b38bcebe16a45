"""Reading and validating function arguments: one place that converts numbers and
arrays, and type hints in signatures that are checked before the function runs.

With `checked`, ``level: Annotated[float, Allowed(above=0, below=1)]`` rejects other
values with a one-line error. A plain type hint says whether a number, an integer, a
list of numbers or Parameters is expected.
"""

import functools
import inspect
import numbers
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import numpy as np
import xarray as xr

from theory.call.parameters import BaseParameters, Named, Stepped
from theory.call.values import (
    ANYTHING,
    LONGEST,
    Allowed,
    ParameterError,
    is_time,
    number,
    shown,
)

Positive = Annotated[float, Allowed(above=0)]
Nodes = Annotated[int, Allowed(low=2, high=10**4)]  # of a quadrature, per axis
Times = Annotated[Iterable[float], Allowed(low=0)]
Reader = Callable[[str, Any], Any]  # reads an argument, given its name and value
LISTS = (
    "Iterable",
    "Sequence",
    "Collection",
    "list",
)  # type hints of a list of numbers
WORDS = "US"  # kinds of NumPy arrays of text


def array(
    name: str,
    value: Any,
    allowed: Allowed | None = None,
    *,
    words: bool = False,
    empty: bool = False,
) -> Any:
    """Convert a numerical argument to an array. Every number and array passed to the
    theory is read here.

    Parameters
    ----------
    name : str
        Name of the field or argument, used in error messages.
    value : array_like
        A number, nested lists of equal length, an array.
    allowed : Allowed, optional
        Bounds for every entry. If given, all entries must also be finite.
    words : bool
        Whether strings, booleans and None are accepted as entries, as in fields of
        Parameters.
    empty : bool
        Whether an empty array is accepted.

    Returns
    -------
    ndarray
        The input itself, not a copy, if no conversion is needed.

    Raises
    ------
    ParameterError
        Naming the argument: if it is masked, complex, ragged, empty, unordered (a set),
        not numerical, or a DataArray whose dimension names would be lost.
    """
    plain = isinstance(value, float | np.floating | np.integer) and not is_time(value)
    if plain or (type(value) is int and value.bit_length() < 64):
        numbers = np.asarray(value)
    else:
        numbers = _read(name, value, words)
    if not (numbers.size or empty):
        raise ParameterError(
            f"{name} = {shown(value)}: is empty; must hold at least one value"
        )
    if numbers.dtype.kind == "O" and not words:
        numbers = numbers.astype(float)
    if allowed is not None:
        _within(name, numbers, allowed)
    return numbers


def _read(name: str, value: Any, words: bool) -> np.ndarray:
    def refuse(why: str) -> ParameterError:
        return ParameterError(f"{name} = {shown(value)}: {why}")

    if isinstance(value, np.ma.MaskedArray):
        raise refuse("is masked; leave out what is masked, or fill it")
    if isinstance(value, xr.DataArray | xr.Dataset | xr.Variable):
        raise refuse("has named dimensions, which would be lost here; give its .values")
    if getattr(value, "requires_grad", False):
        raise refuse("carries a gradient; detach it")
    try:
        array = np.asarray(value)
    except Exception as error:  # the object's own conversion may raise anything
        why = str(error).partition("\n")[0]
        if "inhomogeneous" in why:
            why = "lists in it differ in length"
        raise refuse(f"is no array of numbers ({why})") from None
    entries = (
        []
        if isinstance(value, np.ndarray) and array.dtype.kind != "O"
        else _entries(value)
    )
    if any(issubclass(kind, np.ma.MaskedArray) for kind in entries):
        raise refuse("is masked in part; leave out what is masked")
    truths = [kind for kind in entries if issubclass(kind, bool | np.bool_)]
    if truths and len(entries) > len(truths):
        raise refuse("holds true or false beside other values")
    if array.dtype.kind == "O":
        nothing = {type(None), str, bool} if words else set()
        wrong = [
            kind
            for kind in set(map(type, array.ravel().tolist()))
            if kind not in nothing
            and (
                not issubclass(kind, numbers.Real)
                or issubclass(kind, bool | np.timedelta64)
            )
        ]
        if wrong:
            raise refuse(
                "must be numbers, holds"
                f" {' and '.join(sorted(k.__name__ for k in wrong))}"
            )
        if not words:
            try:
                array.astype(float)
            except OverflowError:
                raise refuse("is beyond the largest number, 1.8e308") from None
    elif array.dtype.kind not in ("iuf" + (WORDS + "b") * words):
        kinds = {"c": "complex numbers", "b": "true or false"} | dict.fromkeys(
            WORDS, "words"
        )
        raise refuse(
            f"must be numbers, not {kinds.get(array.dtype.kind, str(array.dtype))}"
        )
    return array


def _entries(value: Any) -> set[type]:
    """Types of the innermost entries of nested lists."""
    if not isinstance(value, list | tuple):
        return {type(value)}
    kinds = set(map(type, value))
    if kinds & {list, tuple}:
        return set().union(*map(_entries, value))
    return kinds


def _within(name: str, values: np.ndarray, allowed: Allowed) -> None:
    """Raise an error that shows the first entry that is not allowed,
    if there is one.
    """
    with np.errstate(invalid="ignore"):
        right = np.isfinite(values) & allowed.admits(values)
    if not np.all(right):
        first = np.ravel(values)[np.argmin(np.ravel(right))].item()
        said = allowed if np.isfinite(first) else f"finite, {allowed}"
        raise ParameterError(f"{name} = {first!r}: must be {said}")


def listed(name: str, value: Any, allowed: Allowed | None = None) -> np.ndarray:
    """Read a one-dimensional list of numbers; a one-dimensional DataArray is accepted.

    Raises
    ------
    ParameterError
        As `array`, and if the value is not one-dimensional.
    """
    if isinstance(value, xr.DataArray) and value.ndim == 1:
        value = value.values
    if not hasattr(value, "__len__") and isinstance(value, Iterable):
        value = list(value) if not hasattr(value, "__array__") else value
    numbers = array(name, value, allowed or ANYTHING)
    if numbers.ndim != 1:
        raise ParameterError(f"{name} = {shown(value)}: must be a list of numbers")
    return numbers


def checked(function: Callable) -> Callable:
    """Decorator: validate and convert the arguments of a function according to its type
    hints.

    ``int``, ``float``, ``bool`` and ``str`` are converted to the Python types, arrays
    and lists of numbers to arrays; for other hints the type is checked.
    ``Annotated[..., Allowed(...)]`` adds bounds for a number or for every entry of an
    array.

    Raises
    ------
    ParameterError
        In one line, naming the argument, its value and what is allowed.
    """
    signature = inspect.signature(function)
    read = reader(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        read(bound.arguments)
        return function(*bound.args, **bound.kwargs)

    return call


def reader(function: Callable) -> Callable[[dict[str, Any]], None]:
    """Function that validates a dictionary of arguments in place, by name."""

    @functools.cache
    def readers() -> dict[str, Reader]:
        hints = typing.get_type_hints(function, include_extras=True)
        by_name = {
            name: _reader(hints[name])
            for name, x in inspect.signature(function).parameters.items()
            if name in hints and x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)
        }
        return {name: how for name, how in by_name.items() if how is not None}

    def read(arguments: dict[str, Any]) -> None:
        for name, how in readers().items():
            if name in arguments:
                arguments[name] = how(name, arguments[name])

    return read


def _reader(hint: Any) -> Reader | None:
    """Reader for a type hint; None if the hint does not restrict the argument."""
    allowed = ANYTHING
    if typing.get_origin(hint) is Annotated:
        hint, *notes = typing.get_args(hint)
        allowed = next(note for note in notes if isinstance(note, Allowed))
        if hint is Any:
            return functools.partial(array, allowed=allowed)
    if hint is Any:
        return None
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _either(typing.get_args(hint), allowed)
    if hint in (int, float, bool, str):
        return functools.partial(number, allowed=allowed, kind=hint)
    if hint is np.ndarray:
        return functools.partial(array, allowed=allowed)
    kind = typing.get_origin(hint) or hint
    if getattr(kind, "__name__", "") in LISTS and str not in typing.get_args(hint):
        return functools.partial(listed, allowed=allowed)
    if kind is Callable or getattr(kind, "__name__", "") == "Callable":
        return _callable
    return functools.partial(_instance, kind=kind) if isinstance(kind, type) else None


def _either(hints: tuple[Any, ...], allowed: Allowed) -> Reader | None:
    """Reader for a union: ``X | None``, array or number, or one of several classes."""
    kinds = tuple(hint for hint in hints if hint is not type(None))
    inner: Reader | None
    if np.ndarray in kinds:
        inner = functools.partial(array, allowed=allowed)
    elif len(kinds) > 1:
        inner = functools.partial(_instance, kind=kinds)
    else:
        inner = _reader(
            Annotated[kinds[0], allowed] if kinds[0] in (int, float) else kinds[0]
        )
    if inner is None or len(kinds) == len(hints):
        return inner
    return lambda name, value: None if value is None else inner(name, value)


def _callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise ParameterError(f"{name} = {shown(value)}: must be a function")
    return value


def _instance(name: str, value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if issubclass(kinds[0], BaseParameters):
            raise misfit(
                name, value, None if kinds[0] in (BaseParameters, Stepped) else kinds[0]
            )
        homes = [
            (k.__module__.rpartition(".")[0] or k.__module__, k.__name__) for k in kinds
        ]
        said = " or ".join(".".join(home) for home in homes)
        raise ParameterError(f"{name} = {shown(value)}: must be of type {said}")
    return value


def place(kind: type) -> str:
    """Module of its package that a kind of parameters is best imported from; empty if
    none has it under its name.
    """
    package = kind.__module__.partition(".")[0]
    exporting = [
        name
        for name, module in [*sys.modules.items()]
        if name.partition(".")[0] == package and vars(module).get(kind.__name__) is kind
    ]
    return min(
        exporting, key=lambda name: (len(name), "theory" not in name), default=""
    )


def kind_of(module: str) -> type[BaseParameters] | None:
    """Parameters of the model that a module belongs to: those of the innermost package
    around it that has any.
    """
    while module:
        kind = getattr(sys.modules.get(module), "Parameters", None)
        if isinstance(kind, type) and issubclass(kind, BaseParameters):
            return kind
        module = module.rpartition(".")[0]
    return None


def misfit(
    name: str, value: Any, kind: type[BaseParameters] | None, why: str = ""
) -> ParameterError:
    """Error for an argument that must be Parameters of a model, and is something else.

    Parameters
    ----------
    name : str
        Of the argument.
    value : object
        What was passed.
    kind : type or None
        The Parameters that are needed; None if that is not known.
    why : str
        What is wrong with the value, if not that it has another type.
    """
    is_class = isinstance(value, type) and issubclass(value, BaseParameters)
    home = place(kind or value) if kind or is_class else ""
    call = f"{home}.{kind.__name__ if kind else 'Parameters'}".lstrip(".")
    if is_class:
        return ParameterError(
            f"{name} = {value.__name__}: is the class; make one of it: {call}()"
        )
    if isinstance(value, BaseParameters):
        theirs = place(type(value))
        what = (
            f"Parameters of {_model(theirs)}"
            if theirs not in ("", home)
            else shown(value)
        )
        ours = f"{_model(home)} needs {call}" if home else "this model needs its own"
        return ParameterError(f"{name} is {what}; {ours}")
    hint = f"give Parameters: {call}(...)"
    if isinstance(value, types.MethodType) and isinstance(value.__self__, Named):
        return ParameterError(
            f"{name}: is a preset; call it: {call}.{value.__name__}()"
        )
    if isinstance(value, str) and kind and value in kind.PRESETS:
        hint = f"this preset is {call}.{value}()"
    elif isinstance(value, Mapping) and kind and {*value} <= {*kind._fields()}:
        fields = ", ".join(f"{field}={v!r}" for field, v in value.items())
        fields = fields if len(fields) <= LONGEST else f"**{name}"
        hint = f"give Parameters: {call}({fields})"
        if any(np.ndim(v) for v in value.values()):
            hint = f"give Parameters first, then arrays: {call}(), {fields}"
    return ParameterError(
        f"{name} = {shown(value)}: {why or 'is a ' + type(value).__name__}; {hint}"
    )


def _model(package: str) -> str:
    """Name of a model from the package of its theory."""
    return (
        package.removeprefix("theory.").removesuffix(".theory").replace(".theory.", ".")
    )
