"""Flow of discovered order parameters: its right-hand side is the module's gradient, in
numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy as sp
import xarray as xr

from simulate.discover.subspace import Subspace, everywhere
from theory import Equation, Flow
from theory.dynamics import solution
from theory.dynamics.conserved import SAME, Mode, conserved, linearised, roots_from
from theory.symbols import notation

TRIES = 24  # random starts of the search for fixed points
SPREAD = 3.0  # their standard deviation about the start


@dataclass(frozen=True, repr=False)
class NumericFlow(Flow):
    """Flow whose rates are gradients of a module; time is learning rate times number of
    steps.
    """

    subspace: Subspace = field(kw_only=True)

    @functools.cached_property
    def _compiled(self) -> tuple[list[sp.Symbol], Any, Any, Any]:
        free = np.array([self.rhs[x] != 0 for x in self.state])

        def rates(_: float, *values: Any) -> np.ndarray:
            return everywhere(lambda y: free * self.subspace.rates(y), values)

        def jacobian(_: float, *values: Any) -> np.ndarray:
            return free[:, None] * self.subspace.jacobian(np.array(values, float))

        return [], rates, jacobian, lambda: [float(self.initial[x]) for x in self.state]

    def descend(self, step: float, steps: int, **options: Any) -> xr.Dataset:  # type: ignore[override]
        """As `theory.Flow.descend`; there are no parameters. Optimisers move all
        weights.
        """
        return solution.descend(self, {}, step, steps, **options)

    def jacobian(self, at: Mapping[Any, float] | None = None) -> np.ndarray:  # type: ignore[override]
        """Derivatives of the rates, at the start by default."""
        moved = notation.by_name("at: {} is no order parameter", at or {}, self.state)
        return self._compiled[2](
            0.0, *({**self.initial, **moved}[x] for x in self.state)
        )

    def linearised(self, at: Mapping[Any, Any] | None = None) -> list[Mode]:  # type: ignore[override]
        """Growth rates and their directions in numbers, the fastest first."""
        return linearised(self, at, {})

    def fixed_points(self) -> list[dict[sp.Symbol, float]]:  # type: ignore[override]
        """Points where nothing moves, those that are reached from random points about
        the start; there may be more.
        """
        _, rates, jacobian, initial = self._compiled
        start = np.array(initial())
        away = SPREAD * np.random.default_rng(0).normal(size=(TRIES, start.size))
        away[0] = 0
        held = np.diag(
            [float(self.rhs[x] == 0) for x in self.state]
        )  # these stay at the start
        points = roots_from(
            lambda y: rates(0, *y) + held @ (y - start),
            lambda y: jacobian(0, *y) + held,
            start + away,
        )
        return [dict(zip(self.state, p.tolist(), strict=True)) for p in points]

    def conserved(self) -> list[Equation]:  # type: ignore[override]
        """Combinations of squares, products, logarithms and exponentials of the order
        parameters that are constant at random points: found in numbers, not proved.
        """
        return [replace(e, status="empirical") for e in conserved(self)]

    def invariant(self, terms: Mapping[sp.Expr, float]) -> sp.Expr:
        """A conserved combination of terms, with simple fractions."""
        simple = [
            (sp.nsimplify(c, rational=True, tolerance=SAME), f)
            for f, c in terms.items()
        ]
        return sp.Add(*(c * f for c, f in simple))
