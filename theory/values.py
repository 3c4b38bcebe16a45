"""Values: the numbers that follow from Parameters, one immutable object."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from theory.allowed import ParameterError

if TYPE_CHECKING:
    from theory.parameters import BaseParameters


@dataclass(frozen=True, eq=False, repr=False)
class Values(Mapping[Any, Any]):
    """Numbers by symbol name: fields of Parameters, and quantities derived from them.

    ``values | {"alpha": 2.0, "L": 20}`` is a new object in which everything that follows from ``L``
    is computed again, so that a derived quantity never stands beside another value of its input.
    For the same reason it cannot be unpacked into a dictionary, ``{**values, "L": 20}``.

    Attributes
    ----------
    of : Parameters
        What the numbers follow from.
    changes : mapping
        By name: fields of ``of`` (numbers or arrays that broadcast), derived quantities that are
        overridden, and further values; these also by symbol or sub-expression.

    Raises
    ------
    ParameterError
        When it is unpacked; when a number is read whose input was overridden.
    """

    of: BaseParameters
    changes: Mapping[Any, Any] = field(default_factory=dict)

    @functools.cached_property
    def _numbers(self) -> dict[Any, Any]:
        from theory.sweep import Grid  # which imports parameters

        known = {f.name for f in dataclasses.fields(self.of)}
        fields = {str(n): v for n, v in self.changes.items() if str(n) in known}
        others = {n: v for n, v in self.changes.items() if str(n) not in known}
        if not fields:
            return {**_sealed(self.of.quantities()), **others}
        grid = Grid(self.of, fields)
        points = [q.quantities() for q in grid.points]
        if grid.shape == () and grid.axes is None:
            return {**fields, **_sealed(points[0]), **others}
        # Quantities whose shape differs between points (frequencies over d_h) are left out.
        same = [n for n in points[0] if len({np.shape(point[n]) for point in points}) == 1]
        stacked = {n: grid.stack([point[n] for point in points]) for n in same}
        return {**fields, **stacked, **others}

    def __getitem__(self, name: Any) -> Any:
        """The number of a symbol, given its name."""
        for of in self.of.INPUTS.get(name, ()) if name not in self.changes else ():
            if of in self.changes:
                raise ParameterError(f"{of}: {name} would not follow it; give {name} instead")
        return self._numbers[name]

    def __iter__(self) -> Iterator[Any]:
        """Names."""
        return iter(self._numbers)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._numbers)

    def __or__(self, more: Mapping[Any, Any]) -> Values:
        """These with other values of fields, from which the rest is computed again, and others."""
        return Values(self.of, {**self.changes, **more})

    def keys(self) -> NoReturn:
        """Refuse to be unpacked into a dictionary, in which nothing would be computed again."""
        raise ParameterError(
            'values of Parameters: cannot be unpacked; take p.values() | {"name": value}'
        )

    def __repr__(self) -> str:
        """How to make it."""
        return f"{self.of!r}.values()" + (f" | {dict(self.changes)!r}" if self.changes else "")


def _sealed(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers, arrays among them as views that cannot be written to."""
    views = {name: v.view() for name, v in numbers.items() if isinstance(v, np.ndarray)}
    for view in views.values():
        view.flags.writeable = False
    return {**numbers, **views}
