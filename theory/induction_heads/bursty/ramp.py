"""How a softmax head starts: its read-out and its score of the right key both grow from
zero.

If the ratio of their rates is a function of the score divided by the read-out, they
separate: the square of the read-out is a function of the score, and the time is one
integral over the score.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from theory import function, gauss_legendre, proved, symbol, vanishes
from theory.numbers import numeric
from theory.symbols.fractions import factored

NODES = 60  # of the integral over the root of the score, which is analytic
kappa = symbol("kappa", means="score, integrated over", nonnegative=True)
speed = function("v_score", means="rate of the score, on its path")


def squared(
    form: sp.Expr, score: sp.Symbol, read: sp.Symbol, rates: Sequence[sp.Expr]
) -> sp.Expr:
    """Square of the read-out as a function of the score, in its printed form.

    Parameters
    ----------
    form : Expr
        The printed form.
    score, read : Symbol
        Score and read-out.
    rates : sequence of Expr
        Of score and read-out.

    Raises
    ------
    ArithmeticError
        If the ratio of rates depends on both, or ``form`` is not its integral from
        zero.
    """
    ratio = factored(read * rates[1] / rates[0])
    separates = not ratio.has(read) and form.subs(score, 0) == 0
    proved(
        separates and vanishes(sp.diff(form, score) - 2 * ratio),
        "the rates do not separate, or this is not their integral",
    )
    return form


def elapsed(score: sp.Symbol, end: sp.Expr) -> sp.Integral:
    """Time until the score is ``end``, in terms of its rate on the way."""
    return sp.Integral(1 / speed(score), (score, 0, end))


def many(rate: sp.Expr, square: sp.Expr, score: sp.Symbol) -> sp.Expr:
    """Time until the score is infinite, if its rate is ``rate`` times the read-out."""
    slowness = (1 / (rate * sp.sqrt(square))).subs(score, kappa)
    return sp.integrate(slowness, (kappa, 0, sp.oo))


def over_root(integrand: Callable[[np.ndarray], Any], end: float) -> float:
    """Integral from 0 to ``end`` of a function that is analytic in the root of its
    variable.
    """
    root, weights = gauss_legendre(NODES, 0, np.sqrt(end))
    return float(2 * (weights * root * integrand(root**2)).sum())


def quadrature(
    derivation: Callable[[], tuple[sp.Expr, sp.Expr, sp.Integral]],
    read: sp.Symbol,
    *symbols: sp.Symbol,
) -> Callable[..., float]:
    """Numerical function for an integral of `elapsed`.

    Parameters
    ----------
    derivation : callable
        Gives the rate of the score, the square of the read-out, and the integral.
    read : Symbol
        Read-out.
    *symbols : Symbol
        Sizes, in the order of the function's arguments.
    """

    @cache
    def compiled() -> list[Any]:
        rate, square, integral = derivation()
        score, _, end = integral.limits[0]
        along = integral.function.subs(speed(score), rate.subs(read, sp.sqrt(square)))
        return [
            numeric.function(along, (score, *symbols)),
            numeric.function(end, symbols),
        ]

    def integrated(*values: float) -> float:
        along, end = compiled()
        return over_root(lambda score: along(score, *values), end(*values))

    return integrated
