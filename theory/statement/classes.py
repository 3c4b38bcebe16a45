"""Classes of a weight's entries, and how many entries they have."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import sympy as sp

from theory import notation
from theory.statement import gaussian
from theory.statement.roles import Roles
from theory.statement.stated import Statement
from theory.statement.tree import Weight
from theory.statement.world import World


@dataclass(frozen=True)
class Class:
    """A class of a weight's entries, which keep one common value.

    Attributes
    ----------
    symbol : Symbol
        The common value (an entry of an array, where directions of a vector differ).
    weight : Weight
    size : Expr
        How many entries it has.
    means : str
        What is the same and what is not.
    many : Expr
        How many values there are: one, unless directions of a vector differ.
    """

    symbol: sp.Symbol
    weight: Weight
    size: sp.Expr
    means: str
    many: sp.Expr = sp.S.One

    @property
    def label(self) -> str:
        """Name of the class, or of the array that it is an entry of."""
        return str(self.weight if isinstance(self.symbol, sp.Indexed) else self.symbol)


def vector_classes(stated: Statement, roles: Roles) -> list[Class]:
    """Classes of weights beside Gaussian data: the diagonal, if there are two vector indices."""
    found = []
    for weight, of in roles.classes.items():
        value, places = gaussian.value_of(stated, weight), gaussian.vectors(weight)
        if value == 0:
            continue
        size, many = sp.Mul(*(s.size for s in weight.sorts if not s.vector)), sp.S.One
        if isinstance(value, sp.IndexedBase):
            value, many = value[gaussian.DIRECTION], weight.sorts[places[0]].size
        elif places:
            size *= weight.sorts[places[0]].size
        of.symbols[(True,) * len(of.atoms)] = value
        means = "on the diagonal" if places else "every entry"
        found.append(Class(value, weight, size, means, many))
    return found


def classes(stated: Statement, roles: Roles) -> tuple[list[Class], set[str]]:
    """Classes of all weights with their sizes, found by drawing an entry's indices at random, and
    names of teachers that were taken to be balanced.
    """
    found, assumed = [], set()
    for weight, of in roles.classes.items():
        world = World(stated, roles)
        chances = world.chances(functools.partial(world.pattern, of, of.slots))
        assumed |= {f.name for f in world.balanced}
        keep = _telling(list(chances))
        of.atoms = [of.atoms[k] for k in keep]
        entries = sp.Mul(*(s.size for s in weight.sorts))
        patterns = sorted(
            ((tuple(p[k] for k in keep), q) for p, q in chances.items()), reverse=True
        )
        for pattern, chance in patterns:
            bits = "".join(str(int(b)) for b in pattern)
            name = f"{weight.name}_{bits}" if bits else weight.name
            told = zip(of.atoms, pattern, strict=True)
            means = ", ".join(_said(atom, holds) for atom, holds in told) or "every entry"
            symbol = notation.symbol(name, means=f"{weight.name}: {means}", real=True)
            of.symbols[pattern] = symbol
            found.append(Class(symbol, weight, sp.factor(entries * chance), means))
    return found, assumed


def _telling(patterns: list[tuple[bool, ...]]) -> list[int]:
    """Places of few atoms, simplest first, that tell all patterns apart."""
    keep: list[int] = []

    def told(places: list[int]) -> int:
        return len({tuple(p[i] for i in places) for p in patterns})

    for k in range(len(patterns[0]) if patterns else 0):
        if told([*keep, k]) > told(keep):
            keep.append(k)
    for k in list(keep):  # what later ones made needless
        if told([i for i in keep if i != k]) == len(patterns):
            keep.remove(k)
    return keep


def _said(atom: tuple[Any, ...], holds: bool) -> str:
    if len(atom) == 1:
        return f"{atom[0].image!r} {'is' if holds else 'is not'} a value of {atom[0].function.name}"
    return f"{atom[0]!r} {'=' if holds else '!='} {atom[1]!r}"
