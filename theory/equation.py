"""Equation: a symbolic result that knows where it comes from and when it holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import sympy as sp

from theory import arguments, lowered, notation, numeric, sweep
from theory.dimensions import by_dimension
from theory.parameters import ParameterError, nearest

STATUSES = ("exact", "leading order", "closure", "empirical")


_compiled = functools.lru_cache(maxsize=512)(numeric.function)  # sweeps ask again and again


class _WhenRead:
    """A right-hand side, or the function that derives it: derived once, when somebody reads it."""

    def __get__(self, equation: Equation, _: Any = None) -> sp.Expr:
        stored = vars(equation)
        if not isinstance(stored["rhs"], sp.Basic | sp.MatrixBase) and callable(stored["rhs"]):
            stored["rhs"] = stored["rhs"]()
        return stored["rhs"]

    def __set__(self, equation: Equation, value: sp.Expr | Callable[[], sp.Expr]) -> None:
        vars(equation)["rhs"] = value


@dataclass(frozen=True, repr=False)
class Equation:
    """One derived result ``lhs = rhs``.

    Attributes
    ----------
    name : str
        Short name, unique within its model.
    lhs, rhs : Expr
        Kept apart, because ``sympy.Eq`` may collapse to a truth value. ``rhs`` may be given as the
        function that derives it, which runs when the right-hand side is first read.
    reference : str
        For example ``"forner2026, Eq. (11)"``.
    status : {'exact', 'leading order', 'closure', 'empirical'}
        Exact under the stated assumptions; leading term of an expansion; rests on an ansatz;
        fitted.
    assumptions : tuple of str
        What was assumed on the way.
    """

    name: str
    lhs: sp.Expr
    rhs: sp.Expr
    reference: str
    status: str
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a status outside the vocabulary."""
        if self.status not in STATUSES:
            raise ValueError(f"status = {self.status!r}: must be one of {', '.join(STATUSES)}")

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: the derived result, not the function that derives it."""
        return {**vars(self), "rhs": self.rhs}

    def latex(self, *, align: bool = False) -> str:
        """LaTeX of the equation; with ``align``, an alignment mark before the equals sign."""
        return f"{notation.expression(self.lhs)} {'&' if align else ''}= {notation.expression(self.rhs)}"

    def lambdify(self, *arguments: sp.Basic, modules: str = "numpy") -> Callable:
        """Compile the right-hand side; see `theory.numeric.function`."""
        if isinstance(self.rhs, sp.Basic):
            return _compiled(self.rhs, arguments, modules)
        return numeric.function(self.rhs, arguments, modules)

    @by_dimension()
    def evaluate(self, values: Any, modules: str = "numpy", **swept: Any) -> Any:
        """Numbers for the right-hand side.

        Parameters
        ----------
        values : Parameters or mapping
            Parameters, or numbers or arrays by symbol name, symbol, `IndexedBase` or
            sub-expression. Names the equation does not use are ignored, so a model's whole
            ``p.values()`` may be passed. Arrays of several indices, and entries at places (``G[k,
            l]`` with numbers for ``k`` and ``l``), give single numbers: `lowered.number`.
        **swept
            Arrays of fields of the parameters, and numbers of other symbols
            (``evaluate(p, L=[3, 10], alpha=2.0)``).

        Raises
        ------
        KeyError
            If a free symbol has no value.
        ParameterError
            If a number that is used follows from another value of a field than the one beside it,
            or is none (None, complex, masked).
        """
        if swept or not isinstance(values, Mapping):
            known = {s.name for s in self.rhs.free_symbols if isinstance(s, sp.Symbol)}
            values = sweep.numbers(values, known, **swept)
        given = {key: value for key, value in values.items() if not isinstance(key, str)}
        rest = self.rhs.xreplace(
            {key: sp.Dummy() for key in given if not isinstance(key, sp.IndexedBase)}
        )
        bases = rest.atoms(sp.IndexedBase)
        labels = {base.label for base in bases}
        symbols = {
            s for s in rest.free_symbols if isinstance(s, sp.Symbol) and not isinstance(s, sp.Dummy)
        } - labels
        used = {s.name for s in symbols | labels}
        if bases and modules == "numpy" and used <= values.keys() and numeric.has_places(rest):
            sweep.fresh(values, used)
            return lowered.number(self.rhs.xreplace(given), values)
        # By name, as the order of arguments decides the order of operations and so the last bit.
        for symbol in sorted((bases | symbols) - set(given), key=lambda s: s.name):
            if symbol.name not in values:
                raise KeyError(f"{self.name}: no value for {symbol.name}")
            given[symbol] = value = values[symbol.name]
            if modules == "numpy":
                arguments.array(symbol.name, value, empty=True)
        sweep.fresh(values, {s.name for s in given if isinstance(s, sp.Symbol)} & values.keys())
        return self.lambdify(*given, modules=modules)(*given.values())

    def subs(self, replacements: Mapping[Any, Any]) -> Self:
        """Equation with both sides substituted, a derivative on the left excepted.

        Parameters
        ----------
        replacements : mapping
            By symbol, by name of a symbol, or by sub-expression: ``subs({"A": 0.5})``. A symbol
            made elsewhere counts by its name, whatever was assumed of it.

        Raises
        ------
        ParameterError
            If no symbol has a given name.
        """
        known = {s.name: s for s in self.lhs.free_symbols | self.rhs.free_symbols if s.is_Symbol}
        found = {}
        for key, value in replacements.items():
            if isinstance(key, str) and key not in known:
                names = ", ".join(sorted(known))
                hint = nearest(key, known)
                raise ParameterError(f"{self.name}: no symbol {key}; {hint}there are {names}")
            name = key if isinstance(key, str) else getattr(key, "name", None)
            found[known.get(name, key) if isinstance(key, str | sp.Symbol) else key] = value
        # The rate of A at A = 1/2 is not the derivative of 1/2.
        kept = {
            key: value
            for key, value in found.items()
            if not (self.lhs.has(sp.Derivative) and not isinstance(value, sp.Symbol))
        }
        return replace(self, lhs=self.lhs.subs(kept), rhs=self.rhs.subs(found))

    def __repr__(self) -> str:
        """Name and provenance; the formula is not derived for it."""
        return f"<Equation {self.name}: {self.reference}, {self.status}>"

    def _repr_latex_(self) -> str:
        """The formula, as notebooks show it."""
        return f"$\\displaystyle {self.latex()}$"


def table(
    reference: str, *assumptions: str, status: str, **rows: tuple[Any, ...]
) -> dict[str, Equation]:
    """Equations of one origin, by name.

    Parameters
    ----------
    reference, status : str
        Of all of them.
    *assumptions : str
        What all of them rest on.
    **rows : tuple
        By name: left side, right side (or the function that derives it), and what this one assumes
        besides.
    """
    return {
        name: Equation(name, lhs, rhs, reference, status, (*assumptions, *more))
        for name, (lhs, rhs, *more) in rows.items()
    }


Equation.rhs = _WhenRead()  # after the class is made, so that the field has no default
