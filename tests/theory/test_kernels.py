"""Functions of the machine code of per-seed theory against the libraries'."""

import numpy as np
from numba import njit
from scipy.special import ndtr

from theory.state_tracking.numbers.per_seed import kernels


def over(function):
    """The compiled function over an array."""

    @njit(**{**kernels.HOW, "cache": False})
    def applied(x):
        out = np.empty_like(x)
        for k in range(len(x)):
            out[k] = function(x[k])
        return out

    return applied


def test_exponential():
    """To rounding of the exponent, 1e-16 times the argument's size; NaN stays."""
    x = np.linspace(-600, 600, 20011)
    np.testing.assert_allclose(over(kernels._exp)(x), np.exp(x), rtol=2e-13)
    x = np.linspace(-30, 30, 20011)
    np.testing.assert_allclose(over(kernels._exp)(x), np.exp(x), rtol=1e-14)
    assert np.isnan(over(kernels._exp)(np.array([np.nan])))[0]
    assert over(kernels._exp)(np.array([-1e6]))[0] < 1e-300


def test_normal_probability():
    """The tail, at most 1/2, to the 5e-15 that the polynomial claims; beyond `FAR` 0 or 1."""
    x = np.concatenate([np.linspace(-12, 12, 20011), [-1e9, 1e9]])
    np.testing.assert_allclose(over(kernels._normal)(x), ndtr(x), rtol=0, atol=2.5e-15)
    assert ndtr(-kernels.FAR) < 1e-18


def test_softmax_and_its_normaliser():
    """Rows sum to one; logits that only diverging descent has give NaN."""
    z = np.random.default_rng(0).normal(size=(5, 7)) * 9
    p = z.copy()
    normaliser = kernels._softmax(p)
    np.testing.assert_allclose(p, np.exp(z - normaliser[:, None]), rtol=1e-13)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-14)
    for far in (1e3, -1e3, np.inf, np.nan):
        p = np.full((1, 4), far)
        kernels._softmax(p)
        assert np.isnan(p).all()
