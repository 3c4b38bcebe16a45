"""Overlaps of hidden units against formulas for soft committees, quadrature, and all
weights.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.special
import sympy as sp

from theory.call.refusal import ParameterError
from theory.statement.overlaps import Overlaps, mean_product

ROUNDING = 1e-12
ACTIVATIONS = {
    "linear": lambda x: x,
    "quadratic": lambda x: x**2,
    "erf": lambda x: scipy.special.erf(x / np.sqrt(2)),
    "relu": lambda x: np.maximum(x, 0),
}


def random_overlaps(units, seed=0):
    """Gram matrix of random vectors in three dimensions more than units."""
    vectors = np.random.default_rng(seed).normal(size=(units, units + 3)) / 2
    return vectors @ vectors.T


def numbers(made, gram):
    """Values of all overlap symbols; students first."""
    K, M = made.hidden, made.teachers
    found = {made.Q(k + 1, l + 1): gram[k, l] for k in range(K) for l in range(K)}
    found |= {made.R(k + 1, m + 1): gram[k, K + m] for k in range(K) for m in range(M)}
    return found | {
        made.T(m + 1, n + 1): gram[K + m, K + n] for m in range(M) for n in range(M)
    }


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_averages(activation):
    """Means of products against quadrature: smooth ones by Hermite nodes, the kink by
    angle.
    """
    u, v, uv = 0.8, 1.3, 0.4
    g = ACTIVATIONS[activation]
    angle = np.linspace(0, 2 * np.pi, 200_001)[:-1]
    radius, mass = np.polynomial.legendre.leggauss(200)
    radius, mass = (
        5 * (radius + 1),
        5 * mass,
    )  # Gaussian tails beyond 10 are below 1e-20
    mass = mass * radius * np.exp(-(radius**2) / 2) / angle.size
    x = np.sqrt(u) * np.cos(angle)[:, None]
    y = (uv / np.sqrt(u) * np.cos(angle) + np.sqrt(v - uv**2 / u) * np.sin(angle))[
        :, None
    ]
    mean = sum(
        (m * g(r * x) * g(r * y)).sum()
        for r, m in zip(radius[::1], mass[::1], strict=True)
    )
    assert float(mean_product(activation, u, v, uv)) == pytest.approx(mean, rel=1e-9)


def test_soft_committee():
    """All seven rates of two erf units and two teachers against the three-point
    averages.
    """
    made = Overlaps(2, 2)
    gram = random_overlaps(4)
    values = numbers(made, gram)
    rates = {
        x: float(r.subs(values))
        for x, r in made.rates(made.squared_loss("erf")).items()
    }
    assert len(rates) == 7

    def three(i, n, j):
        """Mean of g'(x_i) x_n g(x_j)."""
        scale = (1 + gram[i, i]) * (1 + gram[j, j]) - gram[i, j] ** 2
        top = gram[n, j] * (1 + gram[i, i]) - gram[i, n] * gram[i, j]
        return 2 / np.pi / np.sqrt(scale) * top / (1 + gram[i, i])

    def pull(i, n):
        return sum(three(i, n, 2 + m) for m in range(2)) - sum(
            three(i, n, j) for j in range(2)
        )

    for k, m in itertools.product(range(2), repeat=2):
        assert rates[made.R(k + 1, m + 1)] == pytest.approx(
            pull(k, 2 + m), rel=ROUNDING
        )
    for k, l in ((0, 0), (0, 1), (1, 1)):
        wanted = pull(k, l) + pull(l, k)
        assert rates[made.Q(k + 1, l + 1)] == pytest.approx(wanted, rel=ROUNDING)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rates_are_those_of_all_weights(activation):
    """Overlaps of the numerical gradient with respect to every entry of every unit."""
    made = Overlaps(2, 1)
    a = sp.Symbol("a", real=True)
    loss = made.squared_loss(activation, student={1: a})
    of = sp.lambdify([*made.state, made.T(1, 1), a], loss, "numpy")
    vectors = np.random.default_rng(1).normal(size=(3, 5)) / 2

    def value(w):
        gram = np.vstack([w, vectors[2:]]) @ np.vstack([w, vectors[2:]]).T
        values = numbers(made, gram)
        return of(*(values[x] for x in made.state), values[made.T(1, 1)], 0.7)

    slope, step = np.zeros((2, 5)), 1e-5
    for at in np.ndindex(2, 5):
        up, down = vectors[:2].copy(), vectors[:2].copy()
        up[at] += step
        down[at] -= step
        slope[at] = (value(up) - value(down)) / (2 * step)
    moved = -slope @ vectors.T  # of every student unit along all units
    values = numbers(made, vectors @ vectors.T) | {a: 0.7}
    rates = {x: float(r.subs(values)) for x, r in made.rates(loss).items()}
    for k in range(2):  # central differences leave 1e-9
        assert rates[made.R(k + 1, 1)] == pytest.approx(moved[k, 2], rel=1e-6, abs=1e-8)
        for l in range(k, 2):
            wanted = moved[k, l] + moved[l, k]
            assert rates[made.Q(k + 1, l + 1)] == pytest.approx(
                wanted, rel=1e-6, abs=1e-8
            )


def test_flow_learns_and_refuses():
    """A student of one unit finds its teacher; a missing start and a strange word are
    refused.
    """
    made = Overlaps(1, 1)
    start = {made.Q(1, 1): 0.2, made.R(1, 1): 0.1}
    flow = made.flow("one unit", made.squared_loss("erf"), start)
    end = flow.solve({"T_11": 1.0}, t=400.0).isel(t=-1)
    assert float(end.loss) < 1e-9 and float(end.R_11) == pytest.approx(1, abs=1e-4)
    assert flow.status == "exact"
    with pytest.raises(ParameterError, match="R_11 has no start"):
        made.flow("one unit", made.squared_loss("erf"), {made.Q(1, 1): 0.2})
    with pytest.raises(ParameterError, match="activation = 'tanh'"):
        made.squared_loss("tanh")
