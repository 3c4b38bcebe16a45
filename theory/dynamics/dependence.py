"""How the numbers of a flow follow from fields and derived constants of Parameters,
with sizes taken as continuous where formulas allow.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from theory.call import sweep
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError, nearest
from theory.call.values import Values
from theory.equations.equation import Equation

STEP = 1e-3  # of a difference of fourth order, relative
# Weights by step: around a value, and to either side where that is the end of a range.
CENTRAL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
FORWARD = {0: -25 / 12, 1: 4.0, 2: -3.0, 3: 4 / 3, 4: -1 / 4}
BACKWARD = {-k: -weight for k, weight in FORWARD.items()}
UNEVALUATED = (sp.Derivative, sp.Subs)


class Whole(ParameterError):
    """A number follows from a field only where that is a whole number."""


class Held(ParameterError):
    """A field that has a single value beside the others."""


class Dependence:
    """Numbers by symbol name as functions of fields and derived constants.

    Parameters
    ----------
    parameters : Parameters or mapping
        Where the functions are evaluated: Parameters, their ``values()`` with changes,
        or numbers by symbol name.
    symbols : sequence of str
        Symbols whose numbers are needed.

    Attributes
    ----------
    numbers : Mapping
        All numbers at these parameters.
    """

    def __init__(self, parameters: Any, symbols: Sequence[str]) -> None:
        self.symbols = list(symbols)
        self.numbers: Mapping[Any, Any] = sweep.numbers(parameters, self.symbols)
        self.p: BaseParameters | None = None
        self.given: dict[str, Any] = {}
        self.sizes: dict[str, float] = {}
        self._elsewhere: dict[tuple[str, Any], Mapping[str, Any]] = {}
        self._derivatives: dict[tuple[str, str], sp.Expr | None] = {}
        if isinstance(parameters, Values):
            self.p = parameters.of
            changes = parameters.changes
            fields = {n: v for n, v in changes.items() if n in self.p._fields()}
            self.p = self.p.replace(**fields)
            self.given = {str(n): v for n, v in changes.items() if n not in fields}
        elif isinstance(parameters, BaseParameters):
            self.p = parameters
        formulas = {} if self.p is None else self.p.formulas()
        self.formulas = {n: e for n, e in formulas.items() if n not in self.given}

    @property
    def fields(self) -> list[str]:
        """Fields that have a number."""
        if self.p is None:
            return []
        return [n for n, v in self.p.as_dict().items() if _is_number(v)]

    @property
    def names(self) -> list[str]:
        """Fields and constants on which the symbols depend."""
        scalars = (n for n, v in self.numbers.items() if _is_number(v))
        known = [*self.fields, *(str(n) for n in scalars if n not in self.fields)]
        return [x for x in known if self._moves(x)]

    def _moves(self, name: str) -> bool:
        try:
            return bool(np.any(self.direction(name)))
        except Whole:
            return True
        except Held:
            return False

    def value(self, name: str) -> float:
        """Number of a field or constant.

        Raises
        ------
        ParameterError
            For a name that is neither.
        """
        if name in self.fields:
            return float(self.sizes.get(name, getattr(self.p, name)))
        if name in self.numbers and np.ndim(self.numbers[name]) == 0:
            return float(self.numbers[name])
        known = [*self.fields, *map(str, self.numbers)]
        hint = nearest(name, known)
        raise ParameterError(
            f"{name}: neither a field nor a constant of the flow; {hint}there are"
            f" {', '.join(dict.fromkeys(known))}"
        )

    def direction(self, name: str) -> np.ndarray:
        """Derivatives of all symbols in a field or constant.

        Raises
        ------
        Whole
            If one follows from this field at whole numbers only.
        ParameterError
            For an unknown name, or a field at the end of its range.
        """
        value = self.value(name)
        slopes = np.zeros(len(self.symbols))
        for k, symbol in enumerate(self.symbols):
            if symbol == name:
                slopes[k] = 1.0
            elif self._follows(symbol):
                slopes[k] = self._slope(symbol, name, value)
        return slopes

    def _follows(self, symbol: str) -> bool:
        """Whether a symbol is computed from fields."""
        return (
            self.p is not None
            and symbol not in self.given
            and (symbol in self.formulas or symbol not in self.fields)
            and symbol in self.p.quantities()
        )

    def _slope(self, symbol: str, name: str, value: float) -> float:
        """Derivative of a derived number."""
        derivative = self._derivative(symbol, name)
        if derivative is not None:
            return self._evaluated(symbol, derivative)
        if name not in self.fields:
            return 0.0
        if isinstance(getattr(self.p, name), int):
            if self._changes(symbol, name):
                raise Whole(
                    f"{name}: {symbol} follows from it at whole numbers only; give"
                    f" {symbol} as a number to hold it fixed"
                )
            return 0.0
        return self._difference(symbol, name, value)

    def _derivative(self, symbol: str, name: str) -> sp.Expr | None:
        """Derivative of the formula of a number; None if it has none."""
        formula = self.formulas.get(symbol)
        if formula is None:
            return None
        if (symbol, name) not in self._derivatives:
            derivative = None
            for of in formula.free_symbols:
                if of.name == name:
                    derivative = sp.diff(formula, of)
            if derivative is not None and derivative.has(*UNEVALUATED):
                derivative = None
            self._derivatives[symbol, name] = derivative
        return self._derivatives[symbol, name]

    def _difference(self, symbol: str, name: str, value: float) -> float:
        """Derivative by differences of the derived number."""
        step = STEP * (abs(value) or 1.0)
        for stencil in (CENTRAL, FORWARD, BACKWARD):
            with contextlib.suppress(ParameterError):
                values = [self._at(symbol, name, value + k * step) for k in stencil]
                if len(set(values)) == 1:
                    return 0.0
                return float(np.dot(list(stencil.values()), values)) / step
        raise Held(f"{name} = {value:g}: has no values beside it")

    def _evaluated(
        self, symbol: str, formula: sp.Expr, numbers: Mapping[Any, Any] | None = None
    ) -> float:
        """A formula at these numbers, or at others beside the same sizes."""
        known = self.numbers
        if numbers is not None:
            known = {**numbers, **self.given, **self.sizes}
        equation = Equation(symbol, sp.Symbol(symbol), formula, "derived", "exact")
        return equation.number(known)

    def _at(self, symbol: str, name: str, value: Any) -> float:
        """A derived number at another value of a field."""
        assert self.p is not None
        if (name, value) not in self._elsewhere:
            q = self.p.replace(**{name: value})
            self._elsewhere[name, value] = q.quantities()
        numbers = self._elsewhere[name, value]
        if self.sizes and symbol in self.formulas:
            return self._evaluated(symbol, self.formulas[symbol], numbers)
        return float(numbers[symbol])

    def _changes(self, symbol: str, name: str) -> bool:
        """Whether a derived number is another one at another size."""
        value = getattr(self.p, name)
        here = self._at(symbol, name, value)
        for other in (value + 1, value - 1, value + 2, 2 * value, value // 2):
            with contextlib.suppress(ParameterError, KeyError):
                if self._at(symbol, name, other) != here:
                    return True
        return False

    def moved(self, values: Mapping[str, float]) -> Dependence:
        """The same where fields and constants have other values.

        Raises
        ------
        ParameterError
            For values that are not allowed, or sizes from which a number follows only
            where they are whole.
        """
        smooth = {
            n: v
            for n, v in values.items()
            if n in self.fields and not isinstance(getattr(self.p, n), int)
        }
        over = {n: v for n, v in values.items() if n not in smooth}
        other = copy.copy(self)
        other._elsewhere = {}
        numbers = {str(n): self.numbers[n] for n in self.numbers}
        if self.p is not None and smooth:
            other.p = self.p.replace(**smooth)
            numbers |= dict(other.p.values().items()) | self.given
        other.sizes = {n: v for n, v in over.items() if n in self.fields}
        constants = {n: v for n, v in over.items() if n not in other.sizes}
        other.given = self.given | constants
        other.formulas = {n: e for n, e in self.formulas.items() if n not in constants}
        other.numbers = numbers | over
        for symbol in self.symbols:
            if other._follows(symbol) and other.sizes:
                formula = other.formulas.get(symbol)
                for name in other.sizes:
                    self._slope(symbol, name, self.value(name))
                if formula is not None:
                    other.numbers[symbol] = other._evaluated(symbol, formula)
        return other

    def of_symbols(self) -> dict[str, float]:
        """Numbers of the symbols."""
        return {n: float(self.numbers[n]) for n in self.symbols}


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float | np.number)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
