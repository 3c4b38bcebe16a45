"""Functions that NumPy and SciPy have no numbers for: evaluated one number at a time by mpmath."""

from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.printing.numpy import SciPyPrinter

from theory.parameters import ParameterError

PRINTER = SciPyPrinter()
ELEMENTARY = {"tan", "sin", "cos", "atan", "asin", "acos", "exp", "log", "erf"}
LIMITED = {"hermite", "factorial2", "bernoulli", "uppergamma", "FallingFactorial"}  # SciPy: in part
WITHOUT = (AppliedUndef, sp.DiracDelta, sp.Derivative, sp.Subs, sp.Limit)


def has_numbers(head: Any, modules: str) -> bool:
    """Whether NumPy, SciPy or mpmath evaluates a function, or its class does."""
    kinds = [kind.__name__ for kind in head.__mro__]
    if hasattr(head, "_imp_") or (modules == "mpmath" and hasattr(mpmath, kinds[0])):
        return True
    written_by, _ = PRINTER._rewriteable_functions.get(kinds[0], ("", []))
    return kinds[0] not in LIMITED and (
        written_by in ELEMENTARY
        or any(
            n in PRINTER.known_functions or hasattr(PRINTER, f"_print_{n}")
            for n in kinds[: kinds.index("Function")]
        )
    )


def replaced(
    expr: sp.Expr, table: dict[str, Any], modules: str
) -> tuple[sp.Expr, dict[str, Callable]]:
    """An expression in which functions without numbers have stand-ins, and these by name.

    Parameters
    ----------
    expr : Expr
        In numbers and symbols.
    table : dict
        Functions by name, besides those of the libraries.
    modules : {'numpy', 'mpmath'}

    Raises
    ------
    ParameterError
        Naming what has no value: an undefined function, an impulse, a derivative that is not
        carried out.
    """
    if expr.has(sp.Derivative):
        expr = expr.doit()
    if remaining := sorted(type(x).__name__ for x in expr.atoms(*WITHOUT)):
        raise ParameterError(f"{remaining[0]}: has no numerical value")
    unknown = {
        head
        for head in {type(f) for f in expr.atoms(sp.Function)}
        if head.__name__ not in table and not has_numbers(head, modules)
    }
    made: dict[str, Callable] = {}

    def stand_in(*arguments: Any, head: Any) -> sp.Expr:
        name = f"special{len(made)}_{head.__name__}"
        made[name] = _numbers(head, sp.Tuple(*arguments), modules)
        return sp.Function(name)(*sp.flatten(arguments))

    for head in sorted(unknown, key=lambda head: head.__name__):
        expr = expr.replace(head, lambda *a, head=head: stand_in(*a, head=head))
    return expr, made


def _numbers(head: Any, form: sp.Tuple, modules: str) -> Callable:
    """Evaluate a SymPy function at every entry of arrays; NaN where it is not real. Its arguments,
    which may be nested, have the form of ``form``.
    """

    def nested(form: Any, exact: Iterator[Any]) -> Any:
        return (
            sp.Tuple(*(nested(a, exact) for a in form))
            if isinstance(form, sp.Tuple)
            else next(exact)
        )

    def at_one(*values: Any) -> Any:
        digits = mpmath.mp.dps if modules == "mpmath" else 17
        if any(mpmath.isnan(v) for v in values):
            return np.nan
        exact = iter([sp.Integer(int(v)) if v == int(v) else sp.sympify(v) for v in values])
        value = head(*nested(form, exact)).evalf(digits)
        if modules == "mpmath":
            return mpmath.mpmathify(value)
        return float(value) if value.is_extended_real else np.nan

    return at_one if modules == "mpmath" else np.vectorize(at_one, otypes=[float])
