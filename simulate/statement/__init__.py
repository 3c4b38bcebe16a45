"""Students of statements: the tree in PyTorch, with data of the same tree.

They are references, not fast learners: every number is read off the statement.
"""

from __future__ import annotations

import functools
import types

from simulate.statement.student import Learner, Student, system
from theory.statement.words.stated import Statement

__all__ = ["Learner", "Student", "of", "system"]


@functools.cache
def of(stated: Statement) -> types.SimpleNamespace:
    """The names of a model's ``simulate`` package for a statement."""
    made = system(stated)
    return types.SimpleNamespace(SYSTEMS={"student": made}, train=made.train)
