"""Parameters with derived constants that are given: ``p.replace(c_omega=1.0)``. Every
function of the theory takes them; students do not, theirs follow from their weights.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from theory.call.refusal import Allowed, ParameterError, number

if TYPE_CHECKING:
    from theory.call.parameters import BaseParameters


class Constant:
    """A derived constant that may be given: its meaning and allowed values.

    Parameters
    ----------
    doc : str
    **allowed
        As of `Allowed`.
    """

    def __init__(self, doc: str, **allowed: Any) -> None:
        self.doc = doc
        self.allowed = Allowed(**allowed)


class WithConstants:
    """What changes in Parameters some of whose constants are given."""

    constants: Mapping[str, float]

    def __eq__(self, other: object) -> bool:
        """Whether fields and given constants are equal."""
        same = type(self) is type(other) and dict(self.constants) == dict(
            other.constants  # type: ignore[attr-defined]
        )
        return same and self._plain() == other._plain()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        """Of fields and given constants."""
        return hash((self._plain(), *self.constants.items()))  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        """How to make them, for copies and pickles."""
        return with_constants, (self._plain(), dict(self.constants))  # type: ignore[attr-defined]

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, the given constants among them."""
        return {**super().quantities(), **self.constants}  # type: ignore[misc]

    def formulas(self) -> dict[str, Any]:
        """Those of constants that are not given."""
        formulas = super().formulas()  # type: ignore[misc]
        return {n: e for n, e in formulas.items() if n not in self.constants}

    def stored(self, *, training_only: bool = False) -> dict[str, Any]:
        """Fields and given constants.

        Raises
        ------
        ParameterError
            For what identifies students, which have no such constants.
        """
        if training_only:
            self._refuse("students, whose own follows from their weights")
        return {**super().stored(), **self.constants}  # type: ignore[misc]

    def _refuse(self, whom: str) -> None:
        name, value = next(iter(self.constants.items()))
        raise ParameterError(f"{name} = {value:g}: is given, not for {whom}")


@functools.cache
def _kind(kind: type[BaseParameters]) -> type[BaseParameters]:
    """Parameters of a kind with given constants."""
    body = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__annotations__": kind.__annotations__,
    }
    return types.new_class(
        kind.__name__, (WithConstants, kind), exec_body=lambda names: names.update(body)
    )


def with_constants(p: BaseParameters, constants: Mapping[str, Any]) -> BaseParameters:
    """Parameters of which some constants are given.

    Parameters
    ----------
    p : Parameters
        Without given constants.
    constants : mapping of str to float

    Raises
    ------
    ParameterError
        For a value that is not allowed.
    """
    values = {
        name: number(name, value, p.CONSTANTS[name].allowed)
        for name, value in constants.items()
    }
    if not values:
        return p
    made = object.__new__(_kind(type(p)))
    fields = {name: getattr(p, name) for name in p.__dataclass_fields__}
    ordered = {name: values[name] for name in p.CONSTANTS if name in values}
    vars(made).update(fields, constants=types.MappingProxyType(ordered))
    return made
