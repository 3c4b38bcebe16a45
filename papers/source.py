"""Figures and the source of their students: settings per scale, trained once and kept in the run
store.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from theory import titles
from theory.parameters import described
from theory.runtime import output, plotting


@dataclass(frozen=True)
class Source:
    """Ensembles at one scale.

    Attributes
    ----------
    scale : {'shipped', 'small', 'paper'}
        Shipped ensembles, sizes for minutes on a CPU, or those of the paper.
    seeds : list of int
        Seeds of every ensemble.
    device : str or None
        Torch device.
    progress : bool
        Progress bars on stderr.
    made : callable
        ``made(path)`` is called for every file when it is written.
    asked : list
        Parameters and number of seeds of the ensembles used by the current figure.
    """

    scale: str
    seeds: list[int]
    device: str | None = None
    progress: bool = True
    made: Callable[[Path], None] = lambda path: None
    asked: list[tuple[Any, int]] = field(default_factory=list, compare=False)

    def few(self, most: int) -> list[int]:
        """Seeds of expensive ensembles: only the first ``most`` at the small scale."""
        return self.seeds[:most] if self.scale == "small" else self.seeds

    def used(self, p: Any, seeds: int) -> None:
        """Record an ensemble used by the current figure."""
        self.asked.append((p, seeds))

    def train(
        self, train: Callable[..., xr.Dataset], p: Any, seeds: Iterable[int] | None = None
    ) -> xr.Dataset:
        """Train (or fetch) the ensemble of one setting."""
        seeds = self.seeds if seeds is None else list(seeds)
        self.used(p, len(seeds))
        return train(p, seeds=seeds, device=self.device, progress=self.progress)

    def train_on_cpu(
        self, train: Callable[..., xr.Dataset], p: Any, seeds: Iterable[int] | None = None
    ) -> xr.Dataset:
        """Train (or fetch) an ensemble of small students, which run on the CPU only."""
        seeds = self.seeds if seeds is None else list(seeds)
        self.used(p, len(seeds))
        return train(p, seeds=seeds, progress=self.progress)


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
    result : str
        What is off, and by how much, at the default scale.
    """

    name: str
    caption: str
    draw: Callable[[Source], Any]
    result: str = ""

    def write(self, source: Source, out: Path) -> Path:
        """Draw and write, with all parameters of the ensembles and the place of the first panel in
        the file's metadata; return the file.
        """
        path = out / f"figure_{self.name}.png"
        source.asked.clear()
        figure = self.draw(source)
        if source.asked and not figure.get_suptitle():
            plotting.headline(figure, titles.title(source.asked))
        told = {"Description": described(source.asked)} if source.asked else {}
        told |= {"Title": self.caption, "Panel": output.to_json(plotting.first_panel(figure))}
        with output.atomic(path) as temporary:
            figure.savefig(temporary, metadata=told)
        plotting.plt.close(figure)
        source.made(path)
        return path
