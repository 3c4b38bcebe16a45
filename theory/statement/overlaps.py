"""Overlaps of hidden units: rates from the averaged loss.

Inputs are standard Gaussian in many dimensions; student units ``w_k`` and teacher units
``b_m`` are vectors in that space. The mean loss depends on ``Q_kl = w_k.w_l``, ``R_km =
w_k.b_m`` and ``T_mn = b_m.b_n`` alone, and so do the rates under gradient flow of all
entries.

Noise of online descent, and rates of vectors, are made of means with slopes of erf
units. A slope is a Gaussian itself. Two of them, ``g'(x_i) g'(x_k)`` with g(x) = erf(x
/ sqrt 2), change the covariance of all other fields, and leave a factor (`Weighed`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import sympy as sp

from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.statement.derivation.derived import POPULATION, TIME
from theory.statement.words.tree import require
from theory.symbols import notation
from theory.symbols.notation import Forms
from theory.symbols.reading import sympified

Unit = tuple[str, int]  # of the student (``w``) or of the teacher (``b``), from 1
ACTIVATIONS = ("linear", "quadratic", "erf", "relu")
GAUSSIAN = "standard Gaussian inputs"


def mean_product(activation: str, u: Any, v: Any, uv: Any) -> sp.Expr:
    """Mean of ``g(x) g(y)`` over centred Gaussian x, y of variances ``u``, ``v``,
    covariance ``uv``.

    Parameters
    ----------
    activation : {'linear', 'quadratic', 'erf', 'relu'}
        g(x) is x, x^2, erf(x / sqrt 2), or the positive part of x.

    Raises
    ------
    ParameterError
        For any other word.
    """
    u, v, uv = map(sympified, (u, v, uv))
    match activation:
        case "linear":
            return uv
        case "quadratic":
            return u * v + 2 * uv**2
        case "erf":
            return 2 / sp.pi * sp.asin(uv / sp.sqrt((1 + u) * (1 + v)))
        case "relu":
            if u == v == uv:  # the limit, which has slopes
                return u / 2
            angle = sp.acos(uv / sp.sqrt(u * v))
            return (sp.sqrt(u * v - uv**2) + uv * (sp.pi - angle)) / (2 * sp.pi)
    raise ParameterError(
        f"activation = {activation!r}: must be one of {', '.join(ACTIVATIONS)}"
    )


class Overlaps:
    """Symbols of the overlaps of ``hidden`` student units with ``teachers`` teacher
    units.
    """

    def __init__(self, hidden: int, teachers: int) -> None:
        positive = hidden > 0 and teachers >= 0
        require(positive, f"hidden = {hidden}, teachers = {teachers}: must be positive")
        self.hidden, self.teachers = hidden, teachers
        self.students = [("w", k) for k in range(1, hidden + 1)]
        self.units = [*self.students, *(("b", m) for m in range(1, teachers + 1))]

    def Q(self, k: int, l: int) -> sp.Symbol:
        """Overlap of two student units, counted from 1."""
        return self.overlap(("w", k), ("w", l))

    def R(self, k: int, m: int) -> sp.Symbol:
        """Overlap of a student unit with a teacher unit."""
        return self.overlap(("w", k), ("b", m))

    def T(self, m: int, n: int) -> sp.Symbol:
        """Overlap of two teacher units."""
        return self.overlap(("b", m), ("b", n))

    def overlap(self, x: Unit, y: Unit) -> sp.Symbol:
        """Overlap of two units, students (``w``) and teachers (``b``).

        Raises
        ------
        ParameterError
            If there is no such unit.
        """
        for kind, number in (x, y):
            count = self.hidden if kind == "w" else self.teachers
            require(
                (kind, number) in self.units,
                f"unit {number}: must be from 1 to {count}",
            )
        x, y = sorted((x, y), key=self.units.index)
        means = {"Q": "student units", "R": "student and teacher", "T": "teacher units"}
        name, square = self._name(x, y), True if x == y else None
        return notation.symbol(
            name, means=f"overlap of {means[name[0]]}", real=True, positive=square
        )

    def _name(self, x: Unit, y: Unit) -> str:
        # R_1_11 is not R_11_1
        between = "_" if max(self.hidden, self.teachers) > 9 else ""
        return f"{'QRT'[(x[0] + y[0]).count('b')]}_{x[1]}{between}{y[1]}"

    def _read(self, loss: Any, weights: Iterable[sp.Symbol] = ()) -> sp.Expr:
        """A loss in the symbols of the overlaps and weights, by name."""
        pairs = [
            (x, y) for x, y in itertools.product(self.units, repeat=2) if x[0] >= y[0]
        ]
        named = {self._name(x, y): self.overlap(x, y) for x, y in pairs}
        return notation.expression("loss", loss, named | {w.name: w for w in weights})

    @property
    def state(self) -> list[sp.Symbol]:
        """What moves: R, then Q."""
        return [self.overlap(*pair) for pair in self._moving]

    @property
    def _moving(self) -> list[tuple[Unit, Unit]]:
        crossed = list(itertools.product(self.students, self.units[self.hidden :]))
        return crossed + list(itertools.combinations_with_replacement(self.students, 2))

    def _moved(self, loss: sp.Expr) -> tuple[Forms, Forms]:
        """Terms of first and second order in the step of descent, of all overlaps."""

        def slope(x: Unit, z: Unit) -> sp.Expr:
            """Coefficient of z in dL/dx."""
            return sp.diff(loss, self.overlap(x, z)) * (1 + (z == x))

        slopes = {x: {z: slope(x, z) for z in self.units} for x in self.students}

        def pull(x: Unit, y: Unit) -> sp.Expr:
            """Overlap of -dL/dx with y; teachers do not move."""
            terms = [a * self.overlap(z, y) for z, a in slopes.get(x, {}).items()]
            return -sp.Add(*terms)

        pairs = itertools.product(self.units, repeat=2)
        pulls = {(x, y): pull(x, y) for x, y in pairs}
        first: Forms = {}
        second: Forms = {}
        for x, y in self._moving:
            overlap = self.overlap(x, y)
            first[overlap] = pulls[x, y] + pulls[y, x]
            if y in slopes:
                second[overlap] = -sp.Add(
                    *(a * pulls[y, z] for z, a in slopes[x].items())
                )
        return first, second

    def rates(self, loss: sp.Expr) -> Forms:
        """Rates of all overlaps: every entry of every ``w_k`` descends on the loss."""
        return self._moved(self._read(loss))[0]

    def flow(
        self,
        name: str,
        loss: sp.Expr,
        initial: Mapping[sp.Symbol, Any],
        weights: Mapping[sp.Symbol, Any] | None = None,
    ) -> Flow:
        """Flow of the overlaps, and of further trained numbers (a read-out), on a loss
        in them.

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
        more = dict(weights or {})
        loss = self._read(loss, more)
        rates, second_order = self._moved(loss)
        return Flow(
            name,
            TIME,
            rates | {w: -sp.diff(loss, w) for w in more},
            {**initial, **more},
            f"overlaps {name}",
            "exact",
            (POPULATION, GAUSSIAN),
            observables={"loss": loss},
            second_order=second_order,
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
        readout = {("w", k): sympified(a) for k, a in (student or {}).items()}
        readout |= {("b", m): -sympified(a) for m, a in (teacher or {}).items()}
        signed = {x: readout.get(x, 1 if x[0] == "w" else -1) for x in self.units}
        terms = []
        for x, y in itertools.product(self.units, repeat=2):
            overlaps = self.overlap(x, x), self.overlap(y, y), self.overlap(x, y)
            mean = mean_product(activation, *overlaps)
            terms.append(signed[x] * signed[y] * mean)
        return sp.Add(*terms) / 2


Covariance = Callable[[Any, Any], sp.Expr]  # of two units


class Weighed:
    """Gaussian fields under slopes of the given units, one or two (which may be the
    same).
    """

    def __init__(self, covariance: Covariance, units: Sequence[Hashable]) -> None:
        self.covariance, self.units = covariance, list(units)
        inner = sp.Matrix([[covariance(i, k) for k in units] for i in units])
        precision = sp.eye(len(self.units)) + inner
        self.inverse = precision.inv()
        # sqrt(2 / pi) for each slope, and the norm of the Gaussian that they make
        slopes = (2 / sp.pi) ** sp.Rational(len(self.units), 2)
        self.factor = slopes / sp.sqrt(precision.det())

    def after(self, x: Hashable, y: Hashable) -> sp.Expr:
        """Covariance of two fields under the slopes."""
        first = sp.Matrix([self.covariance(x, i) for i in self.units])
        second = sp.Matrix([self.covariance(y, i) for i in self.units])
        return self.covariance(x, y) - (first.T * self.inverse * second)[0]

    def outputs(self, x: Hashable, y: Hashable) -> sp.Expr:
        """Mean of the slopes times ``g(x) g(y)``."""
        covariances = self.after(x, x), self.after(y, y), self.after(x, y)
        return self.factor * mean_product("erf", *covariances)

    def field_and_output(self, x: Hashable, y: Hashable) -> sp.Expr:
        """Mean of the slopes times ``x g(y)``: the covariance times the mean slope of
        y.
        """
        return (
            self.factor * self.after(x, y) * sp.sqrt(2 / sp.pi / (1 + self.after(y, y)))
        )
