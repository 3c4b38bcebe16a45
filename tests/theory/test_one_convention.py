"""The same question has the same name in every model, and the length of a run is
`until` (of `train`: `tests/simulate/test_every_student.py`).
"""

import ast
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import theory
from tests.theory.test_swept_numbers import SMALL
from theory.call.refusal import ParameterError
from theory.models.registry import TABLE

NAMES = ("emergence_times", "thresholds", "predict", "flow", "onset")
# As each function is called: positional arguments, then what only keywords give.
SHAPES = {
    "emergence_times": (["p"], {"level", "seeds", "beyond", "fields"}),
    "thresholds": (["p"], {"beyond"}),
    "predict": (
        ["p", "runs"],
        {"seeds", "until", "level", "accuracies", "given", "beyond", "fluctuations"},
    ),
    "onset": (["p", "until"], {"beyond", "fluctuations"}),
}


def offered(name):
    """What a model answers, by name of the question."""
    theory = TABLE[name].wing("theory")
    return {q: vars(theory)[q] for q in NAMES if callable(vars(theory).get(q))}


@pytest.mark.parametrize("name", TABLE)
def test_a_model_with_flows_has_a_flow(name):
    """The first of its flows, or a function of sizes that gives one."""
    theory = TABLE[name].wing("theory")
    assert bool(theory.flows()) == ("flow" in vars(theory))
    if "flow" in vars(theory):
        needed = [x.default for x in inspect.signature(theory.flow).parameters.values()]
        made = theory.flow(
            *[2 for default in needed if default is inspect.Parameter.empty]
        )
        assert type(made).__name__ == "Flow" and made.state


@pytest.mark.parametrize("name", TABLE)
def test_signatures(name):
    """No question has an argument of its own."""
    for question, function in offered(name).items():
        if question in SHAPES:
            first, others = SHAPES[question]
            given = list(inspect.signature(function).parameters)
            level = (
                ["level"]
                if question == "emergence_times" and "level" in given[:2]
                else []
            )
            assert given[: len(first + level)] == first + level, question
            assert set(given[len(first) :]) <= others, question


LONG = ()  # as long as twenty others


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in TABLE]
)
def test_length_of_a_run(name):
    """`until`, or the model's own time: one answer; both are refused. A model without
    training time says so.
    """
    theory, there = TABLE[name].wing("theory"), offered(name)
    if "onset" not in there:
        return
    p = theory.Parameters(**SMALL.get(name, SMALL.get(f"{name}.factual_recall", {})))
    if name == "positional_semantic":
        with pytest.raises(ParameterError, match="no training time"):
            there["onset"](p, until=3.0)
        return
    time = "alpha" if name == "state_tracking" else "t"
    for question in {"onset", "predict"} & there.keys():
        own = (
            {"seeds": 1, "level": "cavity"}
            if (question, time) == ("predict", "alpha")
            else {}
        )
        a, b = (there[question](p, **own, **{word: 4.0}) for word in ("until", time))
        if question == "onset":
            assert a.numbers == pytest.approx(b.numbers, rel=1e-12, nan_ok=True)
        else:
            xr.testing.assert_identical(a, b)
            lengths = [
                float(np.max(x[time]))
                for x in (a, there[question](p, **own, until=2.0))
            ]
            assert lengths[1] < lengths[0] <= 4.0 * (1 + 1e-12)
        with pytest.raises(ParameterError, match="same as until"):
            there[question](p, **own, **{"until": 2.0, time: 2.0})


def test_names_of_theory():
    """What type checkers are told and what is loaded are the same names, each from its
    module.
    """
    checked = {
        alias.name: f"{node.module}"
        for block in ast.parse(Path(theory.__file__).read_text()).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert checked == {
        name: f"theory.{module}" for name, module in theory.PLACES.items()
    }
    for name, module in checked.items():
        assert getattr(theory, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(ImportError, match="cannot import name 'Equatoin'"):
        from theory import Equatoin  # noqa: F401
