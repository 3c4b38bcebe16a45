"""Flow: an ODE system of order parameters as data, with its Jacobian, fixed points, series and
numerical solutions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp

from theory import printing, solution
from theory.algebra import slope
from theory.conserved import conserved
from theory.entries import Entries
from theory.equation import Equation, Equations
from theory.linearised import linearised
from theory.parameters import BaseParameters, ParameterError, nearest
from theory.scope import Scope

MOST_CALLS = 300_000  # evaluations of the right-hand side, hundreds of times what any preset needs


@dataclass(frozen=True, repr=False)
class Flow:
    """A system ``d x / d time = rhs[x]`` for order parameters ``x``.

    Attributes
    ----------
    name : str
        Short name.
    time : Symbol
        The training-time symbol; its name is the coordinate of every trajectory.
    rhs : mapping of Symbol to Expr
        Right-hand side per order parameter.
    initial : mapping of Symbol to Expr
        Initial value per order parameter.
    where : mapping of Symbol to Expr
        Abbreviations used in the right-hand sides and observables; each may use later ones.
    observables : mapping of str to Expr
        Functions of the order parameters that are evaluated along a solution.
    reference, status, assumptions
        As for `theory.equation.Equation`.
    scope : Scope, optional
        Which students the flow describes. It is checked when the flow is solved for Parameters.
    entries : callable, optional
        Makes the student's weights behind the order parameters, which optimisers other than plain
        descent need.
    """

    name: str
    time: sp.Symbol
    rhs: Mapping[sp.Symbol, sp.Expr]
    initial: Mapping[sp.Symbol, sp.Expr]
    reference: str
    status: str
    assumptions: tuple[str, ...] = ()
    where: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    observables: Mapping[str, sp.Expr] = field(default_factory=dict)
    scope: Scope | None = None
    entries: Callable[[], Entries] | None = None

    conserved = conserved
    linearised = linearised
    solve = solution.solve
    descend = solution.descend
    observed = solution.observed

    @property
    def expanded(self) -> dict[sp.Symbol, sp.Expr]:
        """Right-hand sides with every abbreviation substituted."""
        return {x: self._spell(rhs) for x, rhs in self.rhs.items()}

    def _spell(self, expr: sp.Expr) -> sp.Expr:
        for short, meaning in self.where.items():
            expr = expr.subs(short, meaning)
        return expr

    @property
    def state(self) -> tuple[sp.Symbol, ...]:
        """The order parameters, in order."""
        return tuple(self.rhs)

    def equations(self) -> Equations:
        """One Equation per order parameter, named ``d<x>_d<time>``."""
        return Equations(
            {
                (name := f"d{x.name}_d{self.time.name}"): Equation(
                    name,
                    sp.Derivative(x, self.time),
                    rhs,
                    self.reference,
                    self.status,
                    self.assumptions,
                )
                for x, rhs in self.rhs.items()
            }
        )

    def latex(self) -> str:
        """LaTeX ``aligned`` block: the equations, then the definitions of their abbreviations."""
        where = [
            Equation(x.name, x, meaning, self.reference, self.status)
            for x, meaning in self.where.items()
        ]
        return printing.aligned([*self.equations().values(), *where])

    def __repr__(self) -> str:
        """Name, order parameters and provenance."""
        state = ", ".join(x.name for x in self.state)
        return f"<Flow {self.name}: {state} over {self.time.name}; {self.reference}, {self.status}>"

    def _repr_latex_(self) -> str:
        """The equations, as notebooks show them."""
        return f"$$\n{self.latex()}\n$$"

    def jacobian(self) -> sp.Matrix:
        """Jacobian of the right-hand sides with respect to the order parameters."""
        return sp.Matrix([[slope(r, x) for x in self.state] for r in self.expanded.values()])

    def fixed_points(self) -> list[dict[sp.Symbol, sp.Expr]]:
        """Symbolic solutions of ``rhs = 0``. Common factors of all equations that cannot vanish are
        divided out.
        """
        rates = [sp.factor(r) for r in self.expanded.values()]
        common = [
            f
            for f in sp.Mul.make_args(rates[0])
            if f.is_nonzero and all(f in sp.Mul.make_args(r) for r in rates)
        ]
        return sp.solve([r / sp.Mul(*common) for r in rates], self.state, dict=True)

    def held(self, **values: Any) -> Flow:
        """The flow with some order parameters fixed: ``flow.held(w=0.3)``. The rates of the others
        are unchanged.

        Raises
        ------
        ParameterError
            If a name is not an order parameter.
        """
        names = {x.name: x for x in self.state}
        for name in values:
            if name not in names:
                hint = nearest(name, names)
                raise ParameterError(
                    f"{name}: no order parameter; {hint}there are {', '.join(names)}"
                )
        kept = {names[name]: sp.sympify(v, strict=True) for name, v in values.items()}
        return replace(
            self,
            name=f"{self.name}, {', '.join(values)} held",
            rhs={**self.rhs, **dict.fromkeys(kept, sp.S.Zero)},
            initial={**self.initial, **kept},
            assumptions=(*self.assumptions, *(f"{x} is held at {v}" for x, v in values.items())),
        )

    def series(
        self, order: int, start: Mapping[sp.Symbol, Any] | None = None
    ) -> dict[sp.Symbol, sp.Expr]:
        """Taylor polynomial in time about the initial values, up to and including ``time**order``.

        ``start`` substitutes symbols of the initial values and parameters first: ``{R_0: 0}``.
        """
        start = start or {}
        rhs = {x: expr.subs(start) for x, expr in self.expanded.items()}
        at_start = {
            x: sp.sympify(expr, strict=True).subs(start) for x, expr in self.initial.items()
        }
        derivative, result = rhs, dict(at_start)
        for power in range(1, order + 1):
            if power > 1:
                derivative = {
                    x: sum((sp.diff(d, y) * rhs[y] for y in self.state), sp.S.Zero)
                    for x, d in derivative.items()
                }
            for x in self.state:
                result[x] += derivative[x].subs(at_start) * self.time**power / sp.factorial(power)
        return result

    def _ask(self, parameters: Any) -> None:
        """Raise an error for Parameters of students that the flow does not describe."""
        if self.scope is not None and isinstance(parameters, BaseParameters):
            self.scope.require(parameters)

    @functools.cached_property
    def _compiled(self) -> tuple[list[sp.Symbol], Any, Any, Any]:
        """The free symbols, and compiled functions of them: right-hand sides, Jacobian and initial
        values.
        """
        used = [*self.expanded.values(), *self.initial.values()]
        free = sorted(
            set().union(*(sp.sympify(e, strict=True).free_symbols for e in used))
            - {*self.state, self.time},
            key=str,
        )
        arguments, modules = [self.time, *self.state, *free], ["scipy", "numpy"]
        rhs = sp.lambdify(arguments, list(self.expanded.values()), modules, cse=True)
        # a matrix, not lists of lists, whose common parts lambdify would not look for
        jac = sp.lambdify(arguments, self.jacobian(), modules, cse=True)
        return free, rhs, jac, sp.lambdify(free, [self.initial[x] for x in self.state], modules)

    def _functions(
        self, numbers: Mapping[str, float], unit: float, most: float = MOST_CALLS
    ) -> tuple[Any, Any, np.ndarray]:
        """Right-hand side and Jacobian in units of the time ``unit``, and the initial state. More
        than ``most`` evaluations raise an error.
        """
        free, rhs, jac, initial = self._compiled
        missing = sorted(s.name for s in free if s.name not in numbers)
        if missing:
            raise ParameterError(f"{self.name}: no value for {', '.join(missing)}")
        fixed = [float(numbers[s.name]) for s in free]
        calls = itertools.count()

        def counted(t: float, y: np.ndarray) -> np.ndarray:
            if next(calls) > most:
                raise ParameterError(
                    solution.beyond(
                        self, f"needs more than {most:.0e} evaluations", unit * t, numbers
                    )
                )
            return unit * np.array(rhs(unit * t, *y, *fixed))

        return (
            counted,
            lambda t, y: unit * np.array(jac(unit * t, *y, *fixed)),
            np.array(initial(*fixed), float),
        )
