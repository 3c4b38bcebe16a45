"""A wrong sign or factor in any equation is detected by the checks of
`verify.gradients` that cite it, for every model.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from simulate.training.pool import one_thread
from theory.call.refusal import ParameterError
from theory.models.registry import MODELS
from verify.checks.check import failed
from verify.checks.report import groups_of
from verify.induction_heads import gradients

# By model and group of checks, the equations that it holds.
COVERS = json.loads((Path(__file__).parents[1] / "golden/covers.json").read_text())
WITH_GRADIENTS = {
    m.name: m for model in MODELS.values() for m in model.offering("gradients")
}
COVERING = {
    name: m
    for name, m in WITH_GRADIENTS.items()
    if hasattr(m.wing("verify", "gradients"), "GRADIENTS")
}


def covers(name):
    """Groups of a model's checks, and the equations that they cover."""
    groups = groups_of(COVERING[name].wing("verify", "gradients").GRADIENTS, name)
    return {group: COVERS[name][group.__name__] for group in groups}


CASES = [
    (name, group, equation)
    for name in COVERING
    for group, equations in covers(name).items()
    for equation in equations
]
LEAST = 0.05  # relative fault that must be seen


def half_of_them():
    """Every equation by one fault, sign and factor taking turns; by the other with the
    slow tests.
    """
    for k, (name, group, equation) in enumerate(CASES):
        for kind in ("factor", "sign"):
            marks = () if (kind == "sign") == bool(k % 2) else pytest.mark.slow
            yield pytest.param(
                name,
                group,
                equation,
                kind,
                marks=marks,
                id=f"{name}-{group.__name__}-{equation}-{kind}",
            )


@functools.cache
def found(name):
    """All rows of a model's groups on the equations as they are; the table is the same
    for all.
    """
    table = COVERING[name].wing("theory").equations()
    with one_thread():
        return {group: group(table) for group in covers(name)}


def cite(rows, equation):
    """The rows that name an equation; where none does,
    the whole group stands for it.
    """
    return [
        c
        for c in rows
        if any(
            fnmatch.fnmatchcase(equation, cited)
            for cited in re.split(r",\s*", c.equation)
        )
    ] or rows


@pytest.fixture(autouse=True)
def before(name):
    """Rows of the equations as they are, made before a test, whichever of them runs
    first.
    """
    found(name)


@pytest.fixture
def quick(monkeypatch):
    """Fewer points and sizes than the checks as they are."""
    for module in (gradients, gradients):
        monkeypatch.setattr(module, "SIZES", (2, 3))
    monkeypatch.setattr(gradients, "POINTS", 2)


@pytest.mark.filterwarnings("ignore:invalid value")  # a negative time
@pytest.mark.parametrize(("name", "group", "equation", "kind"), list(half_of_them()))
def test_injected_fault_is_caught(name, group, equation, kind, quick):
    """The factor is beyond the sharpest of the equation's rows by twice its tolerance
    (sampled: its resolution), at least 5%.
    """
    table = COVERING[name].wing("theory").equations()
    factor = (
        -1
        if kind == "sign"
        else 1
        + max(LEAST, 2 * min(c.detectable for c in cite(found(name)[group], equation)))
    )
    faulty = {
        **table,
        equation: replace(table[equation], rhs=factor * table[equation].rhs),
    }
    with one_thread():
        try:
            rows = cite(group(faulty), equation)
        except ParameterError:  # a time below zero, say: the command stops
            return
    assert "FAIL" in {c.verdict for c in rows}, (
        f"{equation} times {factor} went unnoticed"
    )


@pytest.mark.parametrize("name", COVERING)
def test_all_checks_pass_on_the_derived_equations(name):
    """And none is undecided: exact, or sampled so finely that 5% shows."""
    rows = [c for group in found(name).values() for c in group]
    assert not failed(rows), [c.name for c in rows if not c.within]
    assert [c.name for c in rows if c.verdict == "undecided"] == []
    assert len(rows) > LEAST_ROWS[name]
    assert len({(c.name, c.equation, c.reason) for c in rows}) == len(
        rows
    )  # dimensions of the group are in the reason


LEAST_ROWS = {
    "state_tracking": 40,
    "induction_heads": 50,
    "positional_semantic": 39,
    "associative_memory.factual_recall": 10,
    "associative_memory.gradient_memory": 10,
    "linear_attention.merged": 10,
    "linear_attention.separate": 10,
}


# What must be held against autograd: what descends, is a derivative or a rate. The
# inner problem of induction heads is a limit, tested symbolically.
DERIVATIVES = {
    "state_tracking": lambda n: (
        n.startswith(("d", "update", "delta", "softmax"))
        # A size; the update of a group's pair, and what follows for weight decay
        # (test_decay), have tests of their own.
        and n not in ("d_g", "delta_S_ab", "dU_dalpha", "dW_Q2_dalpha", "dW_K2_dalpha")
        and not n.startswith("decay_")
    ),
    "induction_heads": lambda n: (
        n.startswith(("d", "loss")) and not n.startswith(("drop", "loss_tail"))
    ),
    "positional_semantic": lambda n: (
        n in ("S_12", "S_21", "sentence_loss", "objective")
    ),  # what students descend on
    "associative_memory.factual_recall": lambda n: n.startswith(
        ("dw_", "ddelta_", "loss_")
    ),
    "associative_memory.gradient_memory": lambda n: n.startswith(
        ("gradient_", "score_", "step_")
    ),
    "linear_attention.merged": lambda n: n in ("loss", "force") or n.endswith("_dt"),
    "linear_attention.separate": lambda n: n.endswith("_dt"),
}


@pytest.mark.parametrize("name", COVERING)
def test_every_derivative_is_covered(name):
    """By a group whose rows notice a fault in it."""
    equations = COVERING[name].wing("theory").equations()
    assert [group.__name__ for group in covers(name)] == [*COVERS[name]]
    held = {equation for names in covers(name).values() for equation in names}
    assert held <= equations.keys()
    wanted = {n for n in equations if DERIVATIVES[name](n)}
    assert wanted and wanted <= held


# Ids that rows of different equations share: the same statement for both masks, several
# laws of drawing, or queries.
SHARED = {
    "state_tracking": {"update_of_R", "update_of_S", "mean_teacher_overlap"},
    "induction_heads": {
        "attention_own_item",
        "attention_other_label",
        "attention_of_item",
        "scores_of_the_query",
        "attention_on_the_right_label",
        "loss_for_every_q",
        "its_gradient_for_every_q",
        "all_weights_first_layer_in_time",
    },
}


@pytest.mark.parametrize("name", COVERING)
def test_ids_tell_equations_apart(name):
    """A ledger cites a row by its id: rows of one command that share it hold the same
    equation, but for those listed.
    """
    cited: dict[str, set[str]] = {}
    for group in found(name).values():
        for c in group:
            cited.setdefault(c.id, set()).add(c.equation)
    assert all(cited)
    assert {i for i, equations in cited.items() if len(equations) > 1} <= SHARED.get(
        name, set()
    )
