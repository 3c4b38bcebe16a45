"""Derived constants that are given: one rule wherever Parameters go."""

import copy
import json
import pickle

import numpy as np
import pytest

from theory import onset
from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.state_tracking.onset import HALF


def demo(**given):
    return st.Parameters.demo(**given)


def half(p, **given):
    events = {"half": HALF["alpha_half"]}
    return st.flow().solve(p, alpha=8, at=[0], events=events, **given).half


def test_every_door_takes_a_constant_and_answers_alike(capsys):
    p, q = demo(), demo(c_omega=1.0)
    times = [
        float(st.emergence_times(p, c_omega=1.0).alpha_half),
        float(st.emergence_times(q).alpha_half),
        float(half(p, c_omega=1.0)),
        float(half(q)),
        float(half(p.values() | {"c_omega": 1.0})),
        float(st.onset(p, c_omega=1.0)["alpha_half"]),
        st.onset(q).numbers["alpha_half"],
    ]
    words = ["state_tracking", "--preset", "demo", "--set", "c_omega=1.0", "--json"]
    assert onset.main([*words, "--quiet"]) == 0
    times.append(json.loads(capsys.readouterr().out)["alpha_half"])
    assert times == pytest.approx([times[0]] * len(times), rel=1e-9)
    assert times[0] != pytest.approx(float(half(p)), rel=0.05)


def test_arrays_of_constants_become_dimensions():
    values = [0.5, 1.0, 2.0]
    found = half(demo(), c_omega=values)
    assert found.dims == ("c_omega",)
    alone = [float(half(demo(c_omega=v))) for v in values]
    assert found.values == pytest.approx(alone, rel=1e-9)


def test_curves_of_students_take_constants_where_the_theory_is_a_flow():
    ours = st.predict(demo(), seeds=2, until=1, level="own_start")
    assert np.isfinite(ours.A).all()
    with pytest.raises(ParameterError, match="follows weights, which have their own"):
        st.predict(demo(), seeds=2, until=1, c_omega=1.0)
    with pytest.raises(ParameterError, match="follows weights"):
        st.drawn_times(demo(c_omega=1.0), 2)


def test_parameters_with_constants_are_values_like_others():
    p, q = demo(), demo().replace(c_omega=1)
    assert q == demo(c_omega=1.0) != p
    assert hash(q) == hash(demo(c_omega=1.0))
    assert pickle.loads(pickle.dumps(q)) == copy.deepcopy(q) == q
    assert eval(repr(q), {"Parameters": st.Parameters}) == q
    assert q.replace(L=10).values()["c_omega"] == 1
    assert q.replace(L=10) == demo(L=10, c_omega=1.0)
    assert "c_omega = 1.0" in str(q)
    assert json.loads(q.as_json())["c_omega"] == 1
    assert isinstance(q, st.Parameters)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: demo(c_omega=-1), "c_omega = -1.0: must be >= 0"),
        (lambda: demo(c_omega="x"), "must be a number"),
        (lambda: demo().parse(["c_omega=x"]), "c_omega = 'x'"),
        (lambda: demo().replace(sigma2=1), "sigma2: unknown parameter"),
        (lambda: half(demo(), tau=0.1), "tau = 0.1: is not in state_tracking"),
        (lambda: half(demo(), c_omga=1), "did you mean 'c_omega'"),
        (lambda: st.Parameters(c_omega=1.0), r"take .replace\(c_omega=...\)"),
        (
            lambda: demo(c_omega=1).stored(training_only=True),
            "is given, not for students",
        ),
    ],
)
def test_what_does_not_do_is_refused_in_one_line(ask, words):
    with pytest.raises(ParameterError, match=words):
        ask()


def test_constants_are_derived_and_matter():
    for model in registry.TABLE.values():
        kind = model.wing("theory").Parameters
        for name in kind.CONSTANTS:
            assert name in kind().quantities()
            assert name not in kind._fields()
            inputs = [x for of in kind.INPUTS.values() for x in of]
            assert name not in inputs
