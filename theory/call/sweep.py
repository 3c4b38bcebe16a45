"""Calling convention of all numerical functions: Parameters, and arrays of their fields
by keyword.

``f(p, L=[3, 10, 30])`` is equivalent to a loop over ``f(p.replace(L=...))``: derived
quantities are recomputed. Several arrays are broadcast against each other, DataArrays
by dimension names, which the result carries, too.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import xarray as xr

from theory.call import arguments, arrays
from theory.call.arguments import kind_of, misfit
from theory.call.grid import Axes, Grid
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError, nearest, shown
from theory.call.values import Values


def over_fields(function: Callable) -> Callable:
    """Decorator: let a function of one parameter point take arrays of fields by
    keyword.

    Keywords that are arguments of the function are passed on; names of fields are
    swept.
    """
    signature = inspect.signature(function).parameters
    takes_more = any(x.kind is x.VAR_KEYWORD for x in signature.values())
    position, read = list(signature), arguments.reader(function)

    @functools.wraps(function)
    def call(p: Any, *given: Any, **more: Any) -> Any:
        fields = [*p._fields(), *p.CONSTANTS] if isinstance(p, BaseParameters) else []
        swept = {k: v for k, v in more.items() if k not in signature and k in fields}
        passed_on = {k: v for k, v in more.items() if k not in swept}
        if not takes_more and isinstance(p, BaseParameters):
            p._known(passed_on, *position[1:])
        by_name = dict(zip(position, (p, *given), strict=False))
        read(by_name)
        read(passed_on)
        given = (*by_name.values(), *given[len(position) - 1 :])
        if not swept:
            try:
                return function(*given, **passed_on)
            except (AttributeError, KeyError) as error:
                missing = error.args[0] if isinstance(error, KeyError) else None
                if not isinstance(p, Mapping) or missing in p:
                    raise
                why = f"has no value for {missing}" if missing else ""
                raise misfit(
                    position[0], p, kind_of(function.__module__), why
                ) from None
        grid = spanned(p, swept)
        return grid.stack([function(q, *given[1:], **passed_on) for q in grid.points])

    return call


def spanned(p: Any, fields: Mapping[str, Any]) -> Grid:
    """The grid that arrays of fields span: Parameters at its points, or numbers by
    symbol name.

    Raises
    ------
    ParameterError
        For an unknown field, and as `Grid`.
    """
    if isinstance(p, BaseParameters):
        p._known(fields, *p.CONSTANTS)
        return Grid(fields, p.replace)
    return Grid(fields, lambda **values: numbers(p) | values)


def numbers(given: Any, names: Iterable[str] | None = None, /, **swept: Any) -> Any:
    """Numbers by symbol name for array code, with some fields swept or derived
    quantities overridden.

    Parameters
    ----------
    given : Parameters or mapping
        Parameters, or numbers by symbol name.
    names : iterable of str, optional
        Required names; all by default.
    **swept
        Arrays of fields, from which all derived quantities are recomputed, and values
        that override a derived quantity (``c_omega=0.3``).

    Raises
    ------
    ParameterError
        For an unknown name, a number that is none, or an override that others in use
        would not follow.
    """
    if isinstance(given, BaseParameters):
        return _overridden(given, names, swept)
    values = _mapping(given) | swept
    if missing := sorted({*(names := [*(names or ())])} - {str(key) for key in values}):
        raise ParameterError(
            f"p = {shown(given)}: gives no value for {', '.join(missing)}"
        )
    read = {n: arrays.array(str(n), values[n]) for n in names if n in values}
    return values | {n: v for n, v in read.items() if v.ndim and v is not values[n]}


def _overridden(
    p: BaseParameters, names: Iterable[str] | None, swept: dict[str, Any]
) -> Values:
    """Values of Parameters, some of them given; rejects unknown names and those without
    effect.
    """
    values, fields = p.values(), p._fields()
    used = [*(values if names is None else names)]
    for name in swept:
        if name not in (known := {*fields, *values, *used}):
            hint = nearest(name, sorted(known))
            raise ParameterError(
                f"{name}: neither a parameter nor a symbol used here; {hint}".rstrip(
                    " ;"
                )
            )
    values |= {n: v if n in fields else arrays.array(n, v) for n, v in swept.items()}
    here = [
        n for n in used if n in values
    ]  # an error if one should follow from what is overridden
    for name in swept:
        if name not in fields and name not in here:
            raise ParameterError(
                f"{name}: not used here; used are {', '.join(sorted(used))}"
            )
    return values


def _mapping(given: Any) -> Values | dict[str, Any]:
    """Numbers by symbol name, from a mapping or an object with a method ``values()``.

    Raises
    ------
    ParameterError
        For anything else.
    """
    if isinstance(given, Values):
        return given
    if not isinstance(given, Mapping):
        if isinstance(given, type) or not callable(getattr(given, "values", None)):
            raise misfit("p", given, None)
        given = given.values()
    return {getattr(key, "name", key): value for key, value in given.items()}


def by_dimension(along: str | None = None) -> Callable[[Callable], Callable]:
    """Decorator: let array code take DataArrays, broadcast by dimension name. The
    result is a DataArray with the same dimensions.

    Parameters
    ----------
    along : str, optional
        Argument that is a list and becomes the last axis of the result.
    """

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*given: Any, **more: Any) -> Any:
            if not any(_labelled(dict(enumerate([*given, *more.values()])))):
                return function(*given, **more)
            bound = signature.bind(*given, **more)
            spread = {n: v for n, v in bound.arguments.items() if n != along}
            axes, inner = Axes(dict(_labelled(spread))), {}
            if along:
                listed = bound.arguments[along]
                named_list = isinstance(listed, xr.DataArray) and listed.ndim
                inner = (
                    {listed.dims[0]: listed.values} if named_list else {along: listed}
                )
            bound.arguments.update(_plain(axes, spread))
            return axes.label(function(*bound.args, **bound.kwargs), inner)

        return call

    return decorate


def _labelled(given: Mapping[Any, Any]) -> Iterator[tuple[Any, xr.DataArray]]:
    """DataArrays among arguments, in dictionaries among them, and beside Parameters."""
    for name, value in given.items():
        if isinstance(value, xr.DataArray):
            yield name, value
        yield from _labelled(_entries(value))


def _plain(axes: Axes, given: Mapping[str, Any]) -> dict[str, Any]:
    changed = {}
    for name, value in given.items():
        entries = {k: axes.plain(k, v) for k, v in _entries(value).items()}
        changed[name] = value | entries if entries else axes.plain(name, value)
    return changed


def _entries(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Values):
        return value.changes
    return value if isinstance(value, dict) else {}
