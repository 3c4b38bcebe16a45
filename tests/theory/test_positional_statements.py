"""Statements of Cui et al. beside their equations: thresholds over omega, the linear
layer, other solutions, the replica average.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.integrate
import sympy as sp
import torch

from simulate.positional_semantic.learner import measure
from simulate.positional_semantic.student import positional_encoding
from theory.positional_semantic import Parameters, baseline, equations, solve
from theory.positional_semantic import branches as in_numbers
from theory.positional_semantic.branches import thresholds
from theory.positional_semantic.channel import State, averages
from theory.positional_semantic.model import symbols as s
from theory.positional_semantic.prox import NotConverged
from theory.positional_semantic.state_evolution import update

P = Parameters(order=8)
OMEGAS = (0.1, 0.4)


@pytest.fixture(scope="module")
def found():
    """Thresholds at two values of omega, both fixed points at each alpha_c."""
    return {omega: thresholds(P.replace(omega=omega)) for omega in OMEGAS}


def test_alpha_c_grows_with_omega(found):
    """Sec. 5: larger omega, more data needed for the semantic branch; alpha_l stays
    above.
    """
    values = [found[q].alpha_c for q in sorted(found)]
    assert values == sorted(values) and values[-1] > 2 * values[0]
    assert all(f.alpha_l > f.alpha_c and not f.reasons for f in found.values())


def test_error_drops_at_alpha_c(found):
    """Sec. 5: at equal training loss the semantic branch generalises better, by more
    than a tenth.
    """
    for f in found.values():
        positional, semantic = (
            f.at_alpha_c[k].test_mse_half for k in ("positional", "semantic")
        )
        assert semantic < 0.9 * positional


def test_linear_layer_wins_in_the_positional_regime(found):
    """Sec. 5.1: below alpha_c both branches, and at alpha_c the semantic one, err more
    than the dense linear layer.
    """
    for omega, f in found.items():
        linear = baseline(P.replace(omega=omega))["epsilon_lin"] / 2
        assert min(x.test_mse_half for x in f.at_alpha_c.values()) > linear
        assert (
            solve(
                P.replace(omega=omega, alpha=0.6 * f.alpha_c), "positional"
            ).test_mse_half
            > linear
        )


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("m", "theta"),
    [
        (0.2, 0.05),
        pytest.param(0.1, 0.15, marks=SLOW),
        pytest.param(0.3, 0.1, marks=SLOW),
        pytest.param(0.05, 0.02, marks=SLOW),
    ],
)
def test_no_solution_of_lower_loss_from_mixed_starts(m, theta):
    """Sec. 5: damped steps from states with both overlaps, at omega = 0.3, alpha = 1.5,
    end in one of the two branches.
    """
    p = P.replace(alpha=1.5, order=6)
    branches = {k: solve(p, k) for k in ("positional", "semantic")}
    state = State(q=0.1, m=m, V=14.0, theta=theta)
    for _ in range(400):
        step = update(p, state, averages(p, state))
        gap = max(abs(a - b) for a, b in zip(step, state, strict=True))
        state = State(*(0.8 * a + 0.2 * b for a, b in zip(state, step, strict=True)))
        if gap < 1e-4:
            break
    own = {"positional": abs(state.m), "semantic": abs(state.theta)}
    end = max(
        own,
        key=lambda k: (
            own[k]
            / abs(
                getattr(branches[k].state, {"positional": "m", "semantic": "theta"}[k])
            )
        ),
    )
    expected = branches[end].state
    assert (state.q, abs(state.m), abs(state.theta)) == pytest.approx(
        (expected.q, abs(expected.m), abs(expected.theta)), abs=5e-3
    )


# ---- The replica average (79)-(100): its moments, and its limit at zero temperature


def test_moments_of_replicated_fields():
    """Fields of two replicas and the teacher, averaged exactly over tokens of
    independent signs: the overlaps (6), at d = 4.
    """
    d, sigma = 4, sp.Rational(1, 2)
    Q = [[1, 2, -1, 3], [0, 1, 1, -2], [2, 0, 1, 1]]  # two replicas, and the teacher
    code = [sp.Rational(1, 2)] * d  # p_1, of norm 1 = sqrt(d) times 1/sqrt(d)
    mean, second, number = [sp.Integer(0)] * 3, sp.zeros(3), 0
    for signs in itertools.product((-1, 1), repeat=d):
        x = [sigma * q for q in signs]
        fields = [
            sum(
                (a + c) * b
                for a, c, b in zip(x, code if k < 2 else [0] * d, Q[k], strict=True)
            )
            / sp.sqrt(d)
            for k in range(3)
        ]
        mean = [a + b for a, b in zip(mean, fields, strict=True)]
        second += sp.Matrix(3, 3, lambda a, b, f=fields: f[a] * f[b])
        number += 1
    mean, second = [q / number for q in mean], second / number
    for a, b in itertools.product(range(3), repeat=2):
        overlap = (
            sigma**2 * sum(x * y for x, y in zip(Q[a], Q[b], strict=True)) / d
        )  # q_ab, theta_a, rho
        assert second[a, b] - mean[a] * mean[b] == overlap
    for k in range(3):
        assert mean[k] == (
            sum(c * x for c, x in zip(code, Q[k], strict=True)) / sp.sqrt(d)
            if k < 2
            else 0
        )  # m_a
    # The same three are measured of students, and the norm is the equation's.
    assert (positional_encoding(d)[0] == np.array(code, float)).all()
    p, teacher = P.replace(d=d), np.array(Q[2], float)
    for a in range(2):
        column = np.array(Q[a], float)
        found = measure(p, {"Q": torch.tensor(column[:, None])}, teacher, 1.0, 1.0)
        moments = second[a, a] - mean[a] ** 2, abs(mean[a]), abs(second[a, 2])
        assert [found[k] for k in ("q", "m", "theta")] == pytest.approx(
            [float(x) for x in moments], rel=1e-14
        )
        norm = equations()["norm"].evaluate({"q": found["q"], "sigma": p.sigma})
        assert norm == pytest.approx((column**2).sum() / d, rel=1e-14)


def test_replicated_fields_become_jointly_gaussian():
    """Two replicas and the teacher on both tokens of a sentence, exactly: means +-m and
    0, no covariance between tokens; joint fourth cumulants fall as 1/d.
    """
    columns = np.array([[1, 2, -1, 3], [0, 1, 1, -2], [2, 0, 1, 1]])
    signs = np.array([*itertools.product((-1, 1), repeat=8)]).reshape(-1, 2, 4)
    tokens = np.stack(
        [0.5 * signs + positional_encoding(4)] * 2 + [0.5 * signs], 2
    )  # of the fields
    fields = (
        np.einsum("sikd,kd->sik", tokens, columns).reshape(-1, 6) / 2
    )  # teacher: no encodings
    overlap = 0.25 * columns @ columns.T / 4
    m = columns[:2].mean(1)
    assert fields.mean(0) == pytest.approx([*m, 0, *-m, 0], abs=1e-14)
    assert np.cov(fields.T, bias=True) == pytest.approx(
        np.kron(np.eye(2), overlap), abs=1e-14
    )

    def cumulants(d):
        f = (
            np.array([*itertools.product((-1, 1), repeat=d)])
            @ np.tile(columns, d // 4).T
            / d**0.5
        )
        second, fourth = (
            f.T @ f / len(f),
            np.einsum("na,nb,nc,nd->abcd", f, f, f, f) / len(f),
        )
        pairs = np.multiply.outer(second, second)
        return fourth - sum(
            np.einsum(f"{p}->abcd", pairs) for p in ("abcd", "acbd", "adbc")
        )

    assert abs(cumulants(4)).max() > 1
    np.testing.assert_allclose(cumulants(8), cumulants(4) / 2, atol=1e-12)  # rounding


def test_zero_temperature_of_the_entropic_potential():
    """One weight in n replicas: the Gaussian integral at inverse temperature beta, n ->
    0, beta -> infinity with the rescaling (99).
    """
    beta, n = sp.symbols("beta n", positive=True)
    tau2, pi2 = s.rho / s.sigma**2, sp.Integer(1)
    # Replicas share a field of variance sigma^2 q_hat beta^2; their own precision is
    # beta D.
    precision, shared = beta * equations()["D"].rhs, beta**2 * s.sigma**2 * s.q_hat
    drift2 = beta**2 * (s.m_hat**2 * pi2 + s.sigma**4 * s.theta_hat**2 * tau2)
    # Moment n of Z at given field b + sqrt(shared) xi: (2 pi/precision)^(n/2) E exp(n
    # (b + ..)^2/(2 precision)); b of variance drift2.
    of_n = (2 * sp.pi / precision) ** (n / 2) / sp.sqrt(
        1 - n * (shared + drift2) / precision
    )
    # That moment for n = 2, both integrals by SymPy, in a field of any variance.
    a, v = sp.symbols("a v", positive=True)
    f, w = sp.symbols("f w", real=True)
    alone = sp.integrate(sp.exp(-a * w**2 / 2 + f * w), (w, -sp.oo, sp.oo))
    density = sp.exp(-(f**2) / (2 * v)) / sp.sqrt(2 * sp.pi * v)
    at = {a: sp.Rational(7, 2), v: sp.Rational(3, 5)}
    twice = sp.integrate(sp.simplify(alone**2 * density).subs(at), (f, -sp.oo, sp.oo))
    moment = of_n.subs(n, 2).subs({shared: v - drift2}).subs({precision: a}).subs(at)
    assert sp.simplify(twice - moment) == 0
    # And for n -> 0 at finite temperature: the mean of ln of the integral over the
    # weight.
    of_field = sp.lambdify(f, (sp.log(sp.simplify(alone)) * density).subs(at))
    by_numbers = scipy.integrate.quad(of_field, -8, 8)[0]  # ten standard deviations
    of_numbers = of_n.subs({shared: v - drift2}).subs({precision: a}).subs(at)
    slope = sp.limit(sp.diff(sp.log(of_numbers), n), n, 0)
    assert float(slope) == pytest.approx(by_numbers, rel=1e-9)  # of the quadrature
    per_weight = sp.limit(sp.diff(sp.log(of_n), n), n, 0) / beta  # (1/n) ln E Z^n
    assert (
        sp.simplify(
            sp.limit(per_weight, beta, sp.oo) - equations()["entropic_potential"].rhs
        )
        == 0
    )


def test_zero_temperature_of_the_energetic_potential():
    """A quadratic loss, for which the integral is exact: -(1/beta) ln of it tends to
    the envelope (103) of that loss.
    """
    beta, V, a = sp.symbols("beta V a", positive=True)
    z, w, c = sp.symbols("z w c", real=True)
    loss = a * z**2 / 2 - c * z
    # The integral over z of exp(-A z^2/2 + B z + C) is sqrt(2 pi/A) exp(B^2/(2 A) + C);
    # the measure carries sqrt(beta/(2 pi V)).
    A, B, C = sp.Poly(-beta * (z - w) ** 2 / (2 * V) - beta * loss, z).all_coeffs()
    A = -2 * A
    log_integral = (
        sp.log(2 * sp.pi / A) / 2
        + B**2 / (2 * A)
        + C
        + sp.log(beta / (2 * sp.pi * V)) / 2
    )
    limit = sp.limit(sp.simplify(-log_integral / beta), beta, sp.oo)
    best = sp.solve(sp.diff((z - w) ** 2 / (2 * V) + loss, z), z)[0]
    envelope = ((z - w) ** 2 / (2 * V) + loss).subs(z, best)
    assert sp.simplify(limit - envelope) == 0
    # The objective of the model is this for two tokens, with its own loss.
    objective, own = equations()["objective"].rhs, equations()["sentence_loss"].rhs
    rest = sp.simplify(
        objective - own - ((s.z_1 - s.w_1) ** 2 + (s.z_2 - s.w_2) ** 2) / (2 * s.V)
    )
    assert rest == 0


def test_where_the_next_alpha_is_looked_for():
    """Freely until both ends are known, then between them, down to a common range of
    two per cent.
    """
    for low, high in ((0.0, np.inf), (0.0, 2.0), (1.0, np.inf)):
        assert in_numbers._between(low, high, 3.0) == 3.0
    assert in_numbers._between(1.0, 1.03, 3.0) == pytest.approx(
        np.sqrt(1.03), rel=1e-15
    )
    with pytest.raises(
        in_numbers.Missing, match="no alpha at which both branches exist"
    ):
        in_numbers._between(1.0, 1.01, 3.0)


def test_where_the_gap_falls_the_crossing_lies_above():
    """Made-up losses: a parabola that falls up to alpha = 1.5 and is zero at 2.5.
    Starting points from where it fell are not followed.
    """
    asked = []

    def solve_at(alpha, branch, start):
        asked.append((alpha, branch, start))
        gap, slope = (alpha - 1.5) ** 2 - 1, 2 * (alpha - 1.5)
        own = branch == "positional"
        return SimpleNamespace(exists=True, train_loss=own * gap, slope=own * slope)

    alpha, points = in_numbers.crossing(solve_at, 1.0)
    # The error of a last step below 1e-4 is half the curvature over the slope times its
    # square.
    assert alpha == pytest.approx(2.5, abs=1e-8) and points["positional"].slope > 0
    falls = {alpha for alpha, _, _ in asked if alpha <= 1.5}
    assert len(falls) == 2 and min(falls) == 1.0
    assert all(start is None for alpha, _, start in asked if alpha <= 2.25)


def test_a_branch_that_did_not_converge_is_named():
    """It may exist all the same, so that its absence is not all that is said."""

    def solve_at(alpha, branch, start):
        raise NotConverged("too slow")

    with pytest.raises(
        in_numbers.Missing, match="no semantic branch up to.*converged: too slow"
    ):
        in_numbers.crossing(solve_at)
