"""Grids that arrays of fields span: their points, and results stacked along them with
names.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from theory.call.arrays import array
from theory.call.refusal import ParameterError, shown

_RESULT = "result"  # temporary name when joining datasets
REMARKS = ("status", "assumptions", "trust")  # attributes that limit what is claimed


class Grid:
    """Every point of the grid spanned by arrays of fields.

    Parameters
    ----------
    fields : mapping of str to array_like
        Values by name of a field.
    at : callable
        What stands at a point, given one value of each field by keyword, as the method
        ``replace`` of Parameters.

    Raises
    ------
    ParameterError
        For a value that is not allowed, or shapes that do not broadcast.
    """

    def __init__(self, fields: Mapping[str, Any], at: Callable[..., Any]) -> None:
        self.names = ", ".join(fields)
        labelled = {k: v for k, v in fields.items() if isinstance(v, xr.DataArray)}
        self.axes = Axes(labelled) if labelled else None
        if self.axes:
            fields = {name: self.axes.plain(name, v) for name, v in fields.items()}
        self.given = {name: array(name, v, words=True) for name, v in fields.items()}
        try:
            arrays = np.broadcast_arrays(*self.given.values())
        except ValueError:
            shapes = ", ".join(f"{n} {v.shape}" for n, v in self.given.items())
            raise ParameterError(
                f"{self.names}: shapes do not fit together: {shapes}"
            ) from None
        self.shape = arrays[0].shape
        rows = [*zip(*(a.ravel().tolist() for a in arrays), strict=True)]
        self.rows = {row: k for k, row in enumerate(dict.fromkeys(rows))}
        self.distinct = [at(**dict(zip(fields, row, strict=True))) for row in self.rows]
        self.which = [self.rows[row] for row in rows]
        self.points = [self.distinct[k] for k in self.which]

    def label(self, k: int) -> str:
        """The k-th of the distinct points, in words."""
        row = [*self.rows][k]
        return ", ".join(
            f"{x} = {shown(v)}" for x, v in zip(self.given, row, strict=True)
        )

    def stack(self, results: Sequence[Any]) -> Any:
        """Stack the results of all points: the grid's axes come before the results'
        own.

        Mappings are stacked entry by entry, datasets along dimensions named after the
        fields, and objects with a ``summary()`` by the numbers in it.

        Raises
        ------
        ParameterError
            If the results at different points differ in shape.
        """
        if hasattr(results[0], "summary"):
            results = [r.summary() for r in results]
        if isinstance(results[0], xr.DataArray):
            return self._joined([r.to_dataset(name=_RESULT) for r in results])[_RESULT]
        if isinstance(results[0], xr.Dataset):  # a mapping, too
            return self._joined(list(results))
        if isinstance(results[0], Mapping):
            of_entry = lambda key: self.stack([r[key] for r in results])
            return {key: of_entry(key) for key in results[0]}
        parts = [np.asarray(r) for r in results]
        if len({a.shape for a in parts}) > 1:
            raise ParameterError(
                f"{self.names}: the result differs in length from value to value; ask"
                " for one at a time"
            )
        stacked = np.array(parts).reshape(self.shape + parts[0].shape)[()]
        return self.axes.label(stacked) if self.axes else stacked

    def _joined(self, results: list[xr.Dataset]) -> xr.Dataset:
        """Join datasets along one dimension per axis, named after the field that varies
        along it; a variable that a point lacks is NaN there.
        """
        first = results[0]
        coordinates = first.coords.to_dataset()
        if not all(r.coords.to_dataset().equals(coordinates) for r in results):
            raise ParameterError(
                f"{self.names}: the times differ from value to value; say at which with"
                " at=..., or ask for one at a time"
            )
        variables: dict[Any, xr.DataArray] = {}
        for r in results:
            variables |= r.data_vars
        values = {}
        for x, variable in variables.items():
            absent = np.full(variable.shape, np.nan)
            values[x] = np.array([r[x].values if x in r else absent for r in results])
        joined = self.labelled(first.assign(variables), values)
        joined.attrs = self._agreed([r.attrs for r in results])
        for x, variable in joined.data_vars.items():
            variable.attrs = self._agreed(
                [r[x].attrs if x in r else {} for r in results]
            )
        return joined

    def _agreed(self, attributes: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
        """Attributes in which all points agree; of `REMARKS` what is said of each
        point.
        """
        last: dict[Any, Any] = {}
        for of_point in attributes:
            last |= of_point

        def same(name: Any) -> bool:
            value = last[name]
            return all(of_point.get(name, value) == value for of_point in attributes)

        agreed = {name: value for name, value in last.items() if same(name)}
        for name in REMARKS:
            if agreed.get(name) != last.get(name):
                points = zip(map(self.label, self.which), attributes, strict=True)
                agreed[name] = "; ".join(
                    f"at {point}: {of_point.get(name)}" for point, of_point in points
                )
        return agreed

    def _labels(self, result: xr.Dataset) -> tuple[list[str], dict[Any, Any]]:
        """Names of the grid's axes, and its coordinates."""
        # A field may have the name of a result, as ``loss`` of induction heads.
        label = {
            n: f"parameter_{n}" if n in result.variables else n for n in self.given
        }
        named_axes = [str(x) for x in self.axes.names] if self.axes else None
        names, coordinates = axes(self.given, self.shape, label, named_axes)
        distinct(names, result.dims)
        return names, {**(self.axes.coordinates if self.axes else {}), **coordinates}

    def labelled(
        self, first: xr.Dataset, found: Mapping[Any, np.ndarray]
    ) -> xr.Dataset:
        """Dataset of results at all points, from the one at the first of them and
        arrays by name of its variables.
        """
        names, labels = self._labels(first)
        data = {}
        for x, values in found.items():
            dims = (*names, *first[x].dims)
            over_grid = values.reshape(*self.shape, *values.shape[1:])
            data[x] = (dims, over_grid, first[x].attrs)
        return xr.Dataset(data, first.coords, first.attrs).assign_coords(labels)


@contextlib.contextmanager
def naming(point: str) -> Iterator[None]:
    """Let errors name a point of a grid."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(f"at {point}: {error}") from None


def axes(
    given: Mapping[str, np.ndarray],
    shape: Sequence[int],
    label: Mapping[str, str],
    known: list[str] | None = None,
) -> tuple[list[str], dict[str, tuple[list[str], np.ndarray]]]:
    """Names of the axes of a broadcast shape, each after a field that varies along it,
    and the fields as coordinates; ``label`` has the names of fields in the result,
    ``known`` those of axes that have been given.
    """
    names = [*(known or ())]
    for axis in range(-len(shape), 0) if not names else ():
        along = [
            label[n]
            for n, v in given.items()
            if v.ndim >= -axis and v.shape[axis] == shape[axis]
        ]
        names.append(next((n for n in along if n not in names), f"axis_{len(names)}"))
    coordinates = {}
    for name, v in given.items():
        spans = [k for k in range(-v.ndim, 0) if v.shape[k] == shape[k]]
        coordinates[label[name]] = (
            [names[k] for k in spans],
            v.reshape([v.shape[k] for k in spans]),
        )
    return names, coordinates


class Axes:
    """Union of the named dimensions of several DataArrays, as the ordered axes of one
    array.

    Raises
    ------
    ParameterError
        If their coordinates differ along a shared dimension.
    """

    def __init__(self, arrays: Mapping[str, xr.DataArray]) -> None:
        try:
            xr.align(*arrays.values(), join="exact")
        except ValueError:
            raise ParameterError(
                f"{', '.join(arrays)}: differ in the coordinates of a dimension that"
                " they share"
            ) from None
        together = xr.broadcast(*arrays.values())[0] if arrays else xr.DataArray(0.0)
        self.names, self.shape = together.dims, together.shape
        self.coordinates = {
            x: c for x, c in together.coords.items() if set(c.dims) <= {x}
        }

    def plain(self, name: str, value: Any) -> Any:
        """An argument as a plain array with these axes in this order; a number is
        returned unchanged.

        Raises
        ------
        ParameterError
            For an array without dimensions.
        """
        if isinstance(value, xr.DataArray):
            missing = [x for x in self.names if x not in value.dims]
            return value.expand_dims(missing).transpose(*self.names).values
        if isinstance(value, np.ndarray | list | tuple) and np.ndim(value):
            raise ParameterError(
                f"{name}: needs named dimensions, as the others have them: an"
                " xarray.DataArray"
            )
        return value

    def label(self, result: Any, inner: Mapping[Any, Any] | None = None) -> Any:
        """Label a result whose leading axes are these with their names and coordinates.

        Parameters
        ----------
        result : array_like or mapping
            Result, or several by name.
        inner : mapping, optional
            Names and coordinates of the remaining axes.
        """
        if isinstance(result, Mapping):
            return {name: self.label(value, inner) for name, value in result.items()}
        more = {**(inner or {})} or {
            f"axis_{k}": None for k in range(np.ndim(result) - len(self.names))
        }
        distinct(self.names, more)
        coordinates = {
            **self.coordinates,
            **{k: v for k, v in more.items() if v is not None},
        }
        if np.shape(result)[: len(self.shape)] != self.shape:  # the same everywhere
            result = np.broadcast_to(
                result, self.shape + np.shape(result)[len(self.shape) :]
            )
        return xr.DataArray(result, coordinates, [*self.names, *more])


def distinct(swept: Iterable[Any], along: Iterable[Any]) -> None:
    """Raise an error if a dimension of parameters has the name of one that the result
    has anyway, as the time of a curve.
    """
    for name in {*swept} & {*along}:
        raise ParameterError(
            f"{name}: is a dimension of a parameter and of the result; "
            f".rename({name}='{name}_0') of the parameter"
        )
