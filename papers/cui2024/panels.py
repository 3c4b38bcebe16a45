"""Sizes of the figures by scale, what their panels share, phase diagrams, the histogram
task.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from papers.source import Source
from simulate.positional_semantic import train
from simulate.positional_semantic.histogram import KINDS, solutions
from theory.positional_semantic import Parameters, baseline, curve
from theory.positional_semantic.branches import line
from theory.positional_semantic.model.parameters import HistogramParameters
from theory.positional_semantic.onset import interpolated
from theory.runtime import output, plotting
from verify.positional_semantic import thresholds as check

ALPHA = r"sample complexity $\alpha = n/d$"


POINTS = (
    65  # points of a theory curve, enough for the square root at the end of a branch
)


STARTS = ("positional", "semantic")


COLOURS = {
    "positional": "C0",
    "semantic": "C1",
    "random": "C3",
    "mixed": "C4",
    "agnostic": "C5",
}


@dataclass(frozen=True)
class Setting:
    """Sizes of all figures at one scale: students and grids."""

    p: Parameters
    alphas: tuple[float, ...]
    sizes: tuple[int, ...]
    map_omegas: tuple[float, ...]
    map_alphas: tuple[float, ...]
    map_seeds: int
    extension_alphas: tuple[float, ...]
    theory_order: int
    lines: tuple[float, ...]
    adam: Parameters
    adam_seeds: int
    limit: Parameters
    limit_seeds: int


# Theory curves next to students use the branch of the proximal operator that informed
# descent follows (docs/models/selections.md).
GRID = tuple(np.linspace(0.01, 2, 25).round(6))


SETTINGS = {
    "small": Setting(
        p=Parameters(d=150, steps=200, n_test=2000, prox="local"),
        alphas=(0.3, 0.6, 0.9, 1.2, 1.6, 2.0),
        sizes=(30, 60, 120, 240),
        map_omegas=(0.02, 0.1, 0.2, 0.3, 0.4, 0.5),
        map_alphas=tuple(np.arange(0.2, 2.1, 0.2).round(1)),
        map_seeds=3,
        extension_alphas=(0.6, 1.0, 1.4, 1.8, 2.2, 2.6, 3.2),
        theory_order=8,
        lines=(0.0, 0.05, 0.1, 0.2, 0.3, 0.4),
        adam=Parameters(
            d=100,
            alpha=2.0,
            start="random",
            optimizer="adam",
            eta=0.01,
            steps=1000,
            n_test=500,
        ),
        adam_seeds=30,
        limit=check.DEMO,
        limit_seeds=32,
    ),
    "paper": Setting(
        p=Parameters(polish=False, teacher="gaussian", prox="local"),
        alphas=GRID,
        sizes=(10, 15, 23, 36, 56, 87, 135, 209, 323, 500),
        map_omegas=tuple(np.arange(0.02, 0.51, 0.02).round(2)),
        map_alphas=GRID,
        map_seeds=24,
        extension_alphas=GRID + tuple(np.linspace(2, 4, 25).round(6)[1:]),
        theory_order=16,
        lines=tuple(np.arange(0, 0.46, 0.025).round(3)),
        adam=Parameters(
            d=100,
            alpha=2.0,
            start="random",
            optimizer="adam",
            eta=0.01,
            steps=2500,
            polish=False,
            teacher="gaussian",
        ),
        adam_seeds=140,
        limit=check.DEMO,
        limit_seeds=int(check.SEEDS),
    ),
}


def sized(draw: Callable[[Source, Setting], Any]) -> Callable[[Source], Any]:
    """Drawing at the sizes of the source's scale."""
    return lambda source: draw(source, SETTINGS[source.scale])


def students(
    source: Source, p: Parameters, alphas: Any, seeds: Any = None
) -> xr.Dataset:
    """Ensemble over (seed, alpha)."""
    return source.train(
        functools.partial(train, alpha=list(np.atleast_1d(alphas))),
        p.replace(alpha=None),
        seeds,
    )


def both(
    source: Source, p: Parameters, alphas: Any, seeds: Any = None
) -> dict[str, xr.Dataset]:
    """Students from the positional and from the semantic start,
    on the same sentences.
    """
    return {k: students(source, p.replace(start=k), alphas, seeds) for k in STARTS}


def between(alphas: tuple[float, ...]) -> np.ndarray:
    """Points of a smooth theory curve over the range of ``alphas``."""
    return np.linspace(min(alphas), max(alphas), POINTS)


def branches(
    p: Parameters, setting: Setting, alphas: tuple[float, ...] = ()
) -> dict[str, xr.Dataset]:
    """Theory curves of both branches, over the range of ``alphas``."""
    grid = between(alphas or setting.alphas)
    return {
        k: curve(p.replace(order=setting.theory_order, alpha=None), k, grid)
        for k in STARTS
    }


# Phase diagrams over the sample complexity and the positional fraction

# of training losses; separate minima differ by 1e-6 and more, equal ones by 1e-13
EQUAL = 1e-9
NO_DATA = "0.8"


def experiment_map(
    source: Source, s: Setting, p: Parameters, alphas: tuple[float, ...]
) -> dict[str, xr.Dataset]:
    """Students of both starts over (omega, seed, alpha)."""
    seeds = range(s.map_seeds)
    maps = {}
    for k in STARTS:
        rows = [
            students(source, p.replace(start=k, omega=w), alphas, seeds)
            for w in s.map_omegas
        ]
        maps[k] = xr.concat(rows, "omega").assign_coords(omega=list(s.map_omegas))
    return maps


def map_panel(axis: Any, data: xr.DataArray, title: str) -> None:
    """Heat map over (omega, alpha): below zero orange, above violet;
    grey without data.
    """
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
    """Mean gap of the training losses, with marks where both starts end in one minimum;
    returns it.
    """
    gap = runs["semantic"].train_loss - runs["positional"].train_loss
    mean = gap.mean("seed")
    equal = (np.abs(gap) < EQUAL).mean("seed")
    map_panel(axis, 1e4 * mean, f"{title}\nsemantic $-$ positional $[10^{{-4}}]$")
    for some, mark, words in (
        (equal == 1, "$=$", "both starts: one minimum, all seeds"),
        ((equal > 0) & (equal < 1), ".", "both starts: one minimum, some seeds"),
    ):
        cells = some.stack(cell=("omega", "alpha"))
        cells = cells[cells.values]
        if cells.size:
            axis.plot(
                cells.omega,
                cells.alpha,
                marker=mark,
                color="0.3",
                ms=5,
                lw=0,
                label=words,
            )
    return mean


def theory_lines(axes: tuple[Any, Any], p: Parameters, s: Setting) -> None:
    """Draw alpha_c and alpha_l over omega into two panels, for both branches of the
    proximal operator.
    """
    for prox, style in (("global", "-"), ("local", "--")):
        rows = line(
            p.replace(order=s.theory_order, prox=prox), sorted(s.lines, reverse=True)
        )
        for axis, name in zip(axes, ("alpha_c", "alpha_l"), strict=True):
            known = sorted(
                (r.omega, getattr(r, name))
                for r in rows
                if np.isfinite(getattr(r, name))
            )
            if known:  # without a positional branch there is no crossing to draw
                axis.plot(
                    *interpolated(*zip(*known, strict=True)),
                    f"k{style}",
                    lw=1.2,
                    label=rf"$\{name.replace('_', '_{')}}}$, theory, {prox} prox",
                )


def phase_maps(
    source: Source, s: Setting, p: Parameters, axes: tuple[Any, Any]
) -> None:
    """Centre and right of Fig. 3, and Fig. 9."""
    runs = experiment_map(source, s, p, s.map_alphas)
    loss = gap_map(axes[0], runs, "training loss")
    errors = {k: r.test_mse_half.mean("seed") for k, r in runs.items()}
    linear = xr.DataArray(
        [baseline(p.replace(omega=w))["half_test"] for w in s.map_omegas], dims="omega"
    )
    best = errors["semantic"].where(loss < 0, errors["positional"])
    map_panel(
        axes[1], 1e4 * (best - linear), "test error\nattention $-$ linear $[10^{-4}]$"
    )
    theory_lines(axes, p, s)


# Figures 4-6 and Table 1 of App. A: the histogram task

COUNTING = {"small": HistogramParameters(), "paper": HistogramParameters.paper()}
SEEDS = {"small": 2, "paper": 10}
COLUMNS = {
    "accuracy": "accuracy, frozen",
    "accuracy_unfrozen": "accuracy, unfrozen",
    "frozen_to_unfrozen": "distance frozen to unfrozen",
    "formerly_zero": "of it, formerly zero",
    "start_to_frozen": "distance start to frozen",
    "dependence": "attention s.d. over sequences, frozen",
    "dependence_unfrozen": "the same, unfrozen",
}


@cache
def trained(
    p: HistogramParameters, seed: int, device: str | None, progress: bool
) -> dict[str, dict[str, Any]]:
    """Both solutions of a seed (cached per process)."""
    return solutions(p, seed, device=device, progress=progress)


def of(source: Source, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Solutions at the scale of a source."""
    return trained(COUNTING[source.scale], seed, source.device, source.progress)


@dataclass(frozen=True)
class Table:
    """Table 1, mean and standard deviation over seeds."""

    name: str
    caption: str
    result: str = ""

    def write(self, source: Source, out: Path) -> Path:
        """Train, write; return the file."""
        path = out / f"{self.name}.txt"
        solved = [of(source, seed) for seed in range(SEEDS[source.scale])]
        rows = []
        for kind in KINDS:
            cells = []
            for name in COLUMNS:
                values = np.array([solution[kind][name] for solution in solved])
                cells.append(f"{values.mean():.5g} +- {values.std(ddof=1):.2g}")
            rows.append([kind, *cells])
        table = output.table(("solution", *COLUMNS.values()), rows)
        with output.atomic(path) as temporary:
            temporary.write_text(table + "\n")
        return path


def letters(sequence: np.ndarray) -> list[str]:
    """Tokens as capital letters."""
    return [chr(ord("A") + int(t)) for t in sequence]


def show(axis: Any, matrix: np.ndarray, sequence: np.ndarray, title: str) -> Any:
    """One attention matrix, labelled by its tokens."""
    image = axis.imshow(matrix, cmap="viridis", vmin=0, vmax=1)
    axis.set(xticks=range(len(sequence)), yticks=range(len(sequence)), title=title)
    axis.set_xticklabels(letters(sequence))
    axis.set_yticklabels(letters(sequence))
    axis.set(xlabel="attended token", ylabel="token")
    axis.grid(False)
    return image


def grid(cells: list[tuple[np.ndarray, np.ndarray, str]]) -> Any:
    """Two rows of two attention matrices, with their sequences and titles."""
    figure, axes = plotting.figure(2, 2, width=2.9, height=2.9)
    for axis, cell in zip(axes.flat, cells, strict=True):
        image = show(axis, *cell)
    figure.colorbar(image, ax=axes, label="attention", shrink=0.6)
    return figure


def frozen(source: Source) -> Any:
    """Fig. 4."""
    cells = []
    for kind, result in of(source).items():
        for k in (0, 1):
            title = f"{kind}, sequence {k + 1}"
            cells.append((result["attention"][k], result["sequences"][k], title))
    return grid(cells)


def unfrozen(kind: str, source: Source) -> Any:
    """Figs. 5 and 6."""
    result = of(source)[kind]
    names = {"frozen": "attention", "unfrozen": "attention_unfrozen"}
    cells = []
    for k in (0, 1):
        for when, name in names.items():
            title = f"{kind}, {when}, sequence {k + 1}"
            cells.append((result[name][k], result["sequences"][k], title))
    return grid(cells)
