"""Runs joined to one dataset: over the settings in which they differ, over seeds, over times."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from theory import prediction
from theory.parameters import ParameterError

ROUNDING = 1e-10  # relative distance of times that differ by rounding alone
LENGTHS = ("eval_every", "steps", "epochs")  # fields that follow from others, if any does


def setting(config: str) -> dict[str, Any]:
    """Stored configuration, with the defaults of fields that were added since."""
    stored = json.loads(config)
    kind = _kind(stored)
    return stored if kind is None else kind.filled(stored)


def _kind(stored: Mapping[str, Any]) -> Any:
    """The model's ``Parameters``; None for students of no registered model."""
    model = prediction.named(stored["model"])
    return None if model is None else getattr(model.wing("theory"), "Parameters", None)


def swept(settings: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Names of the fields that span the settings, and of those that vary with them.

    A field that is determined by the others is in the second list. Of several that determine one
    another, the length of a run and how often it is measured come second, then what a model
    declares later.
    """

    def distinct(names: Iterable[str]) -> int:
        return len({json.dumps([s.get(n) for n in names]) for s in settings})

    kind = _kind(settings[0])
    declared = [] if kind is None else list(kind.__dataclass_fields__)
    lengths = (*LENGTHS, getattr(kind, "LENGTH", ""))
    varying = [n for n in sorted({n for s in settings for n in s}) if distinct([n]) > 1]
    spanning = varying
    for name in sorted(
        reversed(varying),
        key=lambda n: (n not in lengths, -declared.index(n) if n in declared else -len(declared)),
    ):
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
        """Find the place of every run along the axes, and of its measurements along dimensions."""
        columns = [as_labels(column) for column in zip(*self.points, strict=True)]
        self.values = [sorted(set(column)) for column in columns]
        place = [{v: k for k, v in enumerate(values)} for values in self.values]
        self.places = [
            tuple(of[v] for of, v in zip(place, point, strict=True))
            for point in zip(*columns, strict=True)
        ]
        variables = [run.variables for run in self.runs]
        self.lengths: dict[Hashable, int] = {}
        self.coordinates: dict[Hashable, np.ndarray] = {}
        self.at: list[dict[Hashable, np.ndarray]] = [{} for _ in self.runs]
        for d in dict.fromkeys(d for run in self.runs for d in run.sizes):
            own = [v[d].values if d in v else None for v in variables]
            known = {a.tobytes(): a for a in own if a is not None}
            self.lengths[d] = max(run.sizes.get(d, 0) for run in self.runs)
            if known:
                self.coordinates[d], at = _union(known)
                self.lengths[d] = len(self.coordinates[d])
            for places, run, a in zip(self.at, self.runs, own, strict=True):
                if a is not None:
                    places[d] = at[a.tobytes()]
                elif d in run.sizes:
                    counted = np.arange(self.lengths[d])
                    places[d] = np.where(counted < run.sizes[d], counted, -1)

    @property
    def nbytes(self) -> int:
        """Size of the dataset."""
        sizes = {
            name: v.dtype.itemsize * math.prod(self.lengths[d] for d in v.dims)
            for run in self.runs
            for name, v in run.variables.items()
        }
        return math.prod(map(len, self.values)) * sum(sizes.values())

    def dataset(self, follow: Mapping[str, Sequence[Any]]) -> xr.Dataset:
        """The runs as one dataset; NaN where there is no run or no measurement.

        Parameters
        ----------
        follow : mapping of str to sequence
            Further coordinates: one value per run.
        """
        names = list(dict.fromkeys(n for run in self.runs for n in run.data_vars))
        taken = {*names, *self.lengths}
        label = {n: f"parameter_{n}" if n in taken else n for n in [*self.axes, *follow]}
        axes = [label[n] for n in self.axes]
        data = {n: self._stacked(axes, *self._cells(n)) for n in names}
        others = dict.fromkeys(n for run in self.runs for n in run.coords if n not in self.lengths)
        coords = {n: self._stacked(axes, *self._cells(n), reduce=True) for n in others}
        for name, values in follow.items():
            listed = map(np.asarray, as_labels(values))
            cells = dict(zip(self.places, listed, strict=True))
            one = xr.Variable((), next(iter(cells.values())))
            coords[label[name]] = self._stacked(axes, cells, one, reduce=True)
        for d, v in self.coordinates.items():
            coords[d] = xr.Variable(d, v, _common(r[d].attrs for r in self.runs if d in r.coords))
        if len(axes) > 1:  # others are counted
            counted = {d: n for d, n in self.lengths.items() if d not in self.coordinates}
            coords |= {d: xr.Variable(d, np.arange(1, n + 1)) for d, n in counted.items()}
        coords |= {n: xr.Variable(n, v) for n, v in zip(axes, self.values, strict=True)}
        return xr.Dataset(data, coords, _common(run.attrs for run in self.runs))

    def _cells(self, name: Hashable) -> tuple[dict[tuple[int, ...], Any], xr.Variable]:
        """A variable of all runs by place, padded to equal shape, and as it is in one run."""
        cells: dict[tuple[int, ...], Any] = {}
        of = {k: v[name] for k, v in enumerate(run.variables for run in self.runs) if name in v}
        first = next(iter(of.values()))
        for k, variable in of.items():
            if variable.dims != first.dims:
                raise ParameterError(
                    f"{name}: over ({', '.join(map(str, first.dims))}) in one run, over "
                    f"({', '.join(map(str, variable.dims))}) in another"
                )
            values = variable.data
            for axis, d in enumerate(first.dims):
                at = self.at[k][d]
                if len(at) != values.shape[axis] or (at[1:] < at[:-1]).any():
                    edge = values[(slice(None),) * axis + (slice(0, 1),)]
                    values = np.take(np.concatenate([values, _blank(edge)], axis), at, axis)
            cells[self.places[k]] = values
        return cells, first

    def _stacked(
        self,
        axes: Sequence[str],
        cells: dict[tuple[int, ...], Any],
        one: xr.Variable,
        reduce: bool = False,
    ) -> xr.Variable:
        """One variable along the axes; with ``reduce``, only along those on which it depends."""
        along = list(range(len(axes)))
        for k in reversed(along) if reduce else ():
            if (merged := _merged(cells, along.index(k))) is not None:
                cells = merged
                along.remove(k)
        sizes = [len(self.values[k]) for k in along]
        blank = _blank(next(iter(cells.values())))
        every = [cells.get(place, blank) for place in np.ndindex(*sizes)]
        values = np.stack(every).reshape(*sizes, *blank.shape)
        if reduce and one.dtype.kind in "iu" and not np.isnan(values).any():
            values = values.astype(one.dtype)
        return xr.Variable([*(axes[k] for k in along), *one.dims], values, one.attrs)

    def blanks(self) -> list[str]:
        """What the dataset will not hold, in words."""
        every, there = math.prod(map(len, self.values)), len(self.places)
        some = [f"{every - there} of {every} points of {' x '.join(self.axes)} have no run"]
        shares = {
            d: 1 - sum(run.sizes.get(d, 0) for run in self.runs) / there / len(values)
            for d, values in self.coordinates.items()
            if len(values)
        }
        times = [
            f"{d}: measured at other values from setting to setting, {x:.0%} blank (NaN)"
            for d, x in shares.items()
            if x > 0
        ]
        return some * (there < every) + times


def _union(known: Mapping[bytes, np.ndarray]) -> tuple[np.ndarray, dict[bytes, np.ndarray]]:
    """Values of several coordinates, those that differ by rounding once; where each has them (-1 if
    it does not). One coordinate keeps its order.
    """
    if len(known) == 1:
        ((key, values),) = known.items()
        return values, {key: np.arange(len(values))}
    every = np.unique(np.concatenate([*known.values()]))
    apart = np.ones(max(len(every) - 1, 0), bool)
    if every.dtype.kind == "f":
        apart = np.diff(every) > ROUNDING * np.abs(every[1:])
    group = np.cumsum([0, *apart])[: len(every)]
    if any(len(np.unique(group[np.searchsorted(every, a)])) < len(a) for a in known.values()):
        group = np.arange(len(every))  # one of them tells them apart
    values = every[np.unique(group, return_index=True)[1]]
    for k in np.flatnonzero(np.bincount(group) > 1):
        values[k] = min(every[group == k], key=lambda v: len(repr(float(v))))
    at = {key: np.full(len(values), -1) for key in known}
    for key, a in known.items():
        at[key][group[np.searchsorted(every, a)]] = np.arange(len(a))
    return values, at


def as_labels(values: Sequence[Any]) -> list[Any]:
    """Numbers, or if there is anything else among them, words."""
    numbers = all(isinstance(v, int | float) for v in values)
    return [v if numbers else str(v) for v in values]


def _merged(cells: Mapping[tuple[int, ...], Any], k: int) -> dict[tuple[int, ...], Any] | None:
    """Cells without their k-th axis, if they are the same along it wherever they are known."""
    merged: dict[tuple[int, ...], Any] = {}
    for place, new in cells.items():
        key, new = place[:k] + place[k + 1 :], np.asarray(new)
        old = merged.setdefault(key, new)
        floats = new.dtype.kind == old.dtype.kind == "f"
        known = ~(np.isnan(old) | np.isnan(new)) if floats else np.ones(new.shape, bool)
        if not (old == new)[known].all():
            return None
        merged[key] = np.where(np.isnan(old), new, old) if floats else old
    return merged


def _blank(values: Any) -> Any:
    """As many values that stand for nothing: NaN, or an empty word."""
    kind = values.dtype.kind
    return np.full(
        values.shape, "" if kind in "US" else np.nan, values.dtype if kind == "f" else None
    )


def _common(attributes: Iterable[Mapping[Hashable, Any]]) -> dict[Hashable, Any]:
    """Attributes that are the same wherever they are given."""
    values: dict[Hashable, dict[str, Any]] = {}
    for attrs in attributes:
        for name, v in attrs.items():
            values.setdefault(name, {})[repr(v)] = v
    return {name: next(iter(v.values())) for name, v in values.items() if len(v) == 1}
