"""Exact algebra: what vanishes, factors, shortest forms and linear systems, against
numbers of mpmath, which know nothing of them.
"""

from __future__ import annotations

import time

import mpmath
import numpy as np
import pytest
import sympy as sp

from theory.symbols import fractions
from theory.symbols.algebra import vanishes, written_as
from theory.symbols.fractions import Field, shortest, vanishing_sum

x, y = sp.symbols("x y", real=True)
N, M = sp.symbols("N M", integer=True, positive=True)
a = sp.Symbol("a", positive=True)
z = sp.Symbol("z")
i, j = sp.symbols("i j", integer=True)
F, G = sp.Function("F"), sp.Function("G")
exp, log, sqrt = sp.exp, sp.log, sp.sqrt

ZERO = [
    exp(x * y + 2) - exp(2) * exp(x * y),
    1 / (1 + exp(-x)) - exp(x) / (1 + exp(x)),
    (exp(x) - 1) * (exp(x) + 1) - exp(2 * x) + 1,
    log((x**2 - 1) / (x - 1)) - log(x + 1),
    exp((x**2 - y**2) / (x - y)) - exp(x) * exp(y),
    # exponents whose denominators differ: x e / (1 + e) is x - x / (1 + e)
    exp(x * exp(y) / (1 + exp(y))) - exp(x) / exp(x / (1 + exp(y))),
    exp(exp(x) + exp(y)) - exp(exp(x)) * exp(exp(y)),
    sp.sin(x) ** 2 + sp.cos(x) ** 2 - 1,
    sp.sin(3 * x) - 3 * sp.sin(x) + 4 * sp.sin(x) ** 3,
    sp.tan(x + y) - (sp.tan(x) + sp.tan(y)) / (1 - sp.tan(x) * sp.tan(y)),
    sp.sec(x) ** 2 - sp.tan(x) ** 2 - 1,
    sp.tanh(x) - (exp(2 * x) - 1) / (exp(2 * x) + 1),
    exp(sp.I * x) - sp.cos(x) - sp.I * sp.sin(x),
    sqrt(a + 1) ** 3 - (a + 1) * sqrt(a + 1),
    1 / (1 + sqrt(2)) - sqrt(2) + 1,
    sqrt(6) - sqrt(2) * sqrt(3),
    sqrt(12 * a) - 2 * sqrt(3) * sqrt(a),
    sqrt(N * (N + M)) - sqrt(N) * sqrt(N + M),
    a ** sp.Rational(1, 3) * a ** sp.Rational(1, 6) - sqrt(a),
    log(12 * a) - log(a) - 2 * log(2) - log(3),
    log(N * exp(x)) - log(N) - x,
    4**N - 2**N * 2**N,
    (1 - a) ** (N + 1) - (1 - a) * (1 - a) ** N,
    F((x**2 - 1) / (x - 1)) - F(x + 1),
    F(x) * G(y) - G(y) * F(x * y / y),
    sp.Sum(a * F(i) + y, (i, 1, N)) - a * sp.Sum(F(j), (j, 1, N)) - N * y,
    sp.Integral(a * F(x), (x, 0, 1)) - a * sp.Integral(F(y), (y, 0, 1)),
    sp.harmonic(N) - sp.harmonic(N - 1) - 1 / N,
]
NOT_ZERO = [
    exp(x + 1) - exp(x),
    exp(x / N + 2) - exp(x / N),
    exp(1 / (N + x) + 1) - exp(1 / (N + x)),
    exp(2 * x) - exp(x),
    exp(-x) - exp(x),
    exp(exp(x) + 1) - exp(exp(x)),
    exp(2) - 1,
    exp(x * exp(y) / (1 + exp(y))) - exp(x) / exp(2 * x / (1 + exp(y))),
    log(2 * x) - log(x),
    sqrt(log(exp(x) - 1) ** 2) - log(exp(x) - 1),
    sqrt(x**2) - x,
    sqrt(z**2) - z,
    sqrt(z) * sqrt(z + 1) - sqrt(z * (z + 1)),
    log(z) + log(z + 1) - log(z * (z + 1)),
    sp.sin(x) ** 2 - sp.cos(x) ** 2,
    sp.cos(x) - sp.sin(x),
    sqrt(3) - sqrt(2),
    F(x) - F(y),
    F(x) - G(x),
    sp.Sum(F(i), (i, 1, N)) - sp.Sum(F(i), (i, 1, N + 1)),
    sp.Sum(i * F(i), (i, 1, N)) - sp.Sum(F(i), (i, 1, N)),
    3**N - 2**N,
]


@pytest.mark.parametrize("expr", ZERO, ids=str)
def test_what_vanishes(expr):
    """Identities; the same with a small fault do not hold."""
    assert vanishes(expr)
    for fault in (sp.Rational(1, 10**9), a / 10**9, exp(x) / 10**9):
        assert not vanishes(expr + fault)


@pytest.mark.parametrize("expr", NOT_ZERO, ids=str)
def test_what_does_not_vanish(expr):
    """Differences of a constant, an argument, a sign, or a branch of a root."""
    assert not vanishes(expr)


def test_what_is_no_fraction():
    """Nothing is proved of rounded and infinite numbers."""
    for expr in (sp.Float(0.1) + x, sp.oo * x, 1 / (exp(x) * exp(-x / 2) ** 2 - 1)):
        assert not vanishes(expr)
        with pytest.raises(fractions.NotRational):
            Field(expr).fraction(expr)
    with pytest.raises(ArithmeticError, match="is not the derived"):
        written_as(x + 1, x + sp.Rational(10**9 + 1, 10**9))


LEAVES = [
    x,
    y,
    N,
    a,
    exp(x),
    exp(-y / 2),
    exp(x / (1 + exp(y))),
    exp(x * exp(y) / (1 + exp(y))),
    log(1 + a),
    sqrt(a),
    sqrt(2 + N),
    sp.cos(x),
]


def random_expression(rng, depth):
    """Sums, products, quotients and powers of random leaves."""
    if depth == 0:
        return int(rng.integers(1, 4)) * LEAVES[rng.integers(len(LEAVES))]
    left = random_expression(rng, depth - 1)
    right = random_expression(rng, depth - 1)
    kind = rng.integers(4)
    if kind == 0:
        return left + right
    if kind == 1:
        return left * right - 1
    if kind == 2:
        return left / (right + int(rng.integers(2, 5)))
    return (left - right) ** 2


def number(expr, rng):
    """An expression at a random point, with 60 digits."""
    values = {
        x: rng.normal(),
        y: rng.normal(),
        N: int(rng.integers(2, 9)),
        M: int(rng.integers(2, 9)),
        a: rng.uniform(0.2, 2),
    }
    of = sp.lambdify([*values], expr, "mpmath")
    with mpmath.workdps(60):
        return of(*map(mpmath.mpf, values.values()))


@pytest.mark.parametrize("seed", range(20))
def test_random_fractions(seed):
    """The written forms have the numbers of what they are made from, and a form with
    one of its numbers changed has others.
    """
    rng = np.random.default_rng(seed)
    expr = random_expression(rng, 3)
    field = Field(expr)
    value = field.fraction(expr)
    forms = [field.factored(value), field.over_one_denominator(value), shortest(expr)]
    for form in forms:
        assert vanishes(form - expr)
        for point in range(3):
            state = 1000 * seed + point
            first = number(expr, np.random.default_rng(state))
            second = number(form, np.random.default_rng(state))
            assert abs(first - second) < mpmath.mpf(10) ** -30 * (1 + abs(first))
    changed = expr.xreplace({x: x * sp.Rational(11, 10), N: N + 1, a: a + 1})
    numbers = [number(e, np.random.default_rng(seed)) for e in (expr, changed)]
    same = abs(numbers[0] - numbers[1]) < 1e-30
    assert vanishes(expr - changed) is bool(same)


def test_solutions_of_linear_systems():
    """Factors that do not depend on what moves, and none where there are none."""
    rates = [exp(x) * N / (1 + N), exp(x), x]
    one, share, nothing = vanishing_sum(rates, {x})
    assert (one, nothing) == (1, 0)
    assert vanishes(share + N / (1 + N))
    assert vanishing_sum([exp(x), exp(2 * x)], {x}) is None
    assert vanishing_sum([exp(x), exp(2 * x)], {y}) == [1, -exp(-x)]
    dependent = [x + y, x, y, x - y]
    total = vanishing_sum(dependent, {x, y})
    assert vanishes(sum(c * e for c, e in zip(total, dependent, strict=True)))
    assert vanishing_sum([sp.Float(0.5), x], {x}) is None


def test_shortest_forms():
    """In factors where that is shorter, as it was where it is not."""
    softmax = exp(x) / (exp(x) + N - 1)
    loss = (1 - softmax) ** 2 + (N - 1) * (1 / (exp(x) + N - 1)) ** 2
    assert shortest(loss) == N * (N - 1) / (exp(x) + N - 1) ** 2
    product = (x + 1) ** 5 * (y - 2)
    assert shortest(product) == product
    short = 1 / x + 1 / y + 1 / N
    assert shortest(short) == short
    assert shortest(loss, sp.S.One) == 1


def test_long_expressions_are_given_up_in_time():
    """A power of a long sum is not multiplied out, and nothing waits for it."""
    many = sp.symbols("v:30")
    long = sp.Add(*many) ** 40 - sp.Add(*many[:15]) ** 41
    started = time.process_time()
    assert not vanishes(long)
    assert shortest(long) == long
    assert time.process_time() - started < 10
    with pytest.raises(fractions.NotRational):
        Field(long).fraction(long)


def test_a_common_bottom_is_the_least_one():
    """Of equal ones it is one of them, however many there are."""
    same = [x**k / (1 + exp(x) + y) for k in range(12)]
    field = Field(*same, 1 / (1 + exp(x) + y) ** 2)
    once = [field.fraction(e) for e in same]
    twice = field.fraction(1 / (1 + exp(x) + y) ** 2)
    assert field._ring.common_bottom(once) == once[0].bottom
    assert field._ring.common_bottom([*once, twice]) == once[0].bottom ** 2


def test_relations_between_many_exponents_are_not_looked_for():
    """What would need them is not shown to be zero, which it is; less of it is."""

    def shifted(count):
        symbols = sp.symbols(f"V:{count}", real=True)
        shares = [v / (1 + exp(x)) for v in symbols]
        return sp.Mul(*map(exp, shares)) - exp(sp.Add(*shares))

    most = fractions.MOST_EXPONENTS
    assert vanishes(shifted(most // 2))
    assert not vanishes(shifted(most + 2))
