"""DataArrays as arguments of array code: broadcast by dimension names, with names and coordinates
carried over to the result.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from theory.values import ParameterError, Values


class Axes:
    """Union of the named dimensions of several DataArrays, as the ordered axes of one array.

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
                f"{', '.join(arrays)}: differ in the coordinates of a dimension that they share"
            ) from None
        together = xr.broadcast(*arrays.values())[0] if arrays else xr.DataArray(0.0)
        self.names, self.shape = together.dims, together.shape
        self.coordinates = {x: c for x, c in together.coords.items() if set(c.dims) <= {x}}

    def plain(self, name: str, value: Any) -> Any:
        """An argument as a plain array with these axes in this order; a number is returned
        unchanged.

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
                f"{name}: needs named dimensions, as the others have them: an xarray.DataArray"
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
        coordinates = {**self.coordinates, **{k: v for k, v in more.items() if v is not None}}
        if np.shape(result)[: len(self.shape)] != self.shape:  # the same everywhere
            result = np.broadcast_to(result, self.shape + np.shape(result)[len(self.shape) :])
        return xr.DataArray(result, coordinates, [*self.names, *more])


def distinct(swept: Iterable[Any], along: Iterable[Any]) -> None:
    """Raise an error if a dimension of parameters has the name of one that the result has anyway,
    as the time of a curve.
    """
    for name in {*swept} & {*along}:
        raise ParameterError(
            f"{name}: is a dimension of a parameter and of the result; "
            f".rename({name}='{name}_0') of the parameter"
        )


def named(given: Mapping[str, Any]) -> tuple[Axes | None, Mapping[str, Any]]:
    """Named dimensions of the DataArrays among the arguments, and all arguments as plain arrays."""
    arrays = {name: v for name, v in given.items() if isinstance(v, xr.DataArray)}
    if not arrays:
        return None, given
    axes = Axes(arrays)
    return axes, {name: axes.plain(name, v) for name, v in given.items()}


def by_dimension(along: str | None = None) -> Callable[[Callable], Callable]:
    """Decorator: let array code take DataArrays, broadcast by dimension name. The result is a
    DataArray with the same dimensions.

    Parameters
    ----------
    along : str, optional
        Argument that is a list and becomes the last axis of the result.
    """

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*given: Any, **more: Any) -> Any:
            every = [*given, *more.values()]
            every += [v for x in every for v in _entries(x).values()]
            if not any(isinstance(v, xr.DataArray) for v in every):
                return function(*given, **more)
            bound = signature.bind(*given, **more)
            listed: Any = bound.arguments.pop(along) if along else None
            arrays: dict[str, xr.DataArray] = {}
            _each(bound.arguments, lambda n, v: arrays.update({n: v} if _labelled(v) else {}))
            inner = {}
            if along:
                bound.arguments[along] = listed
                labelled = isinstance(listed, xr.DataArray) and listed.ndim
                inner = {listed.dims[0]: listed.values} if labelled else {along: listed}
            axes = Axes(arrays)
            plain = _each(bound.arguments, lambda n, v: v if n == along else axes.plain(n, v))
            bound.arguments.update(plain)
            return axes.label(function(*bound.args, **bound.kwargs), inner)

        return call

    return decorate


def _labelled(value: Any) -> bool:
    return isinstance(value, xr.DataArray)


def _each(given: Mapping[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Apply a function to every argument, and to every entry of arguments that are dictionaries,
    or to what was given beside Parameters.
    """
    changed: dict[str, Any] = {}
    for name, value in given.items():
        entries = {k: change(k, v) for k, v in _entries(value).items()}
        if isinstance(value, Values):
            changed[name] = value | entries
        else:
            changed[name] = entries if isinstance(value, dict) else change(name, value)
    return changed


def _entries(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Values):
        return value.changes
    return value if isinstance(value, dict) else {}
