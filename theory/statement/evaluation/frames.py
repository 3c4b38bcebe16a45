"""A sum or mean that is being carried out: its script of choices, which is replayed
until all are made, and the elements that are told apart in it.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy as sp
from sympy.utilities import iterables

from theory.call.refusal import ParameterError
from theory.statement.words.tree import Function, Index

NEGLECTS = (
    "closure='mean logits' is no remedy but an approximation: it neglects how logits"
    " scatter"
)
NUMBER = "give the size of its argument as a number"


def advice(f: Function) -> str:
    """What may help where it is random how often a sum
    meets the values of a function.
    """
    if f.injective:
        return NEGLECTS if f.kept else NUMBER
    if f.kept:
        return f"say in which arguments it is injective; {NEGLECTS}"
    return f"declare it injective, or injective='leading order', or {NUMBER}"


class Quenched(ParameterError):
    """Raised if a sum has a random number of equal
    terms inside a nonlinear function.
    """


class Vague(Exception):
    """Raised if values of a sample (the argument) are compared of which only is known
    that they are none of the known ones.
    """


class NoTerms(Exception):
    """Raised if a sum runs over no place, as one below the first."""


class NeedOuter(Exception):
    """Raised if a choice has to be made in an outer sum, or before all sums; its
    arguments are the depth of that sum and the key of the choice.
    """


@dataclass(eq=False)
class Element:
    """A known element of a role; it stands for ``many`` places where those with equal
    values are merged.

    An element of an ordered sort has a ``position``, a fixed one its ``place``. A
    ``vague`` one is a value of this sample that differs from all other elements;
    nothing else is known of it.
    """

    role: Any
    parent: Element | None
    depth: int
    many: sp.Expr = sp.S.One
    position: sp.Expr | None = None
    place: sp.Expr | None = None
    vague: Function | None = None


@dataclass
class Frame:
    """A sum that is being carried out, or the mean over draws: a script of choices,
    replayed.

    ``told`` contains the elements that represent all unknown ones of their role, with
    the function that has distinguished them since. ``source`` contains the elements
    that are images of these under a one-to-one or balanced function. The number of
    elements of each kind is then fixed, not random.
    """

    linear: bool
    index: Index | None = None
    script: list[list[int]] = field(default_factory=list)
    at: int = 0
    weight: sp.Expr = sp.S.One
    told: dict[Element, Any] = field(default_factory=dict)
    source: dict[Element, tuple[Element, Any]] = field(default_factory=dict)
    positions: list[tuple[sp.Symbol, sp.Expr, sp.Expr]] = field(default_factory=list)

    def replays(self) -> Iterator[None]:
        """Start anew for every script of choices."""
        while True:
            self.at, self.weight, self.positions, self.told, self.source = (
                0,
                sp.S.One,
                [],
                {},
                {},
            )
            yield
            while self.script and self.script[-1][0] + 1 == self.script[-1][1]:
                self.script.pop()
            if not self.script:
                return
            self.script[-1][0] += 1

    def counted(self, e: Element | None, function: Any) -> bool:
        """Whether a function divides elements of this
        kind into groups of known sizes.
        """
        if e is None or self.told.get(e, e) not in (None, function):
            return False
        return e not in self.source or self.counted(*self.source[e])

    def tell(self, e: Element, function: Any) -> None:
        """Record that a function distinguishes elements of this kind."""
        self.told[e] = function
        if e in self.source:
            self.tell(*self.source[e])

    def choose(self, options: list[tuple[sp.Expr, Any]]) -> Any:
        """The option that the script prescribes; without one the first, which is added
        to it.
        """
        if self.at == len(self.script):
            self.script.append([0, len(options)])
        weight, outcome = options[self.script[self.at][0]]
        self.at += 1
        self.weight *= weight
        return outcome

    def summed(self, value: sp.Expr) -> sp.Expr:
        """What this branch adds: times its weight,
        over all positions of its elements.
        """
        term = self.weight * value
        for symbol, low, high in reversed(self.positions):
            if not term.has(symbol):
                term *= high - low + 1
            elif (high - low).is_number:
                term = sp.Add(
                    *(term.subs(symbol, k) for k in range(int(low), int(high) + 1))
                )
            else:
                term = sp.Sum(term, (symbol, low, high))
        return term


def gaps(group: list[Element], size: sp.Expr) -> list[tuple[int, sp.Expr, sp.Expr]]:
    """Free stretches of an ordered sort: place in the list, first and last position."""
    places = [sp.S.Zero, *(e.position for e in group), size + 1]
    return [(k, a + 1, b - 1) for k, (a, b) in enumerate(itertools.pairwise(places))]


def shares(total: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """Numbers of places that hold each known value, the rest holding new ones."""
    for counts in itertools.product(range(total + 1), repeat=kinds):
        if sum(counts) <= total:
            yield counts


def partitions(total: int) -> Iterator[tuple[int, ...]]:
    """Integer partitions, largest part first."""
    for times in iterables.partitions(total):
        yield tuple(sorted(collections.Counter(times).elements(), reverse=True))


def ways(counts: tuple[int, ...], parts: tuple[int, ...]) -> int:
    """Ways in which places can hold known values so often, and unknown ones as often as
    parts.
    """
    alike = [parts.count(n) for n in set(parts)]
    below = math.prod(map(math.factorial, (*counts, *parts, *alike)))
    return math.factorial(sum(counts) + sum(parts)) // below
