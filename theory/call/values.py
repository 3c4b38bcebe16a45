"""Numbers that follow from Parameters, computed again when one of these changes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError

if TYPE_CHECKING:
    from theory.call.parameters import BaseParameters


@dataclass(frozen=True, eq=False, repr=False)
class Values(Mapping[Any, Any]):
    """Numbers by symbol name: fields of Parameters, and quantities derived from them.

    ``values | {"alpha": 2.0, "L": 20}`` is a new object in which everything that
    follows from ``L`` is computed again, so that a derived quantity never stands beside
    another value of its input. For the same reason it cannot be unpacked into a
    dictionary, ``{**values, "L": 20}``.

    Attributes
    ----------
    of : Parameters
        What the numbers follow from.
    changes : mapping
        By name: fields of ``of`` (numbers or arrays that broadcast), derived quantities
        that are overridden, and further values; a symbol stands for its name, a
        sub-expression for itself.

    Raises
    ------
    ParameterError
        When it is unpacked; when a number is read whose input was overridden.
    """

    of: BaseParameters
    changes: Mapping[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take symbols by their names, and keep arrays from being written to later."""
        by_name = {_name(key): v for key, v in self.changes.items()}
        object.__setattr__(self, "changes", MappingProxyType(_sealed(by_name)))

    def __reduce__(self) -> tuple[Any, ...]:
        """How to make it, for copies and pickles,
        in which arrays could be written to.
        """
        return Values, (self.of, dict(self.changes))

    @functools.cached_property
    def _numbers(self) -> dict[Any, Any]:
        from theory.call.grid import Grid

        known = {f.name for f in dataclasses.fields(self.of)}
        fields = {n: v for n, v in self.changes.items() if n in known}
        others = {n: v for n, v in self.changes.items() if n not in known}
        if not fields:
            return {**_sealed(self.of.quantities()), **others}
        grid = Grid(fields, self.of.replace)
        points = [q.quantities() for q in grid.points]
        if grid.shape == () and grid.axes is None:
            return {**fields, **_sealed(points[0]), **others}
        # Quantities whose shape differs between points (frequencies over d_h) are left
        # out.
        stacked = {}
        for name in points[0]:
            values = [point[name] for point in points]
            if len(set(map(np.shape, values))) == 1:
                stacked[name] = grid.stack(values)
        return {**fields, **stacked, **others}

    def __getitem__(self, name: Any) -> Any:
        """The number of a symbol, given its name."""
        for of in self.of.INPUTS.get(name, ()) if name not in self.changes else ():
            if of in self.changes:
                raise ParameterError(
                    f"{of}: {name} would not be computed from it; give {name} instead"
                )
        return self._numbers[name]

    def __iter__(self) -> Iterator[Any]:
        """Names."""
        return iter(self._numbers)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._numbers)

    def __or__(self, more: Mapping[Any, Any]) -> Values:
        """These with other values of fields, from which the rest is computed again, and
        others.
        """
        return Values(self.of, {**self.changes, **more})

    def keys(self) -> NoReturn:
        """Refuse to be unpacked into a dictionary, in which nothing would be computed
        again.
        """
        raise ParameterError(
            "values of Parameters: cannot be unpacked, as nothing would be computed"
            " again from a changed number; names: list(p.values()); others: take"
            ' p.values() | {"name": value}'
        )

    def __repr__(self) -> str:
        """How to make it."""
        return f"{self.of!r}.values()" + (
            f" | {dict(self.changes)!r}" if self.changes else ""
        )


def _name(key: Any) -> Any:
    """Name of a symbol or array; other keys, as sub-expressions, unchanged."""
    named = isinstance(key, sp.Symbol | sp.IndexedBase) and not isinstance(
        key, sp.Dummy
    )
    return key.name if named else key


def _sealed(numbers: Mapping[Any, Any]) -> dict[Any, Any]:
    """The numbers; of arrays that can be written to, copies that cannot."""
    arrays = {name: v for name, v in numbers.items() if isinstance(v, np.ndarray)}
    copies = {name: v.copy() for name, v in arrays.items() if v.flags.writeable}
    for copy in copies.values():
        copy.flags.writeable = False
    return {**numbers, **copies}
