"""Random numbers for what a derived loss depends on, sizes that fit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp

from theory.parameters import ParameterError

LARGEST_DRAWN = 13  # of a size
MOST_TRIES = 2000
HIDING = 3  # what a pair of equal sizes costs, in units of a size


class Points:
    """Random numbers for sizes, `number` symbols and values of classes, sizes that fit."""

    def __init__(self, made: Any, seed: int = 0) -> None:
        self.made, self.rng = made, np.random.default_rng(seed)
        stated, known = made.statement, {c.symbol for c in made.classes}
        free = made.loss.free_symbols.union(stated.symbols) - known
        self.sizes = [s for s in stated.symbols if s.is_integer and s not in made.sizes]
        self.others = sorted((s for s in free if not s.is_integer), key=str)
        room = [f.to.size - f.sorts[j].size for f in stated.functions for j in f.injective]
        room += [i.sort.size - i.place for i in stated.draws if i.place is not None]
        sorts, classes = [s.size for s in stated.sorts], [c.size for c in made.classes]
        fixed = {k: sp.Integer(v) for k, v in made.sizes.items()}
        limits = [[sp.S(x).xreplace(fixed) for x in part] for part in (sorts, classes, room)]
        self.counts = sp.lambdify(self.sizes, limits, "math")

    def cost(self, sizes: tuple[int, ...]) -> float:
        """What sizes cost that fit one-to-one functions and fill every class, else infinity: equal
        ones hide faults.
        """
        try:
            sorts, classes, room = self.counts(*sizes)
        except ZeroDivisionError:
            return np.inf
        equal = sum(a == b for a, b in itertools.combinations(sorts, 2))
        fits = min(*sorts, *classes) > 0 and min(room, default=0) >= 0
        return sum(sizes) + HIDING * equal if fits else np.inf

    def small(self, largest: int) -> list[tuple[int, ...]]:
        """All sizes up to one that fit, cheap ones first."""
        grid = itertools.product(range(2, largest + 1), repeat=len(self.sizes))
        cost = {s: self.cost(s) for s in grid}
        return sorted((s for s in cost if cost[s] < np.inf), key=lambda s: (cost[s], s))

    def numbers(self, sizes: tuple[int, ...] | None = None) -> dict[str, float]:
        """Sizes (drawn, if not given) and numbers by name."""
        sizes = next(self._drawn()) if sizes is None else sizes
        found = {s.name: float(n) for s, n in zip(self.sizes, sizes, strict=True)}
        found |= {s.name: float(n) for s, n in self.made.sizes.items()}
        return found | {s.name: float(self.rng.uniform(0.2, 0.9)) for s in self.others}

    def _drawn(self) -> Iterator[tuple[int, ...]]:
        for _ in range(MOST_TRIES):
            sizes = tuple(self.rng.integers(2, LARGEST_DRAWN + 1, len(self.sizes)).tolist())
            if self.cost(sizes) < np.inf:
                yield sizes
        name = self.made.statement.name
        raise ParameterError(f"statement {name}: no sizes from 2 to {LARGEST_DRAWN} fit")

    def values(self) -> dict[sp.Symbol, float]:
        """Values of classes."""
        return {c.symbol: float(self.rng.normal()) for c in self.made.classes}
