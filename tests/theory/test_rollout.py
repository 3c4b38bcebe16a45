"""Accuracies: the Gaussian maximum integral at high precision, the rollout chain, the
initial variance.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory import state_tracking
from theory.call.refusal import ParameterError
from theory.state_tracking import Parameters, gaussian_accuracy
from theory.state_tracking import rollout as written
from theory.state_tracking.model.mean_field import participation
from theory.state_tracking.model.symbols import L, t
from theory.state_tracking.rollout import rollout

SIZES, RATIOS, GAPS = (
    (2, 3, 16, 32, 1000, 10000),
    (0.1, 0.5, 1.0, 3.0, 10.0),
    (-1.0, 0.0, 0.5, 2.0, 6.0),
)


def by_quadrature(gap, ratio, size):
    """(91) with sigma_kbar = 1, in panels fine enough for the density and for the step
    of Phi^(N-1).
    """
    density = [mpmath.mpf(v) for v in np.arange(-9, 9.01, 1.0)]
    step = [(mpmath.mpf(v) - gap) / ratio for v in np.arange(-9, 9.01, 0.5)]
    panels = sorted(v for v in {*density, *step} if -9 <= v <= 9)

    def integrand(u):
        return mpmath.npdf(u) * mpmath.ncdf(ratio * u + gap) ** (size - 1)

    return mpmath.quad(integrand, panels, method="gauss-legendre", maxdegree=3)


@pytest.mark.parametrize(
    ("ratio", "size"),
    [
        (
            (r, n)
            if (r, n) in ((1.0, 2), (3.0, 32))
            else pytest.param(r, n, marks=pytest.mark.slow)
        )
        for r in RATIOS
        for n in SIZES
    ],
)
def test_gaussian_accuracy_against_quadrature(size, ratio):
    """Every gap, at two scales of sigma_kbar."""
    gaps = np.array(GAPS)
    found = gaussian_accuracy(gaps, ratio, 1.0, size)
    scaled = gaussian_accuracy(0.21 * gaps, 0.21 * ratio, 0.21, size)
    with mpmath.workdps(30):
        exact = [
            float(by_quadrature(mpmath.mpf(gap), mpmath.mpf(ratio), size))
            for gap in GAPS
        ]
    # The documented bound is 1e-12; the reference, 12 points in each panel, is better
    # than that.
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-12)
    np.testing.assert_allclose(scaled, exact, rtol=0, atol=2e-12)


@pytest.mark.parametrize(
    ("ratio", "known"), [(1.0, 0.0376323862020), (3.0, 0.269618739908)]
)
def test_gaussian_accuracy_on_record(ratio, known):
    """N = 10^4, gap 2 sigma_kbar."""
    found = gaussian_accuracy(2.0, ratio, 1.0, 10**4)
    assert found == pytest.approx(known, abs=1e-12)  # twelve digits are on record


@pytest.mark.parametrize("size", SIZES)
def test_all_logits_alike(size):
    """Gap 0 and equal deviations: every logit is the largest with probability 1/N."""
    assert gaussian_accuracy(0.0, 0.3, 0.3, size) == pytest.approx(
        1 / size, rel=1e-12
    )  # quadrature


def test_two_logits_in_closed_form():
    """N = 2: the difference is Gaussian, so the accuracy is Phi(gap / sqrt(sigma_k^2 +
    sigma_kbar^2)).
    """
    gaps, deviations = np.linspace(-3, 3, 13), np.array([[0.2], [1.0], [4.0]])
    exact = [
        [float(mpmath.ncdf(gap / mpmath.hypot(s, 0.7))) for gap in gaps]
        for s in deviations[:, 0]
    ]
    np.testing.assert_allclose(
        gaussian_accuracy(gaps, deviations, 0.7, 2), exact, atol=1e-13
    )  # rounding


positive = st.floats(0.1, 10)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(gap=st.floats(-50, 100), s_k=positive, s_o=positive, size=st.integers(2, 10**4))
def test_accuracy_is_a_probability(gap, s_k, s_o, size):
    """Never outside [0, 1], not even by rounding: 1 - p may go under a square root
    next.
    """
    assert 0 <= gaussian_accuracy(gap, s_k, s_o, size) <= 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    gap=st.floats(-10, 20),
    more=st.floats(1e-3, 5),
    ratio=st.floats(0.1, 10),
    size=st.integers(2, 10**4),
)
def test_accuracy_grows_with_the_gap(gap, more, ratio, size):
    """Monotone up to rounding, and strictly where it is not saturated."""
    low, high = gaussian_accuracy([gap, gap + more], ratio, 1.0, size)
    assert high >= low - 4e-16 * max(1.0, high)  # last digit
    if 1e-6 < low < 1 - 1e-6:
        assert high > low


DEVIATIONS = [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, np.nan), ([1.0, 0.0], 1.0)]


@pytest.mark.parametrize("deviations", DEVIATIONS, ids=str)
def test_deviations_must_be_positive(deviations):
    """Also one bad entry of an array."""
    with pytest.raises(ParameterError, match=r"^sigma_k(bar)? = \S+: must be .*> 0$"):
        gaussian_accuracy(1.0, *deviations, 8)


def markov(accuracies, size, recovery=None):
    """Probability of the right state (index 0) after each step, by explicit transition
    matrices.

    From a wrong state the right one is reached with probability (1 - A)/(N - 1), as
    (86) has it, unless others are given.
    """
    chain, reached = np.eye(size)[0], []
    recovery = (1 - accuracies) / (size - 1) if recovery is None else recovery
    for right, wrong in zip(accuracies, recovery, strict=True):
        step = np.full((size, size), (1 - wrong) / (size - 1))
        step[:, 0] = wrong
        step[0] = (1 - right) / (size - 1)
        step[0, 0] = right
        chain = chain @ step
        assert chain.sum() == pytest.approx(
            1, abs=1e-14
        )  # a distribution, up to rounding
        reached.append(chain[0])
    return np.array(reached)


@pytest.mark.parametrize("size", [2, 3, 24])
def test_rollout_against_a_markov_chain(size):
    """Position-dependent accuracies, several batches at once."""
    accuracies = np.random.default_rng(size).uniform(1 / size, 1, (4, 10))
    found = rollout(accuracies, size)
    assert found.shape == (4, 10)
    for row, chain in zip(found, accuracies, strict=True):
        np.testing.assert_allclose(
            row, markov(chain, size), rtol=1e-13
        )  # rounding of ten steps


def test_any_recovery_against_a_markov_chain():
    """The recursion (16), (84) and (85), with chances of recovery drawn apart from
    accuracies.
    """
    right, wrong = np.random.default_rng(0).uniform(size=(2, 5))
    exact, eq, rho = markov(right, 4, wrong), state_tracking.equations(), 1.0
    step, known = eq["rollout_recursion"].rhs, {}
    for k in range(5):
        known |= {written.right[k]: right[k], written.wrong[k]: wrong[k]}
    for k, reached in enumerate(exact):
        rho = float(step.subs(written.rho_t[t], rho).subs(t, k).subs(known))
        assert rho == pytest.approx(reached, rel=1e-13)  # rounding of five steps
    closed = eq["rollout_closed"].rhs.subs(L, 5).doit().subs(known)
    assert float(closed) == pytest.approx(exact[-1], rel=1e-13)


@pytest.mark.parametrize("size", [2, 32])
@pytest.mark.parametrize("length", [1, 2, 10])
def test_rollout_with_equal_accuracies(size, length):
    """(18)/(87), and the closed form (85)."""
    for accuracy in (1 / size, 0.4, 0.97, 1.0):
        found = rollout(np.full(length, accuracy), size)[-1]
        form = state_tracking.equations()["rollout_mean"]
        expected = form.evaluate({"accuracy": accuracy, "N": size, "L": length})
        assert found == pytest.approx(expected, rel=1e-12)  # rounding of L steps


def test_initial_variance_on_record():
    """Tables 1 and 2: the paper measures 0.044, and 0.0466 (correct) and 0.0467
    (others).
    """
    # Half a unit of the last measured digit; for Table 2 that plus the scatter between
    # its two numbers.
    assert state_tracking.initial_variance(Parameters.table_1()) == pytest.approx(
        0.044, abs=5e-4
    )
    assert state_tracking.initial_variance(Parameters.table_2()) == pytest.approx(
        0.0467, abs=1.5e-4
    )


def mean_participation(scale, length, omega, position=0):
    """Mean of sum_j pi_ij^2 over all sign vectors W_Q, W_K of the given scale (variance
    scale^2), exactly.
    """
    d_h, total, count = 2 * len(omega), 0.0, 0
    signs = np.array(list(itertools.product((-1, 1), repeat=d_h)), float) * scale
    offsets = np.arange(length) - position - length
    for key in signs:
        first, second = key[0::2, None], key[1::2, None]
        cos, sin = np.cos(np.outer(omega, offsets)), np.sin(np.outer(omega, offsets))
        turned = np.empty((d_h, length))
        turned[0::2], turned[1::2] = (
            cos * first - sin * second,
            sin * first + cos * second,
        )
        logits = signs @ turned / np.sqrt(d_h)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        total += (weights**2).sum()
        count += len(signs)
    return total / count


@pytest.mark.parametrize(
    ("length", "omega"), [(3, [1.1]), (5, [2.3, 0.4]), (4, [6.0, 0.9])]
)
def test_initial_variance_by_enumeration(length, omega):
    """The second order is exact: what is left shrinks with the fourth power of the
    attention logits.
    """
    form = state_tracking.equations()["logit_variance_initial"]
    whole = state_tracking.equations()["logit_variance"]
    remainders = []
    for scale in (0.1, 0.2):
        numbers = {
            "d_g": 6,
            "L": length,
            "d_h": 2 * len(omega),
            "omega": np.array(omega),
            "sigma2": scale**2,
        }
        exact = whole.evaluate(
            numbers | {participation: mean_participation(scale, length, omega)}
        )
        spread = (1 - 1 / 6) * scale**2 / length  # what multiplies the participation
        remainders.append((form.evaluate(numbers) - exact) / spread)
    # Logits are of order scale^2: second order scale^4 is removed, the next is scale^8,
    # a factor 256.
    assert 0 < abs(remainders[1]) < 10 * 0.2**8
    assert remainders[1] / remainders[0] == pytest.approx(
        256, rel=0.1
    )  # next order again: scale^4 relative


def test_trajectory_carries_the_accuracies():
    """Next-token and rollout accuracy along the flow, at the constant variance or a
    given one.
    """
    p = Parameters.demo()
    curve = state_tracking.trajectory(p, 9.0, at=np.linspace(0, 9, 31))
    assert curve.accuracy[0] == pytest.approx(
        1 / p.N, rel=1e-12
    )  # all logits alike at the start
    assert curve.rollout_accuracy[0] == pytest.approx(1 / p.N, rel=1e-12)
    assert (np.diff(curve.accuracy) > 0).all() and curve.rollout_accuracy[-1] > 0.9
    deviation = np.sqrt(state_tracking.initial_variance(p))
    gap = curve.logit_correct - curve.logit_other
    np.testing.assert_array_equal(
        curve.accuracy, gaussian_accuracy(gap, deviation, deviation, p.N)
    )
    last = [rollout(np.full(p.L, a), p.N)[-1] for a in curve.accuracy.values]
    np.testing.assert_allclose(curve.rollout_accuracy, last, rtol=1e-11)  # rounding
    wider = state_tracking.with_accuracy(curve, p, variance_other=np.full(31, 0.3))
    assert (wider.accuracy[1:] < curve.accuracy[1:]).all()
