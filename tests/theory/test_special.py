"""Array functions that several theories share,
against mpmath and by their definitions.
"""

import math
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import sympy as sp

from theory.call.refusal import ParameterError
from theory.numbers import numeric
from theory.symbols import special


@pytest.mark.parametrize("c", [-20.0, 0.3, 3.0, 40.0, 1e4, 1e300])
@pytest.mark.parametrize("n", [1.0, 7.0, 1e9])
def test_log_linear(c, n):
    """To rounding of what is subtracted, also where e^c, or n c, overflows: the Newton
    step that is left, in 60 digits, is the error.
    """
    with mpmath.workdps(60):
        y = mpmath.mpf(float(special.log_linear(c, n)))
        grown = mpmath.exp(y) / n
        left = (y + grown - c) / (1 + grown)
        # 4 roundings of y, or of the difference of c and the exponential that y may be.
        assert abs(left) <= 1e-15 * (abs(y) + min(abs(c), grown) / (1 + grown))


def test_gauss_nodes():
    """Exact for polynomials of degree 2 n - 1: moments of a Gaussian, powers on an
    interval.
    """
    x, w = special.gauss_hermite(4)
    np.testing.assert_allclose(
        [(w * x**k).sum() for k in (0, 2, 4, 6)], [1, 1, 3, 15], rtol=1e-13
    )
    x, w = special.gauss_legendre(4, -1, 3)
    np.testing.assert_allclose((w * x**7).sum(), (3**8 - 1) / 8, rtol=1e-13)


def test_first_crossing():
    """Between the steps; at the start where it is beyond already; never."""
    t = np.linspace(0, 2, 5)
    run = SimpleNamespace(
        t=t, y=np.array([t**2, 1 - t]), sol=lambda s: np.array([s**2, 1 - s])
    )
    assert special.first_crossing(run, 0, 2.0) == pytest.approx(math.sqrt(2), rel=1e-12)
    assert special.first_crossing(run, 1, 0.5) == 0
    assert special.first_crossing(run, 0, 5.0) == math.inf


@pytest.mark.parametrize("modules", ["numpy", "mpmath"])
def test_an_array_of_another_length_is_refused(modules):
    """A sum to 3 is not one over five numbers."""
    x, (n, last) = sp.IndexedBase("x"), sp.symbols("n last")
    total = numeric.function(sp.Sum(x[n] ** 2, (n, 1, last)), [x, last], modules)
    assert total([1.0, 2.0, 3.0], 3) == 14
    with pytest.raises(
        ParameterError, match="sum from 1 to last: has 3 terms, but the array 5"
    ):
        total([1.0, 2.0, 3.0, 4.0, 5.0], 3)


def test_binomial_coefficients():
    """Up to the largest that double precision has, C(1029, 514), to the rounding of
    logarithms up to 6000, 1e-12 each; one beyond is refused, also among others.
    """
    n, k = sp.symbols("n k")
    chosen = numeric.function(sp.binomial(n, k), (n, k))
    sizes = np.array([1, 170, 171, 1000, 1029])
    exact = [math.comb(int(size), int(size) // 2) for size in sizes]
    np.testing.assert_allclose(
        chosen(sizes, sizes // 2), np.array(exact, float), rtol=1e-11
    )
    for beyond in (1030, np.append(sizes, 1030)):
        with pytest.raises(ParameterError, match=r"^binomial\(1030, k\): too large"):
            chosen(beyond, beyond // 2)
