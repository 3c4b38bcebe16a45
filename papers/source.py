"""Figures, and where they get their students from: settings per scale, trained once and kept in the
run store.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from theory import plotting

UNSAID = (
    "n_test",
    "eval_every",
    "data_draw",
    "weight_decay",
    "d_model",
)  # of no one's interest here
MOST_VALUES = 4  # of a parameter that differs between ensembles, before they are shortened


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
    asked : list
        Parameters and number of seeds of the ensembles that the figure at hand took.
    """

    scale: str
    seeds: list[int]
    device: str | None = None
    progress: bool = True
    made: Callable[[Path], None] = lambda path: None
    asked: list[tuple[Any, int]] = field(default_factory=list, compare=False)

    def used(self, p: Any, seeds: int) -> None:
        """Remember what the figure at hand is made of."""
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
        """Train (or fetch) an ensemble of students so small that they know no device."""
        seeds = self.seeds if seeds is None else list(seeds)
        self.used(p, len(seeds))
        return train(p, seeds=seeds, progress=self.progress)


def described(asked: Sequence[tuple[Any, int]]) -> str:
    """Parameters of ensembles in a line: what they share, all values of what differs, and seeds."""
    values: dict[str, list[str]] = {}
    for p, _ in asked:
        for name, value in p.as_dict(training_only=True).items():
            if value is not None and name not in UNSAID:
                text = f"{value:g}" if isinstance(value, float) else str(value)
                listed = values.setdefault(name, [])
                if text not in listed:
                    listed.append(text)
    seeds = sorted({n for _, n in asked if n})
    counts = [" or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")]
    said = [
        f"{name} = {', '.join(v)}" if len(v) <= MOST_VALUES else f"{name} = {v[0]} ... {v[-1]}"
        for name, v in values.items()
    ]
    return "; ".join([*said, *(counts if seeds else [])])


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
        source.asked.clear()
        figure = self.draw(source)
        if source.asked and not figure.get_suptitle():
            room = int(16 * figure.get_figwidth())  # characters of this size per line
            figure.suptitle(
                textwrap.fill(described(source.asked), room, break_long_words=False), fontsize=7
            )
        plotting.save(figure, path)
        source.made(path)
        return path
