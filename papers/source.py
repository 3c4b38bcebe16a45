"""Figures, and where they get their students from: settings per scale, trained once and kept in the
run store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from theory import plotting


@dataclass(frozen=True)
class Source:
    """Ensembles at one scale.

    Attributes
    ----------
    scale : {'shipped', 'small', 'paper'}
        Ensembles that come with the code, sizes for a CPU in minutes, or those of the paper.
    seeds : list of int
        Seeds of every ensemble.
    device : str or None
        Torch device.
    progress : bool
        Progress bars on stderr.
    made : callable
        ``made(path)`` hears of every file as it is made.
    """

    scale: str
    seeds: list[int]
    device: str | None = None
    progress: bool = True
    made: Callable[[Path], None] = lambda path: None

    def train(
        self, train: Callable[..., xr.Dataset], p: Any, seeds: Iterable[int] | None = None
    ) -> xr.Dataset:
        """Train (or fetch) the ensemble of one setting."""
        return train(
            p,
            seeds=self.seeds if seeds is None else seeds,
            device=self.device,
            progress=self.progress,
        )

    def train_on_cpu(
        self, train: Callable[..., xr.Dataset], p: Any, seeds: Iterable[int] | None = None
    ) -> xr.Dataset:
        """Train (or fetch) an ensemble of students so small that they know no device."""
        return train(p, seeds=self.seeds if seeds is None else seeds, progress=self.progress)


@dataclass(frozen=True)
class Figure:
    """One figure of a paper.

    Attributes
    ----------
    name : str
        Number in the paper, or a word for figures of our own.
    caption : str
        What is shown.
    draw : callable
        ``draw(source)`` trains what is missing and returns a matplotlib figure.
    """

    name: str
    caption: str
    draw: Callable[[Source], Any]

    def write(self, source: Source, out: Path) -> Path:
        """Draw and write; return the file."""
        path = out / f"figure_{self.name}.png"
        plotting.save(self.draw(source), path)
        source.made(path)
        return path
