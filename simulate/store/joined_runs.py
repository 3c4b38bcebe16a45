"""Runs joined to one dataset: over the settings in which they differ, over seeds, over
times.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from theory.call.refusal import ParameterError, error_summary
from theory.models import registry

NUMBERS = "biuf"  # kinds of values
RUN = "_run"  # dimension of the runs before they are on a grid
ROUNDING = 1e-10  # relative distance of times that differ by rounding alone
LENGTHS = (
    "eval_every",
    "steps",
    "epochs",
)  # fields that follow from others, if any does


def combine(datasets: Iterable[xr.Dataset], seeds: Iterable[int]) -> xr.Dataset:
    """Join runs of one configuration along ``seed``.

    Raises
    ------
    ParameterError
        If they are over other times or dimensions.
    """
    try:
        whole = xr.concat(
            list(datasets), dim="seed", combine_attrs="drop_conflicts", join="exact"
        )
    except ValueError as error:
        raise ParameterError(
            f"runs of one configuration differ: {error_summary(error)}"
        ) from None
    return whole.assign_coords(seed=("seed", np.asarray(list(seeds))))


def setting(config: str) -> dict[str, Any]:
    """Stored configuration, with the defaults of fields that were added since."""
    stored = json.loads(config)
    kind = _kind(stored)
    return stored if kind is None else kind.filled(stored)


def _kind(stored: Mapping[str, Any]) -> Any:
    """The model's ``Parameters``; None for students of no registered model."""
    model = registry.named(stored["model"])
    return None if model is None else getattr(model.wing("theory"), "Parameters", None)


def swept(settings: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Names of the fields that span the settings, and of those that vary with them.

    A field that is determined by the others is in the second list. Of several that
    determine one another, the length of a run and how often it is measured come second,
    then what a model declares later.
    """

    def distinct(names: Sequence[str]) -> int:
        values = set()
        for stored in settings:
            values.add(json.dumps([stored.get(n) for n in names]))
        return len(values)

    kind = _kind(settings[0])
    declared = [] if kind is None else list(kind.__dataclass_fields__)
    lengths = (*LENGTHS, getattr(kind, "LENGTH", ""))

    def rank(name: str) -> tuple[bool, int]:
        place = declared.index(name) if name in declared else len(declared)
        return name not in lengths, -place

    names = sorted(set[str]().union(*settings))
    varying = [n for n in names if distinct([n]) > 1]
    spanning = varying
    for name in sorted(reversed(varying), key=rank):
        others = [n for n in spanning if n != name]
        if distinct(others) == len(settings):
            spanning = others
    return spanning, [n for n in varying if n not in spanning]


@dataclass
class Grid:
    """Runs at points of a grid, to be joined along its axes.

    Parameters
    ----------
    axes : list of str
        Names of the axes.
    points : list of tuple
        Values along the axes, one point per run.
    runs : list of Dataset
        The runs, in the same order.
    """

    axes: list[str]
    points: list[tuple[Any, ...]]
    runs: list[xr.Dataset]

    def __post_init__(self) -> None:
        """Find the values along all axes, and those of every dimension in any run."""
        self.columns = [as_labels(column) for column in zip(*self.points, strict=True)]
        self.values = [sorted(set(column)) for column in self.columns]
        self.times: dict[Hashable, tuple[np.ndarray, dict[bytes, np.ndarray]]] = {}
        self.counted: dict[Hashable, np.ndarray] = {}
        dimensions = itertools.chain.from_iterable(run.sizes for run in self.runs)
        for d in dict.fromkeys(dimensions):
            known = [run.variables[d].values for run in self.runs if d in run.variables]
            if known:
                self.times[d] = _union({a.tobytes(): a for a in known})
            else:
                longest = max(run.sizes.get(d, 0) for run in self.runs)
                self.counted[d] = np.arange(1, longest + 1)

    @property
    def nbytes(self) -> int:
        """Size of the dataset."""
        lengths = {d: len(v) for d, (v, _) in self.times.items()}
        lengths |= {d: len(v) for d, v in self.counted.items()}
        sizes = {}
        for run in self.runs:
            for name, v in run.variables.items():
                values = math.prod(lengths[d] for d in v.dims)
                sizes[name] = v.dtype.itemsize * values
        return math.prod(map(len, self.values)) * sum(sizes.values())

    def dataset(self, follow: Mapping[str, Sequence[Any]]) -> xr.Dataset:
        """The runs as one dataset; NaN where there is no run or no measurement.

        Parameters
        ----------
        follow : mapping of str to sequence
            Further coordinates: one value per run.

        Raises
        ------
        ParameterError
            If a variable is over other dimensions in another run, or of another kind.
        """
        self._check_alike()
        taken: set[Hashable] = set()
        kinds: dict[Hashable, np.dtype] = {}
        others: list[Hashable] = []
        for run in self.runs:
            taken |= {*run.data_vars, *run.sizes}
            kinds |= {n: v.dtype for n, v in run.variables.items()}
            others += [n for n in run.coords if n not in run.sizes]
        label = {
            n: f"parameter_{n}" if n in taken else n for n in [*self.axes, *follow]
        }
        axes = [label[n] for n in self.axes]
        more = {label[n]: (RUN, np.asarray(as_labels(v))) for n, v in follow.items()}
        kinds |= {n: v.dtype for n, (_, v) in more.items()}
        labelled = [self._labelled(run).reset_coords() for run in self.runs]
        joined = xr.concat(
            labelled, RUN, data_vars="all", join="outer", combine_attrs="drop_conflicts"
        )
        index = pd.MultiIndex.from_arrays(self.columns, names=axes)
        place = xr.Coordinates.from_pandas_multiindex(index, RUN)
        joined = joined.assign(more).assign_coords(place).unstack(RUN)
        joined = joined.transpose(*axes, ...)
        for n, v in joined.data_vars.items():
            if n in others or n in more:
                joined[n] = v = _reduced(v.compute(), axes)
                if kinds[n].kind in "iu" and v.notnull().all():
                    joined[n] = v.astype(kinds[n])
            if kinds[n].kind == "b" and v.dtype == object:  # there are gaps
                joined[n] = v.astype(float)
            if kinds[n].kind == "U":
                joined[n] = v.fillna("").astype(str)
        joined = joined.set_coords([*others, *more])
        return joined.assign_coords(dict(zip(axes, self.values, strict=True)))

    def _check_alike(self) -> None:
        """Refuse variables over other dimensions in another run, or of another kind."""
        firsts: dict[Hashable, xr.Variable] = {}
        for run in self.runs:
            for name, variable in run.variables.items():
                first = firsts.setdefault(name, variable)
                if {*first.dims} != {*variable.dims}:
                    one, other = (
                        ", ".join(map(str, v.dims)) for v in (first, variable)
                    )
                    raise ParameterError(
                        f"{name}: over ({one}) in one run, over ({other}) in another"
                    )
                if (first.dtype.kind in NUMBERS) != (variable.dtype.kind in NUMBERS):
                    raise ParameterError(
                        f"{name}: words in one run, numbers in another"
                    )

    def _labelled(self, run: xr.Dataset) -> xr.Dataset:
        """A run whose times differ from those of other runs by more than rounding, or
        not at all; dimensions without values are counted.
        """
        values: dict[Hashable, Any] = {}
        for d, (_, merged) in self.times.items():
            if d in run.variables and len(merged) > 1:
                times = run.variables[d]
                values[d] = times.copy(data=merged[times.values.tobytes()])
        if len(self.axes) > 1:
            numbered = self.counted.keys() & run.sizes.keys()
            values |= {d: self.counted[d][: run.sizes[d]] for d in numbered}
        return run.assign_coords(values) if values else run

    def blanks(self) -> list[str]:
        """What the dataset will not hold, in words."""
        points, with_run = math.prod(map(len, self.values)), len(self.points)
        lines = []
        if with_run < points:
            axes = " x ".join(self.axes)
            missing = points - with_run
            lines.append(f"{missing} of {points} points of {axes} have no run")
        for d, (values, _) in self.times.items():
            if len(values):
                measured = sum(run.sizes.get(d, 0) for run in self.runs)
                blank = 1 - measured / with_run / len(values)
                if blank > 0:
                    lines.append(
                        f"{d}: measured at other values from setting to setting,"
                        f" {blank:.0%} blank (NaN)"
                    )
        return lines


def _union(
    known: Mapping[bytes, np.ndarray],
) -> tuple[np.ndarray, dict[bytes, np.ndarray]]:
    """Values of several coordinates, those that differ by rounding once, and every
    coordinate in these values. One coordinate keeps its order.
    """
    if len(known) == 1:
        (values,) = known.values()
        return values, dict(known)
    every = np.unique(np.concatenate([*known.values()]))
    apart = np.ones(max(len(every) - 1, 0), bool)
    if every.dtype.kind == "f":
        apart = np.diff(every) > ROUNDING * np.abs(every[1:])
    group = np.cumsum([0, *apart])[: len(every)]
    if any(
        len(np.unique(group[np.searchsorted(every, a)])) < len(a)
        for a in known.values()
    ):
        group = np.arange(len(every))  # one of them tells them apart
    values = every[np.unique(group, return_index=True)[1]]
    for k in np.flatnonzero(np.bincount(group) > 1):
        values[k] = min(every[group == k], key=lambda v: len(repr(float(v))))
    return values, {
        key: values[group[np.searchsorted(every, a)]] for key, a in known.items()
    }


def as_labels(values: Sequence[Any]) -> list[Any]:
    """Numbers, or if there is anything else among them, words."""
    numbers = all(isinstance(v, int | float) for v in values)
    return [v if numbers else str(v) for v in values]


def _reduced(values: xr.DataArray, axes: Sequence[str]) -> xr.DataArray:
    """Values along those axes alone on which they depend, wherever they are known."""
    for d in axes:
        known = values.notnull()
        first = values.isel({d: known.argmax(d)}).drop_vars(d)
        if bool(((values == first) | ~known).all()):
            values = first
    return values
