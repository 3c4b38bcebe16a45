"""Numbers that remember the parameters they follow from.

``p.values()`` holds fields and what follows from them (c_omega from L, N, the frequencies). A copy
with one field changed would keep the old c_omega; so what follows is marked here, and
`theory.sweep.fresh` refuses it beside another L. ``float()`` of one is a number like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class DerivedFloat(float):
    """A float that follows from the fields of ``of``."""

    of: Any = None


class DerivedInt(int):
    """A whole number that follows from the fields of ``of``."""

    of: Any = None


class DerivedArray(np.ndarray):
    """An array that follows from the fields of ``of``; what is computed from it is marked no
    more.
    """

    of: Any = None


def mark(value: Any, parameters: Any) -> Any:
    """The same number, marked; what is no number is left as it is."""
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
