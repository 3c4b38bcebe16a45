"""What is not the Parameters of a model is refused by each of its functions, in one
line that says what to type instead.
"""

import dataclasses
import inspect

import numpy as np
import pytest
import sympy as sp

from theory import Flow
from theory import state_tracking as st
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.induction_heads import Parameters as Heads
from theory.models import registry

EVERY = pytest.mark.parametrize(
    "model", [pytest.param(m, id=m.name) for m in registry.TABLE.values()]
)


@dataclasses.dataclass(frozen=True)
class Foreign(BaseParameters):
    """Of no model: it has no field that a model has."""

    unheard_of: float = 1.0


def doors(model):
    """Functions of a model's theory that take Parameters first, and `solve` of its
    flows.
    """
    wing = model.wing("theory")
    for name in {*getattr(wing, "__all__", ()), "onset", "predict", "applies"}:
        function = vars(wing).get(name)
        if (
            inspect.isfunction(function)
            and "p" in [*inspect.signature(function).parameters][:1]
        ):
            yield name, function
    for flow in wing.flows().values():
        yield (
            f"flow {flow.name}",
            lambda p, flow=flow: flow.solve(p, **{flow.time.name: 1.0}),
        )


def message(call, *values):
    """The one line with which a call is refused."""
    with pytest.raises(ParameterError) as refused:
        call(*values)
    text = str(refused.value)
    assert text and "\n" not in text
    return text


@EVERY
def test_what_is_no_parameters_is_refused(model):
    """A class, a word, nothing, Parameters of another model: never a number, never an
    accident.
    """
    kind = model.wing("theory").Parameters
    other = st.Parameters() if kind is Heads else Heads.emergence()
    for name, call in doors(model):
        assert f"make one of it: {kind.__module__.partition('.')[0]}" in message(
            call, kind
        ), name
        assert "is a str; " in message(call, "demo"), name
        assert "is a NoneType; " in message(call, None), name
        assert "give Parameters" in message(call, "demo") or "preset" in message(
            call, "demo"
        ), name
        if name != "applies" and not name.startswith("flow"):
            said = message(call, {"unheard_of": 1.0})
            assert "give Parameters" in said or "no value for" in said, name
        if (
            name in ("onset", "emergence_times", "predict")
            or name == f"flow {model.name}"
        ):
            assert " needs " in message(call, other) or "its own" in message(
                call, other
            ), name
            message(call, Foreign())


def test_the_hint_can_be_typed():
    """What each message proposes is the call that was meant."""
    assert "theory.state_tracking.Parameters(L=8)" in message(st.onset, {"L": 8})
    assert "theory.state_tracking.Parameters.demo()" in message(st.onset, "demo")
    said = message(st.onset, Heads.emergence())
    assert (
        said == "p is Parameters of induction_heads; state_tracking needs"
        " theory.state_tracking.Parameters"
    )
    missing = {k: v for k, v in st.Parameters().values().items() if k != "c_omega"}
    assert message(st.emergence_times, missing).endswith("gives no value for c_omega")


@EVERY
def test_derived_quantities_are_not_set(model):
    """Told apart from a misspelled name, with what overrides them; known names are few,
    the model's own first.
    """
    kind = model.wing("theory").Parameters
    try:
        p, names = kind(), kind().quantities()
    except ParameterError:
        pytest.skip("sizes have no default")
    for name in names.keys() - {f.name for f in dataclasses.fields(kind)}:
        if name in kind.CONSTANTS:
            assert f"take .replace({name}=...)" in message(
                lambda name: kind(**{name: 1.0}), name
            )
            continue
        assert f"p.values() | {{'{name}': ...}}" in message(p.parse, [f"{name}=1"])
        assert np.all((p.values() | {name: names[name]})[name] == names[name])
    said = message(p.parse, ["zzz=1"])
    listed = said.partition("known are ")[2].split(" and ")[0].split(", ")
    assert 0 < len(listed) <= 12 and listed[0] == [*p.as_dict()][0]


@pytest.mark.parametrize("wrapped", [tuple, set, frozenset, lambda text: {0: text[0]}])
def test_text_in_containers_is_not_run(wrapped, tmp_path):
    """SymPy would parse it, i.e. run it, before it is refused."""
    run = tmp_path / "run"
    x, t = sp.symbols("x t")
    code = wrapped([f"open({str(run)!r}, 'w')"])
    with pytest.raises(ParameterError, match="must be a number or a SymPy expression"):
        Flow("decay", t, {x: code}, {x: 1}, "here", "exact")
    assert not run.exists()


@pytest.mark.parametrize(
    "value", [np.ma.masked, np.ma.array(1.0, mask=True), np.timedelta64(3)], ids=repr
)
@pytest.mark.parametrize("part", ["rhs", "initial", "where", "observables"])
def test_what_is_masked_is_no_number(value, part):
    x, y, t = sp.symbols("x y t")
    parts = {"rhs": {x: -x}, "initial": {x: 1}, "where": {y: x}, "observables": {}}
    parts[part] = {next(iter(parts[part]), "o"): value}
    with pytest.raises(ParameterError, match="is masked|must be a number"):
        Flow("decay", t, reference="here", status="exact", **parts)
