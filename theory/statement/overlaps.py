"""Overlaps of hidden units: rates from the averaged loss.

Inputs are standard Gaussian in many dimensions; student units ``w_k`` and teacher units ``b_m``
are vectors in that space. The mean loss depends on ``Q_kl = w_k.w_l``, ``R_km = w_k.b_m`` and
``T_mn = b_m.b_n`` alone, and so do the rates under gradient flow of all entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from theory import notation
from theory.flow import Flow
from theory.parameters import ParameterError
from theory.statement.derived import POPULATION, TIME

GAUSSIAN = "standard Gaussian inputs"


def mean_product(activation: str, u: Any, v: Any, uv: Any) -> sp.Expr:
    """Mean of ``g(x) g(y)`` over centred Gaussian x, y of variances ``u``, ``v``, covariance
    ``uv``.

    Parameters
    ----------
    activation : {'linear', 'quadratic', 'erf', 'relu'}
        g(x) is x, x^2, erf(x / sqrt 2), or the positive part of x.

    Raises
    ------
    ParameterError
        For any other word.
    """
    size = sp.sqrt(u * v)
    table = {
        "linear": lambda: uv,
        "quadratic": lambda: u * v + 2 * uv**2,
        "erf": lambda: 2 / sp.pi * sp.asin(uv / sp.sqrt((1 + u) * (1 + v))),
        "relu": lambda: (sp.sqrt(u * v - uv**2) + uv * (sp.pi - sp.acos(uv / size))) / (2 * sp.pi),
    }
    if activation not in table:
        raise ParameterError(f"activation = {activation!r}: must be one of {', '.join(table)}")
    if activation == "relu" and u == v == uv:  # the limit, which has slopes
        return sp.sympify(u, strict=True) / 2
    return sp.sympify(table[activation](), strict=True)


def _symmetric(name: str, k: int, l: int, means: str) -> sp.Symbol:
    first, second = sorted((k, l))
    square = True if k == l else None
    return notation.symbol(f"{name}_{first}{second}", means=means, real=True, positive=square)


class Overlaps:
    """Symbols of the overlaps of ``hidden`` student units with ``teachers`` teacher units."""

    def __init__(self, hidden: int, teachers: int) -> None:
        if hidden < 1 or teachers < 0:
            raise ParameterError(f"hidden = {hidden}, teachers = {teachers}: must be positive")
        self.hidden, self.teachers = hidden, teachers

    def Q(self, k: int, l: int) -> sp.Symbol:
        """Overlap of two student units, counted from 1."""
        return _symmetric("Q", k, l, "overlap of student units")

    def R(self, k: int, m: int) -> sp.Symbol:
        """Overlap of a student unit with a teacher unit."""
        return notation.symbol(f"R_{k}{m}", means="overlap of student and teacher", real=True)

    def T(self, m: int, n: int) -> sp.Symbol:
        """Overlap of two teacher units."""
        return _symmetric("T", m, n, "overlap of teacher units")

    @property
    def state(self) -> list[sp.Symbol]:
        """What moves: R, then Q."""
        units = range(1, self.hidden + 1)
        found = [self.R(k, m) for k in units for m in range(1, self.teachers + 1)]
        return found + [self.Q(k, l) for k in units for l in units if k <= l]

    def rates(self, loss: sp.Expr) -> dict[sp.Symbol, sp.Expr]:
        """Rates of all overlaps: every entry of every ``w_k`` descends on the loss."""
        units, teachers = range(1, self.hidden + 1), range(1, self.teachers + 1)
        slope = {x: sp.diff(loss, x) for x in self.state}

        def pull(k: int, with_unit: Any, with_teacher: Any) -> sp.Expr:
            """Overlap of -dL/dw_k with a vector, given the vector's overlaps with all units."""
            own = [slope[self.Q(k, l)] * (2 if k == l else 1) * with_unit(l) for l in units]
            return -sp.Add(*own, *(slope[self.R(k, m)] * with_teacher(m) for m in teachers))

        rates = {}
        for k in units:
            for m in teachers:
                rates[self.R(k, m)] = pull(
                    k, lambda l, m=m: self.R(l, m), lambda n, m=m: self.T(n, m)
                )  # type: ignore[misc]
        for k in units:
            for l in units:
                if k <= l:
                    there = pull(k, lambda i, l=l: self.Q(i, l), lambda n, l=l: self.R(l, n))  # type: ignore[misc]
                    back = pull(l, lambda i, k=k: self.Q(i, k), lambda n, k=k: self.R(k, n))  # type: ignore[misc]
                    rates[self.Q(k, l)] = there + back
        return rates

    def flow(
        self,
        name: str,
        loss: sp.Expr,
        initial: Mapping[sp.Symbol, Any],
        weights: Mapping[sp.Symbol, Any] | None = None,
    ) -> Flow:
        """Flow of the overlaps, and of further trained numbers (a read-out), on a loss in them.

        Parameters
        ----------
        name : str
            Of the flow.
        loss : Expr
            Mean loss in Q, R, T and the further numbers.
        initial : mapping
            Start of every overlap.
        weights : mapping, optional
            Further trained numbers and their start.

        Raises
        ------
        ParameterError
            If an overlap has no start.
        """
        for x in self.state:
            if x not in initial:
                raise ParameterError(f"{name}: {x} has no start")
        more = dict(weights or {})
        return Flow(
            name,
            TIME,
            self.rates(loss) | {w: -sp.diff(loss, w) for w in more},
            {x: sp.sympify(initial[x], strict=True) for x in self.state}
            | {w: sp.sympify(start, strict=True) for w, start in more.items()},
            f"overlaps {name}",
            "exact",
            (POPULATION, GAUSSIAN),
            observables={"loss": loss},
        )

    def squared_loss(
        self,
        activation: str,
        student: Mapping[int, Any] | None = None,
        teacher: Mapping[int, Any] | None = None,
    ) -> sp.Expr:
        """Half the mean squared difference of two committees ``sum_k a_k g(w_k.x)``.

        Parameters
        ----------
        activation : str
            As for `mean_product`.
        student, teacher : mapping of int to Expr, optional
            Read-out of every unit; 1 by default.
        """
        units = [
            *(
                (sp.sympify((student or {}).get(k, 1), strict=True), "w", k)
                for k in range(1, self.hidden + 1)
            ),
            *(
                (-sp.sympify((teacher or {}).get(m, 1), strict=True), "b", m)
                for m in range(1, self.teachers + 1)
            ),
        ]

        def overlap(one: str, k: int, other: str, l: int) -> sp.Symbol:
            if one == other:
                return self.Q(k, l) if one == "w" else self.T(k, l)
            return self.R(k, l) if one == "w" else self.R(l, k)

        parts = (
            a
            * b
            * mean_product(
                activation, overlap(x, k, x, k), overlap(y, l, y, l), overlap(x, k, y, l)
            )
            for a, x, k in units
            for b, y, l in units
        )
        return sp.Add(*parts) / 2
