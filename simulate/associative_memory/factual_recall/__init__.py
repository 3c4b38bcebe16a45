"""Students of the fact-lookup task: linear attention trained by stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import xarray as xr

from simulate.associative_memory import trainer
from simulate.associative_memory.factual_recall.student import SYSTEM, LinearAttention
from theory.associative_memory.factual_recall import Parameters

__all__ = ["LinearAttention", "Parameters", "train"]


def train(p: Parameters, t: float | None = None, seeds: Iterable[int] = (0,), **options: Any) -> xr.Dataset:
    """Train one student per seed over the flow time ``t = eta * steps`` (see `simulate.associative_memory.trainer`)."""
    return trainer.train(SYSTEM, p.run_to(t), seeds, **options)
