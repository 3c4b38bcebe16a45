"""Reading and validating function arguments: one place that converts numbers and
arrays, and type hints in signatures that are checked before the function runs.

With `checked`, ``level: Annotated[float, Allowed(above=0, below=1)]`` rejects other
values with a one-line error. A plain type hint says whether a number, an integer, a
list of numbers or Parameters is expected.
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import numpy as np

from theory.call.arrays import array, listed
from theory.call.parameters import BaseParameters, Named, Stepped
from theory.call.refusal import (
    ANYTHING,
    LONGEST,
    Allowed,
    ParameterError,
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
        by_name = {}
        for name, x in inspect.signature(function).parameters.items():
            if name in hints and x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD):
                by_name[name] = _reader(hints[name])
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
