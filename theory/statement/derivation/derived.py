"""From a statement to classes, population loss, rates, conserved quantities and the
flow.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp

from theory.call.refusal import ParameterError
from theory.call.scope import Limit
from theory.dynamics.conserved import linearised
from theory.dynamics.flow import Flow
from theory.dynamics.optimisers import Entries
from theory.equations import printing
from theory.equations.equation import Equation
from theory.statement.derivation import check, closure, symmetry
from theory.statement.derivation.roles import Roles
from theory.statement.evaluation import arrays, wick
from theory.statement.evaluation.world import Class, World, classes
from theory.statement.randomness import fluctuations, minibatches
from theory.statement.randomness import random_starts as starts
from theory.statement.words.stated import Statement, scope_of
from theory.statement.words.tree import Random, Weight, require
from theory.symbols import algebra, notation
from theory.symbols.fractions import shortest
from theory.symbols.notation import Forms

TIME = notation.symbol("t", means="time: learning rate times steps", real=True)
LOSS = notation.symbol("population_loss", r"\mathcal{L}", "population loss", real=True)
GROWTH = functools.partial(notation.symbol, means="growth rate at zero weights")
POPULATION = "gradient flow on the population loss"
SMALL = "all order parameters small"
NOT_PROVED = "found constant at random weights and sizes, not proved"


@dataclass(frozen=True, eq=False)
class Derived:
    """Everything that follows from a statement.

    Attributes
    ----------
    statement : Statement
    roles : Roles
        With the classes of every weight: ``roles.classes[weight]``.
    classes : list of Class
    loss : Expr
        Population loss in the values of the classes.
    observables : mapping of str to Expr
        Means of what the statement names, likewise.
    status, assumptions
        As for `theory.equations.equation.Equation`.
    sizes : mapping of Symbol to int
        Sizes that were given numbers.
    shared : mapping of (Symbol, Symbol) to Expr
        Of a closure: how far the gradients of two means of entries overlap.
    free : Derived, optional
        At sizes, the derivation at any.
    refusal : callable
        Of the statement and an error, what is said: the error, or more helpful words.
    """

    statement: Statement
    roles: Roles
    classes: list[Class]
    loss: sp.Expr
    observables: Mapping[str, sp.Expr]
    status: str
    assumptions: tuple[str, ...]
    sizes: Mapping[sp.Symbol, int] = field(default_factory=dict)
    shared: Mapping[tuple[sp.Symbol, sp.Symbol], sp.Expr] = field(default_factory=dict)
    free: Derived | None = None
    refusal: Callable[[Statement, ParameterError], ParameterError] = field(
        default=lambda stated, error: error, compare=False
    )

    @property
    def directions(self) -> list[Class]:
        """Classes with a value per direction."""
        return [c for c in self.classes if isinstance(c.symbol, sp.Indexed)]

    def at(self, **sizes: int) -> Derived:
        """This derivation at concrete sizes: sums written out, a class per direction.

        Raises
        ------
        ParameterError
            For a size that the statement does not have.
        """
        known = {s.name: s for s in self.statement.symbols if s.is_integer}
        for name in sizes:
            sizes_known = ", ".join(known)
            message = f"{name}: is no size of this statement, which has {sizes_known}"
            require(name in known, message)
        numbers = {known[n]: sp.Integer(v) for n, v in sizes.items()}
        write = functools.partial(wick.at_size, numbers=numbers)
        classes = []
        for c in self.classes:
            many = c.many.xreplace(numbers)
            symbols = [c.symbol]
            if c in self.directions:
                message = f"{many}: has one {c.weight} per direction; give it a number"
                require(many.is_number, message)
                symbols = [wick.direction(c.label, k + 1) for k in range(int(many))]
            classes += [Class(x, c.weight, write(c.size), c.means) for x in symbols]
        observables = {k: write(v) for k, v in self.observables.items()}
        return replace(
            self,
            classes=classes,
            loss=write(self.loss),
            observables=observables,
            sizes={**self.sizes, **numbers},
            free=self.free or self,
        )

    def written(self, numbers: Mapping[str, Any]) -> Derived:
        """This derivation, at the sizes among the numbers if sums over sizes have to be
        written out.
        """
        if not (self.directions or self.loss.has(sp.Sum)):
            return self
        sizes = [s.name for s in self.statement.symbols if s.is_integer]
        return self.at(**{name: numbers[name] for name in sizes})

    def members(self, data: arrays.Data) -> dict[Weight, np.ndarray]:
        """Place of every entry's class among all of them, -1 for one that is zero."""
        first = {c.weight: k for k, c in reversed([*enumerate(self.classes)])}
        numbers = {
            w: arrays.class_numbers(of, data) for w, of in self.roles.classes.items()
        }
        return {w: np.where(x < 0, -1, x + first.get(w, 0)) for w, x in numbers.items()}

    @functools.cached_property
    def rates(self) -> Forms:
        """Rate of every class: minus the slope of the loss,
        shared among its entries.
        """
        if self.shared:
            slopes = {
                c.symbol: algebra.slope(self.loss, c.symbol) for c in self.classes
            }
            rates = {}
            for x in slopes:
                terms = [self.shared[x, y] * slope for y, slope in slopes.items()]
                rates[x] = -sp.Add(*terms)
            return rates
        slope_of = {
            c: wick.slope if c in self.directions else algebra.slope
            for c in self.classes
        }
        return {
            c.symbol: -of(self.loss, c.symbol) / c.size for c, of in slope_of.items()
        }

    slopes = functools.cached_property(symmetry.slopes)
    starts = starts.starts
    fluctuations = functools.cached_property(
        lambda self: fluctuations.flow(self.moments)
    )

    @functools.cached_property
    def moments(self) -> Any:
        """Second moments of all entries, at any sizes."""
        return self.free.moments if self.free else fluctuations.moments(self)

    @functools.cached_property
    def conserved(self) -> list[symmetry.Conserved]:
        """Quantities that the flow conserves because the loss does not change along a
        direction.
        """
        return symmetry.still(self) if self.shared else symmetry.conserved(self)

    @functools.cached_property
    def quotient(self) -> symmetry.Quotient:
        """What moves, without the translations."""
        if self.shared:
            frozen = {q.expression for q in self.conserved}
            order = {c.symbol: c.symbol for c in self.classes if c.symbol not in frozen}
            gauge = {c.symbol: order.get(c.symbol, c.weight.mean) for c in self.classes}
            mobility = {x: {y: self.shared[x, y] for y in gauge} for x in order}
            return symmetry.Quotient(order, gauge, mobility)
        return symmetry.quotient(self)

    @property
    def start(self) -> Forms:
        """Values of the classes at the start."""
        return {c.symbol: c.weight.mean for c in self.classes}

    @functools.cached_property
    def flow(self) -> Flow:
        """The flow of the classes that move, with the loss and the observables of the
        statement.

        Raises
        ------
        ParameterError
            If there is an order parameter for each of a symbolic number of directions,
            or none.
        """
        if self.directions:
            return self.at().flow
        q = self.quotient
        if not q.order:
            message = (
                f"statement {self.statement.name}: nothing moves: from equal entries,"
                " the loss changes along no direction"
            )
            if starts.laws(self):
                message += (
                    " (from random ones it may, along what no flow here follows: train"
                    " students)"
                )
            raise self.refusal(self.statement, ParameterError(message))
        means = {"loss": self.loss, **self.observables}
        observables = {k: algebra.replaced(v, q.gauge) for k, v in means.items()}
        start = {x: combined.xreplace(self.start) for x, combined in q.order.items()}
        return Flow(
            self.statement.name,
            TIME,
            self.moving,
            start,
            self.reference,
            self.status,
            self.assumptions,
            observables=observables,
            scope=scope_of(self.statement, self.sizes, self.filled),
            entries=None if self.shared else self.entries,
            fluctuations=(
                None if self.shared else functools.partial(minibatches.around, self)
            ),
        )

    def entries(self) -> Entries:
        """The weights behind the flow, one value per class."""
        slopes = {x: -rate for x, rate in self.rates.items()}
        sizes = {c.symbol: c.size for c in self.classes}
        return Entries(slopes, sizes, self.start, dict(self.quotient.order))

    @property
    def filled(self) -> list[Limit]:
        """Limits on sizes: every class needs an entry, as the rate of an empty one is
        undefined.
        """
        sizes = [
            s for s in self.statement.symbols if s.is_integer and s not in self.sizes
        ]
        positive = [q.size for q in self.statement.sorts]  # a sort has elements

        def may_vanish(c: Class, size: sp.Symbol) -> bool:
            return any(
                factor.has(size) and not factor.is_positive and factor not in positive
                for factor in sp.Mul.make_args(c.size)
            )

        def nonempty(at_risk: list[Class], p: Any, _: Any) -> bool:
            numbers = {
                s: sp.Integer(getattr(p, s.name)) for s in sizes if getattr(p, s.name)
            }
            return all(c.size.xreplace(numbers) != 0 for c in at_risk)

        limits = []
        for s in sizes if not self.shared else ():
            at_risk = [c for c in self.classes if may_vanish(c, s)]
            if not at_risk:
                continue
            empty = ", ".join(f"{c.weight} has {c.size} ({c.means})" for c in at_risk)
            words = f"such that no class of entries is empty: {empty}"
            others = tuple(q.name for q in sizes if q != s)
            holds = functools.partial(nonempty, at_risk)
            limits.append(Limit(s.name, words, holds, reads=others))
        return limits

    @functools.cached_property
    def moving(self) -> Forms:
        """Rates of the order parameters in the order parameters."""
        q = self.quotient
        if self.shared:
            slopes = {x: algebra.slope(self.loss, x).xreplace(q.gauge) for x in q.gauge}
        else:
            loss = algebra.replaced(self.loss, q.gauge)
            slopes = {x: algebra.slope(loss, x) for x in q.order}
        rates = {}
        for x in q.order:
            terms = [m * slopes[y] for y, m in q.mobility[x].items() if m != 0]
            rates[x] = shortest(-sp.Add(*terms))
        return rates

    invariants = functools.cached_property(symmetry.invariants)

    @functools.cached_property
    def growth(self) -> list[sp.Expr]:
        """Growth rates where all order parameters are zero, if that is a fixed point
        and they solve equations of at most second degree.
        """
        zero = dict.fromkeys(self.moving, sp.S.Zero)
        if any(rate.xreplace(zero) != 0 for rate in self.moving.values()):
            return []
        try:
            return [mode.rate for mode in linearised(self.flow, zero)]
        except ParameterError:
            return []

    @property
    def reference(self) -> str:
        """Where the equations come from."""
        places = (self.statement.paper, f"statement {self.statement.name}")
        return ", ".join(filter(None, places))

    @property
    def meanings(self) -> dict[str, str]:
        """What symbols of the equations stand for, by name."""
        words = {
            TIME.name: "time: learning rate times steps",
            LOSS.name: "population loss",
        }
        for c in self.classes:
            words[str(c.symbol)] = f"{c.weight}: {c.means}"
            words[f"entries_{c.label}"] = f"entries of {c.weight}: {c.means}"
        words |= {f"C_{k}": q.kind for k, q in enumerate(self.conserved, 1)}
        words |= {str(x): str(combined) for x, combined in self.quotient.order.items()}
        rates = {
            f"growth_{k}": "growth rate at zero weights"
            for k in range(1, len(self.growth) + 1)
        }
        return words | rates

    def _loss_as_printed(self) -> sp.Expr:
        """The loss in its shortest form; in the order parameters, if all that these
        leave out is proved not to matter.
        """
        if self.directions:
            return self.loss
        if self.shared or not all(q.proved for q in self.conserved):
            return shortest(self.loss)
        return shortest(self.loss, algebra.replaced(self.loss, self.quotient.gauge))

    def equations(self) -> dict[str, Equation]:
        """Loss, sizes of classes, conserved quantities and rates, by name."""
        all_equations = itertools.chain.from_iterable(self.sections().values())
        return {e.name: e for e in all_equations}

    def sections(self) -> dict[str, list[Equation]]:
        """Equations, grouped as a write-up would."""
        sections = {"Loss and classes": self._loss_and_classes()}
        if self.directions:
            rates = [(c, sp.Derivative(c.symbol, TIME)) for c in self.classes]
            sections["Flow"] = [
                self._equation(f"d{c.label}_dt", rate, self.rates[c.symbol])
                for c, rate in rates
            ]
            return sections
        sections["Conserved"] = []
        for k, q in enumerate(self.conserved, 1):
            symbol = notation.symbol(f"C_{k}", means=q.kind)
            caveats = [] if q.proved else [NOT_PROVED]
            sections["Conserved"].append(
                self._equation(f"{q.kind}_{k}", symbol, q.expression, *caveats)
            )
        if self.moving:
            for k, (start, quantity) in enumerate(self.invariants, 1):
                sections["Conserved"].append(
                    self._equation(f"conserved_{k}", start, quantity)
                )
            sections["Flow"] = [
                self._equation(f"order_{x}", x, combined)
                for x, combined in self.quotient.order.items()
                if x != combined
            ]
            sections["Flow"] += self.flow.equations().values()
            sections["Growth"] = []
            for k, rate in enumerate(self.growth, 1):
                name = f"growth_{k}"
                growth = self._equation(name, GROWTH(name), rate, SMALL)
                sections["Growth"].append(growth)
        return {title: equations for title, equations in sections.items() if equations}

    def _equation(self, name: str, lhs: sp.Expr, rhs: Any, *more: str) -> Equation:
        """An equation under the assumptions of the statement, and more."""
        assumptions = (*self.assumptions, *more)
        return Equation(name, lhs, rhs, self.reference, self.status, assumptions)

    def _loss_and_classes(self) -> list[Equation]:
        """The loss, and the number of entries in each class."""
        equations = [self._equation("loss", LOSS, self._loss_as_printed())]
        status = self.status if self.shared else "exact"
        for c in self.classes:
            name = f"entries_{c.label}"
            subscript = printing.expression(sp.Symbol(c.label))
            means = f"entries of {c.weight}: {c.means}"
            symbol = notation.symbol(name, f"n_{{{subscript}}}", means)
            equations.append(Equation(name, symbol, c.size, self.reference, status))
        return equations


def derive(
    stated: Statement, *, confirmed: bool = True, patience: float = 1
) -> Derived:
    """Classes, population loss and flow of a statement.

    Parameters
    ----------
    stated : Statement
    confirmed : bool
        Compare loss, gradients of all weights and sizes of classes with enumerated
        inputs at tiny sizes.
    patience : float
        How many branches its sums may have, in units of the most that they usually may.

    Raises
    ------
    ParameterError
        In one line, where the statement cannot be done exactly, or the check fails.
    """
    if stated.closure is not None:
        return _closed(stated, Roles(stated))
    if confirmed and any(f.kept and f.injective for f in stated.functions):
        try:
            return _derived(stated, Roles(stated, inverse=False), True, patience)
        except ParameterError:
            pass  # too few classes, or too many that teachers decide about
    return _derived(stated, Roles(stated), confirmed, patience)


def _derived(
    stated: Statement, roles: Roles, confirmed: bool, patience: float
) -> Derived:
    """Everything from given roles, compared with listed inputs."""
    classes_found, balanced = classes(stated, roles)
    world = World(stated, roles)
    world.patience = patience
    means = {k: world.mean_of(tree) for k, tree in stated.trees.items()}
    still = "nothing moves: by symmetry every entry of every weight stays zero"
    require(classes_found, f"statement {stated.name}: {still}")
    leading = [f.name for f in stated.functions if f.leading]
    equal = "all entries of a weight equal at the start"
    if any(isinstance(w.start, Random) for w in stated.weights):
        equal = (
            "all entries of a class equal at the start; the flow's is the mean of a"
            " random one"
        )
    assumptions = [POPULATION, equal]
    often = sorted({f.name for f in world.balanced} | balanced)
    assumptions += [f"{n}: all values equally often" for n in often]
    assumptions += [f"{n}: values distinct" for n in leading]
    status = "leading order" if leading else "exact"
    loss = means.pop("loss")
    at_start = loss.xreplace({c.symbol: c.weight.mean for c in classes_found})
    names = ", ".join(f"{w.name} = {w.mean}" for w in stated.weights)
    undefined = (
        f"at the start, {names}, the loss is 0/0; let a weight start elsewhere: start=1"
    )
    require(not at_start.has(sp.nan, sp.zoo), f"statement {stated.name}: {undefined}")
    derived = Derived(
        stated, roles, classes_found, loss, means, status, tuple(assumptions)
    )
    try:
        if confirmed:
            check.confirm(derived)
    except arrays.Unlisted as error:
        if not roles.inverse:
            raise
        assumptions.append(f"gradients not compared: {error}")
        derived = replace(derived, assumptions=tuple(assumptions))
    return derived


def _closed(stated: Statement, roles: Roles) -> Derived:
    """The closure over random teachers."""
    world = closure.Means(stated, roles)
    means = {k: world.mean_of(tree) for k, tree in stated.trees.items()}
    shared = closure.mobility(world)
    meaning = notation.meanings(lambda _: True)
    classes_found = [
        Class(x, w, 1 / shared[x, x], meaning[x][0])
        for (w, _), x in world.symbols.items()
    ]
    random = ", ".join(f.name for f in stated.functions if f.kept)
    neglected = (
        "how logits scatter around their means, over inputs and teachers, is neglected"
    )
    assumptions = (POPULATION, f"mean logits; {random}: averaged over; {neglected}")
    loss = means.pop("loss")
    return Derived(
        stated, roles, classes_found, loss, means, "closure", assumptions, shared=shared
    )
