"""Random numbers for what a derived loss depends on, sizes that fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import sympy as sp

from theory.parameters import ParameterError

LARGEST_DRAWN = 13  # of a size
MOST_TRIES = 2000


class Points:
    """Random numbers for sizes, `number` symbols and values of classes, sizes that fit."""

    def __init__(self, made: Any, seed: int = 0) -> None:
        self.made, self.rng = made, np.random.default_rng(seed)
        stated = made.statement
        self.sizes = [s for s in stated.symbols if s.is_integer and s not in made.sizes]
        values = {c.symbol for c in made.classes}
        free = made.loss.free_symbols.union(*(w.start.free_symbols for w in stated.weights))
        self.others = sorted(
            (s for s in free | set(stated.symbols) if not s.is_integer and s not in values), key=str
        )
        counts = [s.size for s in stated.sorts] + [c.size for c in made.classes]
        wide = [f.to.size - f.sorts[j].size for f in stated.functions for j in f.injective]
        wide += [i.sort.size - i.place for i in stated.draws if i.place is not None]
        onto = [
            (f.sorts[k].size, f.to.size)
            for f in stated.functions
            for k in (f.injective or range(len(f.sorts)))
        ]
        fixed = {k: sp.Integer(v) for k, v in made.sizes.items()}
        pairs = [a - b for a, b in onto] + [a - b for a, b in itertools.combinations(self.sizes, 2)]
        limits = [[x.xreplace(fixed) for x in part] for part in (counts, wide, pairs)]
        self.fits = sp.lambdify(self.sizes, limits, "math")

    def allowed(self, sizes: tuple[int, ...]) -> bool:
        """Whether sizes leave no class empty and fit all one-to-one functions."""
        try:
            counts, wide, _ = self.fits(*sizes)
        except ZeroDivisionError:
            return False
        return all(n > 0 for n in counts) and all(n >= 0 for n in wide)

    def alike(self, sizes: tuple[int, ...]) -> int:
        """How many pairs of sizes, of sorts that a function joins or of any two, are equal."""
        return sum(n == 0 for n in self.fits(*sizes)[2])

    def numbers(self, sizes: tuple[int, ...] | None = None) -> dict[str, float]:
        """Sizes (drawn, if not given) and numbers by name."""
        for _ in range(MOST_TRIES):
            if sizes is not None:
                break
            drawn = tuple(self.rng.integers(2, LARGEST_DRAWN + 1, len(self.sizes)).tolist())
            sizes = drawn if self.allowed(drawn) else None
        if sizes is None:
            name = self.made.statement.name
            raise ParameterError(f"statement {name}: no sizes from 2 to {LARGEST_DRAWN} fit")
        found = {s.name: float(n) for s, n in zip(self.sizes, sizes, strict=True)}
        found |= {s.name: float(n) for s, n in self.made.sizes.items()}
        return found | {s.name: float(self.rng.uniform(0.2, 0.9)) for s in self.others}

    def values(self) -> dict[sp.Symbol, float]:
        """Values of classes."""
        return {c.symbol: float(self.rng.normal()) for c in self.made.classes}
