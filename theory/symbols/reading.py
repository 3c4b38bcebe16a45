"""Numbers as SymPy has them. The only place that asks SymPy to read something."""

import numbers
from typing import Any

import sympy as sp


def sympified(value: Any) -> Any:
    """A number as a SymPy number; expressions and matrices of SymPy unchanged.

    SymPy runs texts as code, also those in containers and where it is told to be
    strict. So only numbers are handed to it, by their type.

    Raises
    ------
    SympifyError
        For anything else.
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, sp.Basic | sp.MatrixBase | numbers.Number):
        raise sp.SympifyError(value)
    return sp.sympify(value, strict=True)
