"""Errors for arguments that should be Parameters of a model, and are something else."""

import sys
import types
from collections.abc import Mapping
from typing import Any

from theory.parameters import LONGEST, BaseParameters, Named, ParameterError, shown


def place(kind: type) -> str:
    """Module of its package that a kind of parameters is best imported from; empty if none has it
    under its name.
    """
    package = kind.__module__.partition(".")[0]
    exporting = [
        name
        for name, module in [*sys.modules.items()]
        if name.partition(".")[0] == package and vars(module).get(kind.__name__) is kind
    ]
    return min(exporting, key=lambda name: (len(name), "theory" not in name), default="")


def kind_of(module: str) -> type[BaseParameters] | None:
    """Parameters of the model that a module belongs to: those of the innermost package around it
    that has any.
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
    call = f"{home}.Parameters".lstrip(".")
    if is_class:
        return ParameterError(f"{name} = {value.__name__}: is the class; make one of it: {call}()")
    if isinstance(value, BaseParameters):
        theirs = place(type(value))
        what = f"Parameters of {_model(theirs)}" if theirs not in ("", home) else shown(value)
        ours = f"{_model(home)} needs {call}" if home else "this model needs its own"
        return ParameterError(f"{name} is {what}; {ours}")
    hint = f"give Parameters: {call}(...)"
    if isinstance(value, types.MethodType) and isinstance(value.__self__, Named):
        return ParameterError(f"{name}: is a preset; call it: {call}.{value.__name__}()")
    if isinstance(value, str) and kind and value in kind.PRESETS:
        hint = f"this preset is {call}.{value}()"
    elif isinstance(value, Mapping) and kind and {*value} <= {*kind._fields()}:
        fields = ", ".join(f"{field}={v!r}" for field, v in value.items())
        hint = f"give Parameters: {call}({fields if len(fields) <= LONGEST else '**' + name})"
    return ParameterError(
        f"{name} = {shown(value)}: {why or 'is a ' + type(value).__name__}; {hint}"
    )


def _model(package: str) -> str:
    """Name of a model from the package of its theory."""
    return package.removeprefix("theory.").removesuffix(".theory").replace(".theory.", ".")
