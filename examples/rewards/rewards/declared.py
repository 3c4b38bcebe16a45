"""Equations, declared at the functions that derive them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import sympy as sp

from theory import Equations, table
from theory.state_tracking.model.mean_field import MEAN_FIELD
from theory.state_tracking.model.symbols import ref
from theory.state_tracking.rollout import equations as rollout_equations

BEYOND = "beyond the paper: rewards"
SAMPLED = "states are sampled from the student and fed back"


def rollout_assumptions() -> tuple[str, ...]:
    """Assumptions of the rollout accuracy (18)."""
    return rollout_equations()["rollout_mean"].assumptions


class Chapter:
    """Equations of one file, in the order of their declaration."""

    def __init__(self) -> None:
        self.rows: dict[str, Callable[[], tuple[Any, ...]]] = {}

    def equation(
        self,
        lhs: sp.Basic,
        place: str = BEYOND,
        *assumptions: str,
        name: str = "",
        status: str = "closure",
        rollouts: bool = False,
    ) -> Callable[[Callable[..., sp.Expr]], Callable[..., sp.Expr]]:
        """Decorator: the function derives the right side of an equation.

        Parameters
        ----------
        lhs : Basic
            Left side.
        place : str
            Where it belongs beside the paper.
        *assumptions : str
            What it assumes.
        name : str
            Name of the equation; that of the function by default.
        status : str
            As in `theory.Equation`.
        rollouts : bool
            Whether it also assumes what the mean-field rollout (18) assumes.
        """

        def decorate(derive: Callable[..., sp.Expr]) -> Callable[..., sp.Expr]:
            derived = cache(derive)

            def row() -> tuple[Any, ...]:
                closure: tuple[str, ...] = ()
                if rollouts:
                    closure = (MEAN_FIELD, SAMPLED, *rollout_assumptions())
                return (lhs, derived, place, status, *closure, *assumptions)

            self.rows[name or derive.__name__] = row
            return derived

        return decorate

    def equations(self) -> Equations:
        """The equations by name."""
        rows = {name: row() for name, row in self.rows.items()}
        return table(ref, status="closure", **rows)
