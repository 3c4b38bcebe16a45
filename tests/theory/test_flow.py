"""Flow: trajectories, events and symbolic results,
for toy systems with known answers.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import sympy as sp

from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow

x, y = sp.symbols("x y", real=True)
T, RATE = sp.Symbol("t", nonnegative=True), sp.Symbol("r", positive=True)
START = sp.Symbol("x_0", positive=True)


def given(**numbers):
    """Anything with values() serves as parameters."""
    return SimpleNamespace(values=lambda: numbers)


LOGISTIC = Flow(
    "logistic",
    T,
    {x: RATE * x * (1 - x)},
    {x: START},
    "textbook",
    "exact",
    observables={"odds": x / (1 - x), "one": sp.S.One},
)
VALUES = {"r": 1.7, "x_0": 0.02}


def logistic(t):
    """Exact solution of the toy."""
    return 1 / (1 + (1 / VALUES["x_0"] - 1) * np.exp(-VALUES["r"] * t))


def test_trajectory_against_the_exact_solution():
    """Default grid, chosen times, observables."""
    curve = LOGISTIC.solve(given(**VALUES), t=6.0)
    assert curve.t.values[0] == 0 and curve.t.values[-1] == 6.0
    # Integrator tolerance 1e-12 per step, some hundred steps, and the interpolant
    # between them.
    np.testing.assert_allclose(curve.x, logistic(curve.t.values), rtol=3e-10)
    np.testing.assert_allclose(
        curve.odds, curve.x / (1 - curve.x), rtol=1e-15
    )  # the same numbers
    assert curve.one.shape == curve.t.shape and (curve.one == 1).all()
    at = [0.0, 0.3, 6.0]
    few = LOGISTIC.solve(given(**VALUES), at=at, t=6.0)
    np.testing.assert_array_equal(few.t, at)
    np.testing.assert_allclose(few.x, logistic(np.array(at)), rtol=3e-10)  # as above


def test_tolerances_are_used():
    """A loose tolerance shows, and is recorded with the result."""
    loose = LOGISTIC.solve(given(**VALUES), at=[3.0], rtol=1e-3, atol=1e-6, t=6.0)
    assert abs(loose.x.item() / logistic(3.0) - 1) > 1e-8
    assert "0.001" in loose.attrs["solver"]


@pytest.mark.parametrize("level", [0.1, 0.5, 0.999])
def test_event_against_the_exact_time(level):
    """The first crossing, to the accuracy of the integration."""
    event = {"hit": x - sp.nsimplify(level)}
    found = LOGISTIC.solve(given(**VALUES), events=event, t=9.0).hit.item()
    # In x, since the time is ill-conditioned on the plateau; tolerance 1e-12 per step,
    # some hundred steps.
    assert logistic(found) == pytest.approx(level, abs=2e-11)


@pytest.mark.parametrize("rate", [1e-9, 1e9])
def test_event_times_are_relative(rate):
    """A fast or slow clock does not cost digits."""
    fast = given(r=rate, x_0=VALUES["x_0"])
    found = LOGISTIC.solve(
        fast, at=[0.0], events={"hit": x - sp.Rational(1, 2)}, t=6 / rate
    ).hit.item()
    assert found * rate == pytest.approx(
        np.log(1 / VALUES["x_0"] - 1), rel=1e-10
    )  # as above


def test_events_that_never_or_at_once_happen():
    """NaN where there is no crossing; 0 where the start is on it; parameters may
    appear.
    """
    late = x - sp.Rational(999, 1000)
    events = {
        "never": x - 2,
        "late": late,
        "at_once": x - START,
        "scaled": RATE * x - RATE / 2,
    }
    short, long = (
        LOGISTIC.solve(given(**VALUES), events=events, t=end) for end in (2.0, 4.0)
    )
    for curve in (short, long):
        assert np.isnan(curve.never) and np.isnan(curve.late)
        assert curve.at_once == 0
    assert logistic(2.0) < 0.5 < logistic(4.0)
    assert np.isnan(short.scaled) and 2 < long.scaled < 4


def test_first_of_several_crossings():
    """An oscillator crosses again and again; the first time is reported."""
    turning = Flow(
        "oscillator", T, {x: -y, y: x}, {x: sp.S.One, y: sp.S.Zero}, "textbook", "exact"
    )
    curve = turning.solve(
        given(), events={"quarter": x, "high": y - sp.Rational(1, 2)}, t=40.0
    )
    assert curve.quarter == pytest.approx(np.pi / 2, abs=1e-10)  # as above
    assert curve.high == pytest.approx(np.pi / 6, abs=1e-10)
    np.testing.assert_allclose(
        curve.x, np.cos(curve.t), atol=1e-9
    )  # 40 time units of accumulated error


@pytest.mark.parametrize(
    "end", [{}, {"t": 0.0}, {"t": -1.0}, {"t": np.nan}, {"t": np.inf}], ids=str
)
def test_run_length_must_be_named_and_positive(end):
    """The one-line message names the flow's own time."""
    with pytest.raises(
        ParameterError, match=r"^run length: must be t = a positive number, got .+$"
    ):
        LOGISTIC.solve(given(**VALUES), **end)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ({"alpha": 1.0}, "alpha: the time of logistic is called t; give t = 1.0"),
        ({"t": 1.0, "alpha": 1.0}, "alpha: unknown keyword; "),
        (
            {"t": 1.0, "Rtol": 1e-3},
            "Rtol: unknown keyword; did you mean 'rtol'? known are t, at, ",
        ),
    ],
    ids=str,
)
def test_wrong_keywords_are_told_the_right_one(end, message):
    """Another name of the time, options misspelt."""
    with pytest.raises(ParameterError) as caught:
        LOGISTIC.solve(given(**VALUES), **end)
    assert str(caught.value).startswith(message)


def test_missing_number_is_named():
    """A symbol without a value."""
    with pytest.raises(ParameterError, match=r"no value for x_0$"):
        LOGISTIC.solve(given(r=1.0), t=1.0)


@pytest.mark.parametrize("at", [[2.5], [-0.5], [0.0, 1.0, np.nan]], ids=str)
def test_times_outside_the_run_are_refused(at):
    """There is nothing to report outside the run; an extrapolated polynomial is not a
    solution.
    """
    with pytest.raises(ParameterError):
        LOGISTIC.solve(given(**VALUES), at=at, t=2.0)


def test_fixed_points():
    """Both of the logistic flow; a factor common to all rates that cannot vanish does
    not hinder.
    """
    assert {s[x] for s in LOGISTIC.fixed_points()} == {0, 1}
    slow = 1 / (1 + sp.exp(x + y))
    rates = {x: slow * RATE * (x - y), y: slow * RATE * (1 - x * y)}
    pair = Flow("pair", T, rates, {x: START, y: START}, "textbook", "exact")
    assert {(s[x], s[y]) for s in pair.fixed_points()} == {(1, 1), (-1, -1)}
    assert (
        Flow("drift", T, {x: RATE}, {x: START}, "textbook", "exact").fixed_points()
        == []
    )


def test_series_against_the_exact_solution():
    """Taylor polynomial of the logistic solution to fourth order,
    with symbolic start.
    """
    exact = START * sp.exp(RATE * T) / (1 - START + START * sp.exp(RATE * T))
    expected = sp.series(exact, T, 0, 5).removeO()
    assert sp.simplify(LOGISTIC.series(4)[x] - expected) == 0
    at_half = LOGISTIC.series(3, {START: sp.Rational(1, 2)})[x]
    # tanh: x - 1/2 is odd in time.
    assert (
        sp.expand(at_half - sp.Rational(1, 2) - RATE * T / 4 + (RATE * T) ** 3 / 48)
        == 0
    )


def test_abbreviations_are_spelled_out():
    """Outermost first: u in terms of v, v in terms of x; rates, Jacobian and
    observables use them.
    """
    u, v = sp.symbols("u v", real=True)
    short = Flow(
        "short",
        T,
        {x: -u},
        {x: START},
        "textbook",
        "exact",
        where={u: v**2, v: 3 * x},
        observables={"v": v},
    )
    assert short.expanded == {x: -9 * x**2}
    assert short.jacobian() == sp.Matrix([[-18 * x]])
    curve = short.solve(given(x_0=0.5), t=1.0)
    np.testing.assert_allclose(
        curve.x, 0.5 / (1 + 4.5 * curve.t), rtol=1e-10
    )  # exact solution; integrator
    np.testing.assert_allclose(curve.v, 3 * curve.x, rtol=1e-15)  # the same numbers
    text = short.latex()
    assert (
        text.startswith(r"\begin{aligned}")
        and "u &= v^{2}" in text
        and r"v &= 3 x" in text
    )


def test_equations_carry_the_reference():
    """One Equation per order parameter, named after it and the time."""
    (equation,) = LOGISTIC.equations().values()
    assert (equation.name, equation.reference) == ("dx_dt", "textbook")
    assert equation.lhs == sp.Derivative(x, T) and equation.rhs == RATE * x * (1 - x)


def test_a_last_time_may_carry_roundings():
    """An end that was computed is the end; a time that is really later is refused."""
    found = LOGISTIC.solve(
        given(**VALUES), at=[0.0, 2.0 * (1 + 8 * np.finfo(float).eps)], t=2.0
    )
    assert (
        found.t[-1] == 2.0
        and found.x[-1] == LOGISTIC.solve(given(**VALUES), at=[2.0], t=2.0).x[0]
    )
    with pytest.raises(ParameterError, match="times must lie between"):
        LOGISTIC.solve(given(**VALUES), at=[2.0 * (1 + 1e-13)], t=2.0)
