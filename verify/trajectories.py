"""Theory curve against an ensemble of students: ``python -m verify.trajectories [MODEL]``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from theory import cli
from verify import check
from verify.check import Check


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
        inside = "; ".join(f"{name} {share:.0%}" for name, share in self.inside().items())
        return f"{check.table(self.checks)}\ntimes at which theory lies within two standard deviations of the ensemble: {inside}"

    def inside(self) -> dict[str, float]:
        """Share of evaluation times at which theory lies within two standard deviations of the ensemble mean."""
        return {str(name).removesuffix("_sd"): float((np.abs(v.dropna(v.dims[0])) <= 2).mean())
                for name, v in self.deviations.items() if str(name).endswith("_sd")}  # fmt: skip


def compare(curve: xr.Dataset, runs: xr.Dataset, known_limits: Mapping[str, str] | None = None) -> Comparison:
    """Compare every variable that a theory curve and an ensemble share.

    Parameters
    ----------
    curve : Dataset
        Theory over time; interpolated to the ensemble's evaluation times (cubic).
    runs : Dataset
        Students over ``(seed, time)``.
    known_limits : mapping, optional
        Reason per variable for which a deviation is reported instead of failed. By default the
        limits that the model of ``runs`` declares.

    Returns
    -------
    Comparison
    """
    if known_limits is None:
        from theory.registry import find

        known_limits = find(runs.attrs["model"]).wing("verify", "trajectories").KNOWN_LIMITS
    time = next(d for d in curve.dims if d in runs.dims)
    shared = [
        n for n, v in curve.data_vars.items() if v.dims == (time,) and n in runs and set(runs[n].dims) == {"seed", time}
    ]
    at = runs[time].sel({time: slice(float(curve[time][0]) - 1e-12, float(curve[time][-1]) + 1e-9)})
    theory = curve[shared].interp(
        {time: at}, method="cubic" if curve.sizes[time] > 3 else "linear", kwargs={"fill_value": "extrapolate"}
    )
    size = runs.sizes["seed"]
    checks, deviations = [], {}
    for name in map(str, shared):
        measured = runs[name].sel({time: at})
        mean = measured.mean("seed")
        spread = measured.std("seed", ddof=1) if size > 1 else xr.full_like(mean, np.nan)
        gap = theory[name] - mean
        deviations[f"{name}_sd"] = gap / spread.where(spread > 0)
        deviations[f"{name}_se"] = deviations[f"{name}_sd"] * np.sqrt(size)
        k = int(np.abs(gap.values).argmax())
        se = float(spread[k] / np.sqrt(size))
        z = check.normal_z(abs(float(gap[k])) / se, size) if se > 0 else np.inf
        checks.append(Check(f"{name}, largest deviation, at {time} = {float(at[k]):.3g}", name, float(theory[name][k]),
                            float(mean[k]), z, check.Z_MAX, check.Z_REASON, known_limits.get(name, ""), se))  # fmt: skip
    return Comparison(checks, xr.Dataset(deviations))


def arguments(prog: str, description: str) -> Any:
    """Parser of the commands that hold theory against an ensemble."""
    parser = cli.parser(prog, description, "json", "plot", "set", "preset", "seeds", "alpha", "device", "quiet")
    parser.add_argument("--runs", type=Path, metavar="PATH",
                        help="ensemble to use: a netCDF file or a folder of runs (default: train the demo ensemble)")  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    args = arguments("verify.trajectories", "Order-parameter curves, theory against students.").parse_args(argv)
    cli.offers(args.model, "trajectories")
    cli.check_plot(args.plot)
    module = args.model.wing("verify", "trajectories")
    p, runs = args.model.wing("verify", "ensemble").get(args)
    comparison, more, notes = module.verify(p, runs)
    checks = [*comparison.checks, *more]
    if args.json:
        check.report(args.model.name, checks, True, inside_two_sd=comparison.inside())
    else:
        print(Comparison(checks, comparison.deviations))
    for note in notes:
        print(note, file=sys.stderr if args.json else sys.stdout)
    if args.plot is not None:
        from theory import plotting

        plotting.deliver(
            module.draw(p, runs),
            args.plot,
            f"trajectories_{args.model.name}.png",
            stream=sys.stderr if args.json else None,
        )
    return 0 if check.passed(checks) else 1


if __name__ == "__main__":
    cli.run(main)
