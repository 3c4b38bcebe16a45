"""The flow (15) and its variants: hand-typed integrations, quadrature, limits,
expansions.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.integrate
import sympy as sp

from theory import state_tracking
from theory.state_tracking import Parameters, attention
from theory.state_tracking.model.symbols import R_0, S_0, A, L, N, R, S, d_g, zeta
from theory.state_tracking.onset import HALF, onset

TABLE_1 = Parameters()
ALPHA_HALF = (
    2.452067489993228  # time of A = 1/2 at Table 1, by quadrature at high precision
)
STARTS = {
    "table_1": TABLE_1,
    "table_2": Parameters.table_2(),
    "general": Parameters(
        N=7, d_g=5, L=4, d_h=6, eta=0.8, zeta=0.4, A_0=0.3, R_0=0.2, S_0=-0.1
    ),
    "two_states": Parameters(N=2, d_g=3, L=3, d_h=4, rope="plain"),
    "many_actions": Parameters(N=3, d_g=40, L=6, d_h=8, zeta=-1.0),
}


def typed(p):
    """Right-hand sides (15a)-(15c), with (11) and (41), as plain Python."""
    v = p.values()
    n, actions, length, eta, constant = v["N"], v["d_g"], v["L"], v["eta"], v["c_omega"]

    def rates(_, state):
        a, r, s = state
        mean = (a + (1 - a) / actions) * r + (actions - 1) / actions * (1 - a) * s
        margin = mean - (v["zeta"] - mean) / (n - 1)
        common = eta / (1 + np.exp(margin) / (n - 1))
        return np.array(
            [
                common
                * n
                / (n - 1)
                * (actions - 1)
                / actions
                * constant
                * length
                * a
                * (1 - a)
                * (r - s),
                common * (a + (1 - a) / actions),
                common * (1 - a) / actions,
            ]
        )

    return rates, np.array([v["A_0"], v["R_0"], v["S_0"]])


@cache
def compiled(flow_name="flow"):
    """The symbolic rates as a function of (A, R, S) and the numbers."""
    flow = getattr(state_tracking, flow_name)()
    free = sorted(
        set().union(*(e.free_symbols for e in flow.expanded.values())) - {A, R, S},
        key=str,
    )
    return [q.name for q in free], sp.lambdify(
        [(A, R, S), *free], list(flow.expanded.values()), "numpy"
    )


def rates_of(p, state, flow_name="flow"):
    """Symbolic rates at a state."""
    names, function = compiled(flow_name)
    return np.array(function(state, *(p.values()[q] for q in names)))


@pytest.mark.parametrize("name", STARTS)
def test_trajectory_against_hand_typed_rates(name):
    """An explicit eighth-order method on hand-typed rates against LSODA on the symbolic
    ones.
    """
    p = STARTS[name]
    curve = state_tracking.flow().solve(p, alpha=6.0, at=np.linspace(0, 6, 25))
    rates, start = typed(p)
    other = scipy.integrate.solve_ivp(
        rates, (0, 6), start, "DOP853", curve.alpha, rtol=1e-12, atol=1e-14
    )
    for k, q in enumerate("ARS"):
        # Both integrators allow 1e-12 per step; growth of A amplifies by up to L over
        # some hundred steps.
        np.testing.assert_allclose(curve[q], other.y[k], rtol=2e-9, atol=1e-11)


def test_half_time_of_table_1():
    """The value on record."""
    found = (
        state_tracking.flow()
        .solve(TABLE_1, at=[0.0], events=HALF, alpha=5.0)
        .alpha_half.item()
    )
    assert found == pytest.approx(ALPHA_HALF, rel=1e-9)  # integrator: 1e-12 per step
    assert onset(TABLE_1).numbers["alpha_half"] == pytest.approx(ALPHA_HALF, rel=1e-9)


@pytest.mark.parametrize("name", STARTS)
def test_jacobian(name):
    """Symbolic Jacobian against a complex step through the hand-typed rates (no
    cancellation).
    """
    p = STARTS[name]
    flow = state_tracking.flow()
    numbers = {
        q: p.values()[q.name]
        for e in flow.expanded.values()
        for q in e.free_symbols - {A, R, S}
    }
    for state in ([0.1, 0.0, 0.0], [0.4, 0.7, 0.03], [0.95, 4.0, -0.2]):
        at = numbers | dict(zip((A, R, S), state, strict=True))
        exact = np.array(flow.jacobian().subs(at), dtype=float)
        for k in range(3):
            shifted = np.array(state, complex)
            shifted[k] += 1e-30j
            column = typed(p)[0](0, shifted).imag / 1e-30
            np.testing.assert_allclose(
                exact[:, k], column, rtol=1e-12, atol=1e-15
            )  # rounding


def test_single_action_and_single_position():
    """d_g = 1 or L = 1: attention cannot move, the overlaps still grow by
    (15b), (15c).
    """
    one = state_tracking.flow().solve(Parameters(N=4, d_g=1, L=3), alpha=3.0)
    np.testing.assert_allclose(one.A, 1 / 3, rtol=1e-15)  # the rate is exactly zero
    assert one.R[-1] > 0.5
    alone = state_tracking.flow().solve(Parameters(N=4, d_g=4, L=1), alpha=3.0)
    assert (alone.A == 1).all() and (alone.S == 0).all() and alone.R[-1] > 0.5
    assert alone.attrs["status"] == "closure"


def test_single_distinct_action():
    """d_g = 1 is also a legal number of distinct permutations: nothing is undefined
    that has a value.
    """
    p = Parameters(N=4, d_g=1, L=3)
    curves = [
        state_tracking.flow(q).solve(p.replace(permutations=q), alpha=3.0)
        for q in ("iid", "distinct")
    ]
    # tau drops out of (54) when there is no other teacher: c_S = 0. Integrator
    # tolerance.
    np.testing.assert_allclose(curves[0].R, curves[1].R, rtol=1e-10)
    np.testing.assert_allclose(curves[0].loss, curves[1].loss, rtol=1e-10)


def test_perfect_attention_from_the_start():
    """A_0 = 1: A and S stay, and R + e^{(N R - zeta)/(N-1)}/N = eta alpha + const."""
    p = Parameters(N=5, d_g=4, L=6, A_0=1.0, S_0=0.25, R_0=-0.3, zeta=0.7)
    curve = state_tracking.flow().solve(p, alpha=30.0)
    assert (curve.A == 1).all() and (curve.S == 0.25).all()
    first = curve.R + np.exp((5 * curve.R - 0.7) / 4) / 5 - p.eta * curve.alpha
    np.testing.assert_allclose(
        first, first[0], atol=1e-10
    )  # integrator tolerance over the run


def test_two_states():
    """N = 2, zeta = 0: the other logit is minus the correct one, and the loss is ln(1 +
    e^{-2 z}).
    """
    curve = state_tracking.flow().solve(STARTS["two_states"], alpha=4.0)
    np.testing.assert_array_equal(curve.logit_other, -curve.logit_correct)
    # -z + ln(e^z + e^-z) cancels a little once z is large; absolute rounding.
    np.testing.assert_allclose(
        curve.loss, np.log1p(np.exp(-2 * curve.logit_correct)), atol=1e-14
    )


def test_the_flow_starts_unlearned_and_sees_zeta():
    """From A = 1/L, R = S = 0 where nothing else is given; the conserved zeta moves all
    curves.
    """
    p = state_tracking.Parameters(N=5, L=4, d_g=3)
    curves = [
        state_tracking.flow().solve(p.replace(zeta=z), alpha=5.0, at=[0.0, 5.0])
        for z in (0.0, 0.5)
    ]
    for curve in curves:
        assert [float(curve[q][0]) for q in "ARS"] == [0.25, 0, 0]
    for q in "ARS":
        assert abs(float(curves[1][q][1] / curves[0][q][1]) - 1) > 1e-3, q


@pytest.mark.parametrize("name", STARTS)
def test_observables(name):
    """Logits, loss and c(A) along the flow against direct formulas; the loss falls."""
    p = STARTS[name]
    v = p.values()
    curve = state_tracking.flow().solve(p, alpha=5.0)
    a, r, s = (curve[q].values for q in "ARS")
    correct = (a + (1 - a) / p.d_g) * r + (p.d_g - 1) / p.d_g * (1 - a) * s
    other = (v["zeta"] - correct) / (p.N - 1)
    direct = {
        "logit_correct": correct,
        "logit_other": other,
        "loss": -correct + np.log(np.exp(correct) + (p.N - 1) * np.exp(other)),
        "c_A": p.L * v["c_omega"] * a * (1 - a),
    }
    for label, value in direct.items():
        np.testing.assert_allclose(
            curve[label], value, rtol=1e-12, atol=1e-14
        )  # rounding
    assert (np.diff(curve.loss) < 0).all()
    if v["zeta"] == 0 and v["R_0"] == 0:
        assert curve.loss[0] == pytest.approx(
            np.log(p.N), rel=1e-14
        )  # all logits equal: guessing


def test_early_times_are_the_first_order():
    """(78) is the flow to first order in time from R = S = 0, at any A_0: A does not
    move.
    """
    first = state_tracking.flow().series(1, {R_0: 0, S_0: 0, zeta: 0})
    for q in (A, R, S):
        early = state_tracking.equations()[f"early_{q.name}"].rhs
        assert sp.simplify(first[q] - early) == 0, q


@cache
def limit_ratio(size):
    """Largest relative distance of the rates of A and R from their limit at N = d_g =
    size, L = size/4.
    """
    numbers = {
        "N": size,
        "d_g": size,
        "L": size // 4,
        "eta": 0.5,
        "c_omega": 2.3,
        "zeta": 0.4,
    }
    p = SimpleNamespace(values=lambda: numbers)
    gaps = []
    for state in ([0.2, 0.5, 0.01], [0.7, 1.5, 0.03]):
        full, limit = rates_of(p, state), rates_of(p, state, "thermodynamic_limit")
        gaps.append(np.max(np.abs(full[:2] / limit[:2] - 1)))
        assert limit[2] == 0 and abs(full[2]) < 2 / size
    return max(gaps)


def test_thermodynamic_limit():
    """The rates approach the limit like 1/N."""
    assert limit_ratio(10**6) < 1e-5  # (e^m + const)/N with e^m below 4
    # Leading correction (e^m + const)/N: 100 times the size, 1/100 of the distance, up
    # to order 1/N.
    assert limit_ratio(10**4) / limit_ratio(10**6) == pytest.approx(100, rel=0.01)


def test_thermodynamic_limit_solves():
    """In the limit S does not move and R grows by the integral of A."""
    curve = state_tracking.thermodynamic_limit().solve(TABLE_1, alpha=2.0)
    assert (curve.S == 0).all()
    area = scipy.integrate.cumulative_simpson(
        curve.A.values, x=curve.alpha.values, initial=0
    )
    np.testing.assert_allclose(
        curve.R, TABLE_1.eta * area, atol=1e-8
    )  # Simpson on 600 intervals


@cache
def distinct_gap(size):
    """Largest difference in A between distinct and independent teachers."""
    p = Parameters(N=size, d_g=4, L=4, d_h=8, rope="plain")
    at = np.linspace(0, 8, 41)
    one, other = (
        state_tracking.flow(q).solve(p.replace(permutations=q), alpha=8.0, at=at)
        for q in ("iid", "distinct")
    )
    return float(np.abs(one.A - other.A).max())


def test_distinct_teachers():
    """Distinct permutations overlap less: visible at N = 3, gone with growing N (a gap
    of order 1/N!).
    """
    assert distinct_gap(3) > 0.01
    assert (
        distinct_gap(3)
        > 2 * distinct_gap(4)
        > 4 * distinct_gap(5)
        > 8 * distinct_gap(6)
    )
    assert distinct_gap(12) < 1e-8  # 1/12! = 2e-9, and the integrator


@pytest.mark.parametrize("size", [20, 200, 3000])
def test_distinct_teachers_at_any_size(size):
    """N! is huge, the correction to 1/N is not: distinct and independent draws must
    give the same curve.
    """
    p = Parameters(N=size, d_g=8, L=4)
    one, other = (
        state_tracking.flow(q).solve(p.replace(permutations=q), alpha=1.0, at=[1.0])
        for q in ("iid", "distinct")
    )
    # Integrator tolerance; the correction itself is below 1e-18.
    assert one.A.item() == pytest.approx(other.A.item(), rel=1e-9)


def test_symbolic_overlap_reduces_to_independent_draws():
    """flow('tau') at tau = 1/N is flow('iid'); at another tau it is not."""
    general, iid = state_tracking.flow("tau"), state_tracking.flow("iid")
    tau = next(q for q in general.expanded[R].free_symbols if q.name == "tau")
    for q in (A, R, S):
        assert sp.simplify(general.rhs[q].subs(tau, 1 / N) - iid.rhs[q]) == 0
    for q in (R, S):
        assert (
            sp.simplify((general.rhs[q] - iid.rhs[q]).subs({tau: 1, N: 3, d_g: 4})) != 0
        )


def test_ansatz_closure():
    """closure='ansatz' has the same rates at A = 1/L and others elsewhere."""
    ansatz, closure = state_tracking.flow(closure="ansatz"), state_tracking.flow()
    difference = ansatz.rhs[A] - closure.rhs[A]
    assert sp.simplify(difference.subs(A, 1 / L)) == 0
    assert sp.simplify(difference.subs(A, sp.Rational(1, 2)).subs(L, 5)) != 0
    assert all(ansatz.rhs[q] == closure.rhs[q] for q in (R, S))
    curves = [
        f.solve(TABLE_1, at=[0.0], events=HALF, alpha=5.0) for f in (ansatz, closure)
    ]
    assert (
        curves[0].alpha_half < curves[1].alpha_half
    )  # A^2 (1-A)^2 takes off more steeply
    own, others = (
        set(attention.equations()[x].assumptions)
        for x in ("c_ansatz_mean", "c_closure")
    )
    for flow, used, unused in ((ansatz, own, others), (closure, others, own)):
        assert used <= set(flow.assumptions) and not unused & set(flow.assumptions)


@pytest.mark.parametrize(
    "options", [{"teacher_overlap": "idd"}, {"closure": "clsoure"}], ids=str
)
def test_unknown_options_are_refused(options):
    """A slip must not quietly select another theory."""
    with pytest.raises((ValueError, KeyError)):
        state_tracking.flow(**options)


def test_flow_is_frozen():
    """A flow is data: changing it means making another one."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        state_tracking.flow().name = "other"
