"""Elements that are known, and frames: sums that are carried out branch by branch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from theory.parameters import ParameterError
from theory.statement.tree import Function, Index


class Quenched(ParameterError):
    """A sum holds a random number of equal terms, under a function that is not linear."""


class Vague(Exception):
    """Values of a sample that were only known to be none of the known ones are compared."""

    def __init__(self, function: Function) -> None:
        self.function = function


class NeedOuter(Exception):
    """Something has to be decided in an outer sum, or before all of them."""

    def __init__(self, depth: int, key: Any) -> None:
        self.depth, self.key = depth, key


@dataclass(eq=False)
class Element:
    """A known element of a role; ``many`` of them where places with the same values are one."""

    role: Any
    parent: Element | None
    depth: int
    many: sp.Expr = sp.S.One
    position: sp.Expr | None = None
    name: Any = None


@dataclass
class Frame:
    """A sum that is being carried out, or the mean over draws: a script of choices, replayed.

    ``told`` has the elements that stand for all unknown ones of their role, with the function that
    told them apart since; ``source`` has those that one of these goes with, one to one or as many
    to each, by a function. How many there are of each kind is then a number, not random.
    """

    linear: bool
    index: Index | None = None
    script: list[list[int]] = field(default_factory=list)
    at: int = 0
    weight: sp.Expr = sp.S.One
    told: dict[Element, Any] = field(default_factory=dict)
    source: dict[Element, tuple[Element, Any]] = field(default_factory=dict)
    positions: list[tuple[sp.Symbol, sp.Expr, sp.Expr]] = field(default_factory=list)

    def begin(self) -> None:
        """Start a replay."""
        self.at, self.weight, self.positions = 0, sp.S.One, []
        self.told, self.source = {}, {}

    def counted(self, e: Element | None, function: Any) -> bool:
        """Whether elements like this one can be told apart by a function, with known numbers."""
        if e is None or self.told.get(e, e) not in (None, function):
            return False
        return e not in self.source or self.counted(*self.source[e])

    def tell(self, e: Element, function: Any) -> None:
        """Elements like this one are told apart by a function."""
        self.told[e] = function
        if e in self.source:
            self.tell(*self.source[e])

    def choose(self, options: list[tuple[sp.Expr, Any]]) -> Any:
        """The option that the script says, or the first, which it says from now on."""
        if self.at == len(self.script):
            self.script.append([0, len(options)])
        weight, outcome = options[self.script[self.at][0]]
        self.at += 1
        self.weight *= weight
        return outcome

    def advance(self) -> bool:
        """Turn to the next script; whether there is one."""
        while self.script and self.script[-1][0] + 1 == self.script[-1][1]:
            self.script.pop()
        if self.script:
            self.script[-1][0] += 1
        return bool(self.script)

    def summed(self, value: sp.Expr) -> sp.Expr:
        """What this branch adds: times its weight, over all positions of its elements."""
        term = self.weight * value
        for symbol, low, high in reversed(self.positions):
            if not term.has(symbol):
                term *= high - low + 1
            elif (high - low).is_number:
                span = range(int(low), int(high) + 1)
                term = sp.Add(*(term.subs(symbol, k) for k in span))
            else:
                term = sp.Sum(term, (symbol, low, high))
        return term
