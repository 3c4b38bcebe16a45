"""Kernel learners of k-fold composition, with and without curriculum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import xarray as xr

from simulate.associative_memory import trainer
from simulate.associative_memory.k_hop import pointers
from simulate.associative_memory.k_hop.learner import SYSTEM, Learner, answer, apply, draw_permutations
from theory.associative_memory.k_hop import Parameters, Pointers

__all__ = ["Learner", "Parameters", "Pointers", "answer", "apply", "draw_permutations", "train", "train_pointers"]


def train(p: Parameters, seeds: Iterable[int] = (0,), **options: Any) -> xr.Dataset:
    """Train one kernel learner per seed (see `simulate.associative_memory.trainer`)."""
    return trainer.train(SYSTEM, p, seeds, **options)


def train_pointers(p: Pointers, seeds: Iterable[int] = (0,), **options: Any) -> xr.Dataset:
    """Train the attention layers of the extension, one run per seed."""
    return trainer.train(pointers.SYSTEM, p, seeds, **options)
