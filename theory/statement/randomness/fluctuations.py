"""What batches and random initial weights do to order parameters: second moments of
entries over the orbits of pairs.

Entries of one class scatter about their mean, as batches differ, or as they start at
random. Moments of two entries fall into orbits of pairs as entries fall into classes,
free of sizes. The loss is curved, so that they shift the means of classes: to order eta
/ B for batches of B inputs drawn anew, and sigma^2 for initial weights of size sigma.
Where inputs are not equivalent, or weights start at random, means spread over students,
too, by (eta / B)^(1/2) and sigma.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from theory.dynamics.flow import Flow
from theory.statement.derivation.roles import Classes, Roles
from theory.statement.evaluation import world
from theory.statement.evaluation.frames import Frame, Vague
from theory.statement.randomness import random_starts
from theory.statement.words.stated import WHOLE, scope_of
from theory.statement.words.tree import Node, Term, Weight, require
from theory.symbols import algebra, notation
from theory.symbols.fractions import factored, shortest

ONE, TWO = (sp.Dummy(name, real=True) for name in ("one", "two"))
ORDER = "noise of batches to order eta / B, inputs drawn anew for every step"
RANDOM = "initial weights to second order of their size"
NONE = (sp.S.Zero, sp.S.Zero)
MOST_TRIPLES = 20_000  # ways in which the indices of three entries can lie
Entry = tuple[Weight, tuple[Term, ...]]


@dataclass(frozen=True)
class Orbit:
    """Ordered pairs of entries that are related by a symmetry: one common second
    moment.

    Attributes
    ----------
    symbol : Symbol
        The moment.
    back : Symbol
        That of the pairs the other way round, which is the same.
    ends : tuple of Symbol
        Classes of both entries.
    size : Expr
        How many pairs it has.
    curvature : mapping of str to Expr
        Of the loss and of every observable, the sum of second slopes over the pairs.
    squares : Expr
        Sum over the pairs of mean products of slopes of the loss for the same input.
    start : Expr
        The moment at the start: of an entry with itself its variance.
    """

    symbol: sp.Symbol
    back: sp.Symbol
    ends: tuple[sp.Symbol, ...]
    size: sp.Expr
    curvature: Mapping[str, sp.Expr]
    squares: sp.Expr
    start: sp.Expr


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of all entries, closed under descent.

    Attributes
    ----------
    made : Derived
    pairs : mapping of (Weight, Weight) to Classes
        Which orbit a pair of entries belongs to.
    orbits : list of Orbit
    triples : mapping of three Symbols to Expr
        How matrices over orbits are multiplied: numbers of triples of entries, by the
        orbits of first and third, first and second, second and third.
    """

    made: Any
    pairs: Mapping[tuple[Weight, ...], Classes]
    orbits: list[Orbit]
    triples: Mapping[tuple[sp.Symbol, ...], sp.Expr]


class Shifted(world.World):
    """A world in which two entries at drawn indices are shifted, by `ONE` and `TWO`."""

    patience = 20

    def __init__(self, roles: Roles, entries: Sequence[Entry], pairs: Classes) -> None:
        super().__init__(roles.stated, roles)
        self.shifts = dict(zip((ONE, TWO), entries, strict=True))
        self.pair = pairs.weight, _indices(entries)

    def entry(self, weight: Weight, terms: tuple[Term, ...]) -> Any:
        """Symbol of the class, and the shifts of this entry."""
        value = super().entry(weight, terms)
        for shift, (of, at) in self.shifts.items():
            if of is weight and all(
                itertools.starmap(self.same, zip(terms, at, strict=True))
            ):
                value += shift
        return value

    def second(self, tree: Node) -> dict[sp.Symbol, sp.Matrix]:
        """Sums over the pairs of every orbit: of second slopes of a tree's mean, and of
        mean products of its slopes for the same input.
        """

        def body() -> tuple[sp.Expr, sp.Symbol] | None:
            value = self.value(tree, False)
            moved = {ONE, TWO} <= value.free_symbols
            return (value, super(Shifted, self).entry(*self.pair)) if moved else None

        frame = Frame(linear=True)
        alike: dict[Any, list[sp.Expr]] = collections.defaultdict(list)
        sums: dict[sp.Symbol, sp.Matrix] = collections.defaultdict(
            lambda: sp.zeros(2, 1)
        )
        try:
            for branch in filter(None, self._branches(frame, body)):
                if frame.positions:
                    sums[branch[1]] += _products(branch[0]).applyfunc(frame.summed)
                else:
                    alike[branch].append(frame.weight)
        except Vague as need:
            self.whole.add(need.args[0])
            return self.second(tree)
        for (value, orbit), weights in alike.items():
            sums[orbit] += _products(value) * factored(sp.Add(*weights))
        return {x: both * _count(self.shifts.values()) for x, both in sums.items()}


def _products(value: sp.Expr) -> sp.Matrix:
    """Second slope along both shifts, and the product of the first ones, without
    shifts.
    """
    one = algebra.slope(value, ONE)
    two = algebra.slope(value, TWO)
    both = algebra.slope(one, TWO), one * two
    return sp.Matrix([x.xreplace({ONE: sp.S.Zero, TWO: sp.S.Zero}) for x in both])


def _indices(entries: Iterable[Entry]) -> tuple[Term, ...]:
    """The indices of several entries in a row."""
    return tuple(itertools.chain.from_iterable(at for _, at in entries))


def _count(entries: Iterable[Entry]) -> sp.Expr:
    """How many combinations of entries of these weights there are."""
    return sp.Mul(*(t.sort.size for t in _indices(entries)))


def moments(made: Any) -> Moments:
    """Orbits of pairs of entries of a derivation, with curvature of the loss and noise
    of its slopes.

    Raises
    ------
    ParameterError
        For Gaussian data and closures, and where the statement cannot be done exactly.
    """
    stated = made.statement
    what = f"statement {stated.name}: fluctuations"
    require(
        not made.shared,
        f"{what}: of a closure over teachers there are no single students",
    )
    plain = not any(s.vector for s in stated.sorts)
    require(
        plain, f"{what}: Gaussian data and vectors are not supported; train students"
    )
    roles = Roles(stated, inverse=made.roles.inverse)
    world.classes(stated, roles)
    pairs = {
        ends: roles.pair(*ends) for ends in itertools.product(stated.weights, repeat=2)
    }
    for of in pairs.values():
        patterns, _ = world.told_apart(stated, roles, of)
        for k, pattern in enumerate(sorted(patterns)[::-1], 1):
            words = ", ".join(map(world.said, of.atoms, pattern))
            of.symbols[pattern] = notation.symbol(
                f"C_{of.weight.name}_{k}", means=words, real=True
            )

    def counts(
        entries: Sequence[Entry], *read: tuple[Entry, ...]
    ) -> Mapping[Any, sp.Expr]:
        """Numbers of entries at drawn indices by the
        orbits and classes that are read.
        """
        drawn = world.World(stated, roles)

        def symbol(of: tuple[Entry, ...]) -> sp.Symbol:
            ends = tuple(w for w, _ in of)
            both = ends[0] if len(ends) == 1 else pairs[ends].weight
            return drawn.entry(both, _indices(of))

        chances = drawn.chances(lambda: tuple(map(symbol, read)), MOST_TRIPLES)
        many = _count(entries)
        return {x: many * chance for x, chance in chances.items()}

    start = dict[Any, sp.Expr]()
    for w, law in random_starts.laws(made).items():
        e = w, roles.drawn(w)
        longest = sp.Max(*(s.size for s in w.sorts))
        variance = random_starts.variance(law, law.size, [longest])
        start |= dict.fromkeys(counts([e], (e, e)), variance)
    orbits, triples = [], dict[Any, sp.Expr]()
    for ends, of in pairs.items():
        e, f = entries = [(w, roles.drawn(w)) for w in ends]
        second = {
            k: Shifted(roles, entries, of).second(tree)
            for k, tree in stated.trees.items()
        }
        sizes = counts(entries, (e, f), (f, e), (e,), (f,))
        for (x, back, *both), size in sizes.items():
            curved = {k: sums.get(x, NONE)[0] for k, sums in second.items()}
            squares = second["loss"].get(x, NONE)[1]
            at_start = start.get((x,), sp.S.Zero)
            orbits.append(
                Orbit(x, back, tuple(both), factored(size), curved, squares, at_start)
            )
    for ends in itertools.product(stated.weights, repeat=3):
        e, f, g = entries = [(w, roles.drawn(w)) for w in ends]
        triples |= counts(entries, (e, g), (e, f), (f, g))
    return Moments(made, pairs, orbits, triples)


def flow(found: Moments) -> Flow:
    """Class means, what batches and random starts add to them, and second moments as
    one flow in small steps.

    Its states are the classes ``c``, their ``bias_c`` and a moment per orbit;
    ``bias_x`` and ``variance_x`` of the order parameters are observables. Sizes at
    which an orbit is empty are refused, and batches where weights start at random.
    `theory.statement.randomness.minibatches.curves` takes the steps one by one.
    """
    made = found.made
    random = bool(random_starts.laws(made))
    eta = notation.symbol("eta", r"\eta", "learning rate", positive=True)
    batch = notation.symbol("batch_size", "B", "inputs per step", positive=True)
    size = {c.symbol: c.size for c in made.classes}
    bias = {
        c: notation.symbol(f"bias_{c}", means=f"shift of {c}", real=True) for c in size
    }
    first = {o.symbol: min(o.symbol, o.back, key=str) for o in found.orbits}
    where, curvature, rhs = {}, {}, dict(made.rates)
    for o in found.orbits:
        name = first[o.symbol].name.replace("C_", "h_", 1)
        h = notation.symbol(name, means=f"curvature along {o.symbol}")
        curvature[o.symbol] = h
        where[h] = shortest(o.curvature["loss"] / o.size)
    for c, rate in made.rates.items():
        bent = [
            algebra.slope(o.curvature["loss"], c) * first[o.symbol]
            for o in found.orbits
        ]
        carried = [algebra.slope(rate, other) * bias[other] for other in size]
        rhs[bias[c]] = sp.Add(*carried) - sp.Add(*bent) / (2 * size[c])
    for o in (o for o in found.orbits if first[o.symbol] == o.symbol):
        noise = o.squares / o.size - sp.Mul(*(made.rates[c] for c in o.ends))
        gained = sp.S.Zero if random else eta / batch * shortest(noise)
        lost = [
            many / o.size * (curvature[a] * first[b] + first[a] * curvature[b])
            for (to, a, b), many in found.triples.items()
            if to == o.symbol
        ]
        rhs[o.symbol] = gained - sp.Add(*lost)
    observables = {"loss": made.loss, **made.observables}
    for x, form in made.quotient.order.items():
        part = {c: form.coeff(c) for c in size}
        observables[str(x)] = form
        observables[f"bias_{x}"] = sp.Add(*(a * bias[c] for c, a in part.items()))
        terms = []
        for o in found.orbits:
            shares = sp.Mul(*(part[c] / size[c] for c in o.ends))
            terms.append(first[o.symbol] * o.size * shares)
        observables[f"variance_{x}"] = sp.Add(*terms)
    states = {x.name for x in rhs}
    at_start = made.start | {o.symbol: o.start for o in found.orbits}
    limits = [*made.filled, *[WHOLE] * random]
    return dataclasses.replace(
        made.flow,
        name=f"{made.flow.name}, {'random starts' if random else 'batches'}",
        rhs=rhs,
        initial={x: at_start.get(x, sp.S.Zero) for x in rhs},
        where=where,
        status="leading order",
        assumptions=(*made.assumptions, RANDOM if random else ORDER, "small steps"),
        scope=scope_of(made.statement, made.sizes, limits),
        observables={k: v for k, v in observables.items() if k not in states},
        entries=None,
    )
