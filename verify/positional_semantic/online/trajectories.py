"""One-pass students, extrapolated to many dimensions, against the flow."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from simulate.positional_semantic import online
from theory import titles
from theory.positional_semantic.online import Parameters, predict
from theory.runtime import plotting
from verify import ensemble
from verify.check import Check, listed, sampled
from verify.positional_semantic.minima import at_infinity, over_d
from verify.report import Report, Request
from verify.trajectories import compare

SHARES = (0.25, 0.5, 1.0)  # of the run, at which students are compared
SEEN = 0.15  # relative deviation that 16 seeds at two sizes resolve, by the scatter of four
NAMES = {"q": "q", "m": "m", "theta": r"\theta"}


def report(request: Request) -> Report:
    """Order parameters at d = infinity, linear in 1/d through d/2 and d; all curves at d in the
    notes.
    """
    p, runs = ensemble.get(request)
    curve = predict(p, runs)
    beside = compare(curve, runs)
    notes = [f"at d = {p.d}: {beside.spoken()}"]
    if request.runs is not None:
        return Report(beside.checks, notes, draw=lambda: draw(p, curve, runs))
    half = p.replace(d=p.d // 2, steps=p.steps // 2, eval_every=max(1, p.eval_every // 2))
    smaller = online.train(half, runs.seed.values.tolist(), **request.training)
    checks = at_many_dimensions(curve, {half.d: smaller, p.d: runs})
    return Report(checks, notes, draw=lambda: draw(p, curve, runs))


@listed
def at_many_dimensions(curve: xr.Dataset, runs: dict[int, xr.Dataset]) -> Iterator[Check]:
    """Students extrapolated seed by seed, at some times."""
    sizes = sorted(runs)
    end = float(curve.t[-1])
    for share in SHARES:
        curves = [runs[d].sel(t=share * end, method="nearest") for d in sizes]
        there = curve.interp(t=float(curves[-1].t), method="cubic")
        for x in NAMES:
            values = at_infinity(over_d([of[x].drop_vars("t") for of in curves], sizes)).values
            if np.ptp(values) < 1e-12 * np.abs(values).max():
                continue  # held
            yield sampled(
                f"{x} at t = {float(curves[-1].t):.3g}",
                f"d{x}_dt",
                float(there[x]),
                values,
                required=SEEN,
                scale=float(np.abs(curve[x]).max()),
            )


@plotting.panels(1, 2)
def draw(p: Parameters, curve: xr.Dataset, runs: xr.Dataset, *axes: Any) -> Any:
    """Students as bands, the flow as lines."""
    for k, (x, tex) in enumerate(NAMES.items()):
        plotting.band(axes[0], runs[x], f"C{k}", f"${tex}$, students", width=3)
        axes[0].plot(curve.t, curve[x], "k", ls=("-", "--", ":")[k], lw=1, label=f"${tex}$, flow")
    plotting.band(axes[1], runs.loss, "C3", "students", width=3)
    axes[1].plot(curve.t, curve.loss, "k", lw=1, label="flow")
    axes[0].set(xlabel=r"time $t = \eta \cdot$ steps$/d$", ylabel="order parameter")
    axes[1].set(xlabel=r"time $t = \eta \cdot$ steps$/d$", ylabel=r"loss $\mathbb{E}|y-f|^2/(2d)$")
    return titles.of_runs(p, runs)
