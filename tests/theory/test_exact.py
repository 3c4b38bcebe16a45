"""The exact solution: derivation, event times and trajectories against mpmath, the ODE
and limits.
"""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from later import Later

from theory import state_tracking
from theory.call.refusal import ParameterError
from theory.state_tracking import Parameters, exact, inversion
from theory.state_tracking.model.symbols import (
    A_0,
    A,
    L,
    N,
    R,
    S,
    c_omega,
    d_g,
    eta,
    g,
    tau,
)
from theory.state_tracking.quadrature import NAMES, emergence_time

TABLE_1 = Parameters()
EQUATIONS = Later(exact.equations)
RATE = Later(lambda: state_tracking.flow("tau").rhs)
GENERAL = Parameters(
    N=7, d_g=5, L=4, d_h=6, eta=0.8, zeta=0.4, A_0=0.3, R_0=0.2, S_0=-0.1
)
DISTINCT = Parameters(N=3, d_g=4, L=4, d_h=8, rope="plain", permutations="distinct")
CASES = {  # what is run, and to which alpha
    "table_1": (TABLE_1, 12.0),
    "table_1, very late": (TABLE_1, 1e6),
    "table_2": (Parameters.table_2(), 20.0),
    "general": (GENERAL, 8.0),
    "distinct teachers": (DISTINCT, 30.0),
    "just above the separatrix": (Parameters(R_0=-0.096), 30.0),
    "just below": (Parameters(R_0=-0.0961), 30.0),
    "dying": (Parameters(R_0=-0.2), 1e4),
    "falls, then rises": (Parameters(A_0=0.9, R_0=-0.3), 20.0),
    "starts ahead": (Parameters(R_0=0.5), 8.0),
    "two states": (Parameters(N=2, d_g=3, L=3, d_h=4, rope="plain"), 6.0),
    "slow": (Parameters(N=4, d_g=4, L=20, d_h=8), 1e4),
    "one action": (Parameters(N=4, d_g=1, L=3), 3.0),
    "one position": (Parameters(N=4, d_g=4, L=1), 3.0),
    "locked from the start": (
        Parameters(N=5, d_g=4, L=6, A_0=1.0, S_0=0.25, R_0=-0.3, zeta=0.7),
        30.0,
    ),
}


def test_constants_of_independent_teachers():
    """At tau = 1/N: kappa = N/(N-1) (d_g-1)/d_g c_omega L, and D moves at eta g A."""
    found = {
        q: EQUATIONS[q].rhs.subs(tau, 1 / N)
        for q in ("kappa", "pace", "off_target_drift")
    }
    expected = {
        "kappa": N / (N - 1) * (d_g - 1) / d_g * c_omega * L,
        "pace": 1,
        "off_target_drift": 0,
    }
    assert all(sp.simplify(found[q] - expected[q]) == 0 for q in expected)
    difference = state_tracking.flow().rhs[R] - state_tracking.flow().rhs[S]
    assert sp.simplify(difference - eta * g * A) == 0


@pytest.mark.parametrize("form", ["first_integral", "A_of_D"])
def test_first_integral(form):
    """Derivative along the flow is zero, at any tau; and it is not for another
    steepness.
    """
    motion = EQUATIONS["first_integral"].rhs
    if form == "A_of_D":  # the same constant, read off A(D)
        motion = sp.log((1 - A) / (1 - A_0)) - sp.log(
            (1 - EQUATIONS["A_of_D"].rhs) / (1 - A_0)
        ).subs(exact.D, R - S)
    along = sum(sp.diff(motion, q) * RATE[q] for q in (A, R, S))
    assert sp.simplify(along.subs(exact.kappa, EQUATIONS["kappa"].rhs)) == 0
    assert sp.simplify(along.subs(exact.kappa, 2 * EQUATIONS["kappa"].rhs)) != 0


def test_first_integral_along_the_integrator():
    """LSODA keeps it to its own accuracy."""
    curve = state_tracking.flow().solve(GENERAL, alpha=8.0)
    kappa = EQUATIONS["kappa"].evaluate(GENERAL.values())
    kept = EQUATIONS["first_integral"].evaluate(
        {"kappa": kappa, "A": curve.A, "R": curve.R, "S": curve.S}
    )
    np.testing.assert_allclose(
        kept, kept[0], atol=1e-10
    )  # rtol 1e-12 per step, some hundred steps


def test_integrands_are_the_rates():
    """1/A, S'(D) and the slowness are dT, dS and d alpha over dD of the flow, at 30
    digits.
    """
    values = {
        q: sp.Rational(k + 2, 7)
        for k, q in enumerate(
            sorted(
                set().union(*(e.free_symbols for e in RATE.values()))
                | {exact.D_0, A_0},
                key=str,
            )
        )
    }
    values |= {
        N: 5,
        d_g: 4,
        L: 3,
        A: sp.Rational(2, 5),
        tau: sp.Rational(1, 6),
        g: sp.Rational(1, 3),
    }
    rate = {q: e.subs(values) for q, e in RATE.items()}
    constants = {
        exact.kappa: "kappa",
        exact.pace: "pace",
        exact.drift: "off_target_drift",
    }
    constants = {q: EQUATIONS[name].rhs.subs(values) for q, name in constants.items()}
    speed = constants[exact.pace] * values[eta] * values[g] * values[A]
    assert rate[R] - rate[S] == speed
    off = EQUATIONS["S_of_D"].rhs
    slope = (
        off.diff(exact.D)
        .subs(sp.Derivative(sp.Function("T")(exact.D), exact.D), 1 / A)
        .subs(constants)
        .subs(values)
    )
    assert sp.simplify(rate[S] / speed - slope) == 0
    of_alpha = (
        EQUATIONS["alpha_of_D"].rhs.diff(exact.D).subs(sp.Function("A")(exact.D), A)
    )
    margin = sp.log((values[N] - 1) * (1 / values[g] - 1))  # where g has that value
    of_alpha = (
        of_alpha.subs(sp.Function("m")(exact.D), margin).subs(constants).subs(values)
    )
    assert sp.simplify(of_alpha - 1 / speed) == 0


@pytest.mark.parametrize(("p", "end"), CASES.values(), ids=CASES)
def test_trajectory(p, end):
    """All variables of the flow against its integration, at all kinds of starts."""
    at = np.linspace(0, end, 101)
    found, curve = (
        inversion.solve(p, at),
        state_tracking.flow(p.permutations).solve(p, at=at, alpha=end),
    )
    assert (
        set(found.data_vars) == set(curve.data_vars)
        and found.attrs["parameters"] == p.as_json()
    )
    for q in curve.data_vars:
        np.testing.assert_allclose(
            found[q], curve[q], rtol=1e-9, atol=1e-9
        )  # the integrator's: 1e-12 per step
    assert float(found.A[0]) == pytest.approx(p.values()["A_0"], rel=1e-13)


def test_separatrix():
    """Just above, A comes back however late; at and below, never; every point gets its
    own answer.
    """
    p = TABLE_1
    kappa = EQUATIONS["kappa"].evaluate(p.values())
    edge = EQUATIONS["separatrix"].evaluate(p.values() | {"kappa": kappa})
    assert edge == pytest.approx(-0.09606, abs=5e-6)  # on record to five digits
    starts = edge * np.array([0.0, 0.9, 0.999, 1 - 1e-9, 1 + 1e-9, 1.1, 100.0])
    times = emergence_time(p.values() | {"R_0": starts})
    assert np.isnan(times[4:]).all() and (np.diff(times[:4]) > 0).all()
    assert np.isnan(emergence_time(p.values() | {"R_0": np.nextafter(edge, -1)}))
    # Below, D comes to rest at its dead end and A falls to 0.
    dead = Parameters(R_0=2 * edge)
    epsilon = EQUATIONS["epsilon"].evaluate(
        dead.values() | {"D_0": 2 * edge, "kappa": kappa}
    )
    at_rest = -np.sqrt(
        EQUATIONS["resting_place"].evaluate({"epsilon": epsilon, "kappa": kappa})
    )
    last = inversion.solve(dead, [200.0])
    assert float(last.A[0]) < 1e-12
    assert float((last.R - last.S)[0]) == pytest.approx(at_rest, rel=1e-12)  # rounding


def test_beyond_double_precision():
    """e^m too large for a number: infinite, not never; too small to matter: no
    complaint.
    """
    times = emergence_time(TABLE_1.values() | {"zeta": np.array([-1e6, 0.0, 1e6])})
    assert np.isinf(times[0]) and 0 < times[2] < times[1]
    still = inversion.solve(Parameters(zeta=-1e6), [0.0, 5.0])
    assert float(still.A[1]) == float(still.A[0]) and float(still.R[1]) == 0


def test_broadcasting():
    """Levels against points; a point already there answers 0; attention that cannot
    move answers never.
    """
    times = emergence_time(
        TABLE_1.values() | {"eta": np.array([[0.25], [0.5]])},
        np.array([0.05, 0.5, 0.9]),
    )
    assert times.shape == (2, 3) and (times[:, 0] == 0).all()
    np.testing.assert_allclose(
        times[0], 2 * times[1], rtol=1e-14
    )  # eta alpha does not depend on eta
    assert isinstance(float(emergence_time(TABLE_1.values())), float)
    assert np.isnan(emergence_time(TABLE_1.values() | {"c_omega": 0.0}))
    curves = inversion.states(
        TABLE_1.values() | {"eta": np.array([[0.25], [0.5]])}, [0.0, 1.0, 2.0]
    )
    assert curves["A"].shape == (2, 1, 3)


@pytest.mark.parametrize(
    ("change", "level", "message"),
    [
        ({}, 0.0, "level = 0.0: must be > 0 and < 1"),
        ({}, 1.0, "level = 1.0: must be"),
        ({"A_0": 0.0}, 0.5, "A_0 = 0.0: must be > 0"),
        ({"A_0": 1.5}, 0.5, "A_0 = 1.5: must be > 0 and <= 1"),
    ],
)
def test_wrong_input(change, level, message):
    """One line."""
    with pytest.raises(ParameterError, match=message):
        emergence_time(TABLE_1.values() | change, level)
    if change:  # numbers of one's own, which know of no Parameters
        with pytest.raises(ParameterError, match=message):
            emergence_time(
                {**{n: float(TABLE_1.values()[n]) for n in NAMES}, **change}, level
            )


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        ([-1.0], "-1.0: must be >= 0"),
        ([np.inf], "inf: must be finite, >= 0"),
        ([], "is empty"),
        (1.0, "1.0: must be a list of numbers"),
    ],
)
def test_wrong_times(alpha, message):
    """One line."""
    with pytest.raises(ParameterError, match=f"^alpha = .*{message}"):
        inversion.states(TABLE_1.values(), alpha)


def test_missing_name():
    """Every name is needed."""
    for name in NAMES:
        with pytest.raises(ParameterError, match=f"no value for {name}$"):
            emergence_time({q: x for q, x in TABLE_1.values().items() if q != name})
