"""Means over Gaussian fields of products that contain slopes of erf units: what noise of online
descent, and rates of vectors, are made of.

A slope is a Gaussian itself. Two of them, ``g'(x_i) g'(x_k)`` with g(x) = erf(x / sqrt 2), change
the covariance of all other fields, and leave a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import sympy as sp

from theory.statement.overlaps import mean_product

Covariance = Callable[[Any, Any], sp.Expr]  # of two units


class Weighed:
    """Gaussian fields under slopes of the given units, one or two (which may be the same)."""

    def __init__(self, covariance: Covariance, units: Sequence[Hashable]) -> None:
        self.covariance, self.units = covariance, list(units)
        inner = sp.Matrix([[covariance(i, k) for k in units] for i in units])
        precision = sp.eye(len(self.units)) + inner
        self.inverse = precision.inv()
        # sqrt(2 / pi) for each slope, and the norm of the Gaussian that they make
        self.factor = (2 / sp.pi) ** sp.Rational(len(self.units), 2) / sp.sqrt(precision.det())

    def after(self, x: Hashable, y: Hashable) -> sp.Expr:
        """Covariance of two fields under the slopes."""
        first, second = (sp.Matrix([self.covariance(z, i) for i in self.units]) for z in (x, y))
        return self.covariance(x, y) - (first.T * self.inverse * second)[0]

    def outputs(self, x: Hashable, y: Hashable) -> sp.Expr:
        """Mean of the slopes times ``g(x) g(y)``."""
        covariances = self.after(x, x), self.after(y, y), self.after(x, y)
        return self.factor * mean_product("erf", *covariances)

    def field_and_output(self, x: Hashable, y: Hashable) -> sp.Expr:
        """Mean of the slopes times ``x g(y)``: the covariance times the mean slope of y."""
        return self.factor * self.after(x, y) * sp.sqrt(2 / sp.pi / (1 + self.after(y, y)))
