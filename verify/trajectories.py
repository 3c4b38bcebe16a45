"""Theory curve against an ensemble of students: ``python -m verify.trajectories [MODEL]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from theory import cli
from verify import check, ensemble, report
from verify.check import Band, Check


@dataclass(frozen=True)
class Comparison:
    """A theory curve held against an ensemble, variable by variable; prints as a table.

    Attributes
    ----------
    checks : list of Check
        Largest deviation of the ensemble mean per variable, in standard errors.
    deviations : Dataset
        ``theory - mean`` per variable over time, in standard errors (``<name>_se``) and in standard
        deviations of the ensemble (``<name>_sd``); NaN where the ensemble does not spread.
    """

    checks: list[Check]
    deviations: xr.Dataset

    def __str__(self) -> str:
        """Table of checks, then how often theory lies inside the ensemble's band."""
        return f"{check.table(self.checks)}\n{self.spoken()}"

    def inside(self) -> dict[str, float]:
        """Share of evaluation times at which theory lies within two standard deviations of the
        ensemble mean.
        """
        return {
            str(name).removesuffix("_sd"): float((np.abs(v.dropna(v.dims[0])) <= 2).mean())
            for name, v in self.deviations.items()
            if str(name).endswith("_sd")
        }

    def spoken(self) -> str:
        """The same as a line."""
        inside = "; ".join(f"{name} {share:.0%}" for name, share in self.inside().items())
        return (
            f"times at which theory lies within two standard deviations of the ensemble: {inside}"
        )


def compare(
    curve: xr.Dataset, runs: xr.Dataset, bands: Mapping[str, Band] | None = None, label: str = ""
) -> Comparison:
    """Compare every variable that a theory curve and an ensemble share.

    Parameters
    ----------
    curve : Dataset
        Theory over time, or over ``(seed, time)`` where it follows every seed, which is then
        compared seed by seed; interpolated to the ensemble's evaluation times (cubic).
    runs : Dataset
        Students over ``(seed, time)``.
    bands : mapping, optional
        Per variable, where the theory is known to be off: (measured - predicted) over the largest
        predicted size.
    label : str
        Behind the names of the variables.

    Returns
    -------
    Comparison
    """
    time = next(d for d in curve.dims if d in runs.dims and d != "seed")
    shared = [
        n
        for n, v in curve.data_vars.items()
        if {time} <= set(v.dims) <= {"seed", time}
        and n in runs
        and set(runs[n].dims) == {"seed", time}
    ]
    at = runs[time].sel({time: slice(float(curve[time][0]) - 1e-12, float(curve[time][-1]) + 1e-9)})
    theory = curve[shared].interp(
        {time: at},
        method="cubic" if curve.sizes[time] > 3 else "linear",
        kwargs={"fill_value": "extrapolate"},
    )
    size = runs.sizes["seed"]
    checks, deviations = [], {}
    for name in map(str, shared):
        gap = theory[name] - runs[name].sel({time: at})
        spread = gap.std("seed", ddof=1) if size > 1 else xr.full_like(gap.mean("seed"), np.nan)
        mean, gap = runs[name].sel({time: at}).mean("seed"), gap.mean("seed")
        deviations[f"{name}_sd"] = gap / spread.where(spread > 0)
        deviations[f"{name}_se"] = deviations[f"{name}_sd"] * np.sqrt(size)
        k = int(np.abs(gap.values).argmax())
        checks.append(
            check.estimated(
                f"{name}{label}, largest deviation, at {time} = {float(at[k]):.3g}",
                name,
                float(mean[k] + gap[k]),
                float(mean[k]),
                float(spread[k] / np.sqrt(size)),
                size,
                band=(bands or {}).get(name),
                scale=float(np.abs(theory[name]).max()),
            )
        )
    return Comparison(checks, xr.Dataset(deviations))


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    return report.main(
        "trajectories",
        "Order-parameter curves, theory against students.",
        ensemble.FLAGS,
        argv,
        more=ensemble.flag,
    )


if __name__ == "__main__":
    cli.run(main)
