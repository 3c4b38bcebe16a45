"""What batches do to order parameters: second moments of entries over the orbits of pairs.

Entries of one class scatter about their mean as batches differ. Moments of two entries fall into
orbits of pairs, as entries fall into classes, free of sizes; the loss is curved, so that the moments
shift the means of classes: to order eta / B for batches of B inputs drawn anew. Where inputs are not
equivalent, means spread over students, too, by (eta / B)^(1/2).
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from theory import algebra, notation
from theory.statement import symmetry, world
from theory.statement.frames import Frame, Vague
from theory.statement.roles import Classes, Roles
from theory.statement.starts import laws
from theory.statement.tree import Node, Term, Weight, require

ONE, TWO = (sp.Dummy(name, real=True) for name in ("one", "two"))
NONE = (sp.S.Zero, sp.S.Zero)
Entry = tuple[Weight, tuple[Term, ...]]
MOST_TRIPLES = 20_000  # ways in which the indices of three entries can lie


class Shifted(world.World):
    """A world in which two entries, at drawn indices, are shifted by `ONE` and `TWO`.

    Parameters
    ----------
    roles : Roles
        With the classes of entries and of pairs.
    pairs : Classes
        Of the two weights.
    """

    patience = 20

    def __init__(self, roles: Roles, pairs: Classes, one: Entry, two: Entry) -> None:
        super().__init__(roles.stated, roles)
        self.pairs, self.shifts = pairs, {ONE: one, TWO: two}

    def entry(self, weight: Weight, terms: tuple[Term, ...]) -> Any:
        """Symbol of the class, and the shifts of this entry."""
        value = super().entry(weight, terms)
        for shift, (of, at) in self.shifts.items():
            if of is weight and all(itertools.starmap(self.same, zip(terms, at, strict=True))):
                value += shift
        return value

    def second(self, tree: Node) -> dict[sp.Symbol, sp.Matrix]:
        """Sums over the pairs of every orbit: of second slopes of a tree's mean, and of mean
        products of its slopes for the same input.
        """
        while True:
            try:
                return self._second(tree)
            except Vague as need:
                self.whole.add(need.args[0])

    def _second(self, tree: Node) -> dict[sp.Symbol, sp.Matrix]:
        terms = [t for _, at in self.shifts.values() for t in at]

        def body() -> tuple[sp.Expr, sp.Symbol] | None:
            value = self.value(tree, False)
            moved = {ONE, TWO} <= value.free_symbols
            return (value, super(Shifted, self).entry(self.pairs.weight, terms)) if moved else None

        frame = Frame(linear=True)
        alike: dict[Any, list[sp.Expr]] = collections.defaultdict(list)
        parts: dict[sp.Symbol, list[sp.Matrix]] = collections.defaultdict(list)
        for branch in filter(None, self._branches(frame, body)):
            if frame.positions:
                parts[branch[1]].append(_products(branch[0]).applyfunc(frame.summed))
            else:
                alike[branch].append(frame.weight)
        for (value, orbit), weights in alike.items():
            parts[orbit].append(_products(value) * sp.factor(sp.Add(*weights)))
        many = sp.Mul(*(t.sort.size for t in terms))
        return {x: many * sp.Matrix(2, 1, [sp.Add(*row) for row in zip(*of)]) for x, of in parts.items()}


def _products(value: sp.Expr) -> sp.Matrix:
    """Second slope along both shifts, and the product of the first ones, without shifts."""
    one, two = algebra.slope(value, ONE), algebra.slope(value, TWO)
    both = algebra.slope(one, TWO), one * two
    return sp.Matrix([x.xreplace({ONE: sp.S.Zero, TWO: sp.S.Zero}) for x in both])


@dataclass(frozen=True)
class Orbit:
    """An orbit of pairs of entries, which have one common second moment.

    Attributes
    ----------
    symbol : Symbol
        The moment.
    ends : tuple of int
        Places of the classes of both entries.
    size : Expr
        How many pairs it has, in one order of the two entries.
    orders : int
        Two, if pairs the other way round are another orbit, of the same moment.
    means : str
        Which indices are the same and which are not.
    curvature : mapping of str to Expr
        Of the loss and of every observable, the sum of second slopes over the pairs.
    squares : Expr
        Sum of mean products of slopes of the loss of the same input.
    """

    symbol: sp.Symbol
    ends: tuple[int, int]
    size: sp.Expr
    orders: int
    means: str
    curvature: Mapping[str, sp.Expr]
    squares: sp.Expr


@dataclass(frozen=True)
class Moments:
    """Second moments of all entries, closed under descent.

    Attributes
    ----------
    made : Derived
    orbits : list of Orbit
    directed : list of (int, Expr)
        Orbits of ordered pairs: place among ``orbits``, and how many pairs.
    triples : list of (int, int, int, Expr)
        Numbers of triples by the ordered orbits of first and third, first and second, second and
        third entry: how matrices over orbits are multiplied.
    """

    made: Any
    orbits: list[Orbit]
    directed: list[tuple[int, sp.Expr]]
    triples: list[tuple[int, int, int, sp.Expr]]


def moments(made: Any) -> Moments:
    """Orbits of pairs of entries of a derivation, with curvature of the loss and noise of its
    slopes.

    Raises
    ------
    ParameterError
        If weights start at random, for Gaussian data and closures, and where the statement cannot
        be done exactly.
    """
    stated = made.statement
    what = f"statement {stated.name}: fluctuations"
    require(not made.shared, f"{what}: of a closure over teachers there are no single students")
    require(not laws(made), f"{what}: weights start at random; write start=0")
    plain = not stated.gausses and not any(s.vector for s in stated.sorts)
    require(plain, f"{what}: Gaussian data and vectors are not supported; train students")
    roles = Roles(stated, inverse=made.roles.inverse)
    places = {c.symbol: k for k, c in enumerate(world.classes(stated, roles)[0])}
    weights = [w for w in stated.weights if roles.classes[w].symbols]
    pairs = {ends: roles.pair(*ends) for ends in itertools.product(weights, repeat=2)}
    size, means = {}, {}
    for of in pairs.values():
        many = sp.Mul(*(s.sort.size for s in of.slots))
        patterns, _ = world.told_apart(stated, roles, of)
        for k, (pattern, chance) in enumerate(sorted(patterns.items(), reverse=True), 1):
            words = ", ".join(map(world.said, of.atoms, pattern))
            x = notation.symbol(f"C_{of.weight.name}_{k}", means=words, real=True)
            of.symbols[pattern], size[x], means[x] = x, sp.factor(many * chance), words
    number: dict[sp.Symbol, int] = {}
    orbits: list[Orbit] = []
    for ends in itertools.combinations_with_replacement(weights, 2):
        e, f = entries = [(w, roles.drawn(w)) for w in ends]
        second = {
            k: Shifted(roles, pairs[ends], *entries).second(tree)
            for k, tree in stated.trees.items()
        }
        for x, back, *classes in _chances(roles, pairs, ((e, f), (f, e), (e,), (f,))):
            if x not in number:
                number |= {x: len(orbits), back: len(orbits)}
                curved = {k: of.get(x, NONE)[0] for k, of in second.items()}
                squares = second["loss"].get(x, NONE)[1]
                at = places[classes[0]], places[classes[1]]
                orders = 1 + (x != back)
                orbits.append(Orbit(x, at, size[x], orders, means[x], curved, squares))
    where, triples = {x: n for n, x in enumerate(number)}, []
    for ends in itertools.product(weights, repeat=3):
        e, f, g = [(w, roles.drawn(w)) for w in ends]
        many = sp.Mul(*(s.size for w in ends for s in w.sorts))
        for key, chance in _chances(roles, pairs, ((e, g), (e, f), (f, g))).items():
            triples.append((*(where[x] for x in key), many * chance))
    return Moments(made, orbits, [(n, size[x]) for x, n in number.items()], triples)


def _chances(roles: Roles, pairs: Any, read: Any) -> dict[tuple[sp.Symbol, ...], sp.Expr]:
    """Probabilities of the classes of some entries and pairs of entries at drawn indices."""
    drawn = world.World(roles.stated, roles)

    def symbol(*entries: Entry) -> sp.Symbol:
        weights = tuple(w for w, _ in entries)
        of = pairs[weights].weight if len(entries) == 2 else weights[0]
        return drawn.entry(of, tuple(t for _, at in entries for t in at))

    return drawn.chances(lambda: tuple(symbol(*entries) for entries in read), MOST_TRIPLES)
