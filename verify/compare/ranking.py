"""Which of several theories is nearer to students, and whether the seeds can tell."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from theory import ParameterError
from theory.call import scope
from theory.runtime import output
from verify.compare import time_axes
from verify.compare.comparison import Comparison, compare_one

RESAMPLED = 4000  # drawn ensembles of seeds
LEVEL = 0.95
FEW = 5  # seeds, below which their resampling decides nothing


@dataclass(frozen=True, repr=False)
class Ranking:
    """Theories by their distance from students, the nearest first; prints as a table.

    Attributes
    ----------
    table : Dataset
        Over ``theory``: ``distance``, the root mean square of theory minus student
        over seeds, times and variables, each in units of its largest measured size;
        ``more``,
        by how much that exceeds the nearest; ``error``, its standard error over seeds,
        the same for both; ``low`` and ``high``, the ends of its 95% interval.
    comparisons : dict
        The `Comparison` of each theory with the students, with its verdict.
    seeds : int
        Number of students.
    """

    table: xr.Dataset
    comparisons: dict[str, Comparison]
    seeds: int

    @property
    def nearest(self) -> list[str]:
        """Theories that the students do not tell from the nearest, that one first."""
        low = self.table.low.values
        names = map(str, self.table.theory.values)
        return [n for k, n in enumerate(names) if k == 0 or not low[k] > 0]

    @property
    def verdict(self) -> str:
        """Which theory is nearer, in a line."""
        first, *others = self.nearest
        if others and self.seeds < FEW:
            return (
                f"{first} is nearer than {', '.join(others)}, but {self.seeds} seed"
                f"{'s' * (self.seeds > 1)} cannot tell whether by chance: take"
                f" {FEW} or more"
            )
        if others:
            return (
                f"undecided between {' and '.join([first, *others])}: their distances"
                f" differ by less than {self.seeds} seeds show"
            )
        return f"{first} is nearer"

    def __str__(self) -> str:
        """Result, table, and the verdict of each theory."""
        rows = []
        for name in map(str, self.table.theory.values):
            row = self.table.sel(theory=name)
            distance, more, error, low, high = (
                float(row[x]) for x in ("distance", "more", "error", "low", "high")
            )
            verdicts = sorted({c.verdict for c in self.comparisons[name].checks})
            shown = ("", "", "")
            if more > 0:
                interval = f"{low:.1%} to {high:.1%}" if np.isfinite(error) else ""
                shown = (
                    f"{more:.1%}",
                    f"{error:.1%}" if np.isfinite(error) else "",
                    interval,
                )
            rows.append((name, f"{distance:.1%}", *shown, ", ".join(verdicts)))
        header = (
            "theory",
            "distance",
            "more than first",
            "+- seeds",
            f"{LEVEL:.0%}",
            "alone",
        )
        words = (
            "distance: root mean square of theory - student, relative to the largest"
            " measured size"
        )
        table = output.table(header, rows, wide=True)
        return f"result: {self.verdict}\n\n{table}\n{words}"

    def __repr__(self) -> str:
        """The verdict."""
        return f"<Ranking: {self.verdict}>"

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        return f"<pre>{html.escape(str(self))}</pre>"


def rank(
    curves: Mapping[str, xr.Dataset],
    runs: xr.Dataset,
    *,
    time: str | None = None,
    beyond: bool = False,
) -> Ranking:
    """Rank theories by their distance from students.

    Parameters
    ----------
    curves : mapping of str to Dataset
        Theories by name, two or more, each as `verify.trajectories.compare` takes it.
        What all of them have is compared, at times within all of them.
    runs : Dataset
        Students over ``(seed, time)``.
    time, beyond
        As of `verify.trajectories.compare`.

    Returns
    -------
    Ranking

    Raises
    ------
    ParameterError
        For fewer than two theories, or if there is nothing that all have.

    Notes
    -----
    Students are the same for all theories, so that their scatter largely drops out of
    differences; seeds are drawn again with replacement for the error that is left.
    """
    if isinstance(curves, xr.Dataset) or len(curves) < 2:
        raise ParameterError("curves: must be two theories or more, by name")
    comparisons, gaps = {}, {}
    for name, curve in curves.items():
        comparisons[name] = compare_one(curve, runs, time=time, beyond=beyond)
        with scope.allow_beyond(beyond):
            gaps[name] = _gaps(*time_axes.pair(curve, runs, time))
    variables = [{*map(str, gap.data_vars)} for gap in gaps.values()]
    shared = sorted(set.intersection(*variables))
    if not shared:
        raise ParameterError("curves: no variable that all theories and the runs have")
    aligned = xr.align(*(gap[shared] for gap in gaps.values()), join="inner")
    known = {}
    for name in shared:
        known[name] = np.all([gap[name].notnull() for gap in aligned], 0)
    distances = []
    for gap in aligned:
        squares = [np.where(known[x], gap[x].values ** 2, 0.0) for x in shared]
        distances.append(np.sum([square.sum(-1) for square in squares], 0))
    values = np.sum([known[x].sum(-1) for x in shared], 0)
    if not values.any():
        raise ParameterError("curves: have no value at a time that all of them cover")
    return _ranked([*curves], np.array(distances), values, comparisons)


def _gaps(curve: xr.Dataset, runs: xr.Dataset, time: str) -> xr.Dataset:
    """Theory minus each student, in units of the largest measured size, over ``(seed,
    time)``.
    """
    names = []
    for name in curve.data_vars:
        if name in runs:
            dims, measured = curve[name].dims, runs[name].dims
            over_time = time in dims and time in measured
            if over_time and {*dims, *measured} <= {time, "seed", "draw"}:
                names.append(str(name))
    curve = time_axes.numbers("curve", curve, names)
    runs = time_axes.numbers("runs", runs, names)
    inside = runs.sel({time: slice(float(curve[time][0]), float(curve[time][-1]))})
    gaps = {}
    for name in names:
        theory = curve[name].mean("draw") if "draw" in curve[name].dims else curve[name]
        predicted = time_axes.at(theory, time, inside[time].values)
        gap = predicted.assign_coords({time: inside[time]}) - inside[name]
        gap = gap if "seed" in gap.dims else gap.expand_dims("seed")
        size = float(np.abs(runs[name]).max()) or 1.0
        gaps[name] = gap.transpose("seed", time) / size
    return xr.Dataset(gaps)


def _ranked(
    names: list[str],
    squares: np.ndarray,
    values: np.ndarray,
    comparisons: dict[str, Comparison],
) -> Ranking:
    """Order theories, from summed squares ``(theory, seed)`` and numbers of values."""
    seeds = squares.shape[1]
    drawn = np.random.default_rng(0).integers(seeds, size=(RESAMPLED, seeds))
    distance = np.sqrt(squares.sum(1) / values.sum())
    order = np.argsort(distance, kind="stable")
    resampled = np.sqrt(
        squares[:, drawn].sum(-1) / np.maximum(values[drawn].sum(-1), 1)
    )
    more = distance[order] - distance[order[0]]
    apart = resampled[order] - resampled[order[0]]
    error, low, high = np.full((3, len(names)), np.nan)
    if seeds >= FEW:
        # of so few values a resampled scatter is too small by this factor
        error = apart.std(1) * np.sqrt(seeds / (seeds - 1))
        low, high = np.quantile(apart, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    table: dict[str, Any] = {
        "distance": distance[order],
        "more": more,
        "error": error,
        "low": low,
        "high": high,
    }
    data = {x: ("theory", v) for x, v in table.items()}
    ranked = [names[k] for k in order]
    return Ranking(xr.Dataset(data, {"theory": ranked}), comparisons, seeds)
