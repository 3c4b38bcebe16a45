"""Gaussian data: variances by enumeration, and the law of fast attention against the
flow of three numbers and against sums in closed form.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import digamma, polygamma

from theory.induction_heads.all_weights import descent as times
from theory.induction_heads.all_weights import gaussian

DIMENSION = 4
# In units of 3^(1/2): mean 0, second moment 1, fourth 3, what a normal variable has,
# and more does not enter.
CHANCE = {-1: Fraction(1, 6), 0: Fraction(2, 3), 1: Fraction(1, 6)}
PRODUCTS = {
    "other": lambda v: sum(
        a * b for a, b in zip(v[:DIMENSION], v[DIMENSION:], strict=True)
    ),
    "own": lambda v: sum(a**2 for a in v),
    "swapped": lambda v: sum(a * b for a, b in zip(v, v[2:] + v[:2], strict=True)),
}


@pytest.mark.parametrize(
    ("name", "vectors"), [("other", 2), ("own", 1), ("swapped", 1)]
)
def test_variances_of_inner_products(name, vectors):
    """All values of all coordinates, exactly."""
    first = second = Fraction(0)
    for values in itertools.product(CHANCE, repeat=vectors * DIMENSION):
        chance = math.prod(CHANCE[v] for v in values)
        found = Fraction(3 * PRODUCTS[name](values), DIMENSION)
        first, second = first + chance * found, second + chance * found**2
    of = gaussian.equations()[f"gram_variance_{name}"].evaluate({"D": DIMENSION})
    assert float(second - first**2) == of


def test_times_of_three_numbers():
    """For the last pair at their two speeds; D / N^(1/2) to infinity by two values."""
    size, ratios, equations = 512, [], gaussian.equations()
    for pace in (64, 128):
        D = pace * size**0.5
        speed = {"alpha_3": D**2, "beta_2": D**2}
        found = times.times(
            size, "last", names=[*times.LEVELS.values()], speed=speed, rtol=1e-5
        )
        values = {"N": size, "D": D, "theta": times.HALF}
        ratios.append(
            [
                found[short]
                / (D * equations[f"{short}_gaussian_last"].evaluate(values))
                for short in ("T_beta", "T_drop")
            ]
        )
    near, far = np.array(ratios)
    assert 2 * far - near == pytest.approx(
        1, abs=5e-3
    )  # less than half of ln N / N, which is left


@pytest.mark.parametrize("query", times.QUERIES)
def test_the_loss_drops_after_attention(query):
    """D so large that attention takes less than 1% of the time, all weights: ln 2 / (4
    D).
    """
    N, D = 16, 1e5
    found = (
        times.times(N, query, speed=times.rates("gaussian", D)[0], rtol=1e-5)["T_drop"]
        / D
    )
    assert 4 * D * found == pytest.approx(math.log(2), rel=0.01)
    law = gaussian.equations()[f"T_drop_gaussian_{query}"].evaluate({"N": N, "D": D})
    assert found == pytest.approx(law, rel=0.003)  # of what attention takes, a part


def test_integral_of_a_uniform_query():
    """Sums over pairs in closed form at ln N = 100 and 200, no step of the derivation:
    with h = e/2 that of p is P = h (ln N - psi(h)), that of (k - 1) / (e + 2k - 2)^2 is
    P'(h) / 4.
    """

    def squared_time(log_size):
        def rates(beta, state):
            h = np.exp(state[0]) / 2
            P = h * (log_size - digamma(h))
            slope = P / h - h * polygamma(1, h)
            bend = -2 * polygamma(1, h) - h * polygamma(2, h)
            fall_beta = P + (log_size - digamma(1) + slope) / 4
            fall_alpha = h * (beta * slope - slope / 2 + beta * bend / 4)
            return [fall_alpha / fall_beta, 1 / fall_beta]

        return solve_ivp(rates, (0, 40), [0, 0], rtol=1e-9, atol=1e-12).y[1, -1]

    def ratio(log_size):
        N = float(np.exp(log_size))
        drop = gaussian.equations()["T_drop_gaussian_uniform"].evaluate(
            {"N": N, "D": 1}
        )
        return squared_time(log_size) * 2 * N**3 / (drop - np.log(2) / 4) ** 2

    # What is left is of the next order in 1 / ln N: 6e-5, of 2e-4 at 200. The law of
    # gamma_3 alone lies 1.8% from this one.
    assert 2 * ratio(200) - ratio(100) == pytest.approx(1, abs=1e-4)
