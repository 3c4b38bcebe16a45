"""Checks that every statement gets: they pass, and each fault is seen by the check it
is for.
"""

import dataclasses
import functools
import sys
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "theory" / "statement"))
import strangers
import systems

from simulate import statement as students
from simulate.statement import Learner, Student
from simulate.statement import data as law
from theory.call.refusal import ParameterError
from theory.statement import (
    cross_entropy,
    draw,
    model,
    sizes,
    sort,
    statement,
    teacher,
    weight,
)
from theory.statement.derivation import check as exact
from theory.statement.derivation.derived import derive
from theory.statement.evaluation import arrays
from verify import gradients as command
from verify.statement import gradients, trajectories
from verify.statement.gradients import pieces, refine

HALF = sp.Rational(1, 2)
RECALL = {"S": 4, "R": 3, "D": 2, "T": 5, "n": 2, "epsilon": 0.3}
STATED = {
    "retrieval": systems.retrieval,
    "recall": systems.recall,
    "regression": systems.regression,
    "induction": functools.partial(systems.induction, None, 4),
    "group": functools.partial(systems.tracking, HALF, None, True),
    "two_hop": strangers.two_hop,
}


@functools.cache
def derived(name):
    return derive(STATED[name]())


def failing(found):
    """Ids of checks that fail."""
    return {c.id for c in found if not c.within}


@pytest.mark.parametrize("name", STATED)
def test_every_statement_has_checks_that_hold(name):
    """Identities to rounding; drawn inputs are seen to 5%, or the check says that it
    cannot.
    """
    found = gradients.checks(derived(name))
    assert {c.verdict for c in found} <= {"exact", "agrees"}
    weights = [w.name for w in derived(name).statement.weights]
    wanted = {f"gradient_of_{w}" for w in weights} | {
        f"entries_of_{w}" for w in weights
    }
    wanted |= {f"classes_of_{w}_by_refinement" for w in weights} | {
        "loss",
        "loss_of_drawn_inputs",
    }
    assert wanted | {"all_weights_after_5_steps"} == {c.id for c in found}


def test_the_command_answers_for_a_file(tmp_path, capsys):
    """Exit code, JSON, and one line for a closure."""
    text = (
        "import sys\nsys.path.insert(0, {!r})\nimport systems\nstated = systems.{}()\n"
    )
    folder = str(Path(systems.__file__).parent)
    for name in ("bigram", "tracking"):
        (tmp_path / f"{name}.py").write_text(text.format(folder, name))
    assert command.main([str(tmp_path / "bigram.py"), "--quiet", "--json"]) == 0
    assert '"failed": false' in capsys.readouterr().out
    with pytest.raises(
        ParameterError, match="a closure over teachers has no gradients"
    ) as said:
        command.main([str(tmp_path / "tracking.py"), "--quiet"])
    assert "\n" not in str(said.value)


def test_no_gradient_at_all_agrees_with_rounding():
    """A Latin square seen row by row and column by column: nothing moves, and nothing
    is listed as conserved but that.
    """
    item = sort("item", sizes("N"))
    f, a, b = teacher("f", (item, item), item, injective=True), draw(item), draw(item)
    U, V = weight("U", item, item), weight("V", item, item)
    loss = cross_entropy(lambda c: U[a, c] + V[b, c], over=item, target=f(a, b))
    made = derive(statement(loss))
    assert not failing(gradients.checks(made))
    assert {q.kind for q in made.conserved} == {"frozen"}


def test_a_negative_loss_has_a_band_all_the_same():
    """Of a leading order: a constant in the loss changes neither order of the band's
    ends nor the verdict.
    """
    right = systems.retrieval(injective="leading order")
    made = derive(statement(right.loss - 3, name="negative"))
    (row,) = [c for c in gradients.checks(made) if c.id == "loss_of_drawn_inputs"][:1]
    assert row.predicted < 0 and row.band.low < row.band.high and row.verdict == "limit"


def test_leading_order_is_a_limit(monkeypatch, tmp_path):
    """Drawn values may coincide: how far that is off is said; values that always do are
    seen.
    """
    stated = systems.retrieval(injective="leading order")
    made = derive(stated)
    found = {c.id: c for c in gradients.checks(made)}
    assert found["loss_of_drawn_inputs"].verdict == "limit"
    assert "of inputs" in found["loss_of_drawn_inputs"].why
    system = students.of(stated).SYSTEMS["student"]
    p = system.parameters(N=5, M=4, P=3, steps=20, eval_every=10, batch_size=64)
    runs = system.train(p, range(3), store=tmp_path, progress=False, workers=1)
    bands = [c.band for c in trajectories.checks(stated, p, runs)]
    assert all(
        "coincide in 82% of inputs, no order: its size is not large" in str(b)
        for b in bands
    )
    monkeypatch.setattr(law, "_sample", lambda f, s, n, c, r: np.zeros((c, *s), int))
    assert "loss_of_drawn_inputs" in failing(gradients.checks(made))


def test_unbalanced_facts_fail():
    """All subjects but one have the same answer: gradients differ, and three classes
    come apart.
    """
    made = derived("recall")
    (f,) = (f for f in made.statement.functions if f.kept)
    facts = np.broadcast_to((np.arange(4) > 0)[:, None], (4, 3)).astype(int)
    data = arrays.every_input(made.statement, RECALL, None, {f: facts})
    found = failing(gradients.at(made, data))
    assert {
        "gradient_of_V_r",
        "classes_of_V_r_by_refinement",
        "all_weights_after_5_steps",
    } <= found
    student = Student(made.statement)
    begun = {
        w: np.zeros([data.size(s) for s in w.sorts], int) for w in made.roles.classes
    }
    exact_ = refine(student, student.taken(data), begun, 0)
    sizes = {w.name: own.max() + 1 for w, own in exact_.items()}
    assert (sizes["V_r"], sizes["V_s"], sizes["w_s"]) == (4, 4, 2)  # not 2, 2 and 1


def test_random_permutations_under_the_statement_of_a_group_fail():
    made = derived("group")
    (g,) = made.statement.functions
    table = np.array([np.random.default_rng(k).permutation(5) for k in range(5)])
    data = arrays.every_input(made.statement, {"N": 5}, None, {g: table})
    found = failing(gradients.at(made, data))
    assert {
        "gradient_of_M",
        "classes_of_M_by_refinement",
        "all_weights_after_5_steps",
    } <= found
    group = arrays.every_input(made.statement, {"N": 5}, np.random.default_rng(0))
    assert not failing(gradients.at(made, group))


def test_refinement_finds_the_classes_of_three_cyclic_shifts():
    """Of five states: an action's own image, another's, nobody's."""
    stated = systems.tracking(HALF, None)
    (g,) = stated.functions
    numbers = {"N": 5, "d": 3}
    shifts = (np.arange(5)[None] + np.arange(3)[:, None]) % 5
    data = arrays.every_input(stated, numbers, None, {g: shifts})
    student = Student(stated)
    begun = {w: np.zeros((3, 5, 5), int) for w in stated.weights}
    (own,) = refine(student, student.taken(data), begun, 0).values()
    assert own.max() + 1 == 3
    for a, s in np.ndindex(3, 5):
        kinds = [{own[a, r, s] for r in shifts[b, s : s + 1]} for b in range(3)]
        assert len(kinds[a] | kinds[(a + 1) % 3]) == 2
    assert (
        pieces({w: own for w in begun}, {w: own for w in begun})[stated.weights[0]] == 3
    )


# What is put out of order, and which checks must say so.
FAULTS = {
    "population loss": (
        "retrieval",
        {"loss", "gradient_of_V", "all_weights_after_5_steps"},
    ),
    "size of a class": ("retrieval", {"entries_of_V", "gradient_of_V"}),
    "a class too few": ("retrieval", {"classes_of_V_by_refinement", "gradient_of_V"}),
    "values not distinct": ("retrieval", {"loss_of_drawn_inputs"}),
    "variance of data": ("regression", {"loss_of_drawn_inputs"}),
    "a mask of the student": ("induction", {"loss", "gradient_of_beta"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault, monkeypatch):
    name, expected = FAULTS[fault]
    made = exact.written(derived(name))
    data = next(exact.listed(made))
    if fault == "a class too few":  # with M = P = 2 even one class would be stable
        sizes = {"N": 3, "M": 4, "P": 3}
        data = arrays.every_input(made.statement, sizes, np.random.default_rng(0))
    if fault == "population loss":
        made = dataclasses.replace(made, loss=made.loss * sp.Rational(101, 100))
    elif fault == "size of a class":
        bigger = [
            dataclasses.replace(c, size=c.size + int(c.weight.name == "V"))
            for c in made.classes
        ]
        made = dataclasses.replace(made, classes=bigger)
    elif fault == "a class too few":
        whole = arrays.class_numbers

        def merged(of, d):
            return np.minimum(
                whole(of, d), 0 if of.weight.name == "V" else np.inf
            ).astype(int)

        monkeypatch.setattr(arrays, "class_numbers", merged)
    elif fault == "values not distinct":
        monkeypatch.setattr(
            law, "_sample", lambda f, s, n, c, r: r.integers(n, size=(c, *s))
        )
    elif fault == "variance of data":
        monkeypatch.setattr(law, "scales", lambda g, d: 1.2 * arrays.scales(g, d))
    else:
        total = arrays.Evaluation._total

        def whole(self, n):
            """A sum without its mask."""
            return total(
                self, dataclasses.replace(n, terms=()) if self.xp is torch else n
            )

        monkeypatch.setattr(arrays.Evaluation, "_total", whole)
    assert expected <= failing(gradients.at(made, data))


def test_students_against_the_flow_with_power(tmp_path, monkeypatch):
    """Drawn inputs agree, and a flow 5% off does not; all inputs are descent to
    rounding.
    """
    stated = systems.retrieval()
    system = students.of(stated).SYSTEMS["student"]
    sizes = dict(N=5, M=4, P=3, eta=0.5, steps=60, eval_every=10)
    train = functools.partial(system.train, store=tmp_path, progress=False, workers=1)
    p, whole = (system.parameters(**sizes, batch_size=b) for b in (64, 0))
    runs, all_ = train(p, range(6)), train(whole, range(2))
    found = trajectories.checks(stated, p, runs)
    assert {c.verdict for c in found} == {"agrees"}
    assert {c.equation for c in found} == {"loss", "delta_V", "delta_K"}
    assert {c.verdict for c in trajectories.checks(stated, whole, all_)} == {"exact"}
    theory = model.theory_of(stated)
    flow = (
        theory.derived()
        .written(sizes)
        .flow.solve(whole, at=all_.t.values, t=float(all_.t[-1]))
    )
    off = max(
        float(abs(flow[x] - all_[x]).max() / abs(flow[x]).max()) for x in all_.data_vars
    )
    assert f" {off:.1%} of the largest size" in trajectories.lag(stated, whole, all_)
    predict = theory.predict
    monkeypatch.setattr(theory, "predict", lambda *a: 1.05 * predict(*a))
    assert all(c.verdict == "FAIL" for c in trajectories.checks(stated, p, runs))
    assert all(c.verdict == "FAIL" for c in trajectories.checks(stated, whole, all_))


def test_a_student_that_steps_wrongly_is_seen(tmp_path, monkeypatch):
    """A learning rate that is 5% off, on all inputs."""
    stated = systems.retrieval()
    system = students.of(stated).SYSTEMS["student"]
    p = system.parameters(N=5, M=4, P=3, steps=20, eval_every=5)
    step = Learner.step

    def faster(self, number):
        self.optimizer.lr = 1.05 * self.p.eta
        step(self, number)

    monkeypatch.setattr(Learner, "step", faster)
    runs = system.train(p, range(2), store=tmp_path, progress=False, workers=1)
    assert failing(trajectories.checks(stated, p, runs))
