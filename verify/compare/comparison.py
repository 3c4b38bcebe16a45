"""A theory curve against an ensemble of students, variable by variable."""

import html
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from theory import ParameterError
from theory.call import scope
from theory.call.refusal import shown
from verify.checks import check_table
from verify.checks.check import Band, Check, failed
from verify.compare import time_axes
from verify.compare.deviations import Gaps

SMALL, LARGE = 1e-140, 1e140  # sizes whose squares have all digits


@dataclass(frozen=True, repr=False)
class Comparison:
    """Comparison of a theory curve with an ensemble, variable by variable; prints as a
    table.

    Attributes
    ----------
    checks : list of Check
        Largest deviation of the ensemble mean per variable, in standard errors, with
        the significance of a maximum along a curve (`verdict`).
    deviations : Dataset
        ``theory - mean`` per variable over time, in standard deviations of the
        ensemble; NaN without scatter.
    beyond : str
        Assumptions of the theory that these students break; empty if there are none.
    notes : list of str
        What was not compared: times outside the curve, blanks, variables.
    """

    checks: list[Check]
    deviations: xr.Dataset
    beyond: str = ""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Table of checks, then the fraction of times at which theory lies inside the
        ensemble's band.
        """
        beyond = f"\nbeyond its scope: {self.beyond}" if self.beyond else ""
        return f"{check_table.table(self.checks)}\n{self.spoken()}{beyond}"

    def __repr__(self) -> str:
        """Number of checks with each verdict."""
        return (
            f"<Comparison of {', '.join(c.equation for c in self.checks)}:"
            f" {check_table.summary(self.checks)}>"
        )

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def inside(self) -> dict[str, float]:
        """Fraction of evaluation times at which theory lies within two standard
        deviations of the ensemble mean.
        """
        shares = {}
        for name, deviation in self.deviations.items():
            if deviation.notnull().any():
                sizes = np.abs(deviation.dropna(deviation.dims[0]))
                shares[str(name)] = float((sizes <= 2).mean())
        return shares

    def spoken(self) -> str:
        """`inside` as a line of text, and the notes."""
        inside = "; ".join(
            f"{name} {share:.0%}" for name, share in self.inside().items()
        )
        first = (
            "times at which theory lies within two standard deviations of the"
            f" ensemble: {inside}"
            if inside
            else "a single curve: how it scatters is not known"
        )
        return "\n".join([first, *self.notes])


def compare_one(
    curve: xr.Dataset,
    runs: xr.Dataset,
    bands: Mapping[str, Band] | None = None,
    label: str = "",
    *,
    time: str | None = None,
    beyond: bool = False,
) -> Comparison:
    """One theory with an ensemble, as `verify.compare.curves.compare`."""
    listed = bands.values() if isinstance(bands, Mapping) else ()
    mapped = bands is None or isinstance(bands, Mapping)
    if not (mapped and all(isinstance(band, Band) for band in listed)):
        raise ParameterError(
            f"bands = {shown(bands)}: must be a mapping of names to Bands"
        )
    with scope.allow_beyond(beyond):
        curve, runs, time = time_axes.pair(curve, runs, time)
        past = curve.attrs.get("status") == "beyond its scope"
        broken = "; ".join(scope.broken()) or curve.attrs.get("assumptions", "") * past
    notes: list[str] = [str(curve.attrs["note"])] if "note" in curve.attrs else []
    shared = _shared(curve, runs, time, notes)
    precise = {n: time_axes.precision(curve[n], runs[n]) for n in shared}
    published = time_axes.companions(runs, shared, ("std", "n"))
    of_theory = time_axes.companions(curve, shared, ("bias", "sd"))
    curve = time_axes.numbers("curve", curve, [*shared, *of_theory])
    biased = [name for name in shared if f"{name}_bias" in of_theory]
    curve = curve.assign({name: curve[name] + curve[f"{name}_bias"] for name in biased})
    runs = time_axes.numbers("runs", runs, [*shared, *published])
    first, last = float(curve[time][0]), float(curve[time][-1])
    margin = 1e-9 * max(abs(first), abs(last))
    within = runs.sel({time: slice(first - margin, last + margin)})
    unit = time_axes.other_unit(curve, runs, time, last)
    if not within.sizes[time]:
        begin, end = float(runs[time][0]), float(runs[time][-1])
        outside = (
            f"runs: {time} from {begin:g} to {end:g} lies outside the curve, which has"
            f" {first:g} to {last:g}"
        )
        raise ParameterError("; ".join([outside, *unit]))
    checks = []
    deviations = {}
    blank = defaultdict[str, list[str]](list)
    times = within[time]

    def at_times(of: Callable[..., xr.DataArray], column: xr.DataArray) -> xr.DataArray:
        return of(column, time, times.values).assign_coords(times.coords)

    for name in shared:
        theory = at_times(time_axes.at, curve[name])
        between = at_times(time_axes.error, curve[name])
        spread = None
        if f"{name}_sd" in of_theory and bool((curve[f"{name}_sd"] > 0).any()):
            spread = at_times(time_axes.at, curve[f"{name}_sd"])
        gaps = _gaps(theory, between, within[name], runs, precise[name], spread)
        if gaps is None:
            note = "not compared, as there is no value at a time of the curve"
            blank[note].append(name)
            continue
        for note in gaps.notes(first, last):
            blank[note].append(name)
        deviations[name] = gaps.deviation
        checks.append(gaps.check(name, label, (bands or {}).get(name)))
    notes += [f"{', '.join(names)}: {note}" for note, names in blank.items()]
    if not checks:
        raise ParameterError("; ".join(notes))
    if within.sizes[time] < runs.sizes[time] or failed(checks):
        notes += unit
    if failed(checks) and (status := curve.attrs.get("status", "exact")) != "exact":
        notes.append(
            f"the theory is not exact ({status}): bands={{...}} allows what it is known"
            " to be off by; python -m verify.trajectories knows that of its model"
        )
    return Comparison(checks, xr.Dataset(deviations), broken, notes)


def _shared(
    curve: xr.Dataset, runs: xr.Dataset, time: str, notes: list[str]
) -> list[str]:
    """Variables to compare; of common ones that cannot be, a note.

    Raises
    ------
    ParameterError
        If there are none.
    """
    shared = []
    for name in (str(n) for n in curve.data_vars if n in runs.data_vars):
        more = {*curve[name].dims, *runs[name].dims} - {time, "seed"}
        more -= {"draw"} - {*runs[name].dims}
        if more:
            notes.append(
                f"{name}: not compared, as it is over {', '.join(map(str, more))}, too"
            )
        elif time in curve[name].dims and time in runs[name].dims:
            shared.append(name)
    if not shared:
        why = "".join(f"; {note}" for note in notes)
        raise ParameterError(
            f"runs: no variable over {time} in common with the curve; it has "
            f"{_named(curve)}, the runs have {_named(runs)}{why}"
        )
    return shared


def _named(data: xr.Dataset) -> str:
    return ", ".join(map(str, data.data_vars)) or "none"


def _gaps(
    theory: Any,
    between: Any,
    measured: xr.DataArray,
    runs: xr.Dataset,
    precision: float,
    spread: xr.DataArray | None = None,
) -> Gaps | None:
    """Theory, with its error between the points of a curve and the standard deviation
    over students that it gives, minus measured; None if there is no value.

    Raises
    ------
    ParameterError
        For a theory of a single draw, or standard deviations without numbers of
        students.
    """
    error = between**2
    # Of several draws the mean is compared, with the standard error of their number.
    if "draw" in theory.dims:
        draws = theory.count("draw")
        if not (draws > 1).any():
            raise ParameterError(
                "curve: one draw does not say how draws scatter; isel(draw=0)"
            )
        error = theory.var("draw", ddof=1) / draws + error.mean("draw")
        theory = theory.mean("draw").where(draws > 1)
    name, time = measured.name, str(theory.dims[-1])
    count = measured.count("seed") if "seed" in measured.dims else measured.notnull()
    if spread is not None and "seed" in measured.dims:
        measured = measured.mean("seed")
    theory, measured = xr.align(theory, measured.transpose(..., time), join="inner")
    gap = (theory - measured).transpose(..., time)
    if not gap.notnull().any():
        return None
    scale = float(np.abs(theory).where(gap.notnull()).max()) or 1.0
    most = max(scale, float(np.abs(measured).max()))
    if not SMALL < scale <= most < LARGE:
        raise ParameterError(
            f"{name}: squares of {most if most >= LARGE else scale:g} leave double"
            " precision; change its unit"
        )
    error = error.mean("seed") if "seed" in error.dims else error
    error = error.fillna(0).values + (precision * scale) ** 2
    of_theory = spread is not None
    if spread is not None:
        known = [spread, count]
    elif "seed" in gap.dims:
        known = []
    else:
        known = [runs[x] for x in time_axes.companions(runs, [str(name)], ("std", "n"))]
    if len(known) == 1 or (
        known and bool((known[0] < 0).any() | ~(known[1] > 0).any())
    ):
        raise ParameterError(
            f"runs: {name}_std, not negative, and {name}_n, the number of students, go"
            " together: tables.published"
        )
    std, n = [0 * measured + x for x in known] or (None, None)
    return Gaps(gap, measured, runs[name], time, error, scale, std, n, of_theory)
