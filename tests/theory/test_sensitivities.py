"""Sensitivities of flows against differences of solutions and closed forms."""

import json

import numpy as np
import pytest
import sympy as sp

from theory import Flow, onset
from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.dynamics import sensitivities
from theory.dynamics.dependence import Dependence
from theory.dynamics.sensitivities import Fall, Variations, elasticities
from theory.models import registry
from theory.state_tracking.onset import HALF

x, k, x_0, t, c = sp.symbols("x k x_0 t c")
DECAY = Flow(
    name="decay",
    time=t,
    rhs={x: -k * x},
    initial={x: x_0},
    reference="test",
    status="exact",
    observables={"square": x**2 + c},
)
NUMBERS = {"k": 0.7, "x_0": 2.0, "c": 0.25}
DRIVEN = Flow(
    name="driven",
    time=t,
    rhs={x: k * x * (1 - x) * (1 + c * sp.sin(t))},
    initial={x: x_0},
    reference="test",
    status="exact",
)


def demo():
    return st.Parameters.demo()


def test_decay_has_the_derivatives_of_its_closed_form():
    at = np.linspace(0, 3, 7)
    found = DECAY.sensitivities(
        NUMBERS, "k", "x_0", "c", t=3, at=at, events={"low": x - 1}
    )
    path = 2 * np.exp(-0.7 * at)
    assert found.d_x.sel(parameter="k").values == pytest.approx(-at * path, abs=1e-10)
    assert found.d_x.sel(parameter="x_0").values == pytest.approx(path / 2, abs=1e-10)
    assert found.d_square.sel(parameter="c").values == pytest.approx(np.ones(7))
    expected = [-np.log(2) / 0.7**2, 1 / (0.7 * 2), 0]
    assert found.d_low.values == pytest.approx(expected, abs=1e-10)
    assert elasticities(found, "low").sel(parameter="k") == pytest.approx(-1)


@pytest.mark.parametrize("name", ["k", "x_0", "c"])
def test_differences_of_solves_approach_with_the_second_power_of_their_step(name):
    numbers = {"k": 1.3, "x_0": 0.1, "c": 0.4}
    at = np.linspace(0, 4, 5)
    asked = dict(t=4, at=at, events={"half": x - 0.5})
    found = DRIVEN.sensitivities(numbers, name, **asked)
    errors = []
    steps = numbers[name] * np.array([0.1, 0.05, 0.025])
    for h in steps:
        up, down = (
            DRIVEN.solve(numbers | {name: numbers[name] + s * h}, **asked)
            for s in (1, -1)
        )
        curve = (up.x - down.x).values / (2 * h) - found.d_x.values[0]
        event = float(up.half - down.half) / (2 * h) - float(found.d_half[0])
        errors.append([np.abs(curve).max(), abs(event)])
    rates = np.diff(np.log(errors), axis=0) / np.diff(np.log(steps))[:, None]
    assert rates[-1] == pytest.approx([2, 2], abs=0.02)


class Exact:
    """Stand-in for the solution of `DECAY`, on a given grid."""

    end = 3.0

    def __init__(self, steps):
        self.t = np.linspace(0, 1, steps + 1)

    def states(self, t):
        return 2 * np.exp(-0.7 * self.end * np.asarray(t))[None]


def test_collocation_is_of_order_six():
    variations = Variations(DECAY, [c])
    direction = np.eye(3)[:, [[s.name for s in variations.symbols].index("k")]]
    errors = []
    for steps in (2, 4, 8):
        s = sensitivities.along(
            variations, Exact(steps), NUMBERS, direction, np.array([0.0, 1.0])
        )
        errors.append(abs(s[-1, 0, 0] + 3 * 2 * np.exp(-2.1)))
    assert np.diff(np.log2(errors)) == pytest.approx([-6, -6], abs=0.3)


def test_times_of_state_tracking_move_as_the_quadratures_say():
    p = demo()
    found = st.onset(p).sensitivities()
    values = p.values()
    for name, expected in (("c_omega", -0.504), ("eta", -1), ("A_0", -0.696)):
        assert found.e_alpha_half.sel(parameter=name) == pytest.approx(
            expected, abs=6e-4
        )
        h = 1e-3 * values[name]
        times = st.emergence_times(p, **{name: values[name] + h * np.array([-1, 1])})
        difference = float(np.diff(times.alpha_half)[0]) / (2 * h)
        assert found.d_alpha_half.sel(parameter=name) == pytest.approx(
            difference, rel=1e-5
        )
    assert found.d_alpha_half.sel(parameter="R_0") == pytest.approx(-17.20, abs=0.006)


def test_a_field_moves_what_follows_from_it():
    p = demo()
    found = st.onset(p).sensitivities("rope_theta", "sigma2", "c_omega")
    base = p.rope_theta
    up, down = (
        float(st.emergence_times(p.replace(rope_theta=base * (1 + s))).alpha_half)
        for s in (1e-3, -1e-3)
    )
    expected = (up - down) / (2e-3 * base)
    assert found.d_alpha_half.sel(parameter="rope_theta") == pytest.approx(
        expected, rel=1e-5
    )
    both = found.e_alpha_half.sel(parameter=["sigma2", "c_omega"])
    assert both[0] == pytest.approx(float(both[1]))  # one is proportional to the other


def test_fields_and_constants_are_given_by_keyword():
    """As with other parameters; arrays are refused."""
    p, flow = demo(), st.flow()
    for given in ({"eta": 0.7}, {"c_omega": 1.1}):
        by_keyword = flow.sensitivities(p, "R_0", alpha=3.0, **given)
        replaced = flow.sensitivities(p.replace(**given), "R_0", alpha=3.0)
        np.testing.assert_array_equal(by_keyword.d_A, replaced.d_A)
        assert not by_keyword.d_A.equals(flow.sensitivities(p, "R_0", alpha=3.0).d_A)
    with pytest.raises(ParameterError, match="eta: must be single numbers"):
        flow.sensitivities(p, "R_0", alpha=3.0, eta=[0.5, 0.7])


def test_sizes_are_continuous_where_formulas_allow():
    flow, p = st.flow(), demo().replace(c_omega=1.0)
    asked = dict(alpha=6, at=[0], events={"half": HALF["alpha_half"]})
    found = flow.sensitivities(p, "L", "N", **asked)
    for k, name in enumerate(("L", "N")):
        times = []
        for step in (1e-3, -1e-3):
            numbers = {n: v for n, v in p.values().items() if np.ndim(v) == 0}
            numbers = {n: v for n, v in numbers.items() if n in flow._symbols}
            numbers[name] += step
            if name == "L":
                numbers["A_0"] = 1 / numbers["L"]
            times.append(float(flow.solve(numbers, **asked).half))
        expected = (times[0] - times[1]) / 2e-3
        assert found.d_half[k] == pytest.approx(expected, rel=1e-5)


def test_share_of_a_fall_moves_with_both_of_its_ends():
    numbers = {"k": 1.3, "x_0": 0.1, "c": 0.4}
    found = DRIVEN.sensitivities(
        numbers, "k", "x_0", t=4, at=[0], events={"fall": Fall(x, 0.3)}
    )

    def time(name, step):
        moved = numbers | {name: numbers[name] + step}
        ends = DRIVEN.solve(moved, t=4, at=[0, 4]).x.values
        level = 0.7 * ends[0] + 0.3 * ends[1]
        return float(DRIVEN.solve(moved, t=4, events={"e": x - float(level)}).e)

    for i, name in enumerate(("k", "x_0")):
        expected = (time(name, 1e-4) - time(name, -1e-4)) / 2e-4
        assert found.d_fall[i] == pytest.approx(expected, rel=1e-5)


def test_events_that_do_not_happen_have_no_derivative():
    found = DECAY.sensitivities(NUMBERS, "k", t=1, events={"low": x - 0.1})
    assert np.isnan(found.low) and np.isnan(found.d_low).all()


@pytest.mark.parametrize(
    ("flow", "p", "names", "words"),
    [
        (DECAY, NUMBERS, ("kk",), "kk: neither a field nor a constant"),
        (st.flow(), demo(), ("n_train",), "nothing in state_tracking depends on it"),
        (st.flow(), demo(), ("L",), "c_omega follows from it at whole numbers only"),
        (st.flow(), demo(), ("optimizer",), "neither a field nor a constant"),
    ],
)
def test_what_has_no_derivative_is_refused(flow, p, names, words):
    with pytest.raises(ParameterError, match=words):
        flow.sensitivities(p, *names, until=1)


def test_jumps_of_rates_are_refused():
    jumping = Flow(
        name="jumping",
        time=t,
        rhs={x: sp.Piecewise((1, x < k), (2, True))},
        initial={x: 0},
        reference="test",
        status="exact",
    )
    with pytest.raises(ParameterError, match="rates may jump"):
        jumping.sensitivities({"k": 1}, "k", t=1)


def test_all_parameters_are_those_that_matter_and_say_what_is_left_out():
    p = demo()
    names = Dependence(p, sorted(st.flow()._symbols)).names
    assert {"eta", "N", "d_g", "R_0", "A_0", "c_omega", "rope_theta"} <= {*names}
    assert not {"n_train", "weight_decay", "beta_1", "epochs"} & {*names}
    found = st.flow().sensitivities(p, until=1, at=[1])
    assert "L: c_omega follows" in found.left_out
    assert not {"L", "d_h"} & {*found.parameter.values}


@pytest.mark.parametrize("model", ["state_tracking", "associative_memory"])
def test_command_has_a_table_and_numbers(model, capsys):
    words = [model, "--sensitivities", "--quiet"]
    if model == "state_tracking":
        words += ["--preset", "demo"]
    assert onset.main(words) == 0
    assert "d ln T/d ln x" in capsys.readouterr().out
    assert onset.main([*words, "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)["sensitivities"]
    for times in numbers.values():
        assert times["eta"]["elasticity"] == pytest.approx(-1, abs=1e-6)


def test_models_without_a_flow_say_so():
    p = registry.find("positional_semantic").wing("theory").Parameters()
    made = registry.find("positional_semantic").wing("theory", "onset").onset(p)
    with pytest.raises(ParameterError, match="none of these numbers"):
        made.sensitivities()
