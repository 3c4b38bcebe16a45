"""Parameters: every invalid value gives a one-line error with field, value and allowed
values.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.call.parameters import BaseParameters, parameter
from theory.call.refusal import ParameterError
from theory.state_tracking import Parameters

INF, NAN = float("inf"), float("nan")
FIELDS = {f.name: f for f in dataclasses.fields(Parameters)}
COUNTS = {
    "N": 2,
    "L": 1,
    "d_g": 1,
    "d_h": 2,
    "d_model": 1,
    "n_train": 1,
    "n_test": 1,
    "epochs": 1,
    "eval_every": 1,
}
REALS = {
    "eta": "> 0",
    "rope_theta": "> 1",
    "weight_decay": ">= 0",
    "A_0": "> 0 and <= 1",
    "zeta": "any finite value",
    "R_0": "any finite value",
    "S_0": "any finite value",
}
REFUSED = [
    *((name, low - 1, f">= {low}") for name, low in COUNTS.items()),
    *(
        (name, bad, "a whole number")
        for name in COUNTS
        for bad in (2.5, 2.0, NAN, INF, "3", True, None, [2])
    ),
    ("batch_size", 0, ">= 1"),
    ("batch_size", 1.5, "a whole number"),
    ("batch_size", "all", "a whole number"),
    ("d_h", 3, "a multiple of 2"),
    ("d_h", 127, "a multiple of 2"),
    *(
        (name, bad, must)
        for name, must in REALS.items()
        for bad in (NAN, INF, -INF, "fast", True, [1.0])
    ),
    ("eta", 0.0, "> 0"),
    ("eta", -0.5, "> 0"),
    ("eta", None, "a number"),
    ("rope_theta", 1.0, "> 1"),
    ("weight_decay", -1e-9, ">= 0"),
    ("A_0", 0.0, "> 0 and <= 1"),
    ("A_0", 1.0001, "> 0 and <= 1"),
    ("zeta", None, "a number"),
    ("data_draw", -1, ">= 0"),
    ("data_draw", 0.5, "a whole number"),
    ("optimizer", "lbfgs", "one of sgd, adam, adamw"),
    ("optimizer", 1, "one of sgd, adam, adamw"),
    ("momentum", 1.0, ">= 0 and < 1"),
    ("nesterov", 1, "true or false"),
    ("beta_1", 1.0, ">= 0 and < 1"),
    ("beta_2", -0.1, ">= 0 and < 1"),
    ("epsilon", -1e-8, ">= 0"),
    ("schedule", "linear", "one of constant, cosine"),
    ("warmup", -1, ">= 0"),
    ("clip", 0.0, "> 0"),
    ("unit", "batch", "one of epoch, step"),
    ("rope", "3pi", "one of 2pi, plain, linear"),
    ("permutations", "none", "one of iid, distinct"),
    ("fix_embedding", 1, "true or false"),
    ("fix_embedding", "yes", "true or false"),
]


@pytest.mark.parametrize(
    ("name", "value", "allowed"), REFUSED, ids=lambda v: str(v)[:20]
)
def test_wrong_values_are_refused(name, value, allowed):
    """At construction and when a copy is changed."""
    for make in (Parameters, Parameters.demo().replace):
        with pytest.raises(ParameterError) as caught:
            make(**{name: value})
        message = str(caught.value)
        assert "\n" not in message
        assert (
            message.startswith(f"{name} = {value!r}: must be ") and allowed in message
        )


def test_bounds_that_are_no_values():
    """``above`` and ``below`` leave their numbers out."""

    @dataclasses.dataclass(frozen=True)
    class Share(BaseParameters):
        share: float = parameter(0.5, "of something", above=0, below=1)

    assert Share(0.999).share == 0.999
    for value in (0.0, 1.0):
        with pytest.raises(
            ParameterError, match=rf"^share = {value}: must be > 0 and < 1"
        ):
            Share(value)


def test_every_field_is_covered():
    """The table above forgets no field, and every field says what it means."""
    assert {name for name, _, _ in REFUSED} == set(FIELDS)
    assert all(f.metadata["doc"] for f in FIELDS.values())


@pytest.mark.parametrize("name", ["N", "epochs", "batch_size", "eta", "zeta"])
def test_numbers_beyond_floating_point_are_refused(name):
    """A whole number of 400 digits is a ParameterError like any other value out of
    range.
    """
    with pytest.raises(ParameterError, match=name):
        Parameters(**{name: 10**400})


SLIPS = {
    "eat": "eta",
    "n": "N",
    "n_trian": "n_train",
    "batchsize": "batch_size",
    "rope_tehta": "rope_theta",
    "A0": "A_0",
    "l": "L",
    "D_G": "d_g",
}


def test_several_values_are_a_call_in_python():
    """--set takes one value; the line that is printed does what was meant."""
    with pytest.raises(
        ParameterError, match="^--set L=3,8: takes one value; "
    ) as caught:
        Parameters().parse(["L=3,8"])
    call = re.search(r"several in Python: (.*); (.*); students", str(caught.value))
    names: dict = {}
    exec(call[1], names)
    alone = names["onset"](Parameters(L=8)).numbers["alpha_half"]
    assert eval(call[2], names)["alpha_half"][1] == pytest.approx(alone, rel=1e-12)
    with pytest.raises(ParameterError, match="^L = '3,x': must be a whole number"):
        Parameters().parse(["L=3,x"])


FAR = (
    "lr learning_rate seed seeds alpha heads depth width layers temperature length"
    " seq_len decay"
)
FAR += " lambda hidden states actions vocab steps time threads"


@pytest.mark.parametrize("wrong", FAR.split())
def test_nothing_far_is_proposed(wrong):
    """Words of other programs, which have little in common with any field."""
    with pytest.raises(ParameterError) as caught:
        Parameters(**{wrong: 1})
    assert str(caught.value).startswith(
        f"{wrong}: unknown parameter; known are N, L, d_g, "
    )


@pytest.mark.parametrize(("wrong", "near"), SLIPS.items())
def test_unknown_names_get_the_nearest(wrong, near):
    """Construction, copy and parsing alike."""
    for attempt in (
        lambda: Parameters(**{wrong: 1}),
        lambda: Parameters().replace(**{wrong: 1}),
        lambda: Parameters().parse([f"{wrong}=1"]),
    ):
        with pytest.raises(ParameterError) as caught:
            attempt()
        message = str(caught.value)
        assert message.startswith(f"{wrong}: unknown parameter; did you mean '{near}'")
        assert "\n" not in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"N": 3, "d_g": 7, "permutations": "distinct"}, "d_g = 7: must be <= N! = 6"),
        (
            {"batch_size": 4097, "n_train": 4096},
            "batch_size = 4097: must be <= n_train = 4096",
        ),
        ({"d_model": 2}, "d_model = 2: must be 1 with fix_embedding"),
        (
            {"schedule": "cosine", "epochs": 12, "warmup": 12},
            "warmup = 12: must be < 12",
        ),
    ],
)
def test_fields_must_fit_together(changes, message):
    """What each field allows alone may not go together; undoing one of them is
    accepted.
    """
    with pytest.raises(ParameterError) as caught:
        Parameters(**changes)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert Parameters(N=3, d_g=7) and Parameters(N=3, d_g=6, permutations="distinct")
    assert Parameters(epochs=12, warmup=12)  # a run that ends within it
    assert Parameters(batch_size=4096, n_train=4096) and Parameters(
        d_model=2, fix_embedding=False
    )


def test_presets():
    """Tables 1 and 2, and the demonstration."""
    one, two, demo = (
        Parameters.presets()[name]() for name in ("table_1", "table_2", "demo")
    )
    assert one == Parameters()
    assert (one.N, one.L, one.d_g, one.d_h, one.n_train, one.n_test) == (
        32,
        10,
        32,
        128,
        32768,
        256,
    )
    assert (one.eta, one.epochs, one.eval_every) == (0.5, 20000, 50)
    assert (one.optimizer, one.rope_theta, one.rope) == ("sgd", 1e4, "2pi")
    assert (two.N, two.L, two.d_g, two.d_h, two.n_train, two.n_test) == (
        24,
        10,
        24,
        8,
        32768,
        128,
    )
    assert (two.eta, two.epochs, two.rope) == (0.5, 16000, "plain")
    assert (demo.N, demo.L, demo.d_g, demo.d_h, demo.n_train) == (16, 8, 16, 32, 2048)
    assert demo.alpha(demo.epochs) == 12
    assert one.initial_variance == 1 / 3


def test_presets_take_fields_by_keyword():
    """By position they would set whichever field comes first."""
    assert Parameters.table_1(L=3) == Parameters(L=3) and Parameters.demo(L=3).N == 16
    assert Parameters.demo(N=8).N == 8
    assert "table_2" in dir(Parameters)
    for preset in (Parameters.table_1, Parameters.presets()["table_2"]):
        with pytest.raises(
            ParameterError, match="^Parameters.table_[12]: takes fields by keyword"
        ):
            preset(3)
    with pytest.raises(AttributeError, match="no attribute 'table_3'"):
        Parameters.table_3()


@pytest.mark.parametrize("name", ["share", "replace"])
def test_presets_do_not_hide(name):
    """``Share.replace()`` would be the method, ``Share.share()`` a call of the field's
    default.
    """
    changes = {"PRESETS": {name: {}}, "share": parameter(0.5, "of something")}
    with pytest.raises(
        ParameterError, match=f"^Share.PRESETS: {name}: is the name of a field"
    ):
        type(BaseParameters)("Share", (BaseParameters,), changes)


READ = [
    ("N=8", "N", 8),
    ("n_train=1e5", "n_train", 100000),
    ("eta=1e-2", "eta", 0.01),
    ("eta=2", "eta", 2.0),
    ("batch_size=none", "batch_size", None),
    ("batch_size=None", "batch_size", None),
    ("batch_size=9", "batch_size", 9),
    ("A_0=null", "A_0", None),
    ("A_0=0.25", "A_0", 0.25),
    ("fix_embedding=true", "fix_embedding", True),
    ("fix_embedding=False", "fix_embedding", False),
    ("fix_embedding=0", "fix_embedding", False),
    ("rope=linear", "rope", "linear"),
    ("zeta=-0.5", "zeta", -0.5),
]


@pytest.mark.parametrize(("text", "field", "value"), READ)
def test_assignments(text, field, value):
    """NAME=VALUE in every kind of field."""
    found = getattr(Parameters(batch_size=64).parse([text]), field)
    assert found == value and type(found) is type(value)


UNREADABLE = {
    "N": "--set N: must be NAME=VALUE",
    "N=": "N = ''",
    "N=eight": "N = 'eight'",
    "N=1e400": "N = inf",
    "N=nan": "N = nan",
    "n_train=1.5e0": "n_train = 1.5",
    "eta=none": "eta = 'none'",
    "eta=1e400": "eta = inf",
    "fix_embedding=yes": "fix_embedding = 'yes'",
    "rope=2PI": "rope = '2PI'",
    "=3": ": unknown",
}


@pytest.mark.parametrize(("text", "message"), UNREADABLE.items())
def test_bad_assignments(text, message):
    """One line, starting with what was given."""
    with pytest.raises(ParameterError) as caught:
        Parameters().parse([text])
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_assignments_accumulate():
    """Several at once, later ones win, the original stays."""
    p = Parameters()
    q = p.parse(["N=8", "d_g=4", "N=6"])
    assert (q.N, q.d_g, p.N) == (6, 4, 32)
    assert p.parse([]) == p


def test_frozen_and_hashable():
    """Who sets a field is told what to write; copies and pickles are equal; equal
    objects share a hash.
    """
    p = Parameters(N=8)
    with pytest.raises(
        ParameterError, match=r"^p\.N=9: .*; take p = p\.replace\(N=9\)$"
    ):
        p.N = 9
    with pytest.raises(
        ParameterError, match="^d_gg: unknown parameter; did you mean 'd_g'"
    ):
        p.d_gg = 9
    rebuilt = Parameters.demo().replace(**p.as_dict())
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p)), p.replace(), rebuilt):
        assert twin == p and hash(twin) == hash(p)


def test_numpy_scalars_become_plain():
    """NumPy numbers are accepted and do not leak into the JSON."""
    p = Parameters(
        N=np.int64(8), eta=np.float32(0.5), fix_embedding=np.bool_(True), L=np.array(4)
    )
    assert p == Parameters(N=8, eta=0.5, L=4)
    assert [type(v) for v in (p.N, p.eta, p.fix_embedding, p.L)] == [
        int,
        float,
        bool,
        int,
    ]
    assert p.as_json() == Parameters(N=8, eta=0.5, L=4).as_json()


finite = st.floats(-1e6, 1e6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(first=finite, second=finite, whole=st.booleans())
def test_canonical_json(first, second, whole):
    """Equal parameters give equal text, and the text gives the parameters back."""
    one, two = Parameters(zeta=int(first) if whole else first), Parameters(zeta=second)
    for other in (two, Parameters(zeta=one.zeta), Parameters(zeta=-one.zeta)):
        assert (one == other) == (one.as_json() == other.as_json())
    assert Parameters(**json.loads(one.as_json())) == one


def test_json_of_a_training_run():
    """Fields that only say where a theory curve starts do not identify a run, nor do
    those of rewards, which `identity` of their students adds.
    """
    p = Parameters(zeta=0.3, A_0=0.2, R_0=0.1, S_0=-0.1)
    aside = set(p.as_dict()) - set(p.as_dict(training_only=True))
    assert aside == {"zeta", "A_0", "R_0", "S_0"}
    assert p.as_json(training_only=True) == Parameters().as_json(training_only=True)
    assert p.as_json() != Parameters().as_json()
    assert Parameters(eta=0.4).as_json(training_only=True) != p.as_json(
        training_only=True
    )
    assert list(json.loads(p.as_json())) == sorted(p.stored())


def test_frequencies():
    """The three families; in Table 1 the first block turns by 2 pi per position and is
    blind to it.
    """
    assert Parameters().frequencies[0] == 2 * np.pi
    one, two, even = (
        Parameters(d_h=8, rope=rope).frequencies for rope in ("2pi", "plain", "linear")
    )
    np.testing.assert_allclose(
        two, [1, 0.1, 0.01, 0.001], rtol=1e-14
    )  # theta = 10^4; rounding
    np.testing.assert_allclose(one, 2 * np.pi * two, rtol=1e-14)  # rounding
    np.testing.assert_allclose(
        even, 2 * np.pi * np.array([1, 0.75, 0.5, 0.25]), rtol=1e-14
    )  # rounding
    assert (Parameters(d_h=8, rope="linear", rope_theta=3.0).frequencies == even).all()
    assert Parameters(d_h=2).frequencies.shape == (1,)


def test_training_time():
    """Alpha = epochs / (d_g N), and back."""
    p = Parameters(N=4, d_g=5)
    assert p.alpha(30) == 1.5
    assert (
        p.run_to(2.5).epochs == 50
        and p.run_to(1e-9).epochs == 1
        and p.run_to(None) is p
    )
    assert p.run_to(2.58).epochs == 52  # the nearest whole number
    with pytest.raises(
        ParameterError, match=r"^alpha = 1e\+19: must be below .* 2\^63 epochs"
    ):
        p.run_to(1e19)
    for bad in (0.0, -1.0, NAN, INF):
        with pytest.raises(ParameterError, match="^alpha = "):
            p.run_to(bad)


def test_values_are_what_the_equations_want():
    """Numbers by symbol name; A_0 defaults to 1/L."""
    values = Parameters(L=4).values()
    assert values["A_0"] == 0.25 and Parameters(A_0=0.7).values()["A_0"] == 0.7
    assert values["sigma2"] == 1 / 3 and values["omega"].shape == (64,)


def test_values_are_defined_by_quantities():
    """A model that defines ``values`` itself would give numbers that follow nothing."""
    with pytest.raises(ParameterError, match=r"^Own\.values: .* define quantities"):

        class Own(BaseParameters):
            """With a function that hides the common one."""

            def values(self):
                """Numbers by symbol name."""
                return {"N": 2}


def test_fields_of_earlier_versions_are_read_where_they_said_nothing():
    for name, value in Parameters.FORMER.items():
        assert name not in Parameters.filled({name: value, "N": 5})
        with pytest.raises(ParameterError, match=f"{name} = .*version 0.1.0"):
            Parameters.filled({name: "another"})
