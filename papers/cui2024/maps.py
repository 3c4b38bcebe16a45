"""Phase diagrams over the sample complexity and the positional fraction: students and theory."""

from typing import Any

import numpy as np
import xarray as xr

from papers.cui2024.setting import ALPHA, STARTS, Setting, students
from papers.source import Source
from theory.positional_semantic import Parameters, baseline
from theory.positional_semantic.numbers.thresholds import line
from theory.positional_semantic.onset import interpolated
from theory.runtime import plotting


def experiment_map(
    source: Source, s: Setting, p: Parameters, alphas: tuple[float, ...]
) -> dict[str, xr.Dataset]:
    """Students of both starts over (omega, alpha): means over seeds."""
    seeds = range(s.map_seeds)
    return {
        k: xr.concat(
            [
                students(source, p.replace(start=k, omega=w), alphas, seeds).mean("seed")
                for w in s.map_omegas
            ],
            "omega",
        ).assign_coords(omega=list(s.map_omegas))
        for k in STARTS
    }


def map_panel(axis: Any, data: xr.DataArray, title: str, label: str) -> None:
    """Heat map over (omega, alpha), zero in the middle of the colours."""
    top = float(np.abs(data).max())
    image = axis.pcolormesh(
        data.omega,
        data.alpha,
        data.transpose("alpha", "omega"),
        cmap="PuOr",
        vmin=-top,
        vmax=top,
        shading="nearest",
    )
    axis.figure.colorbar(image, ax=axis, label=label, shrink=0.9)
    axis.grid(False)
    axis.set(xlabel=r"positional fraction $\omega$", ylabel=ALPHA, title=title)


def theory_lines(axes: tuple[Any, Any], p: Parameters, s: Setting) -> None:
    """Draw alpha_c and alpha_l over omega into two panels, for both branches of the proximal
    operator.
    """
    for prox, mark, style in (("global", ".", "-"), ("local", "x", "--")):
        rows = line(p.replace(order=s.theory_order, prox=prox), sorted(s.lines, reverse=True))
        for axis, name in zip(axes, ("alpha_c", "alpha_l"), strict=True):
            known = sorted(
                (r.omega, getattr(r, name)) for r in rows if np.isfinite(getattr(r, name))
            )
            if known:  # without a positional branch there is no crossing to draw
                axis.plot(*zip(*known, strict=True), f"k{mark}", ms=4)
                axis.plot(
                    *interpolated(*zip(*known, strict=True)),
                    f"k{style}",
                    lw=1,
                    label=rf"$\{name.replace('_', '_{')}}}$, theory, {prox} prox",
                )
    for axis in axes:
        axis.set(ylim=(0.2, 2.2))
        if axis.get_legend_handles_labels()[0]:
            plotting.below(axis)  # clear of the map


def phase_maps(source: Source, s: Setting, p: Parameters, axes: tuple[Any, Any]) -> None:
    """Centre and right of Fig. 3, and Fig. 9."""
    runs = experiment_map(source, s, p, s.map_alphas)
    loss = runs["semantic"].train_loss - runs["positional"].train_loss
    winner = runs["semantic"].test_mse_half.where(loss < 0, runs["positional"].test_mse_half)
    linear = xr.DataArray(
        [baseline(p.replace(omega=w))["half_test"] for w in s.map_omegas], dims="omega"
    )
    map_panel(
        axes[0], 1e4 * loss, "students: training loss", r"semantic $-$ positional $[10^{-4}]$"
    )
    map_panel(
        axes[1],
        1e4 * (linear - winner),
        "students: test error",
        r"linear $-$ attention $[10^{-4}]$",
    )
    theory_lines(axes, p, s)
