"""Theory curve against an ensemble of students: ``python -m verify.trajectories [MODEL]``."""

import html
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from theory import ParameterError, prediction, scope
from theory.runtime import cli
from verify import check, check_table, ensemble, report
from verify.check import Band, Check
from verify.significance import Shape, path, skewness


@dataclass(frozen=True, repr=False)
class Comparison:
    """Comparison of a theory curve with an ensemble, variable by variable; prints as a table.

    Attributes
    ----------
    checks : list of Check
        Largest deviation of the ensemble mean per variable, in standard errors, with the
        significance of a maximum along a curve (`significance`).
    deviations : Dataset
        ``theory - mean`` per variable over time, in standard deviations of the ensemble; NaN
        without scatter.
    beyond : str
        Assumptions of the theory that these students break; empty if there are none.
    """

    checks: list[Check]
    deviations: xr.Dataset
    beyond: str = ""

    def __str__(self) -> str:
        """Table of checks, then the fraction of times at which theory lies inside the ensemble's
        band.
        """
        beyond = f"\nbeyond its scope: {self.beyond}" if self.beyond else ""
        return f"{check_table.table(self.checks)}\n{self.spoken()}{beyond}"

    def __repr__(self) -> str:
        """Number of checks with each verdict."""
        return f"<Comparison of {', '.join(c.equation for c in self.checks)}: {check_table.summary(self.checks)}>"

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def inside(self) -> dict[str, float]:
        """Fraction of evaluation times at which theory lies within two standard deviations of the
        ensemble mean.
        """
        return {
            str(name): float((np.abs(v.dropna(v.dims[0])) <= 2).mean())
            for name, v in self.deviations.items()
            if v.notnull().any()
        }

    def spoken(self) -> str:
        """`inside` as a line of text."""
        inside = "; ".join(f"{name} {share:.0%}" for name, share in self.inside().items())
        if not inside:
            return "a single curve: how it scatters is not known"
        return (
            f"times at which theory lies within two standard deviations of the ensemble: {inside}"
        )


def compare(
    curve: xr.Dataset,
    runs: xr.Dataset,
    bands: Mapping[str, Band] | None = None,
    label: str = "",
    *,
    time: str | None = None,
    beyond: bool = False,
) -> Comparison:
    """Compare all variables common to a theory curve and an ensemble.

    Parameters
    ----------
    curve : Dataset
        Theory over time; over ``(seed, time)`` if it predicts every seed, which is then compared
        seed by seed; or over ``(draw, time)`` for drawn initial values, whose mean is compared.
        Interpolated (cubic) to the ensemble's evaluation times.
    runs : Dataset
        Students over ``(seed, time)``, or any dataset with variables of the same names; without
        ``seed`` a single curve.
    bands : mapping, optional
        Per variable, known systematic deviation: (measured - predicted) over the largest predicted
        size.
    label : str
        Text appended to the names of the variables.
    time : str, optional
        Name of the time in the runs, if it differs from the theory's; the unit must be the
        theory's.
    beyond : bool
        Also compare with students that the theory does not describe, with a warning.

    Returns
    -------
    Comparison

    Raises
    ------
    ParameterError
        If curve and runs belong to different students, or to students that the theory does not
        describe; if there is no common time or variable, or a time has no coordinate.
    """
    with scope.allow_beyond(beyond):
        prediction.check_curve(curve, runs)
        broken = "; ".join(scope.broken()) or curve.attrs.get("assumptions", "")
    curve, runs, time = _timed(curve, runs, time)
    shared = [
        n
        for n, v in curve.data_vars.items()
        if {time} <= set(v.dims) <= {"seed", "draw", time}
        and n in runs.data_vars
        and {time} <= set(runs[n].dims) <= {"seed", time}
    ]
    if not shared:
        raise ParameterError(
            f"runs: no variable over {time} in common with the curve; it has "
            f"{_named(curve)}, the runs have {_named(runs)}"
        )
    times = runs[time].sel(
        {time: slice(float(curve[time][0]) - 1e-12, float(curve[time][-1]) + 1e-9)}
    )
    if not times.size:
        raise ParameterError(
            f"runs: {time} from {float(runs[time][0]):g} to {float(runs[time][-1]):g} lies outside "
            f"the curve, which has {float(curve[time][0]):g} to {float(curve[time][-1]):g}"
        )
    theory = curve[shared].interp(
        {time: times},
        method="cubic" if curve.sizes[time] > 3 else "linear",
        kwargs={"fill_value": "extrapolate"},
    )
    # For drawn initial values the mean is compared, with the standard error of their number.
    drawn = theory.var("draw", ddof=1) / theory.sizes["draw"] if "draw" in theory.dims else None
    theory = theory.mean("draw") if drawn is not None else theory
    checks, deviations = [], {}
    for name in map(str, shared):
        measured = runs[name].sel({time: times})
        scale = float(np.abs(theory[name]).max()) or 1.0
        what = f"{name}{label}, largest deviation, at {time}"
        if "seed" not in measured.dims:
            gap = theory[name] - measured
            gap = gap.mean("seed") if "seed" in gap.dims else gap
            k = _largest(gap)
            deviations[name] = xr.full_like(gap, np.nan)
            checks.append(
                check.near(
                    f"{what} = {float(times[k]):.3g}",
                    name,
                    float(measured[k] + gap[k]),
                    float(measured[k]),
                    check.SEEN,
                    "one curve, nothing says how it scatters: held to 5% of the largest size",
                    scale,
                    (bands or {}).get(name),
                )
            )
            continue
        size = runs.sizes["seed"]
        gap = theory[name] - measured
        each = gap.transpose("seed", time).values
        spread = gap.std("seed", ddof=1) if size > 1 else xr.full_like(gap.mean("seed"), np.nan)
        mean, gap = measured.mean("seed"), gap.mean("seed")
        error = (spread**2 / size + (0 if drawn is None else drawn[name])) ** 0.5
        deviations[name] = gap / spread.where(spread > 0)
        k = _largest(gap)
        checks.append(
            check.estimated(
                f"{what} = {float(times[k]):.3g}",
                name,
                float(mean[k] + gap[k]),
                float(mean[k]),
                float(error[k]),
                size,
                band=(bands or {}).get(name),
                scale=scale,
                # The gap is theory minus measured.
                shape=Shape(-skewness(each[:, k]), *path(each - each.mean(0))),
            )
        )
    return Comparison(checks, xr.Dataset(deviations), broken)


def _timed(
    curve: xr.Dataset, runs: xr.Dataset, time: str | None
) -> tuple[xr.Dataset, xr.Dataset, str]:
    """Both datasets sorted by time, which is renamed as in the curve."""
    clocks = [str(d) for d in curve.dims if d not in ("seed", "draw") and d in curve.coords]
    if time is not None and time not in runs.dims:
        raise ParameterError(f"time = {time!r}: must be a dimension of the runs ({_listed(runs)})")
    if time is not None and time not in clocks:
        if len(clocks) != 1:
            raise ParameterError(f"curve: must have one time, has {', '.join(clocks) or 'none'}")
        runs, time = runs.rename({time: clocks[0]}), clocks[0]
    time = time or next((d for d in clocks if d in runs.dims), None)
    if time is None:
        raise ParameterError(
            f"runs: no dimension {' or '.join(clocks)}; say which of {_listed(runs)} is the time: "
            "time=..."
        )
    if time not in runs.coords:
        raise ParameterError(f"runs: dimension {time} has no times: assign_coords({time}=...)")
    for whose, data in (("curve", curve), ("runs", runs)):
        times = data[time].values.astype(float)
        if not np.isfinite(times).all() or len(np.unique(times)) < len(times):
            raise ParameterError(f"{whose}: times {time} must be finite, each once")
    return curve.sortby(time), runs.sortby(time), time


def _listed(runs: xr.Dataset) -> str:
    return ", ".join(map(str, runs.dims))


def _named(data: xr.Dataset) -> str:
    return ", ".join(map(str, data.data_vars)) or "none"


def _largest(gap: xr.DataArray) -> int:
    """Index of the largest deviation; 0 if there is none."""
    size = np.abs(gap.values)
    return int(np.nanargmax(size)) if np.isfinite(size).any() else 0


def main(argv: list[str] | None = None) -> int:
    """Command line; a CSV file is compared with the model's flow (`verify.tables`)."""
    from verify import tables  # which compares by this module

    words = sys.argv[1:] if argv is None else argv
    if any(word.partition("=")[0] in ("--columns", "--rows") for word in words):
        return tables.main(argv)
    return report.main(
        "trajectories",
        "Order-parameter curves, theory against students.",
        (*ensemble.FLAGS, *tables.FLAGS),
        argv,
    )


if __name__ == "__main__":
    cli.run(main)
