"""Errata of the paper: the toolkit has the corrected statements and mentions the
corrections.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import sympy as sp
from later import Later

from theory import state_tracking
from theory.state_tracking import attention as att
from theory.state_tracking.model.symbols import (
    W_K2,
    W_Q2,
    L,
    N,
    accuracy,
    alpha,
    c_omega,
    d_g,
    d_h,
    eta,
    sigma2,
    tau,
)

EQUATIONS = Later(state_tracking.equations)


def test_onset_time_scale():
    """After T_alpha, (81) has grown by e; after the printed sqrt(2/(c_omega eta)), by
    e^eta.
    """
    form = EQUATIONS["onset_time_scale"].rhs
    growth = EQUATIONS["onset_A"].rhs * L
    assert sp.simplify(form - sp.sqrt(2 / c_omega) / eta) == 0
    assert sp.simplify(growth.subs(alpha, form) - sp.E) == 0
    printed = sp.sqrt(2 / (c_omega * eta))
    assert sp.simplify(growth.subs(alpha, printed) - sp.exp(eta)) == 0
    assert "corrected" in EQUATIONS["onset_time_scale"].reference


def test_linear_growth_carries_the_learning_rate():
    """After (79): R - S = eta alpha / L for large N, not alpha / L."""
    rate = EQUATIONS["onset_difference"].rhs
    x = sp.Symbol("x", positive=True)
    assert sp.limit(rate.subs(N, x), x, sp.oo) == eta / L


def test_norms_average_to_a_trace():
    """(72): the average of X X^T enters, a matrix; summing over all sign vectors
    (variance 1) shows it.
    """
    form = EQUATIONS["c_ansatz"].rhs.subs(d_h, 4).doit()
    total, count = sp.S.Zero, 0
    for key in itertools.product((-1, 1), repeat=4):
        norms = {W_K2[x]: sum(v**2 for v in key[2 * x - 2 : 2 * x]) for x in (1, 2)}
        total += form.subs(norms)
        count += 1
    # Queries are drawn like keys, and every term is linear in either.
    mean = (total / count).subs({W_Q2[x]: 2 for x in (1, 2)})
    lam = {att.lambda_[x]: EQUATIONS["lambda"].rhs.subs(att.w, x) for x in (1, 2)}
    constant = EQUATIONS["c_omega"].rhs.subs(d_h, 4).doit().rewrite(sp.sin)
    constant = constant.subs({att.omega[x]: x for x in (1, 2)})
    expected = EQUATIONS["c_ansatz_mean"].rhs.subs(c_omega, constant).subs(sigma2, 1)
    assert sp.simplify(mean.subs(lam) - expected) == 0
    # With the number X^T X, 4 for sign vectors, in each of the d_h entries of the trace
    # it would be d_h times as large.
    literal = form.subs({norm[x]: 2 * 4 for norm in (W_K2, W_Q2) for x in (1, 2)}).subs(
        lam
    )
    assert sp.simplify(literal - 4 * expected) == 0


def test_rollout_is_regular_at_perfect_accuracy():
    """(87) has no singularity at accuracy 1: plain substitution gives 1; guessing gives
    1/N.
    """
    form = EQUATIONS["rollout_mean"].rhs
    assert sp.simplify(form.subs(accuracy, 1)) == 1
    assert sp.simplify(form.subs(accuracy, 1 / N) - 1 / N) == 0
    assert sp.simplify(sp.diff(form, accuracy).subs(accuracy, 1)) == L


def test_both_teacher_overlaps():
    """Independent draws overlap by exactly 1/N, distinct ones by less; with 1/N, (54),
    (56) give (59).
    """
    iid, distinct = EQUATIONS["tau_bar_iid"].rhs, EQUATIONS["tau_bar_distinct"].rhs
    assert iid == 1 / N
    for size in range(2, 8):
        gap = (iid - distinct).subs(N, size)
        assert gap == sp.Rational(size - 1, size * (sp.factorial(size) - 1)) > 0
    spelled = {x: EQUATIONS[x].rhs for x in ("c_R", "c_S")}
    for name in ("delta_R", "delta_S"):
        update = EQUATIONS[name].rhs.subs(
            {sp.Symbol(k, real=True): v for k, v in spelled.items()}
        )
        mean = EQUATIONS[f"{name}_mean"].rhs
        assert sp.simplify(update.subs(tau, iid) - mean) == 0
        # (59) is exact for independent draws only: for the distinct ones of (77) a
        # remainder stays.
        assert (
            sp.simplify((update.subs(tau, distinct) - mean).subs({N: 3, d_g: 3})) != 0
        )


@pytest.fixture(scope="module")
def large():
    """Sizes so large that only the limit shows."""
    size, length = 10**5, 3 * 10**4
    numbers = {
        "N": size,
        "d_g": size,
        "L": length,
        "eta": 0.5,
        "c_omega": 2.0,
        "zeta": 0.0,
        "A_0": 1 / length,
        "R_0": 0.0,
        "S_0": 0.0,
    }
    return SimpleNamespace(values=lambda: numbers)


def test_onset_formula_is_the_small_time_expansion_only(large):
    """At alpha = O(1) the large-size limit of A L is sec^2(eta sqrt(c_omega/2) alpha),
    not (81).
    """
    times = np.array([0.02, 0.5, 2.0])
    curve = state_tracking.flow().solve(large, alpha=2.0, at=times)
    grown = curve.A.values * large.values()["L"]
    limit = 1 / np.cos(0.5 * times) ** 2
    printed = (
        EQUATIONS["onset_A"].evaluate(large.values() | {"alpha": times})
        * large.values()["L"]
    )
    # The limit is corrected at relative order 1/L (A itself, once it has grown) and
    # 1/N: below 3e-4.
    np.testing.assert_allclose(grown, limit, rtol=3e-4)
    assert printed[-1] == pytest.approx(np.e, rel=1e-12)  # rounding of exp
    assert grown[-1] / printed[-1] > 1.25
    # They part at alpha^4, by c_omega^2 eta^4 alpha^4/24 = 1.7e-9 here; the sizes add
    # 3e-5 of alpha^2/4.
    assert abs(grown[0] - printed[0]) < 2e-8
