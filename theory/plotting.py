"""Figures in the house style: theory as lines, simulation as mean and band, colours safe for
colour-blind readers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import xarray as xr

from theory import output

STYLE = Path(__file__).with_name("project.mplstyle")


def figure(
    rows: int = 1, columns: int = 1, width: float = 4.4, height: float = 3.2
) -> tuple[Any, Any]:
    """Figure and axes; sizes in inches per panel."""
    plt.style.use(STYLE)
    return plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), layout="constrained"
    )


def has_display() -> bool:
    """Whether a window can be opened."""
    if not sys.stdout.isatty() and not matplotlib.is_interactive():
        return False
    return matplotlib.get_backend().lower() not in ("agg", "pdf", "svg", "ps", "cairo", "template")


def deliver(fig: Any, target: str, default: str, *, stream: Any = None) -> None:
    """Show the figure in a window, or write it to ``target`` (``default`` in the working
    directory).

    The path written is printed to ``stream`` (stdout by default).
    """
    if not target and has_display():
        plt.show()
        return
    path = Path(target or default)
    save(fig, path)
    print(path, file=stream)


def save(fig: Any, path: Path) -> None:
    """Write a figure whole or not at all."""
    with output.atomic(path) as temporary:
        fig.savefig(temporary)
    plt.close(fig)


def band(
    axis: Any, runs: xr.DataArray, colour: str, label: str | None = None, alpha: float = 0.25
) -> None:
    """Draw an ensemble over ``seed``: its mean as dots on a thin line, one standard deviation as a
    band.
    """
    time = next(d for d in runs.dims if d != "seed")
    mean, spread = runs.mean("seed"), runs.std("seed", ddof=1) if runs.sizes["seed"] > 1 else 0
    axis.fill_between(runs[time], mean - spread, mean + spread, color=colour, alpha=alpha, lw=0)
    axis.plot(
        runs[time],
        mean,
        color=colour,
        lw=0.8,
        marker=".",
        ms=3,
        markevery=max(1, mean.size // 30),
        label=label,
    )
