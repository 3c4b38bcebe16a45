"""Derived numbers that remember the parameters they were computed from.

``p.values()`` holds the fields of Parameters and quantities derived from them (c_omega from L, N
and the frequencies). Changing one field in a copy would leave a stale c_omega. So derived
quantities are marked, and `theory.sweep.reject_stale` raises an error if one is combined with
another value of its input. ``float()`` removes the mark.
"""

from typing import Any

import numpy as np


class DerivedFloat(float):
    """A float derived from the fields of ``of``."""

    of: Any = None


class DerivedInt(int):
    """An integer derived from the fields of ``of``."""

    of: Any = None


class DerivedArray(np.ndarray):
    """An array derived from the fields of ``of``. Results of arithmetic with it are not marked."""

    of: Any = None


def mark(value: Any, parameters: Any) -> Any:
    """The number, marked as derived from ``parameters``; other objects are returned unchanged."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        marked: Any = DerivedFloat(value)
    elif isinstance(value, int):
        marked = DerivedInt(value)
    elif isinstance(value, np.ndarray):
        marked = value.view(DerivedArray)
    else:
        return value
    marked.of = parameters
    return marked
