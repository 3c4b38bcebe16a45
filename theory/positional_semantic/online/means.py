"""Gaussian means of products of the target's and the student's attention, as SymPy functions.

Fields of a token: ``h ~ N(0, sigma^2)`` of the teacher, ``z ~ N(+-m, q)`` of the student, with
covariance ``theta``. A mean is expanded in Hermite polynomials of both (Mehler's formula), so that
the covariance enters as a power series, and derivatives with respect to ``q``, ``m`` and ``theta``
are shifts of its coefficients (theorems of Stein and Price): two integrals over a plane replace one
over four variables.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import sympy as sp

from theory import ParameterError, gauss_hermite, symbol
from theory.positional_semantic.definitions import S_12, S_21, off_diagonal
from theory.positional_semantic.symbols import h_1, h_2, m, q, sigma, theta, z_1, z_2

NODES, DEGREE = 40, 26  # per axis; degree of the polynomials kept
# Attention changes where fields are of order one, which nodes of wider fields step over: up to this
# width rates are right to 0.3% (against four times as many nodes and polynomials), at 2 to 5%.
WIDEST = 1.25
KEPT = 4096  # integrals that are remembered
T_12, T_21 = (
    symbol(f"T_{k}", f"T_{{{k}}}", "entry of softmax(h h^T), the semantic target", real=True)
    for k in ("12", "21")
)
SLOPES = tuple(
    symbol(f"S_{k}_{l}", rf"S_{{{k},{l}}}", f"slope of S_{k} in z_{l}", real=True)
    for k in ("12", "21")
    for l in ("1", "2")
)
STUDENT = (S_12, S_21, *SLOPES)
TARGET = (T_12, T_21)


class TooWide(ParameterError):
    """Fields are too wide for the nodes."""


class Mean(sp.Function):
    """Mean of a monomial in `TARGET` times one in `STUDENT`, or a derivative of it.

    ``Mean(target, student, orders, q, m, theta, sigma)``: exponents of both monomials, and orders
    of the derivatives with respect to ``q``, ``m`` and ``theta``.
    """

    nargs = 7
    is_real = True

    def _eval_derivative(self, x: sp.Symbol) -> sp.Expr:
        """Derivative through the order parameters; sigma is not differentiated."""
        target, student, orders, *state = self.args
        total = sp.S.Zero
        moves = (any(student), any(student), any(student) and any(target))
        for k, of in enumerate(state[:3]):
            if not moves[k]:
                continue
            raised = sp.Tuple(*(n + (place == k) for place, n in enumerate(orders)))
            total += Mean(target, student, raised, *state) * sp.diff(of, x)
        return total

    def _latex(self, printer: Any) -> str:
        target, student, orders, *state = self.args
        inside = printer.doprint(_monomial(target, TARGET) * _monomial(student, STUDENT))
        slopes = "".join(
            rf"\partial_{{{x}}}{f'^{{{n}}}' if n > 1 else ''}"
            for x, n in zip(map(printer.doprint, (q, m, theta)), orders, strict=True)
            if n
        )
        numbers = [x for x in state[:3] if x.is_number]
        subscript = rf"_{{{','.join(map(printer.doprint, state[:3]))}}}" if numbers else ""
        return rf"{slopes}\mathbb{{E}}{subscript}\left[{inside}\right]"

    def _sympystr(self, printer: Any) -> str:
        target, student, orders, *state = self.args
        inside = printer.doprint(_monomial(target, TARGET) * _monomial(student, STUDENT))
        signs = zip(["q", "m", "theta"], orders, strict=True)
        slopes = "".join(f"d{x}{n if n > 1 else ''} " for x, n in signs if n)
        given = [
            f"{x} = {v}" for x, v in zip(["q", "m", "theta"], state, strict=False) if v.is_number
        ]
        return f"{slopes}E[{inside}]" + (f"({', '.join(given)})" if given else "")

    @staticmethod
    def _imp_(target: Any, student: Any, orders: Any, *state: Any) -> Any:
        """Numerical value, for `sympy.lambdify`; arrays of order parameters are broadcast."""
        target, student, orders = (tuple(map(int, x)) for x in (target, student, orders))
        if all(isinstance(x, float) for x in state):  # as integrators ask, thousands of times
            return value(target, student, orders, *map(float, state))
        many = np.broadcast_arrays(*(np.asarray(x, float) for x in state))
        points = zip(*(a.ravel().tolist() for a in many), strict=True)
        return np.reshape([value(target, student, orders, *x) for x in points], many[0].shape)[()]


def mean(expr: sp.Expr) -> sp.Expr:
    """Mean of a polynomial in `TARGET` and `STUDENT`, as a sum of `Mean`.

    Exchanging the tokens and reflecting both fields, ``(z_1, z_2) -> (-z_2, -z_1)``, leaves their
    law as it is and exchanges ``S_12`` with ``S_21``; of two monomials that this connects, one
    is kept.
    """
    poly = sp.Poly(sp.expand(expr), *TARGET, *STUDENT)
    terms = []
    for powers, factor in poly.terms():
        i, j, a, b, *slopes = powers
        mirrored = (j, i, b, a, *reversed(slopes))
        sign = (-1) ** sum(slopes) if mirrored > powers else 1
        kept = max(powers, mirrored)
        if not any(kept):
            terms.append(factor)
            continue
        of = sp.Tuple(*kept[:2]), sp.Tuple(*kept[2:]), sp.Tuple(0, 0, 0)
        terms.append(factor * sign * Mean(*of, q, m, theta, sigma))
    return gathered(sp.Add(*terms))


def gathered(expr: sp.Expr) -> sp.Expr:
    """One term for every mean, with a factored coefficient."""
    return sp.collect(sp.expand(expr), sorted(expr.atoms(Mean), key=str), sp.factor)


def _monomial(powers: Sequence[Any], symbols: Sequence[sp.Symbol]) -> sp.Expr:
    return sp.Mul(*(x**n for x, n in zip(symbols, powers, strict=True)))


@cache
def student_fields() -> tuple[sp.Expr, ...]:
    """`STUDENT` as functions of the fields ``z``."""
    attention = off_diagonal(z_1, z_2)
    return (*attention, *(sp.diff(S, z) for S in attention for z in (z_1, z_2)))


@cache
def _compiled(of_student: bool) -> Any:
    fields, forms = (
        ((z_1, z_2), student_fields()) if of_student else ((h_1, h_2), off_diagonal(h_1, h_2))
    )
    return sp.lambdify(fields, forms, "numpy", cse=True)


@cache
def _hermite() -> np.ndarray:
    """Orthonormal Hermite polynomials at the nodes, times the weights; shape ``(degree, node)``."""
    x, weight = gauss_hermite(NODES)
    rows = [np.ones_like(x), x]
    for n in range(2, DEGREE):
        rows.append((x * rows[-1] - np.sqrt(n - 1) * rows[-2]) / np.sqrt(n))
    return np.array(rows) * weight


@lru_cache(KEPT)
def _grid(of_student: bool, centre: float, spread: float) -> list[np.ndarray]:
    """Values of `TARGET` or `STUDENT` on the nodes."""
    x, _ = gauss_hermite(NODES)
    first = centre + spread * x[:, None]
    return [np.asarray(v) for v in _compiled(of_student)(first, -centre + spread * x[None, :])]


@lru_cache(KEPT)
def coefficients(
    powers: tuple[int, ...], of_student: bool, centre: float, spread: float
) -> np.ndarray:
    """Coefficients of a monomial in orthonormal Hermite polynomials of both fields."""
    values = np.ones((NODES, NODES))
    for value_, n in zip(_grid(of_student, centre, spread), powers, strict=True):
        if n:
            values = values * value_**n
    H = _hermite()
    return H @ values @ H.T


def value(
    target: tuple[int, ...],
    student: tuple[int, ...],
    orders: tuple[int, ...],
    q: float,
    m: float,
    theta: float,
    sigma: float,
) -> float:
    """Numerical value of `Mean` at one point; ``q > 0``.

    Raises
    ------
    TooWide
        If fields of the teacher or of the student are too wide for the nodes.
    """
    of_q, of_m, of_theta = orders
    spread = np.sqrt(q)
    for name, width in (("sigma", sigma), ("sqrt(q), sigma scale at the start,", spread)):
        if width > WIDEST:
            raise TooWide(
                f"{name} = {width:g}: must be at most {WIDEST:g}, Gaussian means over wider fields "
                "are not resolved"
            )
    s = coefficients(student, True, m, spread)
    for _ in range(of_m):
        s = (_raised(s, 1) - _raised(s.T, 1).T) / spread
    for _ in range(of_q):
        s = (_raised(s, 2) + _raised(s.T, 2).T) / (2 * q)
    if not any(target):  # no covariance enters
        return float(s[0, 0]) if not of_theta else 0.0
    n = min(len(s), DEGREE - 2 * of_q - of_m)
    t = coefficients(target, False, 0.0, sigma)
    factor, exponent = _slope_of_powers(n, of_theta)
    power = ((theta / (sigma * spread)) ** np.arange(2 * n))[exponent]
    return float((factor * power * t[:n, :n] * s[:n, :n]).sum() / (sigma * spread) ** of_theta)


@cache
def _slope_of_powers(n: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Factor and exponent of a derivative of ``x^(j + k)``, with j, k below n."""
    total = np.add.outer(np.arange(n), np.arange(n))
    return np.prod([np.ones((n, n)), *(total - k for k in range(order))], 0), np.maximum(
        total - order, 0
    )


def _raised(s: np.ndarray, steps: int) -> np.ndarray:
    """Coefficients of the derivative of that order with respect to the first field, by its
    spread.
    """
    out = np.zeros_like(s)
    np.multiply(_norms(len(s), steps), s[steps:], out=out[: len(s) - steps])
    return out


@cache
def _norms(n: int, steps: int) -> np.ndarray:
    """Of derivatives of orthonormal polynomials, as a column."""
    j = np.arange(n - steps)[:, None]
    return np.sqrt(j + 1.0) if steps == 1 else np.sqrt((j + 1.0) * (j + 2.0))
