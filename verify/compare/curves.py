"""A theory curve against an ensemble of students, variable by variable."""

import html
from collections import defaultdict
from collections.abc import Mapping
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
        return {
            str(name): float((np.abs(v.dropna(v.dims[0])) <= 2).mean())
            for name, v in self.deviations.items()
            if v.notnull().any()
        }

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


def compare(
    curve: Any,
    runs: xr.Dataset,
    bands: Mapping[str, Band] | None = None,
    label: str = "",
    *,
    time: str | None = None,
    beyond: bool = False,
) -> Any:
    """Compare all variables common to a theory curve and an ensemble.

    Parameters
    ----------
    curve : Dataset
        Several theories by name are ranked (`verify.compare.ranking.rank`). Otherwise a
        theory over time; over ``(seed, time)`` if it predicts every seed, which is then
        compared seed by seed; or over ``(draw, time)`` for drawn initial values, whose
        mean is compared. With ``x_bias`` and ``x_sd`` (``predict(p,
        fluctuations=True)``) the mean is ``x + x_bias`` where that is claimed, and
        students scatter by ``x_sd`` where the theory has it. Interpolated (cubic) to
        the ensemble's evaluation times.
    runs : Dataset
        Students over ``(seed, time)``, or any dataset with variables of the same names;
        without ``seed`` a single curve.
    bands : mapping, optional
        Per variable, known systematic deviation: (measured - predicted) over the
        largest predicted size.
    label : str
        Text appended to the names of the variables.
    time : str, optional
        Name of the time in the runs, if it differs from the theory's; the unit must be
        the theory's.
    beyond : bool
        Also compare with students that the theory does not describe, with a warning.

    Returns
    -------
    Comparison
        Or a `verify.compare.ranking.Ranking`, of several theories.

    Raises
    ------
    ParameterError
        If curve and runs belong to different students, or to students that the theory
        does not describe; if there is no common time or variable, or a time has no
        coordinate.
    """
    if isinstance(curve, Mapping) and not isinstance(curve, xr.Dataset):
        from verify.compare.ranking import rank  # which compares each of them

        return rank(curve, runs, time=time, beyond=beyond)
    listed = (
        bands.values() if isinstance(bands, Mapping) else [bands] * (bands is not None)
    )
    if not all(isinstance(band, Band) for band in listed):
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
    beside = [f"{n}_{x}" for n in shared for x in ("std", "n") if f"{n}_{x}" in runs]
    own = [f"{n}_{x}" for n in shared for x in ("bias", "sd") if f"{n}_{x}" in curve]
    curve = time_axes.numbers("curve", curve, [*shared, *own])
    shifted = {n: curve[n] + curve[f"{n}_bias"] for n in shared if f"{n}_bias" in own}
    curve = curve.assign(shifted)
    runs = time_axes.numbers("runs", runs, [*shared, *beside])
    first, last = float(curve[time][0]), float(curve[time][-1])
    margin = 1e-9 * max(abs(first), abs(last))
    within = runs.sel({time: slice(first - margin, last + margin)})
    unit = time_axes.other_unit(curve, runs, time, last)
    if not within.sizes[time]:
        outside = (
            f"runs: {time} from {float(runs[time][0]):g} to"
            f" {float(runs[time][-1]):g} lies outside the curve, which has {first:g} to"
            f" {last:g}"
        )
        raise ParameterError("; ".join([outside, *unit]))
    checks = []
    deviations = {}
    blank = defaultdict[str, list[str]](list)
    for name in shared:
        theory, between = (
            f(curve[name], time, within[time].values).assign_coords(within[time].coords)
            for f in (time_axes.at, time_axes.error)
        )
        spread = None
        if f"{name}_sd" in own and bool((curve[f"{name}_sd"] > 0).any()):
            spread = time_axes.at(curve[f"{name}_sd"], time, within[time].values)
            spread = spread.assign_coords(within[time].coords)
        gaps = _gaps(theory, between, within[name], runs, precise[name], spread)
        if gaps is None:
            blank["not compared, as there is no value at a time of the curve"].append(
                name
            )
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
    if (
        "draw" in theory.dims
    ):  # the mean is compared, with the standard error of their number
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
    known = [runs[f"{name}_{x}"] for x in ("std", "n") if f"{name}_{x}" in runs]
    if "seed" in gap.dims:
        known = []
    if spread is not None:
        known = [spread, count]
    if len(known) == 1 or (
        known and bool((known[0] < 0).any() | ~(known[1] > 0).any())
    ):
        raise ParameterError(
            f"runs: {name}_std, not negative, and {name}_n, the number of students, go"
            " together: tables.published"
        )
    std, n = [0 * measured + x for x in known] or (None, None)
    own = spread is not None
    return Gaps(gap, measured, runs[name], time, error, scale, std, n, own)
