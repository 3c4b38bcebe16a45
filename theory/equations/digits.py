"""Digits that double precision loses: closed forms and times of a model at the edges of
its parameters, beside intervals that hold the true numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import sympy as sp

from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.equations.equation import Equation
from theory.numbers.balls import Interval

EXACT = 30  # digits of the other number
ROUNDING = Decimal(2) ** -53  # of a double
DECADES = 20  # to either side of the default; of an integer two
SIZES = (
    1e-6,
    0.5,
    1e3,
)  # of symbols that are no parameters, as a time or an order parameter


def edges(kind: type[BaseParameters]) -> Iterator[tuple[str, BaseParameters]]:
    """Presets, and the defaults with one number at
    either end of its range, in words.
    """
    p = kind()
    yield from (
        ("default", p),
        *((name, make()) for name, make in kind.presets().items()),
    )
    for field in dataclasses.fields(kind):
        value = getattr(p, field.name)
        allowed = field.metadata["allowed"]
        if type(value) not in (int, float) or field.name not in p.values():
            continue
        far = 10.0 ** (2 if type(value) is int else DECADES)
        for edge in (allowed.low, allowed.high, value / far, value * far):
            try:
                yield (
                    f"{field.name} = {edge:g}",
                    p.replace(**{field.name: type(value)(edge)}),
                )
            except (
                ParameterError,
                TypeError,
            ):  # no edge, or not with the other numbers
                continue


def lost(double: float, true: Interval, size: float | None = None) -> float:
    """Decimal digits by which a number differs from the true one beyond rounding;
    relative to a size, by default its own.
    """
    off = abs(Decimal(double) - true.mid) / abs(
        true.mid if size is None else Decimal(size)
    )
    return float(max(off / ROUNDING, Decimal(1)).log10())


def of_equation(
    equation: Equation, settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """Digits lost by a closed form, by setting; symbols without a number there have
    three sizes.
    """
    names = sorted(s.name for s in equation.rhs.free_symbols)
    found, done = {}, set()
    for label, known in settings.items():
        others = [x for x in names if x not in known]
        for size in SIZES if others else (1.0,):
            drawn = {x: size * (1 + k / 8) for k, x in enumerate(others)}
            values = {x: known.get(x, drawn.get(x)) for x in names}
            if (key := str(values)) in done:
                continue
            done.add(key)
            try:
                true = equation.certify(values, digits=EXACT)
                with np.errstate(all="ignore"):
                    double = float(equation.evaluate(values))
            except (ParameterError, ArithmeticError, ValueError):  # no number there
                continue
            if double and math.isfinite(double):
                at = f"{label}, others {size:g}" if others else label
                found[at] = lost(double, true)
    return found


def of_model(theory: Any) -> dict[str, dict[str, float]]:
    """Digits lost by every equation that has certified numbers, by name and setting."""
    settings = {label: p.values() for label, p in edges(theory.Parameters)}
    found = {
        name: of_equation(equation, settings)
        for name, equation in theory.equations().items()
        if isinstance(equation.rhs, sp.Expr)
    }
    return {name: at for name, at in found.items() if at}


def of_times(result: Any) -> dict[str, float]:
    """Digits lost by the times of an `Onset` that are certified, by name."""
    proved = result.certified(digits=12)
    return {name: lost(result.numbers[name], true) for name, true in proved.items()}
