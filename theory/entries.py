"""Weights behind a flow: what an optimiser moves, where order parameters are sums of weights that
stay equal by symmetry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from theory.optimisers import Optimiser, Steps
from theory.parameters import ParameterError


@dataclass(frozen=True)
class Entries:
    """Values of weights that are equal by symmetry and stay so under any optimiser, as their
    gradients are equal, too.

    Attributes
    ----------
    slopes : mapping of Symbol to Expr
        Derivative of the loss by one of the weights with a value.
    many : mapping of Symbol to Expr
        How many weights have this value.
    start : mapping of Symbol to Expr
        Values at the start.
    order : mapping of Symbol to Expr
        Order parameters of the flow in these values.
    """

    slopes: Mapping[sp.Symbol, sp.Expr]
    many: Mapping[sp.Symbol, sp.Expr]
    start: Mapping[sp.Symbol, sp.Expr]
    order: Mapping[sp.Symbol, sp.Expr]

    def rates(self) -> dict[sp.Symbol, sp.Expr]:
        """Rates of the order parameters under gradient descent, in the values of the weights."""
        return {
            x: -sum(sp.diff(form, w) * slope for w, slope in self.slopes.items())
            for x, form in self.order.items()
        }

    def path(
        self,
        state: Sequence[sp.Symbol],
        numbers: Mapping[str, Any],
        how: Optimiser,
        eta: float,
        steps: int,
    ) -> Any:
        """Order parameters, in the order of ``state``, before the first and after every step; shape
        ``(state, steps + 1)``.

        Raises
        ------
        ParameterError
            If a symbol has no value.
        """
        names = [*self.slopes]
        used = [*self.slopes.values(), *self.many.values(), *self.start.values()]
        free = sorted(
            set().union(*(sp.sympify(e, strict=True).free_symbols for e in used)) - {*names},
            key=str,
        )
        missing = [s.name for s in free if s.name not in numbers]
        if missing:
            raise ParameterError(f"optimizer: no value for {', '.join(missing)}")
        known = [float(numbers[s.name]) for s in free]

        def compiled(forms: Mapping[sp.Symbol, sp.Expr]) -> Any:
            made = sp.lambdify([*names, *free], [*forms.values()], ["scipy", "numpy"], cse=True)
            return lambda values: made(*values, *known)

        slopes, orders = compiled(self.slopes), compiled({x: self.order[x] for x in state})
        start, many = (compiled({w: of[w] for w in names})(names) for of in (self.start, self.many))
        step = Steps(how, eta, steps, many)
        path = np.empty((steps + 1, len(names), 1))  # the last axis: one student
        path[0, :, 0] = start
        for n in range(steps):
            path[n + 1] = step([*path[n]], [*np.array(slopes(path[n, :, 0]), float)[:, None]])
        return np.array([np.broadcast_to(x, steps + 1) for x in orders(path[..., 0].T)], float)
