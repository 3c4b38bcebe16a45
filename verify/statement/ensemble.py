"""The ensemble of a statement: a given file, or students of its values."""

import functools
import types

from simulate.statement import of as students
from theory.statement import model
from theory.statement.words.stated import Statement
from verify.checks.ensemble_source import Source

SEEDS = "8"


@functools.cache
def of(stated: Statement) -> types.SimpleNamespace:
    """Where its students come from."""
    system = students(stated).SYSTEMS["student"]
    needed = {"t": ("t",), "step": ("t",), "loss": ("seed", "t")}
    return types.SimpleNamespace(
        SOURCE=Source(system, model.parameters(stated)(), SEEDS, needed)
    )
