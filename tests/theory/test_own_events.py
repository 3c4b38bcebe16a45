"""Events, jumps and pulses of a user's own flow, in the state and in time."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from test_own_flows import DECAY, PI, PLAIN, crossing, k, own, t, x, y

from theory.call.refusal import ParameterError
from theory.dynamics.flow import Flow
from theory.symbols.notation import symbol

CIRCLE = own({x: y, y: -x}, {x: 0, y: 1})


@pytest.fixture
def impatient(monkeypatch):
    """Solutions without a way on are given up three times as soon."""
    monkeypatch.setattr(Flow._functions, "__defaults__", (100_000,))


@pytest.mark.parametrize(
    ("event", "time"),
    [
        (symbol("loss") - sp.Rational(1, 10), np.log(5) / 2),
        (PLAIN("loss", real=True) < 0.1, np.log(5) / 2),
        (symbol("q") - 1, np.log(2)),
        (PLAIN("x", positive=True) - 0.5, np.log(2)),
        (sp.log(x) + 1, 1.0),
        ("loss", np.nan),
        (sp.Heaviside(t - 3) - 0.5, 3.0),
        (sp.exp(-((t - 4) ** 2) * 10**8) - 0.5, 4 - np.sqrt(np.log(2)) * 1e-4),
        (sp.exp(-((x - 0.3) ** 2) * 10**8) - 0.5, None),
        (x - k, -np.log(0.25)),
    ],
    ids=str,
)
def test_events_in_every_form(event, time):
    """Observables, abbreviations, relations, other assumptions, names, times,
    parameters.
    """
    if time is None:
        time = -np.log(0.3 + np.sqrt(np.log(2)) * 1e-4)
    numbers = {"k": 0.25} if event == x - k else {}
    assert crossing(DECAY, event, **numbers) == pytest.approx(
        time, rel=1e-9, nan_ok=True
    )


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("los", "event = 'los': must be a number or a SymPy"),
        (3, "event = 3: never changes"),
        (None, "event = None: must be"),
        (sp.log(x - 2), "log.*is no real number"),
        (PLAIN("z") - 1, "no value for z"),
        (sp.I * x - 1, "is complex"),
        (sp.Function("f")(x), "f: has no numerical value"),
    ],
    ids=str,
)
def test_events_that_are_refused(event, message):
    """In one line each."""
    with pytest.raises(ParameterError, match=message) as error:
        crossing(DECAY, event)
    assert "\n" not in str(error.value)
    with pytest.raises(ParameterError, match="events = .*must be a mapping"):
        DECAY.solve({}, t=1, events=[x])


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (x**2, "x diverges near t = 1;"),
        (-k * sp.sqrt(x), "no solution after t = 2, where x = "),
        (-1 / x, "at t = 0.5; take a shorter run"),
        (
            -(x**-2),
            "no solution after t = 0.333333",
        ),  # LSODA's last steps have no length
        (sp.log(1 - t), "no solution after t = 1, where x = "),
        (sp.Piecewise((1, t < 1)), "no solution after t = 1, where x = 2"),
        (
            sp.log(-k * x),
            "^own: there is no solution after t = 0, where x = 1; take other numbers",
        ),
        (
            (k - 1) ** -0.5,
            "diverges near t = 0; take other numbers",
        ),  # Python's 1/0 is an error
        (sp.Limit(sp.sin(y) / y, y, x), "^Limit: has no numerical value"),
        (sp.Derivative(sp.sin(t), t), "^Derivative: has no numerical value"),
        (sp.exp(sp.I * (t + 1)), r"^own: is complex, \("),
    ],
    ids=str,
)
def test_solutions_that_end(rate, message, impatient):
    """A divergence and a zero are found at their times, parameters are not blamed."""
    with pytest.raises(ParameterError, match=message):
        own({x: rate}, {x: 1}).solve({"k": 1} if rate.has(k) else {}, t=5)


@pytest.mark.parametrize("below", [1e-5, 1e-7, 1e-9])
def test_two_crossings_inside_a_step(below):
    """The first one, however close they are; none where the top is not reached."""
    time = crossing(CIRCLE, x - (1 - below), until=20)
    assert time == pytest.approx(np.arcsin(1 - below), abs=1e-10 / np.sqrt(below))
    assert np.isnan(crossing(CIRCLE, x - (1 + below), until=20))


@pytest.mark.parametrize(
    "jump",
    [
        sp.Piecewise((1, x >= 1), (-1, True)),
        sp.Piecewise((-1, t <= 0), (1, True)),
        sp.floor(x) - 0.5,
        sp.sign(1 - x) - 0.5,
    ],
    ids=str,
)
def test_a_jump_at_the_start_is_a_crossing(jump, recwarn):
    """Whatever rounding makes of states beside the start; pieces are evaluated as
    arrays.
    """
    rates = np.random.default_rng(0).uniform(0.1, 3, 10)
    found = own({x: -k * x}, {x: 1}).solve({}, t=5, k=rates, events={"event": jump})
    assert (found.event < 1e-10).all() and not recwarn  # NaN, too, is a failure
    assert np.isnan(crossing(DECAY, sp.Piecewise((1, t <= 0), (1 + t, True))))


def test_pieces_of_several_shapes():
    """Conditions on a parameter and on the time, at many points."""
    piece = sp.Piecewise((1, sp.And(k > 1, x > sp.Rational(1, 2))), (0, True))
    rates = np.linspace(0.1, 3, 40)
    found = own({x: -k * x}, {x: 1}, observables={"o": piece}).solve(
        {}, t=2, k=rates, at=[0, 1, 2]
    )
    np.testing.assert_array_equal(found.o, (found.k > 1) & (found.x > 0.5))


def test_an_event_within_rounding_is_none():
    """A limit that is approached is never crossed, a start on an event is."""
    assert np.isnan(crossing(own({x: 1 - x}, {x: 0}), x - 1, until=60))
    assert crossing(DECAY, x - 1) == 0


WIDTH = sp.Rational(1, 1000)
PULSES = {
    "piecewise": (sp.Piecewise((1, (t > 700) & (t < 700 + WIDTH)), (0, True)), 1e-3),
    "switches": (sp.Heaviside(t - 700) - sp.Heaviside(t - 700 - WIDTH), 1e-3),
    "gaussian": (sp.exp(-(((t - 700) / WIDTH) ** 2)), 1e-3 * np.sqrt(PI)),
    "sech": (sp.sech((t - 700) / WIDTH), 1e-3 * PI),
    "tent": (sp.Max(0, 1 - sp.Abs(t - 700) / WIDTH), 1e-3),
    "parameter": (sp.exp(-(((t - k) / WIDTH) ** 2)), 1e-3 * np.sqrt(PI)),
    "periodic": (sp.exp((sp.cos(2 * sp.pi * t / 400) - 1) * 10**8), None),
}


@pytest.mark.parametrize("name", PULSES)
def test_pulses_late_in_a_long_run(name):
    """Neither a pulse nor the event that it sets off is stepped over."""
    pulse, area = PULSES[name]
    if area is None:  # half a peak at 0, two whole ones
        area = 2.5 * 400 / (2 * PI) * np.sqrt(2 * PI * 1e-8)
    flow = own({x: pulse}, {x: 0})
    numbers = {"k": 700} if pulse.has(k) else {}
    result = flow.solve(numbers, t=1000, events={"after": x - 0.3 * area})
    assert result.x[-1].item() == pytest.approx(area, rel=1e-8)
    expected = 400 if name == "periodic" else 700
    assert result.after.item() == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, [1.0]) for name in ("sech", "tent", "parameter")),
        ("gaussian", [0.9, *[1.1] * 31]),
    ],
)
def test_pulses_in_the_state(name, values):
    """As above, of one run and of many at once, where time is an order parameter."""
    pulse, area = PULSES[name]
    flow = own({y: symbol("a"), x: pulse.subs(t, y)}, {y: 0, x: 0})
    after = {"after": x - 0.3 * area}
    numbers = {"k": 700} if pulse.has(k) else {}
    result = flow.solve(numbers, t=1000, events=after, at=[1000.0], a=values)
    values = np.array(values)
    np.testing.assert_allclose(result.x[:, 0] * values, area, rtol=1e-7)
    np.testing.assert_allclose(result.after * values, 700, atol=0.02)


@pytest.mark.parametrize(
    ("rates", "start", "jump"),
    [
        ({x: -2 * sp.sign(t + x)}, {x: 1}, r"t \+ x"),
        ({x: -sp.sign(x)}, {x: 1}, "x"),
        ({x: y, y: -sp.sign(x) - sp.sign(y) / 2}, {x: 1, y: 0}, "x"),
    ],
)
def test_a_solution_that_slides_along_a_jump(rates, start, jump, impatient):
    """The message names the jump."""
    with pytest.raises(
        ParameterError, match=f"rates jump at {jump} = 0, and there is no way"
    ):
        own(rates, start).solve({}, t=8)
    crossed = own({x: 1 + sp.Heaviside(x - 1)}, {x: 0}).solve(
        {}, t=5, events={"late": x - 2}
    )
    np.testing.assert_allclose([crossed.x[-1], crossed.late], [9, 1.5], rtol=1e-10)


def test_jumps_in_time_are_ends_of_steps():
    """A switch against the exact solution."""
    flow = own({x: -x + sp.Heaviside(t - 3)}, {x: 1})
    result = flow.solve({}, t=6, events={"up": x - 0.5}, at=[2.0, 5.0, 6.0])
    late = 1 + (np.exp(-3) - 1) * np.exp(-(np.array([5, 6]) - 3.0))
    np.testing.assert_allclose(result.x, [np.exp(-2), *late], rtol=1e-9)
    up = own({x: sp.Heaviside(t - 3)}, {x: 0})
    assert crossing(up, x - 0.5) == pytest.approx(3.5, rel=1e-10)
    with pytest.raises(ParameterError, match="take a shorter run"):
        own({x: sp.floor(1000 * t)}, {x: 0}).solve({}, t=100)


def test_what_diverges_is_not_said_to_jump(impatient):
    """|y| has a kink at 0, from which y runs away."""
    rates = {x: -x + (x + 0.8) * sp.Abs(y), y: 2 * y**3 * (x + 0.3)}
    with pytest.raises(ParameterError, match="^own: y diverges near t = 0.683"):
        own(rates, {x: 0, y: 0.8}).solve(until=2)


def test_a_descent_that_diverges_is_no_warning(recwarn):
    assert np.isnan(own({x: x**3 - y, y: x}, {x: 9, y: 9}).descend({}, 9.0, 50).x[-1])
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
