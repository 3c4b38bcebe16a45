"""Students of the trigger-token task.

One's own text instead of the shipped table::

    table, alphabet = table_of_text(Path("input.txt").read_text())
    runs = train(Parameters(N=len(alphabet)), table=table)
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import xarray as xr

from simulate.associative_memory import trainer
from simulate.associative_memory.trigger_task.student import Simplified, Transformer
from simulate.associative_memory.trigger_task.task import Table, draw, synthetic_table, table_of_text
from simulate.associative_memory.trigger_task.training import SYSTEM, Learner
from theory.associative_memory.trigger_task import Parameters
from theory.parameters import ParameterError

__all__ = [
    "Learner",
    "Parameters",
    "Simplified",
    "Table",
    "Transformer",
    "draw",
    "synthetic_table",
    "table_of_text",
    "train",
]


def train(p: Parameters, seeds: Iterable[int] = (0,), *, table: Table | None = None, **options: Any) -> xr.Dataset:
    """Train one student per seed (see `simulate.associative_memory.trainer`).

    Parameters
    ----------
    p : Parameters
        Task, student, training.
    seeds : iterable of int
        Seeds.
    table : Table, optional
        Bigram statistics of N tokens; the shipped synthetic table by default. Runs are stored under its digest.

    Raises
    ------
    ParameterError
        If the table is of another size than ``p.N``.
    """
    if table is None:
        return trainer.train(SYSTEM, p, seeds, **options)
    if len(table.unigram) != p.N:
        raise ParameterError(f"N = {p.N}: must be {len(table.unigram)}, the number of tokens of the given table")
    digest = hashlib.sha256(table.unigram.tobytes() + table.bigram.tobytes()).hexdigest()[:16]
    system = replace(SYSTEM, name=f"{SYSTEM.name}, table {digest}", make=functools.partial(Learner, table=table))
    return trainer.train(system, p, seeds, **options)
