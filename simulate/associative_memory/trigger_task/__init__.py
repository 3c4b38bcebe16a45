"""Students of the trigger-token task.

To use your own text instead of the shipped table::

    table, alphabet = table_of_text(Path("input.txt").read_text())
    runs = train(Parameters(N=len(alphabet)), table=table)
"""

from collections.abc import Iterable
from typing import Any

import xarray as xr

from simulate.associative_memory.trigger_task.learner import SYSTEM, Learner, on
from simulate.associative_memory.trigger_task.student import Simplified, Transformer
from simulate.associative_memory.trigger_task.task import (
    Table,
    sample,
    synthetic_table,
    table_of_text,
)
from theory.associative_memory.trigger_task import Parameters
from theory.parameters import ParameterError

__all__ = [
    "Learner",
    "Parameters",
    "Simplified",
    "Table",
    "Transformer",
    "sample",
    "synthetic_table",
    "table_of_text",
    "train",
]


def train(
    p: Parameters, seeds: Iterable[int] = (0,), *, table: Table | None = None, **options: Any
) -> xr.Dataset:
    """Train one student per seed (see `simulate.training.System.train`).

    Parameters
    ----------
    p : Parameters
        Task, student, training.
    seeds : iterable of int
        Seeds.
    table : Table, optional
        Bigram statistics of N tokens; the shipped synthetic table by default. Runs are stored under
        its digest.

    Raises
    ------
    ParameterError
        If the table is of another size than ``p.N``.
    """
    if table is not None and len(table.unigram) != p.N:
        raise ParameterError(
            f"N = {p.N}: must be {len(table.unigram)}, the number of tokens of the given table"
        )
    return (SYSTEM if table is None else on(table)).train(p, seeds, **options)
