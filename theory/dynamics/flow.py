"""Flow: an ODE system of order parameters as data, with its Jacobian, fixed points,
series and numerical solutions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp

from theory.call import sweep
from theory.call.parameters import BaseParameters
from theory.call.refusal import Allowed, ParameterError, number
from theory.call.scope import Scope
from theory.dynamics import certified, sensitivities, solution, trajectory
from theory.dynamics.conserved import conserved, fixed_points, invariant, linearised
from theory.dynamics.optimisers import Entries
from theory.equations import printing
from theory.equations.equation import Equation, Equations, provenance
from theory.numbers import numeric
from theory.symbols import notation
from theory.symbols.algebra import slope

# evaluations of the right-hand side, hundreds of times what any preset needs
MOST_CALLS = 300_000
NO_NUMBERS = (sp.nan, sp.zoo, sp.oo, -sp.oo, sp.Derivative, sp.DiracDelta, sp.Subs)
MOST_OPERATIONS = 100_000  # of the terms of a series: about ten seconds
MOST_ORDER = 200  # of a series


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
        Abbreviations used in the right-hand sides and observables; each may use later
        ones.
    observables : mapping of str to Expr
        Functions of the order parameters that are evaluated along a solution.
    reference, status, assumptions
        As for `theory.equations.equation.Equation`.
    scope : Scope, optional
        Which students the flow describes. It is checked when the flow is solved for
        Parameters.
    entries : callable, optional
        Makes the student's weights behind the order parameters, which optimisers other
        than plain descent need.
    fluctuations : callable, optional
        Adds to a solution what steps and batches of descent add to it.
    second_order : mapping of Symbol to Expr
        Where order parameters are quadratic in the weights: a step of descent of size s
        adds ``s * rhs + s^2 * second_order``.
    clock : str
        What the time is, if not that of runs of its model, e.g. ``eta * steps``.
    others : tuple of Symbol
        Parameters that may be given though nothing depends on them.

    Raises
    ------
    ParameterError
        For keys that are no symbols, and values that are no expressions.

    Notes
    -----
    Symbols are matched by name: two of one name and different assumptions are one.
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
    fluctuations: Callable[..., Any] | None = None
    second_order: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    clock: str = ""
    others: tuple[sp.Symbol, ...] = ()

    def __post_init__(self) -> None:
        """Read every expression, in one symbol per name."""
        provenance(self)
        for name, value in solution.unify(self).items():
            object.__setattr__(self, name, value)

    conserved = conserved
    fixed_points = fixed_points
    invariant = invariant
    linearised = linearised
    solve = solution.solve
    certify = certified.certify
    descend = solution.descend
    observed = solution.observed
    sensitivities = sensitivities.sensitivities

    @functools.cached_property
    def driven(self) -> bool:
        """Whether rates depend on time."""
        return any(self.time in rate.free_symbols for rate in self.expanded.values())

    @functools.cached_property
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
        equations = Equations()
        for x, rhs in self.rhs.items():
            name = f"d{x.name}_d{self.time.name}"
            equations[name] = Equation(
                name,
                sp.Derivative(x, self.time),
                rhs,
                self.reference,
                self.status,
                self.assumptions,
            )
        return equations

    def latex(self) -> str:
        """LaTeX ``aligned`` block: the equations, then the definitions of their
        abbreviations.
        """
        where = [
            Equation(x.name, x, meaning, self.reference, self.status)
            for x, meaning in self.where.items()
        ]
        return printing.aligned([*self.equations().values(), *where])

    def __repr__(self) -> str:
        """Name, order parameters and provenance."""
        state = ", ".join(x.name for x in self.state)
        return (
            f"<Flow {self.name}: {state} over {self.time.name}; {self.reference},"
            f" {self.status}>"
        )

    def _repr_latex_(self) -> str:
        """The equations, as notebooks show them."""
        return f"$$\n{self.latex()}\n$$"

    def jacobian(self) -> sp.Matrix:
        """Jacobian of the right-hand sides with respect to the order parameters."""
        return sp.Matrix(
            [[slope(r, x) for x in self.state] for r in self.expanded.values()]
        )

    def held(self, **values: Any) -> Flow:
        """The flow with some order parameters fixed: ``flow.held(w=0.3)``. The rates of
        the others are unchanged.

        Raises
        ------
        ParameterError
            If a name is not an order parameter.
        """
        held = notation.by_name("{}: no order parameter", values, self.state)
        still = dict.fromkeys(held, sp.S.Zero)
        fixed = (f"{x} is held at {v}" for x, v in values.items())
        return replace(
            self,
            name=f"{self.name}, {', '.join(values)} held",
            rhs={**self.rhs, **still},
            initial={**self.initial, **held},
            entries=None,
            fluctuations=None,
            others=(*self.others, *self._compiled[0]),
            second_order={x: s for x, s in self.second_order.items() if x not in held},
            assumptions=(*self.assumptions, *fixed),
        )

    def series(
        self, order: int, start: Mapping[Any, Any] | None = None
    ) -> dict[sp.Symbol, sp.Expr]:
        """Taylor polynomial in time about the initial values, up to and including
        ``time**order``.

        ``start`` substitutes symbols of the initial values and parameters first:
        ``{R_0: 0}``; for an order parameter it is the initial value.

        Raises
        ------
        ParameterError
            If the flow has no Taylor series there, if its terms grow beyond
            `MOST_OPERATIONS`, or for an unknown symbol.
        """
        order = number("order", order, Allowed(low=0, high=MOST_ORDER), int)
        exprs = [*self.expanded.values(), *self.initial.values()]
        known = {*self.state}.union(*(e.free_symbols for e in exprs)) - {self.time}
        values = notation.by_name(
            "start: {} is no symbol of the flow",
            {} if start is None else start,
            sorted(known, key=str),
        )
        for x, v in values.items():
            values[x] = notation.expression(f"start: {x}", v, {})
        begun = {x: values.pop(x, expr) for x, expr in self.initial.items()}
        rhs = {x: expr.subs(values) for x, expr in self.expanded.items()}
        at_start = {x: expr.subs(values) for x, expr in begun.items()}
        first = {**at_start, self.time: sp.S.Zero}
        moving = [(x, rhs[x]) for x in self.state]
        if self.driven:
            moving.append((self.time, sp.S.One))

        def along(expr: sp.Expr) -> sp.Expr:
            """Rate of an expression along the flow."""
            return sum((slope(expr, y) * rate for y, rate in moving), sp.S.Zero)

        derivative = rhs
        result = dict(at_start)
        for power in range(1, order + 1):
            if power > 1:
                derivative = {x: along(d) for x, d in derivative.items()}
            if sum(sp.count_ops(d) for d in derivative.values()) > MOST_OPERATIONS:
                raise ParameterError(
                    f"order = {order}: the terms of {self.name} grow too long; must be"
                    f" at most {power - 1}"
                )
            for x in self.state:
                term = derivative[x].subs(first, simultaneous=True)
                if term.has(*NO_NUMBERS):
                    raise ParameterError(
                        f"{self.name}: {x} has no Taylor series of order {power} at the"
                        " start"
                    )
                result[x] += term * self.time**power / sp.factorial(power)
        return result

    def _ask(self, parameters: Any) -> None:
        """Raise an error for Parameters of students that the flow does not describe."""
        if not isinstance(parameters, BaseParameters):
            return
        if self.scope is not None:
            self.scope.require(parameters)
        for name in parameters.constants:
            if name not in self._symbols:
                raise ParameterError(
                    f"{name} = {parameters.constants[name]:g}: is not in {self.name},"
                    f" which has {', '.join(sorted(self._symbols))}"
                )

    @functools.cached_property
    def _symbols(self) -> set[str]:
        """Names of the parameters of rates, initial values and observables."""
        seen = map(self._spell, self.observables.values())
        free = set(self._compiled[0]).union(*(e.free_symbols for e in seen))
        return {s.name for s in free - {*self.state, self.time}}

    @functools.cached_property
    def _variations(self) -> dict[Any, Any]:
        """Compiled derivatives in parameters, by further symbols."""
        return {}

    @functools.cached_property
    def _compiled(self) -> tuple[list[sp.Symbol], Any, Any, Any]:
        """The free symbols, and compiled functions of them: right-hand sides, Jacobian
        (None where SymPy has no derivative) and initial values.
        """
        used = [
            *self.expanded.values(),
            *self.initial.values(),
            *self.second_order.values(),
        ]
        free = sorted(
            set().union(*(e.free_symbols for e in used)) - {*self.state, self.time},
            key=str,
        )
        arguments = [self.time, *self.state, *free]
        jacobian = self.jacobian().replace(sp.DiracDelta, lambda *_: sp.S.Zero)
        jac = None
        # a matrix, not lists of lists, whose common parts lambdify would not look for
        if not jacobian.has(*NO_NUMBERS, sp.Sum, sp.Integral):
            jac = numeric.compiled(arguments, jacobian)
        rhs = list(self.expanded.values())
        start = [self.initial[x] for x in self.state]
        return free, numeric.system(arguments, rhs), jac, numeric.system(free, start)

    def _functions(
        self, numbers: Mapping[str, float], unit: float, most: float = MOST_CALLS
    ) -> tuple[Any, Any, np.ndarray]:
        """Right-hand side and Jacobian in units of the time ``unit``, and the initial
        state. More than ``most`` evaluations raise an error.
        """
        free, rhs, jac, initial = self._compiled
        numbers = sweep.numbers(numbers, [s.name for s in free])
        swept = [s.name for s in free if np.ndim(numbers[s.name])]
        if swept:
            name = swept[0]
            value = np.array2string(np.ravel(numbers[name]), threshold=8, edgeitems=2)
            raise ParameterError(
                f"{name} = {value}: must be one number; several by keyword:"
                f" {name}=[...]"
            )
        # numbers whose quotients by zero are infinite
        fixed = [np.float64(numbers[s.name]) for s in free]
        calls = itertools.count()

        def counted(t: float, y: np.ndarray) -> np.ndarray:
            values = np.array(rhs(np.float64(unit * t), *y, *fixed))
            rates = unit * numeric.real(self.name, values)
            if next(calls) > most:
                why = f"needs more than {most:.0e} evaluations"
                raise trajectory.ended(self, numbers, unit * t, y, rates, why)
            return rates

        def slopes(t: float, y: np.ndarray) -> np.ndarray:
            return unit * numeric.real(self.name, np.array(jac(unit * t, *y, *fixed)))

        with np.errstate(all="ignore"):
            values = np.array(initial(*fixed))
            start = numeric.real(f"{self.name}: initial values", values)
        return counted, slopes if jac else None, start.astype(float)
