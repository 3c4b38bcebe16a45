"""The ensemble a check looks at: a given file, or the reference run trained (once) for it."""

from __future__ import annotations

from typing import Any

import xarray as xr

from simulate.associative_memory.factual_recall import train
from simulate.associative_memory.factual_recall.student import SYSTEM
from theory.associative_memory.factual_recall import Parameters
from theory.parameters import ParameterError
from verify.ensemble import Source


def trained(p: Parameters, until: float | None, seeds: list[int], device: str | None, progress: bool) -> tuple[Any, xr.Dataset]:
    """The run of some length over seeds."""
    if device not in (None, "cpu"):
        raise ParameterError(f"--device {device}: these students run on the CPU only")
    p = p.run_to(until)
    return p, train(p, seeds=seeds, progress=progress)


SOURCE = Source(SYSTEM.name, Parameters(), "4", {"t": ("t",), "step": ("t",), **{x: ("seed", "t") for x in SYSTEM.meaning}}, trained)
