"""Flow: an ODE system of order parameters as data, with its Jacobian, fixed points, series and
numerical solutions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import sympy as sp
import xarray as xr

from theory import arguments, numeric, printing, sweep
from theory.algebra import slope
from theory.conserved import conserved
from theory.entries import Entries
from theory.equation import Equation
from theory.linearised import linearised
from theory.optimisers import Optimiser
from theory.parameters import (
    Allowed,
    BaseParameters,
    ParameterError,
    most_extreme,
    nearest,
    number,
    shown,
)
from theory.scope import Scope, allow_beyond, marked

END_ROUNDING = 16 * np.finfo(float).eps
BEYOND = "leaves double precision (1.8e308)"
SMALLEST = 1e-260  # smallest nonzero initial value that LSODA can follow
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

    def equations(self) -> dict[str, Equation]:
        """One Equation per order parameter, named ``d<x>_d<time>``."""
        return {
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

    def solve(
        self,
        parameters: Any,
        *,
        at: Iterable[float] | None = None,
        events: Mapping[str, sp.Expr] | None = None,
        rtol: float = 1e-12,
        atol: float = 1e-14,
        beyond: bool = False,
        **end: Any,
    ) -> xr.Dataset:
        """Integrate from the initial values (LSODA with the symbolic Jacobian).

        Parameters
        ----------
        parameters : Parameters or mapping
            Parameters, or numbers by symbol name.
        at : array, optional
            Output times; 601 equidistant ones by default.
        events : mapping of str to Expr, optional
            Expressions in the order parameters. The first zero crossing of each is returned under
            its name (NaN if there is none), to the accuracy of the integration.
        rtol, atol : float
            Integrator tolerances, between 0 and 1. The absolute tolerance is lowered to ``rtol``
            times the smallest nonzero initial value if that is smaller.
        beyond : bool
            Also solve for students that the flow does not describe, with a warning.
        **end : float
            Final time, as ``until`` or under the name of the flow's time: ``flow.solve(p,
            alpha=12)``. Also arrays
            of parameter fields, each of which becomes a dimension of the result: ``L=[5, 10, 20]``.

        Returns
        -------
        Dataset
            Order parameters and observables over time, events as scalars, parameters and provenance
            as attributes.

        Raises
        ------
        ParameterError
            If the final time is missing, misnamed, or not positive and finite; if a tolerance is
            not between 0 and 1; if an output time lies outside the run; if a symbol has no value;
            if the flow does not describe these students; or if the solution overflows.
        """
        with allow_beyond(beyond):
            return self._solved(parameters, at, events, rtol, atol, end)

    def _solved(
        self,
        parameters: Any,
        at: Iterable[float] | None,
        events: Mapping[str, sp.Expr] | None,
        rtol: float,
        atol: float,
        end: dict[str, Any],
    ) -> xr.Dataset:
        name = self.time.name
        if "until" in end and name not in end:
            end[name] = end.pop("until")
        self._refuse(parameters, end)
        rtol, atol = (
            number(*of, Allowed(above=0, below=1)) for of in (("rtol", rtol), ("atol", atol))
        )
        at = None if at is None else arguments.listed("at", at)
        if len(end) > 1:
            options: Any = {"events": events, "rtol": rtol, "atol": atol, name: end.pop(name)}
            grid, times = sweep.Grid(parameters, end), at
            return grid.stack([self.solve(q, at=times, **options) for q in grid.points])
        self._ask(parameters)
        numbers = sweep.numbers(parameters, [s.name for s in self._compiled[0]])
        rhs, jacobian, start = self._functions(numbers, end[name])
        at = np.linspace(0, end[name], 601) if at is None else at.astype(float)
        # A computed last output time may exceed the final time by a few rounding errors.
        at = np.where((at > end[name]) & (at <= end[name] * (1 + END_ROUNDING)), end[name], at)
        if not ((at >= 0) & (at <= end[name])).all():
            raise ParameterError(f"at: times must lie between 0 and {name} = {end[name]:g}")

        # The absolute tolerance must lie below small initial values that grow later.
        least = float(np.min(np.abs(start), where=start != 0, initial=np.inf))
        if least < SMALLEST:
            known = {s.name: float(numbers[s.name]) for s in self._compiled[0]}
            raise ParameterError(
                f"{most_extreme(known)}: {self.name} starts below {SMALLEST:g} in size, which no "
                "integration follows; take it larger, or 0"
            )
        atol = min(atol, rtol * least)
        unit = end[name]  # the integrator's time runs from 0 to 1

        def integrate(t0: float, y0: np.ndarray, t1: float, **options: Any) -> Any:
            with np.errstate(
                over="ignore"
            ):  # e^m overflows: the rate is then zero, as it should be
                solution = scipy.integrate.solve_ivp(
                    rhs, (t0, t1), y0, method="LSODA", jac=jacobian, rtol=rtol, atol=atol, **options
                )
            if not solution.success:
                raise ParameterError(
                    f"the integration stopped at {name} = {unit * solution.t[-1]:g}: {solution.message}"
                )
            return solution

        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            moving = np.append(start, rhs(0, start))
        if not np.isfinite(moving).all():
            raise ParameterError(self._beyond(BEYOND, 0, numbers))
        solution = integrate(0, start, 1, dense_output=True)
        if not np.isfinite(solution.y).all():
            first = solution.t[~np.isfinite(solution.y).all(0)][0]
            raise ParameterError(self._beyond(BEYOND, unit * first, numbers))
        result = self.observed(parameters, at, solution.sol(at / unit))
        result.attrs["solver"] = f"LSODA, rtol {rtol:g}, atol {atol:g}"
        for label, expr in (events or {}).items():
            used = {s: numbers[s.name] for s in expr.free_symbols - set(self.state)}
            crossing = numeric.function(expr.subs(used), self.state)
            result[label] = unit * self._first_crossing(crossing, solution, integrate)
        return result

    def _refuse(self, parameters: Any, end: dict[str, Any]) -> None:
        """Reject keywords of `solve` that are neither the flow's time nor a field, and a final time
        that is not a positive number.
        """
        name = self.time.name
        fields = (
            [f.name for f in dataclasses.fields(parameters)]
            if isinstance(parameters, BaseParameters)
            else []
        )
        others = [key for key in end if key not in (name, *fields)]
        if others and name not in end:
            raise ParameterError(
                f"{others[0]}: the time of {self.name} is called {name}; give {name} = {end[others[0]]}"
            )
        if others:
            known = (name, "at", "events", "rtol", "atol", *fields)
            hint = nearest(others[0], known)
            raise ParameterError(
                f"{others[0]}: unknown keyword; {hint}known are {', '.join(known)}"
            )
        try:
            end[name] = number(name, end[name], Allowed(above=0))
        except (KeyError, ParameterError):
            given = f"{name} = {shown(end[name])}" if name in end else "nothing"
            raise ParameterError(
                f"run length: must be {name} = a positive number, got {given}"
            ) from None

    def descend(
        self, parameters: Any, step: float, steps: int, *, optimizer: Optimiser | None = None
    ) -> xr.Dataset:
        """Gradient descent with a finite step: the Euler map of the flow; or another optimiser.

        Parameters
        ----------
        parameters : Parameters or mapping
            Parameters, or numbers by symbol name.
        step : float
            Step in the flow's time; the learning rate of an optimiser.
        steps : int
            Number of steps.
        optimizer : Optimiser, optional
            Momentum, weight decay, Adam, a schedule, clipping: steps of the student's weights, in
            place of plain descent. Time stays ``step`` times the number of steps.

        Returns
        -------
        Dataset
            Order parameters and observables over time, after every step.

        Raises
        ------
        ParameterError
            If a symbol has no value, or an optimiser is asked for where order parameters are not
            sums of weights.
        """
        self._ask(parameters)
        times = step * np.arange(steps + 1)
        if optimizer is not None:
            if self.entries is None:
                raise ParameterError(
                    f"optimizer: {self.name} does not follow the weights themselves, which an "
                    "optimiser moves; must be none, plain descent"
                )
            numbers = sweep.numbers(parameters)
            path = self.entries().path(self.state, numbers, optimizer, step, steps)
            return self.observed(parameters, times, path)
        rates, _, start = self._functions(sweep.numbers(parameters), step, np.inf)
        path = np.empty((steps + 1, start.size))
        path[0] = start
        for n in range(steps):
            path[n + 1] = path[n] + rates(n, path[n])
        return self.observed(parameters, times, path.T)

    def observed(self, parameters: Any, times: np.ndarray, states: np.ndarray) -> xr.Dataset:
        """Label an array of states ``(state, time)`` and add the observables."""
        name, numbers = self.time.name, sweep.numbers(parameters)
        data = {x.name: (name, states[i]) for i, x in enumerate(self.state)}
        along = dict(zip([x.name for x in self.state], states, strict=True))
        for label, expr in self.observables.items():
            value = Equation(
                label, sp.Symbol(label), self._spell(expr), self.reference, self.status
            ).evaluate({**numbers, **along})
            data[label] = (name, np.broadcast_to(value, times.shape))
        result = xr.Dataset(
            data,
            coords={name: times},
            attrs={
                "kind": "theory",
                "flow": self.name,
                "reference": self.reference,
                "status": self.status,
            },
        )
        if hasattr(parameters, "as_json"):
            result.attrs["parameters"] = parameters.as_json()
        return marked(result)

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
                    self._beyond(f"needs more than {most:.0e} evaluations", unit * t, numbers)
                )
            return unit * np.array(rhs(unit * t, *y, *fixed))

        return (
            counted,
            lambda t, y: unit * np.array(jac(unit * t, *y, *fixed)),
            np.array(initial(*fixed), float),
        )

    def _beyond(self, what: str, time: float, numbers: Mapping[str, float]) -> str:
        """Error message for a solution that cannot be computed; names the most extreme
        parameter.
        """
        free = self._compiled[0]
        most = most_extreme({s.name: float(numbers[s.name]) for s in free})
        return f"{most}: {self.name} {what} at {self.time.name} = {time:g}; take it less extreme"

    @staticmethod
    def _first_crossing(crossing: Any, solution: Any, integrate: Any) -> float:
        """First zero crossing: bracketed on the integrator's steps, then refined by integrating up
        to it.
        """
        values = crossing(*solution.y)
        if values[0] == 0:
            return 0.0
        changed = np.flatnonzero(np.sign(values[1:]) != np.sign(values[0]))
        if not changed.size:
            return np.nan
        k = changed[0]
        t0, y0 = solution.t[k], solution.y[:, k]

        def at(t: float) -> float:
            return float(crossing(*(integrate(t0, y0, t).y[:, -1] if t > t0 else y0)))

        t1 = solution.t[k + 1]
        return float(scipy.optimize.brentq(at, t0, t1, xtol=1e-15 * t1, rtol=1e-14))
