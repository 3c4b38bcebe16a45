"""Symbols under other names, for a write-up with letters of its own: ``N=T``."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import sympy as sp
from sympy.core.function import AppliedUndef, UndefinedFunction

from theory.call.refusal import ParameterError
from theory.equations import printing
from theory.symbols import notation
from theory.symbols.reading import sympified

if TYPE_CHECKING:
    from theory.equations.equation import Equation

AnyEquation = TypeVar("AnyEquation", bound="Equation")
NEAREST = 5  # number of suggestions for an unknown symbol
CONSTANTS = {printing.expression(x) for x in (sp.E, sp.I, sp.pi)}


@dataclass(frozen=True)
class Renaming:
    """New names of symbols, arrays and functions, by their old names; all are changed
    at once.

    Attributes
    ----------
    names : mapping of str to str
        ``{"N": "T"}``; Greek letters by name (``tau``), an index after an underscore.
    """

    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, typed: Iterable[str], equations: Iterable[Equation]) -> Renaming:
        """Renaming of a command line, ``OLD=NEW`` each.

        Parameters
        ----------
        typed : iterable of str
            As typed.
        equations : iterable of Equation
            What is to be printed.

        Raises
        ------
        ParameterError
            If an old name does not occur in the equations or is given twice, or a new
            one is no name, or it would look like another symbol of the equations or
            like e, i or pi.
        """
        names: dict[str, str] = {}
        for text in typed:
            old, equals, new = (part.strip() for part in text.partition("="))
            if not equals:
                raise ParameterError(f"--rename {text}: must be OLD=NEW, as in N=T")
            if old in names:
                raise ParameterError(f"--rename {text}: {old} is renamed twice")
            names[old] = new
        return cls.of(names, equations, "--rename")

    @classmethod
    def of(
        cls,
        names: Mapping[str, str],
        equations: Iterable[Equation],
        said: str = "rename",
    ) -> Renaming:
        """Renaming of a call. Errors as in `read`; ``said`` begins their messages."""
        for old, new in notation.mapping(said, names, "{'N': 'T'}").items():
            if not isinstance(new, str) or not re.fullmatch(
                r"[A-Za-z]\w*", new, re.ASCII
            ):
                raise ParameterError(
                    f"{said} {old}={new}: {new!r} is not a name, as T, tau or d_k"
                )
        made = cls(dict(names))
        if names:
            made.check(equations, said)
        return made

    def check(self, equations: Iterable[Equation], said: str) -> None:
        """Refuse unknown and clashing names; see `read`.
        ``said`` begins the message.
        """
        occurring: set[Any] = set()
        for e in equations:
            occurring.update(_named(e.lhs), _named(e.rhs))
        looks = {str(x): printing.expression(x) for x in occurring}
        for old, new in self.names.items():
            if old not in looks:
                near = difflib.get_close_matches(old, looks, n=NEAREST, cutoff=0)
                raise ParameterError(
                    f"{said} {old}={new}: no symbol {old}; nearest are"
                    f" {', '.join(near)}"
                )
        taken = {look: name for name, look in looks.items() if name not in self.names}
        unchanged = {*taken.values()}
        for old, new in self.names.items():
            look = printing.expression(sp.Symbol(new))
            if look in CONSTANTS:
                raise ParameterError(f"{said} {old}={new}: {new} is a constant")
            other = new if new in unchanged else taken.get(look)
            if other is not None:
                raise ParameterError(
                    f"{said} {old}={new}: {other} is another symbol there, to be"
                    " renamed, too"
                )
            taken[look] = old

    def expression(self, expr: Any) -> Any:
        """An expression, symbol, array or function under the new names."""
        if isinstance(expr, UndefinedFunction):
            return self._function(expr)
        expr = sympified(expr)
        known = {x for x in expr.atoms(sp.Symbol) if x.name in self.names}
        renamed = expr.xreplace(
            {x: x.func(self.names[x.name], **x._assumptions_orig) for x in known}
        )
        functions = {f.func for f in expr.atoms(AppliedUndef)}
        if any(f.__name__ in self.names for f in functions):
            renamed = renamed.replace(
                lambda f: isinstance(f, AppliedUndef),
                lambda f: self._function(f.func)(*f.args),
            )
        return renamed

    def _function(self, of: Any) -> Any:
        new = self.names.get(of.__name__)
        return of if new is None else UndefinedFunction(new, **of._kwargs)

    def equation(self, equation: AnyEquation) -> AnyEquation:
        """An equation under the new names, with its assumptions."""
        if not self.names:
            return equation
        return dataclasses.replace(
            equation,
            lhs=self.expression(equation.lhs),
            rhs=self.expression(equation.rhs),
            assumptions=tuple(map(self.words, equation.assumptions)),
        )

    def words(self, text: str) -> str:
        """Plain text in which symbols stand as they are typed; "a" before a noun is an
        article.
        """
        article = r"(?<![\w/])a (?!at\b|to\b|of\b|and\b|is\b)[a-z]{2}"
        return re.sub(
            rf"(?<![\w\\])(?!{article})[A-Za-z]\w*",
            lambda m: self.names.get(m[0], m[0]),
            text,
        )


def _named(expr: Any) -> set[Any]:
    """Everything in an expression that is printed as a name, bound symbols included.
    (SymPy keeps the direction of a limit as a symbol, too.)
    """
    expr = sympified(expr)
    symbols = {x for x in expr.atoms(sp.Symbol) if x.name[0].isalpha()}
    return symbols | {f.func for f in expr.atoms(AppliedUndef)}
