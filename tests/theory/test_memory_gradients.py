"""Gradients as memories: the forms on the slides, limits, and the printed constant that
is off for K < N.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp
from later import Later

from theory.associative_memory import gradient_memory
from theory.associative_memory.gradient_memory import Parameters, equations, margin
from theory.associative_memory.symbols import (
    K,
    N,
    e,
    eta,
    i,
    j,
    k,
    m,
    p,
    p_hat,
    t,
    u,
    v,
    z,
)

EQ = Later(equations)


def test_lemma_as_printed():
    """Slides: sum over k of E_z[(p_hat(k|z) - p(k|z)) u_k e_z^T], entry by entry."""
    total = EQ["gradient_lemma"].rhs
    (weight,) = {x.base for x in total.function.atoms(sp.Indexed)} - {p, p_hat, e, u}
    printed = weight[z] * (p_hat[k, z] - p[k, z]) * u[k, i] * e[z, j]
    assert sp.expand(total.function - printed) == 0
    assert EQ["gradient_inner"].rhs == v[i] * e[z, j]


def test_sums_run_over_all_classes():
    """And over all keys, from the first to the last."""
    assert set(EQ["gradient_lemma"].rhs.limits) == {(k, 1, K), (z, 1, N)}
    assert EQ["gradient_noisy"].rhs.limits == ((k, 1, K),)


def test_one_step_as_printed_for_a_bijection():
    """Slides: eta/N (1{f(z) = k} - 1/N), the constant read with K = N; for K < N it is
    1/K.
    """
    for name, hit in (("step_right", 1), ("step_wrong", 0)):
        assert sp.simplify(EQ[name].rhs.subs(K, N) - eta / N * (hit - 1 / N)) == 0
        assert sp.simplify(EQ[name].rhs - eta / N * (hit - 1 / K)) == 0
    assert EQ["step_margin"].rhs == eta / N


def test_margin_solves_its_flow():
    """Symbolically: the derivative of the closed form is the flow's rate at it."""
    closed = EQ["margin_flow"].rhs
    rate = gradient_memory.flow().rhs[m].subs(m, closed)
    at = {N: 7, K: 4, t: sp.Rational(31, 10)}
    assert abs((sp.diff(closed, t) - rate).subs(at).evalf(40)) < 1e-38
    assert abs(closed.subs({N: 7, K: 4, t: 0}).evalf(40)) < 1e-38


@pytest.mark.parametrize("time", [0.0, 1e-6, 1.0, 1e3, 1e7])
def test_margin_against_mpmath_and_the_integrator(time):
    """Wright's omega against a root at 40 digits;
    the flow where it can be integrated.
    """
    with mpmath.workdps(40):
        c = 1 + mpmath.mpf(6) / 9 * mpmath.mpf(time)
        exact = mpmath.findroot(
            lambda q: mpmath.exp(q) + 5 * q - c,
            (0, mpmath.log(c) + 1),
            solver="anderson",
            tol=1e-60,
        )
    assert margin(Parameters(N=9, K=6), time) == pytest.approx(
        float(exact), rel=1e-13, abs=1e-15
    )  # rounding
    if 0 < time < 1e4:
        curve = gradient_memory.flow().solve(Parameters(N=9, K=6), t=time, at=[time])
        assert float(curve.m[0]) == pytest.approx(
            float(exact), rel=1e-9, abs=1e-12
        )  # integrator tolerance


def test_early_and_late():
    """Margin t/N at first (all K) and ln(K t / N) at last."""
    for size, classes in ((8, 8), (32, 4)):
        assert margin(Parameters(N=size, K=classes), 1e-4) == pytest.approx(
            1e-4 / size, rel=1e-4
        )  # next order: t/N
        late = margin(Parameters(N=size, K=classes), 1e30)
        assert late == pytest.approx(
            np.log(classes * 1e30 / size), rel=1e-10
        )  # (K - 1) m e^-m
    assert float(EQ["margin_flow"].lambdify(N, K, t)(9, 6, 10.0)) == pytest.approx(
        float(margin(Parameters(N=9, K=6), 10.0)), rel=1e-14
    )


def test_bad_sizes_are_refused():
    """More classes than keys."""
    with pytest.raises(ValueError, match="K = 9: must be <= N = 8"):
        Parameters(N=8, K=9)
