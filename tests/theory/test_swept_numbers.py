"""Calling convention of all numbers: Parameters, and arrays of fields by keyword;
derived quantities never become stale.
"""

import importlib
import inspect
import pickle

import numpy as np
import pytest
import sympy as sp
import xarray as xr

from theory.associative_memory import factual_recall
from theory.call.refusal import ParameterError
from theory.models.registry import OWN, find
from theory.positional_semantic import State

SYSTEMS = [m.name for m in OWN if not m.systems]
# Formulas in, formulas out; and functions of logits or of a curve, not of parameters.
SYMBOLIC = {"equations", "sections", "flow", "flows", "thermodynamic_limit", "mixture"}
OF_OTHERS = {"applies", "gaussian_accuracy", "with_accuracy"}
OF_OTHERS |= {
    "gaussian_recall",
    "marginal_cdf",
    "sphere_recall",
}  # of N and d as numbers
SMALL = {
    "state_tracking": {"N": 6, "L": 4, "d_g": 5, "d_h": 8, "n_train": 64, "epochs": 30},
    "induction_heads": {"N": 3, "data": "orthonormal", "query": "last", "steps": 20},
    "positional_semantic": {"alpha": 2.0, "order": 6},
    "associative_memory.factual_recall": {"S": 6, "R": 3, "D": 2, "steps": 20},
    "induction_heads.bursty": {"N": 16, "B": 1},
    "associative_memory.k_hop": {"N": 4, "k": 2, "m_0": 0.2, "steps": 200},
}
HALF = {"part": factual_recall.dynamics.SUBJECT, "share": 0.5}
STATE = State(q=0.2, m=0.1, theta=0.05, V=0.3)
LATER = [0.0, 0.5, 3.0]
# Function: its own arguments, the swept field and its values.
STATED = {
    "onset": ({"until": 4.0}, "eta", [0.1]),
    "emergence_times": ({}, "eta", [0.1, 0.2]),
    "predict": ({}, "steps", [20, 20]),
}
CASES = {
    "state_tracking": {
        "c_omega": ({}, "L", [1, 3, 8]),
        "emergence_times": ({"level": 0.3}, "L", [2, 3, 8]),
        "quadrature.emergence_time": ({"level": 0.3}, "L", [2, 3, 8]),
        "initial_variance": ({}, "d_h", [8, 16]),
        "trajectory": ({"alpha": 0.5, "at": [0, 0.5]}, "L", [2, 8]),
        "predict": ({"seeds": 2, "level": "cavity"}, "L", [2, 5]),
        "drawn_times": ({"seeds": 2, "level": "cavity"}, "L", [2, 5]),
        "onset": ({}, "N", [6, 9]),
        "inversion.states": ({"alpha": LATER}, "L", [2, 8]),
        "inversion.solve": ({"at": LATER}, "permutations", ["iid", "distinct"]),
        "late_time.late_constant": ({}, "N", [6, 9]),
        "composite.composite": ({"D": [0.0, 0.5]}, "L", [20, 30]),
    },
    "induction_heads": {
        "emergence_times": ({}, "N", [3, 5]),
        "predict": ({}, "loss", ["mean", "mean"]),
        "onset": ({}, "N", [2, 5]),
    },
    "positional_semantic": {
        "solve": ({"branch": "semantic"}, "alpha", [2.0, 3.0]),
        "baseline": ({}, "sigma", [0.4, 0.5]),
        "test_error": ({"state": STATE, "order": 6}, "omega", [0.2, 0.4]),
        "curve": ({"branch": "agnostic", "alphas": [2.0, 3.0]}, "omega", [0.2, 0.4]),
        "phase_diagram": ({"omegas": [0.2], "alphas": [3.0], "jobs": 1}, "lam", [0.01]),
        "predict": ({}, "omega", [0.2, 0.3]),
        "thresholds": ({}, "omega", [0.2, 0.3]),
        "onset": ({}, "omega", [0.2]),
    },
    "associative_memory.factual_recall": {
        "predict": ({}, "R", [2, 3]),
        "time_of_share": (HALF, "epsilon", [0.1, 0.2]),
        "closed_form": (HALF, "D", [2, 3]),
        "emergence_times": ({}, "S", [6, 8]),
        "onset": ({}, "S", [6, 8]),
    },
    "induction_heads.bursty": (
        STATED
        | {"emergence_time": ({}, "B", [1, 2]), "effective_length": ({}, "B", [1, 2])}
        | {"random_time": ({}, "B", [1, 2]), "spread_time": ({"draws": 4}, "B", [1, 2])}
    ),
    "associative_memory.gradient_memory": {"margin": ({"t": 7.0}, "K", [2, 4])},
    "associative_memory.superposition": {
        "gaussian": ({}, "N", [32, 64]),
        "sphere": ({}, "d", [8, 16]),
    },
    "associative_memory.trigger_task": {},
    "associative_memory.gradient_steps": {"second_gradient": ({}, "T", [8, 12])},
    "associative_memory.noisy_bigram": {
        "feed_forward_success": ({}, "n", [16, 32]),
        "value_recovered": ({}, "N", [32, 64]),
    },
    "associative_memory.k_hop": {
        "direct_time": ({}, "m_0", [0.1, 0.2]),
        "mixture_time": ({}, "m_0", [0.1, 0.2]),
        "curriculum_times": ({}, "m_0", [0.1, 0.2]),
        "predict": ({}, "curriculum", [False, True]),
    },
}
DECAYING = ("late_overlap",)
OWN_FIELDS = {  # what a function needs beyond the small parameters of its system
    ("induction_heads", "emergence_times"): {"trained": "three"}
}
# Long ones, whose loop over fields is that of others of the same system that stay.
LONG = {
    ("induction_heads", "predict"),
    ("induction_heads.bursty", "emergence_times"),
    ("positional_semantic", "onset"),
    ("positional_semantic", "thresholds"),
    ("positional_semantic", "phase_diagram"),
}
ALL = [
    pytest.param(
        system,
        name,
        id=f"{system}.{name}",
        marks=[pytest.mark.slow] * ((system, name) in LONG),
    )
    for system, cases in CASES.items()
    for name in cases
]


def small(system, name=""):
    """Parameters at which every number is cheap, and that a function describes."""
    own = OWN_FIELDS.get((system, name), {})
    if name in DECAYING:
        own = {"weight_decay": 0.005, "d_h": 32}
    return find(system).wing("theory").Parameters(**{**SMALL.get(system, {}), **own})


def of(system, name):
    """A function by its path in the system's package."""
    path = find(system).path("theory")
    found = importlib.import_module(path)
    for part in name.split("."):
        path += f".{part}"
        found = getattr(found, part, None) or importlib.import_module(path)
    return found


def plain(result):
    """Numbers alone."""
    return result.summary() if hasattr(result, "summary") else result


def equal(swept, k, field, alone):
    """The k-th entry of a sweep is what the function says there."""
    if isinstance(alone, xr.Dataset):
        axis = f"parameter_{field}" if field in alone.variables else field
        at = swept.isel({axis: k}).drop_vars(axis)
        assert set(at.variables) == set(alone.variables)
        for name in alone.variables:
            equal(at[name].values[None], 0, field, alone[name].values)
    elif isinstance(alone, dict):
        assert set(swept) == set(alone)
        for name in alone:
            equal(swept[name], k, field, alone[name])
    elif np.asarray(alone).dtype.kind in "UO":
        assert np.array_equal(swept[k], alone)
    else:
        # Array code may share panels between points, which moves the last bits.
        np.testing.assert_allclose(swept[k], alone, rtol=1e-12, atol=1e-13)


def test_every_numeric_function_is_here():
    """Of every model and system: what takes no Parameters first is symbolic, or named
    above.
    """
    assert set(CASES) == set(SYSTEMS)
    for system in SYSTEMS:
        package = find(system).wing("theory")
        public = {n for n in package.__all__ if inspect.isfunction(getattr(package, n))}
        assert public - SYMBOLIC - OF_OTHERS == {
            n for n in CASES[system] if "." not in n
        }, system


@pytest.mark.parametrize("system, name", ALL)
def test_a_sweep_is_the_loop(system, name):
    """Arrays of a field give what the loop over `replace` gives, one by one."""
    arguments, field, values = CASES[system][name]
    p, function = small(system, name), of(system, name)
    swept = function(p, **arguments, **{field: values})
    for k, value in enumerate(values):
        equal(
            swept, k, field, plain(function(p.replace(**{field: value}), **arguments))
        )


def other(p, field):
    """The same parameters with another value of one numeric field; None where there is
    none.
    """
    value = getattr(p, field)
    for changed in (value * 2, value / 2, value + 2):
        if isinstance(value, int):
            changed = int(changed)
        if changed != value:
            try:
                return p.replace(**{field: changed})
            except ParameterError:
                continue
    return None


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_follows_from_a_field_follows_its_new_value(system):
    """Values with one field changed are those of Parameters with it changed; the old
    are kept.
    """
    p = small(system)
    kept, moved = dict(p.values().items()), set()
    for field in (f for f, v in p.as_dict().items() if type(v) in (int, float)):
        if (q := other(p, field)) is None:
            continue
        values = p.values() | {field: getattr(q, field)}
        for name, value in q.values().items():
            np.testing.assert_array_equal(values[name], value)
            if name != field and not np.array_equal(value, kept.get(name)):
                moved.add(field)
    assert all(np.array_equal(v, kept[n]) for n, v in p.values().items())
    assert len(moved) >= {"state_tracking": 4, "induction_heads": 1}.get(system, 0)


@pytest.mark.parametrize(
    "unpack",
    [
        lambda v: {**v, "L": 7},
        lambda v: dict(v, L=7),
        lambda v: {"L": 7} | v,
        lambda v: {"L": 7}.update(v),
        lambda v: v.__setitem__("L", 7),
        lambda v: v["omega"].fill(7),
        lambda v: pickle.loads(pickle.dumps(v))["omega"].fill(7),
        lambda v: setattr(v, "changes", {"L": 7}),
        lambda v: (v | {"L": 7}).changes.update({"L": 8}),
    ],
)
def test_values_are_one_object(unpack):
    """No road makes a dictionary in which c_omega of one L stands beside another."""
    values = small("state_tracking").values()
    with pytest.raises(
        (ParameterError, TypeError, AttributeError, ValueError)
    ) as error:
        unpack(values)
    if isinstance(error.value, ParameterError):
        assert str(error.value).endswith('take p.values() | {"name": value}')
    assert values["L"] == 4 and pickle.loads(pickle.dumps(values))["L"] == 4
    assert repr(values | {"L": 7}) == f"{values.of!r}.values() | {{'L': 7}}"


def test_arrays_that_are_given_may_change_later():
    """What followed from them was computed from their old entries, which are kept."""
    p, lengths = small("state_tracking"), np.array([3, 5])
    values = p.values() | {"L": lengths}
    constants = values["c_omega"].copy()
    lengths *= 4
    np.testing.assert_array_equal(values["L"], [3, 5])
    np.testing.assert_array_equal(values["c_omega"], constants)


def test_numbers_given_by_their_symbols():
    """As by their names, also to array code: what would not be computed again is
    refused.
    """
    p, package = small("state_tracking"), find("state_tracking").wing("theory")
    onset, time = package.equations()["onset_A"], package.quadrature.emergence_time
    sigma2 = sp.Symbol("sigma2", positive=True)
    with pytest.raises(
        ParameterError, match=r"^sigma2: c_omega would not be computed from it"
    ):
        onset.evaluate(p.values() | {sigma2: 1.0, "alpha": 1.0})
    (c_omega,) = (s for s in onset.rhs.free_symbols if s.name == "c_omega")
    both = p.values() | {sigma2: 1.0, c_omega: 0.3, "alpha": 1.0}
    assert onset.evaluate(both) == onset.evaluate(p, c_omega=0.3, alpha=1.0)
    assert time(both) == time(p, c_omega=0.3) != time(p)


def test_the_idiom_that_went_wrong():
    """Times over L with the c_omega of one L fell where the truth rises: values follow
    L wherever numbers enter.
    """
    p, package = small("state_tracking"), find("state_tracking").wing("theory")
    lengths, onset, flow = (
        np.arange(3, 23),
        package.equations()["onset_A"],
        package.flow(),
    )
    values = p.values() | {"L": lengths}
    for number, swept in (
        (
            package.quadrature.emergence_time(values),
            lambda p: package.quadrature.emergence_time(p, L=lengths),
        ),
        (
            package.inversion.states(values, [0.1])["A"],
            lambda p: package.inversion.states(p, [0.1], L=lengths)["A"],
        ),
        (
            onset.evaluate(values | {"alpha": 1.0}),
            lambda p: onset.evaluate(p, L=lengths, alpha=1.0),
        ),
        (
            flow.solve(values | {"L": 3}, alpha=1.0).A[-1],
            lambda p: flow.solve(p.replace(L=3), alpha=1.0).A[-1],
        ),
    ):
        np.testing.assert_array_equal(number, swept(p))
    with pytest.raises(ParameterError, match="^L = 0: must be"):
        onset.evaluate(p.values() | {"L": 0, "alpha": 1.0})
    # Numbers that nothing follows from may be replaced, and what follows may be
    # replaced itself.
    free = p.values() | {"eta": np.array([0.1, 0.2])}
    np.testing.assert_array_equal(
        package.quadrature.emergence_time(free),
        package.quadrature.emergence_time(p, eta=[0.1, 0.2]),
    )
    changed = p.values() | {"c_omega": 0.3}
    assert package.quadrature.emergence_time(
        changed
    ) == package.quadrature.emergence_time(p, c_omega=0.3)
    assert package.quadrature.emergence_time(
        changed
    ) != package.quadrature.emergence_time(p)
    p = package.Parameters(N=16, d_g=16, d_h=32, eta=0.5)
    rising = package.quadrature.emergence_time(p, L=np.arange(3, 23))
    alone = (
        package.quadrature.emergence_time(p.replace(L=3)),
        package.quadrature.emergence_time(p.replace(L=22)),
    )
    assert (
        rising[[0, -1]] == pytest.approx(alone, rel=1e-12)
        and rising[-1] > 5 * rising[0]
    )


def test_arrays_broadcast_and_errors_name_the_field():
    """Two fields; equations; shapes, names and values that do not work."""
    p, package = small("state_tracking"), find("state_tracking").wing("theory")
    both = package.quadrature.emergence_time(p, L=[3, 8], eta=[[0.1], [0.2], [0.5]])
    assert both.shape == (3, 2)
    assert both[2, 1] == pytest.approx(
        package.quadrature.emergence_time(p.replace(L=8, eta=0.5)), rel=1e-12
    )
    curves = package.trajectory(
        p, 0.5, at=[0, 0.5], L=[3, 8], eta=[[0.1], [0.2], [0.5]]
    )
    assert dict(curves.sizes) == {"eta": 3, "L": 2, "alpha": 2}
    assert curves.eta.values.tolist() == [0.1, 0.2, 0.5]
    law = package.equations()["onset_A"]
    at = law.evaluate(p, L=[3, 8], alpha=2.0)
    assert at[1] == law.evaluate(p.replace(L=8).values() | {"alpha": 2.0})
    for call, message in (
        (
            lambda: package.quadrature.emergence_time(p, L=[3, 4], eta=[0.1, 0.2, 0.3]),
            "do not fit together",
        ),
        (
            lambda: package.quadrature.emergence_time(p, L=[3, -1]),
            "L = -1: must be >= 1",
        ),
        (
            lambda: package.quadrature.emergence_time(p, c_omga=1.0),
            "did you mean 'c_omega'",
        ),
        (lambda: package.c_omega(p, l=[3]), "l: unknown parameter"),
        (lambda: package.equations()["c_omega"].evaluate(p, alfa=1.0), "alfa: neither"),
    ):
        with pytest.raises(ParameterError, match=message):
            call()
