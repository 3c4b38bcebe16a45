"""Numbers as SymPy has them. The only place that asks SymPy to read something."""

import numbers
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError, is_time, shown, unwrapped


def sympified(value: Any) -> Any:
    """A number as a SymPy number; expressions and matrices of SymPy unchanged.

    SymPy runs texts as code, also those in containers and where it is told to be
    strict. So only numbers are handed to it, by their type.

    Raises
    ------
    ParameterError
        For anything else.
    """
    value = unwrapped("number", value)
    number = isinstance(value, numbers.Number) and not is_time(value)
    if not (number or isinstance(value, sp.Basic | sp.MatrixBase)):
        raise ParameterError(
            f"{shown(value)}: must be a number or an expression of SymPy"
        )
    return sp.sympify(value, strict=True)
