"""Gaussian data: variances by enumeration, and the law of fast attention against the flow of three
numbers.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from theory.induction_heads import gaussian
from theory.induction_heads.numbers import all_weights as times

DIMENSION = 4
# In units of 3^(1/2): mean 0, second moment 1, fourth 3, what a normal variable has, and more does
# not enter.
CHANCE = {-1: Fraction(1, 6), 0: Fraction(2, 3), 1: Fraction(1, 6)}
PRODUCTS = {
    "other": lambda v: sum(a * b for a, b in zip(v[:DIMENSION], v[DIMENSION:], strict=True)),
    "own": lambda v: sum(a**2 for a in v),
    "swapped": lambda v: sum(a * b for a, b in zip(v, v[2:] + v[:2], strict=True)),
}


@pytest.mark.parametrize(("name", "vectors"), [("other", 2), ("own", 1), ("swapped", 1)])
def test_variances_of_inner_products(name, vectors):
    """All values of all coordinates, exactly."""
    first = second = Fraction(0)
    for values in itertools.product(CHANCE, repeat=vectors * DIMENSION):
        chance = math.prod(CHANCE[v] for v in values)
        found = Fraction(3 * PRODUCTS[name](values), DIMENSION)
        first, second = first + chance * found, second + chance * found**2
    of = gaussian.equations()[f"gram_variance_{name}"].evaluate({"D": DIMENSION})
    assert float(second - first**2) == of


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
