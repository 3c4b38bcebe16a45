"""Gaussian data: variances by enumeration, and the law of fast attention against the flow of three
numbers.
"""

import itertools

import numpy as np
import pytest
import sympy as sp

from theory.induction_heads import gaussian
from theory.induction_heads.numbers import all_weights as times

DIMENSION = 2
# Mean 0, second moment 1, fourth 3: what a normal variable has, and more does not enter.
THREE_POINTS = {
    -sp.sqrt(3): sp.Rational(1, 6),
    sp.S.Zero: sp.Rational(2, 3),
    sp.sqrt(3): sp.Rational(1, 6),
}
PAIRS = {
    "other": lambda x, y: sum(a * b for a, b in zip(x, y, strict=True)),
    "own": lambda x, y: sum(a**2 for a in x),
    "swapped": lambda x, y: sum(a * b for a, b in zip(x, x[1:] + x[:1], strict=True)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_variances_of_inner_products(name):
    """All values of two vectors of two coordinates, exactly."""
    first = second = sp.S.Zero
    for values in itertools.product(THREE_POINTS, repeat=2 * DIMENSION):
        chance = sp.prod(THREE_POINTS[v] for v in values)
        found = PAIRS[name](values[:DIMENSION], values[DIMENSION:]) / DIMENSION
        first, second = first + chance * found, second + chance * found**2
    of = gaussian.equations()[f"gram_variance_{name}"].rhs
    assert sp.nsimplify(second - first**2) == of.subs(gaussian.D, DIMENSION)


TIMES = {"T_beta_gaussian": "T_beta", "T_drop_gaussian_last": "T_drop"}


def test_times_of_three_numbers():
    """Flow of three numbers at their two speeds; D / N^(1/2) to infinity by two values."""
    size, ratios = 512, []
    for pace in (64, 128):
        D = pace * size**0.5
        speed = {"alpha_3": D**2, "beta_2": D**2}
        found = times.times(size, "last", names=times.HEAD.values(), speed=speed, rtol=1e-5)
        values = {"N": size, "D": D, "theta": times.HALF}
        eq = gaussian.equations()
        ratios.append([found[m] / (D * float(eq[e].evaluate(values))) for e, m in TIMES.items()])
    near, far = np.array(ratios)
    assert 2 * far - near == pytest.approx(1, abs=5e-3)  # less than half of ln N / N, which is left
