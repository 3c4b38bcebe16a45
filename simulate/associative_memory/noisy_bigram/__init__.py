"""One gradient step on noisy bigrams, and a model with both paths to ablate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import xarray as xr

from simulate.associative_memory import trainer
from simulate.associative_memory.noisy_bigram.paths import SYSTEM, Learner, draw, one_step
from theory.associative_memory.noisy_bigram import Parameters

__all__ = ["Learner", "Parameters", "draw", "one_step", "train"]


def train(p: Parameters, seeds: Iterable[int] = (0,), **options: Any) -> xr.Dataset:
    """Train the model with both paths, one run per seed (see `simulate.associative_memory.trainer`)."""
    return trainer.train(SYSTEM, p, seeds, **options)
