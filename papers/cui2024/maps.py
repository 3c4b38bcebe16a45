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

EQUAL = 1e-9  # of training losses; separate minima differ by 1e-6 and more, equal ones by 1e-13
NO_DATA = "0.8"


def experiment_map(
    source: Source, s: Setting, p: Parameters, alphas: tuple[float, ...]
) -> dict[str, xr.Dataset]:
    """Students of both starts over (omega, seed, alpha)."""
    seeds = range(s.map_seeds)
    return {
        k: xr.concat(
            [students(source, p.replace(start=k, omega=w), alphas, seeds) for w in s.map_omegas],
            "omega",
        ).assign_coords(omega=list(s.map_omegas))
        for k in STARTS
    }


def map_panel(axis: Any, data: xr.DataArray, title: str) -> None:
    """Heat map over (omega, alpha): below zero orange, above violet; grey without data."""
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
    axis.set_facecolor(NO_DATA)
    axis.figure.colorbar(image, ax=axis, label=title, location="top", aspect=30)
    axis.grid(False)
    axis.autoscale_view()
    axis.autoscale(False)  # lines of theory end at the cells
    axis.set(xlabel=r"positional fraction $\omega$", ylabel=ALPHA)


def gap_map(axis: Any, runs: dict[str, xr.Dataset], title: str) -> xr.DataArray:
    """Mean gap of the training losses, with marks where both starts end in one minimum; returns
    it.
    """
    gap = runs["semantic"].train_loss - runs["positional"].train_loss
    mean, equal = gap.mean("seed"), (np.abs(gap) < EQUAL).mean("seed")
    map_panel(axis, 1e4 * mean, f"{title}\nsemantic $-$ positional $[10^{{-4}}]$")
    for some, mark, words in (
        (equal == 1, "$=$", "both starts: one minimum, all seeds"),
        ((equal > 0) & (equal < 1), ".", "both starts: one minimum, some seeds"),
    ):
        cells = some.stack(cell=("omega", "alpha"))
        cells = cells[cells.values]
        if cells.size:
            axis.plot(cells.omega, cells.alpha, marker=mark, color="0.3", ms=5, lw=0, label=words)
    return mean


def theory_lines(axes: tuple[Any, Any], p: Parameters, s: Setting) -> None:
    """Draw alpha_c and alpha_l over omega into two panels, for both branches of the proximal
    operator.
    """
    for prox, style in (("global", "-"), ("local", "--")):
        rows = line(p.replace(order=s.theory_order, prox=prox), sorted(s.lines, reverse=True))
        for axis, name in zip(axes, ("alpha_c", "alpha_l"), strict=True):
            known = sorted(
                (r.omega, getattr(r, name)) for r in rows if np.isfinite(getattr(r, name))
            )
            if known:  # without a positional branch there is no crossing to draw
                axis.plot(
                    *interpolated(*zip(*known, strict=True)),
                    f"k{style}",
                    lw=1.2,
                    label=rf"$\{name.replace('_', '_{')}}}$, theory, {prox} prox",
                )


def phase_maps(source: Source, s: Setting, p: Parameters, axes: tuple[Any, Any]) -> None:
    """Centre and right of Fig. 3, and Fig. 9."""
    runs = experiment_map(source, s, p, s.map_alphas)
    loss = gap_map(axes[0], runs, "training loss")
    errors = {k: r.test_mse_half.mean("seed") for k, r in runs.items()}
    linear = xr.DataArray(
        [baseline(p.replace(omega=w))["half_test"] for w in s.map_omegas], dims="omega"
    )
    best = errors["semantic"].where(loss < 0, errors["positional"])
    map_panel(axes[1], 1e4 * (best - linear), "test error\nattention $-$ linear $[10^{-4}]$")
    theory_lines(axes, p, s)
    for axis in axes:
        if axis.get_legend_handles_labels()[0]:
            plotting.below(axis)
