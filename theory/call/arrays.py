"""Reading arrays and lists of numbers: the one place that converts them."""

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from theory.call.refusal import ANYTHING, Allowed, ParameterError, is_time, shown

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
