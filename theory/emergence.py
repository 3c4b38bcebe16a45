"""Emergence times of every model as datasets, and one name for the length of a run."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from theory import scope, sweep
from theory.misfits import misfit
from theory.onset import Onset, in_few_steps
from theory.parameters import BaseParameters, ParameterError, Stepped


def until(*aliases: str) -> Callable[[Callable], Callable]:
    """Decorator: let the keyword ``until``, the length of a run, also be given under the name of
    the model's time.

    Parameters
    ----------
    *aliases : str
        Names of the time, e.g. ``alpha``.
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*given: Any, **more: Any) -> Any:
            for alias in aliases:
                if alias in more:
                    if "until" in more:
                        raise ParameterError(f"{alias} = {more[alias]}: is the same as until")
                    more["until"] = more.pop(alias)
            return function(*given, **more)

        return call

    return decorate


def of_onset(onset: Callable[..., Onset]) -> Callable[..., xr.Dataset]:
    """Make a model's ``emergence_times`` from its onset."""
    scopes: Mapping[str, scope.Scope] = getattr(onset, "scopes", {})

    @sweep.over_fields
    def at_a_point(p: BaseParameters) -> xr.Dataset:
        result = onset(p)
        if not result.times:
            raise ParameterError("; ".join(["p: nothing emerges", *result.notes]))
        scope.refuse(in_few_steps(p, result))
        unit_of = p.unit_of_time if isinstance(p, Stepped) else str
        times = {}
        for name, unit in result.times.items():
            about = {"long_name": result.labels[name], "units": unit_of(unit)}
            if name in result.absent and not math.isfinite(result.numbers[name]):
                about["absent"] = result.absent[name]
            times[name] = ((), result.numbers[name], about)
        return xr.Dataset(times)

    def emergence_times(p: Any, *, beyond: bool = False, **fields: Any) -> xr.Dataset:
        """Times at which a mechanism emerges, the times among the numbers of `onset`.

        Parameters
        ----------
        p : Parameters
            Parameters of the model.
        beyond : bool
            Also answer for students that the theory does not describe, with a warning.
        **fields
            Arrays of fields, each of which becomes a dimension of the result.

        Returns
        -------
        Dataset
            One variable per event, with description and unit as attributes; infinite or NaN if it
            never happens, or for the reason in the attribute ``absent``.

        Raises
        ------
        ParameterError
            If the theory does not describe these students (descent in few steps is no flow), if
            nothing emerges, or a field is unknown.
        """
        if not isinstance(p, BaseParameters):
            raise misfit("p", p, next((s.parameters for s in scopes.values()), None))
        with scope.allow_beyond(beyond):
            return scope.marked(at_a_point(p, **fields))

    emergence_times.scopes = scopes  # type: ignore[attr-defined]
    return emergence_times


def labelled(name: str, values: Any, given: Mapping[str, Any], **attributes: str) -> xr.Dataset:
    """One variable over the fields that were swept.

    Parameters
    ----------
    name : str
        Name of the variable.
    values : array_like or DataArray
        Result of array code for ``given``; a DataArray has its dimensions already.
    given : mapping of str to array_like
        Swept fields and overridden derived quantities, which broadcast.
    """
    if isinstance(values, xr.DataArray):
        return values.rename(name).assign_attrs(attributes).to_dataset()
    arrays = {field: np.asarray(v) for field, v in given.items()}
    dims, coordinates = sweep.axes(arrays, np.shape(values), {f: f for f in arrays})
    return xr.Dataset({name: (dims, values, attributes)}, coordinates)
