"""Superposition: exact moments in two dimensions by integration, formulas on
independent roads, Zipf sums.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
import sympy as sp
from later import Later

from theory.associative_memory import superposition
from theory.associative_memory.superposition import (
    gaussian_recall,
    marginal_cdf,
    sphere_recall,
)
from theory.call.refusal import ParameterError

EQ = Later(superposition.equations)


@pytest.mark.parametrize(
    ("answers", "asked"), [((0, 1, 2), 0), ((0, 0, 1), 0), ((0, 1, 1), 0)]
)
def test_moments_in_the_plane(answers, asked):
    """Three keys in d = 2: averages over all angles (trigonometric polynomials, summed
    exactly) against the formulas.
    """
    weights = [sp.Rational(1), sp.Rational(2), sp.Rational(1, 2)]
    # Mean of cos^2 over a uniform angle, and of products of cosines of angle
    # differences: 5 angles suffice for degree 4.
    grid = [2 * sp.pi * q / 5 for q in range(5)]
    cosines = [[sp.cos(a - b) for b in grid] for a in grid]
    numeric = np.array(cosines, dtype=float)
    outputs = max(answers) + 1
    scores = {0: [], 1: []}
    for keys in itertools.product(range(5), repeat=3):
        for outs in itertools.product(range(5), repeat=outputs):
            for k in scores:
                scores[k].append(
                    sum(
                        float(w)
                        * numeric[outs[k], outs[f]]
                        * numeric[keys[asked], keys[x]]
                        for x, (w, f) in enumerate(zip(weights, answers, strict=True))
                    )
                )
    q = np.array(weights, dtype=float)
    sums = {k: float((q[np.array(answers) == k] ** 2).sum()) for k in (0, 1)}
    at = {
        "d": 2,
        "q_x": q[asked],
        "Q_all": float((q**2).sum()),
        "Q_y": sums[0],
        "Q_k": sums[1],
    }
    assert np.mean(scores[0]) == pytest.approx(q[asked], abs=1e-12)
    assert np.mean(scores[1]) == pytest.approx(0, abs=1e-12)
    assert np.var(scores[0]) == pytest.approx(
        EQ["score_variance_right"].evaluate(at), rel=1e-12
    )
    assert np.var(scores[1]) == pytest.approx(
        EQ["score_variance_wrong"].evaluate(at), rel=1e-12
    )


def test_squared_cosine():
    """1/d, also by the integral over the marginal at d = 5."""
    s = sp.Symbol("s")
    density = (1 - s**2) ** sp.Rational(2, 2)
    assert sp.integrate(s**2 * density, (s, -1, 1)) / sp.integrate(
        density, (s, -1, 1)
    ) == sp.Rational(1, 5)
    assert superposition.squared_cosine() == 1 / sp.Symbol(
        "d", integer=True, positive=True
    )


def test_parts_of_the_sphere_formula():
    """Leak plus rest carry 2/d + (N-1)/d^2: the exact variance up to 1/d^2."""
    N, d = 50, 20
    z = np.polynomial.hermite_e.hermegauss(20)
    rho2 = EQ["recalled_length"].evaluate(
        {"N": N, "d": d, "sigma_0": np.sqrt(N - 1) / d, "z_normal": z[0]}
    )
    total = 1 / d + (rho2 @ z[1]) / np.sqrt(2 * np.pi) / d
    exact = EQ["interference_wrong"].evaluate({"N": N, "d": d})
    assert total - exact == pytest.approx(1 / d**2, rel=1e-9)


def test_formulas_on_other_roads():
    """The Gaussian integral by adaptive quadrature at 16 digits; the sphere integral
    with twice the nodes.
    """
    N, d = 64, 32
    with mpmath.workdps(16):
        s0, s1 = (
            mpmath.sqrt(N - 1) / d,
            mpmath.sqrt(mpmath.mpf(N - 2) / d**2 + mpmath.mpf(2) / d),
        )
        gauss = mpmath.quad(
            lambda z: mpmath.npdf(z) * mpmath.ncdf((1 + s0 * z) / s1) ** (N - 1),
            mpmath.linspace(-9, 9, 4),
        )
    assert gaussian_recall(N, d) == pytest.approx(
        float(gauss), abs=1e-12
    )  # stated accuracy
    assert sphere_recall(N, d, 200) == pytest.approx(
        sphere_recall(N, d, 400), abs=1e-10
    )


def test_marginal_cdf():
    """d = 3 is uniform; odd symmetry; ends."""
    x = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(marginal_cdf(x, 3), (1 + x) / 2, atol=1e-14)
    np.testing.assert_allclose(
        marginal_cdf(x, 32) + marginal_cdf(-x, 32), 1, atol=1e-14
    )


TABLE = [
    (32, 64, 0.734, 0.783),
    (64, 256, 0.693, 0.736),
    (128, 1024, 0.638, 0.669),
    (128, 4096, 0.0488, 0.0447),
]


@pytest.mark.parametrize(("d", "N", "gauss", "tails"), TABLE)
def test_table_on_record(d, N, gauss, tails):
    """Values of both formulas computed by others, three digits."""
    assert gaussian_recall(N, d) == pytest.approx(gauss, abs=1e-3)
    assert sphere_recall(N, d) == pytest.approx(tails, abs=1.5e-3)


@pytest.mark.parametrize("b", [1.0, 2.0])
def test_zipf_sums(b):
    """Lost and unseen mass against sums over a million keys, for a = 2 and 3."""
    x = np.arange(1.0, 1e6 + 1)
    law = x ** -(1 + b)
    law /= law.sum()
    assert law[500:].sum() == pytest.approx(
        float(EQ["zipf_lost"].evaluate({"b_zipf": b, "P_stored": 500.0})), rel=3e-3
    )  # b/P
    for samples in (10_000, 40_000):
        unseen = (law * (1 - law) ** samples).sum()
        assert unseen == pytest.approx(
            float(EQ["zipf_unseen"].evaluate({"b_zipf": b, "T": samples})), rel=1e-3
        )  # keys beyond a million: 2e-4 of it at a = 2
    assert EQ["zipf_exponent"].rhs == -sp.Symbol("b_zipf", positive=True)


def test_bad_sizes_are_refused():
    """More outputs than keys."""
    with pytest.raises(ParameterError, match="M = 9: must be <= N = 8"):
        superposition.Parameters(N=8, M=9)
