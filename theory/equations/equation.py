"""Equation: a symbolic result with its reference, status and assumptions."""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import sympy as sp

from theory.call import arrays, sweep
from theory.call.refusal import ParameterError, error_summary, nearest, shown
from theory.call.sweep import by_dimension
from theory.equations import printing
from theory.equations.renaming import Renaming
from theory.numbers import balls, lowered, numeric
from theory.symbols.notation import expression, mapping

SYMBOLIC = (sp.Basic, sp.MatrixBase)
NEAREST = 5  # number of suggestions for an unknown equation name or number
STATUSES = ("exact", "leading order", "closure", "empirical")


_compiled = functools.lru_cache(maxsize=512)(numeric.function)  # for sweeps


def _has_places(expr: sp.Expr) -> bool:
    """Whether it has array entries at fixed positions or under sums over several
    indices, which need `theory.numbers.lowered.entry_by_entry`.
    """
    summed: set[sp.Indexed] = set()
    for s in expr.atoms(sp.Sum):
        variables = tuple(s.variables)
        if len(variables) == 1:
            entries = s.function.atoms(sp.Indexed)
            summed |= {x for x in entries if x.indices == variables}
    return bool(expr.atoms(sp.Indexed) - summed)


def _read(rhs: Any, given: frozenset) -> tuple[frozenset[str], list[Any], bool]:
    """What evaluating a right-hand side needs, where some symbols or sub-expressions
    are given: the names of the other symbols and arrays; the arguments, sorted by name;
    and whether array entries at fixed positions or under sums have to be evaluated
    entry by entry.
    """
    stand_in = {x: sp.Dummy() for x in given if not isinstance(x, sp.IndexedBase)}
    remaining = rhs.xreplace(stand_in)
    bases = remaining.atoms(sp.IndexedBase)
    labels = {base.label for base in bases}
    symbols = {
        s
        for s in remaining.free_symbols
        if isinstance(s, sp.Symbol) and not isinstance(s, sp.Dummy)
    } - labels
    names = frozenset(s.name for s in symbols | labels)
    # The order of arguments fixes the order of operations, and so the last bit.
    needed = sorted((bases | symbols) - given, key=lambda s: s.name)
    return names, needed, bool(bases) and _has_places(remaining)


_read_once = functools.lru_cache(maxsize=512)(_read)


class _WhenRead:
    """Descriptor of a right-hand side. If it is given as a function, the function is
    called once, when the right-hand side is first read; what is no expression is
    refused then.
    """

    def __get__(self, equation: Equation, _: Any = None) -> sp.Expr:
        stored = vars(equation)
        if not isinstance(stored["rhs"], SYMBOLIC):
            rhs = stored["rhs"]() if callable(stored["rhs"]) else stored["rhs"]
            known = isinstance(rhs, SYMBOLIC)
            stored["rhs"] = rhs if known else expression(stored["name"], rhs, {})
        return stored["rhs"]

    def __set__(
        self, equation: Equation, value: sp.Expr | Callable[[], sp.Expr]
    ) -> None:
        vars(equation)["rhs"] = value


def provenance(of: Any) -> None:
    """Check name, reference, status and assumptions of an equation or a flow.

    Raises
    ------
    ParameterError
        Naming what is no text, or no status.
    """
    if not isinstance(of.status, str) or of.status not in STATUSES:
        raise ParameterError(
            f"status = {shown(of.status)}: must be one of {', '.join(STATUSES)}"
        )
    texts = of.assumptions if isinstance(of.assumptions, tuple | list) else [None]
    if not all(isinstance(text, str) for text in (of.name, of.reference, *texts)):
        raise ParameterError(
            f"name = {shown(of.name)}, reference = {shown(of.reference)}, assumptions ="
            f" {shown(of.assumptions)}: must be texts, assumptions a tuple of them"
        )


@dataclass(frozen=True, repr=False)
class Equation:
    """One derived result ``lhs = rhs``.

    Attributes
    ----------
    name : str
        Short name, unique within its model.
    lhs, rhs : Expr
        Left and right side, stored separately because ``sympy.Eq`` may collapse to a
        boolean. ``rhs`` may be given as a function that derives it; it is called when
        the right-hand side is first read.
    reference : str
        For example ``"forner2026, Eq. (11)"``.
    status : {'exact', 'leading order', 'closure', 'empirical'}
        Exact under the stated assumptions; leading term of an expansion; relies on an
        ansatz; fitted to data.
    assumptions : tuple of str
        Assumptions made in the derivation.
    """

    name: str
    lhs: sp.Expr
    rhs: sp.Expr
    reference: str
    status: str
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the provenance."""
        provenance(self)

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling: the derived result, not the function that derives it."""
        return {**vars(self), "rhs": self.rhs}

    def latex(self, *, align: bool = False) -> str:
        """LaTeX of the equation; ``align`` adds an alignment mark before the equals
        sign.
        """
        return (
            f"{printing.expression(self.lhs)} {'&' if align else ''}="
            f" {printing.expression(self.rhs)}"
        )

    def lambdify(self, *arguments: sp.Basic, modules: str = "numpy") -> Callable:
        """Compile the right-hand side; see `theory.numbers.numeric.function`."""
        if not isinstance(modules, str) or modules not in numeric.MODULES:
            raise ParameterError(
                f"modules = {shown(modules)}: must be one of"
                f" {', '.join(numeric.MODULES)}"
            )
        if isinstance(self.rhs, sp.Basic):
            return _compiled(self.rhs, arguments, modules)
        return numeric.function(self.rhs, arguments, modules)

    @by_dimension()
    def evaluate(self, values: Any, modules: str = "numpy", **swept: Any) -> Any:
        """Evaluate the right-hand side numerically.

        Parameters
        ----------
        values : Parameters or mapping
            Parameters, or numbers or arrays keyed by symbol name, symbol, `IndexedBase`
            or sub-expression. Names that the equation does not use are ignored, so
            ``p.values()`` may be passed as a whole. If arrays with several indices
            occur, or entries at fixed indices (``G[k, l]`` with numbers for ``k`` and
            ``l``), the result is a single number: see `lowered.number`.
        **swept
            Arrays of parameter fields, and values of other symbols: ``evaluate(p, L=[3,
            10], alpha=2.0)``.

        Raises
        ------
        ParameterError
            If a free symbol has no value, a derived quantity would not be computed from
            another that is overridden, or a value is not a real number (None, complex,
            masked).
        """
        read = _read_once if isinstance(self.rhs, sp.Basic) else _read
        if swept or not isinstance(values, Mapping):
            values = sweep.numbers(values, read(self.rhs, frozenset())[0], **swept)
        given = {key: values[key] for key in values if not isinstance(key, str)}
        names, needed, places = read(self.rhs, frozenset(given))
        if places and modules == "numpy" and all(name in values for name in names):
            return lowered.number(self.rhs.xreplace(given), values)
        for symbol in needed:
            if symbol.name not in values:
                raise ParameterError(f"{self.name}: no value for {symbol.name}")
            given[symbol] = value = values[symbol.name]
            if modules == "numpy":
                arrays.array(symbol.name, value, empty=True)
        try:
            value = self.lambdify(*given, modules=modules)(*given.values())
        except ParameterError:
            raise
        except (ArithmeticError, ValueError) as error:  # poles, shapes
            raise ParameterError(
                f"{self.name}: has no value there ({error_summary(error)})"
            ) from None
        return numeric.real(self.name, value) if modules == "numpy" else value

    def number(self, values: Any) -> float:
        """The one number that `evaluate` gives."""
        return float(self.evaluate(values))

    certify = balls.certify

    def subs(self, replacements: Mapping[Any, Any]) -> Self:
        """Equation with the replacements made on both sides, except in a derivative on
        the left.

        Parameters
        ----------
        replacements : mapping
            Keyed by symbol, symbol name or sub-expression: ``subs({"A": 0.5})``.
            Symbols are matched by name, so their SymPy assumptions need not agree.

        Raises
        ------
        ParameterError
            If a given name is not a symbol of the equation.
        """
        known = {
            s.name: s
            for s in self.lhs.free_symbols | self.rhs.free_symbols
            if s.is_Symbol
        }
        values = {}
        for key, value in mapping("subs", replacements, "{'A': 0.5}").items():
            if isinstance(key, str) and key not in known:
                names = ", ".join(sorted(known))
                hint = nearest(key, known)
                raise ParameterError(
                    f"{self.name}: no symbol {key}; {hint}there are {names}"
                )
            name = key if isinstance(key, str) else getattr(key, "name", None)
            values[
                known.get(name, key) if isinstance(key, str | sp.Symbol) else key
            ] = value
        # The rate of A at A = 1/2 is not the derivative of 1/2.
        kept = {
            key: value
            for key, value in values.items()
            if not (self.lhs.has(sp.Derivative) and not isinstance(value, sp.Symbol))
        }
        return replace(self, lhs=self.lhs.subs(kept), rhs=self.rhs.subs(values))

    def rename(self, names: Mapping[str, str]) -> Self:
        """Equation with symbols, arrays and functions under other names: ``rename({"N":
        "T"})``.

        Parameters
        ----------
        names : mapping of str to str
            New names by old ones, Greek letters by name (``tau``), an index after an
            underscore; all are changed at once.

        Raises
        ------
        ParameterError
            If the equation has no symbol of an old name, or a new name is none or is
            taken.
        """
        return Renaming.of(names, [self]).equation(self)

    def __repr__(self) -> str:
        """Name and provenance, without deriving the formula."""
        return f"<Equation {self.name}: {self.reference}, {self.status}>"

    def _repr_latex_(self) -> str:
        """The formula, as notebooks show it."""
        return f"$\\displaystyle {self.latex()}$"


def table(
    reference: str | Callable[[str], str],
    *assumptions: str,
    status: str,
    **rows: tuple[Any, ...],
) -> Equations:
    """Build several Equations by name, one row each.

    Parameters
    ----------
    reference : str or callable
        Common to all equations; or a function that makes a row's reference from its
        place in the source, the third entry of every row.
    *assumptions : str
        Common to all, listed before those of a row.
    status : str
        Of all rows that do not give their own.
    **rows : tuple
        By name: left side, right side (or a function that derives it), place if the
        reference is a function, status if it is not the common one, and further
        assumptions of this equation: ``g=(g, rhs, "Eq. (9)", "closure", "x large")``.
    """
    chapter = Chapter(reference, *assumptions, status=status)
    for name, (lhs, rhs, *words) in rows.items():
        chapter.state(name, lhs, rhs, *words)
    return chapter.equations


class Chapter:
    """The equations of one module, in the order in which they are stated.

    An equation is declared at the function that derives its right-hand side:

    .. code-block:: python

        chapter = Chapter(ref, status="exact")


        @chapter.derives(c_omega, "Eq. (15)", "closure", "N large")
        def c_omega_at_zero() -> sp.Expr: ...

    Parameters
    ----------
    reference : str or callable
        Common to all equations; or a function that makes the reference of an equation
        from its place in the source, the first word after its sides.
    *assumptions : str
        Common to all, listed before those of an equation.
    status : str
        Of all equations that do not give their own.

    Attributes
    ----------
    equations : Equations
        By name.
    """

    def __init__(
        self, reference: str | Callable[[str], str], *assumptions: str, status: str
    ) -> None:
        self.reference = reference
        self.assumptions = assumptions
        self.status = status
        self.equations = Equations()

    def state(self, name: str, lhs: sp.Expr, rhs: Any, *words: str) -> None:
        """State an equation.

        Parameters
        ----------
        name : str
            Of the equation.
        lhs : Expr
            Left side.
        rhs : Expr or callable
            Right side, or a function that derives it, called when it is first read.
        *words : str
            Place in the source if the reference is a function, status if it is not
            the common one, and further assumptions.
        """
        others = list(words)
        reference = self.reference
        if not isinstance(reference, str):
            reference = reference(others.pop(0))
        status = self.status
        if others and others[0] in STATUSES:
            status = others.pop(0)
        assumptions = (*self.assumptions, *others)
        self.equations[name] = Equation(name, lhs, rhs, reference, status, assumptions)

    def derives(
        self, lhs: sp.Expr, *words: str, name: str = ""
    ) -> Callable[[Callable[[], sp.Expr]], Callable[[], sp.Expr]]:
        """Declare the function below as the derivation of an equation, which has its
        name if no other is given. Words are those of `state`.
        """

        def declare(derivation: Callable[[], sp.Expr]) -> Callable[[], sp.Expr]:
            own_name = getattr(derivation, "__name__", "")
            self.state(name or own_name, lhs, derivation, *words)
            return derivation

        return declare


class Equations(dict[str, Equation]):
    """Equations by name, or by their number in the paper: ``["c_omega"]``, ``["15"]``,
    ``["Eq. (15)"]``. A number that several equations share gives all of them, to be
    printed or renamed at once.
    """

    def __missing__(self, name: str) -> Any:
        """The equation of a number, or all that have it.

        Raises
        ------
        ParameterError
            If there is none.
        """
        chosen = by_number(str(name), self)
        return chosen[0] if len(chosen) == 1 else Equations({e.name: e for e in chosen})

    def latex(self) -> str:
        """LaTeX ``aligned`` block."""
        return printing.aligned([*self.values()])

    def rename(self, names: Mapping[str, str]) -> Equations:
        """As `Equation.rename`, for each."""
        renaming = Renaming.of(names, [*self.values()])
        return Equations({name: renaming.equation(e) for name, e in self.items()})

    def _repr_latex_(self) -> str:
        """The equations, as notebooks show them."""
        return f"$$\n{self.latex()}\n$$"


def numbers(reference: str) -> list[str]:
    """Equation numbers of the paper that a reference claims for itself (not those it
    only compares with); ranges are expanded.
    """
    reference = re.split(
        r"\b(?:beyond|below|above|replacing|solution of)\b", reference
    )[0]
    claimed: list[str] = []
    for first, last in re.findall(
        r"\(([A-Z]?\.?\d+[a-z]?)\)(?:-\((\d+)\))?", reference
    ):
        if last and first.isdigit():
            claimed += [str(k) for k in range(int(first), int(last) + 1)]
        else:
            claimed.append(first)
    return claimed + re.findall(r"\b([A-Z]\.\d+(?:\.\d+)?)\b", reference)


def by_number(
    text: str, equations: Mapping[str, Equation], what: str = "equation"
) -> list[Equation]:
    """Equations by name, or by their number in the paper: ``15``, ``(15)``, ``Eq.
    (15)``; a message calls them ``what``.

    Raises
    ------
    ParameterError
        If there is none; the message lists the nearest five.
    """
    if text in equations:
        return [equations[text]]
    number = re.sub(r"^(Eqs?\.?)?\s*\(?|\)$", "", text.strip())
    of = {name: numbers(e.reference) for name, e in equations.items()}
    chosen = [equations[name] for name, claimed in of.items() if number in claimed]
    if chosen:
        return chosen
    if number.isdigit():
        claimed_numbers = itertools.chain.from_iterable(of.values())
        near = sorted(
            {n for n in claimed_numbers if n.isdigit()},
            key=lambda n: (abs(int(n) - int(number)), int(n)),
        )
        suggested = [f"({n})" for n in near[:NEAREST]]
    else:
        suggested = difflib.get_close_matches(text, equations, n=NEAREST, cutoff=0)
    raise ParameterError(
        f"{what} {text}: there is none; {'nearest' if suggested else 'names'} are "
        f"{', '.join(suggested or [*equations][:NEAREST])}"
    )


Equation.rhs = _WhenRead()  # after the class is made, so that the field has no default
