"""Where figures get their students from: settings per scale, trained once and kept in the run store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import xarray as xr


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
    """

    scale: str
    seeds: list[int]
    device: str | None = None
    progress: bool = True

    def train(self, train: Callable[..., xr.Dataset], p: Any, seeds: Iterable[int] | None = None) -> xr.Dataset:
        """Train (or fetch) the ensemble of one setting."""
        return train(p, seeds=self.seeds if seeds is None else seeds, device=self.device, progress=self.progress)

    def train_on_cpu(self, train: Callable[..., xr.Dataset], p: Any, seeds: Iterable[int] | None = None) -> xr.Dataset:
        """Train (or fetch) an ensemble of students so small that they know no device."""
        return train(p, seeds=self.seeds if seeds is None else seeds, progress=self.progress)
