"""Students of statements: what they measure, how they are trained,
and what is refused.
"""

import dataclasses
import json
import math
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from joblib.externals.loky.backend.reduction import dumps

sys.path.insert(0, str(Path(__file__).parents[2] / "theory" / "statement"))
sys.path.insert(0, str(Path(__file__).parents[1]))
import strangers
import systems
from tiny import ALONE, bits

from simulate import __main__ as command
from simulate import statement, sweep
from simulate.statement import data as law
from simulate.statement import student as kind
from simulate.training import plan, pool
from simulate.training.streams import keyed
from theory import Optimiser
from theory.call.refusal import ParameterError
from theory.induction_heads import bursty
from theory.models import stated as stated_models
from theory.statement import (
    cross_entropy,
    draw,
    model,
    number,
    sample,
    sizes,
    sort,
    teacher,
    weight,
)
from theory.statement import statement as stating
from theory.statement.derivation import check
from theory.statement.evaluation import arrays

FILE = """
from theory.statement import *
N = sizes("N")
token = sort("token", N)
follows = teacher("follows", (token,), token, injective=True)
W, z = weight("W", token, token), draw(token)
bigram = statement(cross_entropy(lambda y: W[z, y], over=token, target=follows(z)),
                   name="bigram", values=dict(N=5, steps=24, eval_every=4))
"""
STATED = {  # with sizes, and inputs per step
    "recall": (systems.recall(), dict(S=4, R=3, D=2, T=5, n=2, epsilon=0.3)),
    "induction": (systems.induction(None, 4), {}),
    "retrieval": (systems.retrieval(), dict(N=5, M=4, P=3)),
    "regression": (systems.regression(True), dict(D=3, N=4, a=0.2)),
}
SHORT = dict(steps=24, eval_every=4)


def made(name, **more):
    """System and parameters."""
    stated, sizes_ = STATED[name]
    system = statement.of(stated).SYSTEMS["student"]
    return system, system.parameters(**{**sizes_, **SHORT, "batch_size": 8, **more})


@pytest.mark.parametrize("name", STATED)
def test_a_run_has_what_the_flow_has(name, tmp_path):
    system, p = made(name)
    whole = system.train(p, store=tmp_path, **ALONE)
    assert whole.t[-1] == pytest.approx(p.eta * p.steps)
    flow = model.theory_of(STATED[name][0]).derived().flow
    assert {x.name for x in flow.state} | set(flow.observables) == set(whole.data_vars)


def test_a_process_of_a_pool_does_what_this_one_does(tmp_path):
    """A job as it is handed to a worker; seeds have batches of their own."""
    system, p = made("retrieval")
    one = system.train(p, range(2), store=tmp_path / "one", **ALONE)
    for job in system.plan(p, range(2), store=tmp_path / "two", device="cpu"):
        sent = pickle.loads(dumps(job))
        assert sent.work(lambda done: None, True)
    assert bits(system.train(p, range(2), store=tmp_path / "two", **ALONE)) == bits(one)
    assert (one.delta_V[0] != one.delta_V[1]).any()


@pytest.mark.parametrize("name", STATED)
def test_both_precisions(name):
    """Weights of either precision, and values that differ by rounding alone."""
    system, p = made(name)
    found = []
    for dtype in (torch.float32, torch.float64):
        (learner,) = system.make(p, [0], torch.device("cpu"), dtype).members
        for k in range(3):
            learner.step(k)
        assert {w.dtype for w in learner.weights.values()} == {dtype}
        loss = learner.student.mean(learner.weights, learner.test)
        assert loss.dtype == dtype
        found.append(learner.measure())
    one, two = (np.array(list(f.values())) for f in found)
    assert (one != two).any()
    np.testing.assert_allclose(
        one, two, rtol=1e-4, atol=1e-5
    )  # some hundred roundings of 6e-8


@pytest.mark.parametrize("name", STATED)
def test_what_is_lifted_is_measured(name):
    """Order parameters of weights filled from class numbers are those of the flow."""
    system, p = made(name)
    (learner,) = system.make(p, [0], torch.device("cpu"), torch.float64).members
    rng = np.random.default_rng(0)
    values = {c.symbol: rng.normal() for c in learner.made.classes}
    learner.load({w.name: x for w, x in learner.lift(values).items()})
    found = learner.measure()
    known = values | {x: learner.numbers[x.name] for x in STATED[name][0].symbols}
    for x, combination in learner.made.quotient.order.items():
        assert found[x.name] == pytest.approx(float(combination.subs(known)), rel=1e-12)
    (loss,) = (float(learner.made.loss.doit().subs(known).doit()),)
    tested = STATED[name][0].gausses  # a sample: its loss is no population loss
    assert tested or found["loss"] == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("name", STATED)
def test_memory_covers_what_autograd_keeps(name):
    """Bytes that one step saves are below the estimate, which is not thirty times too
    much.
    """
    stated, _ = STATED[name]
    system, p = made(name)
    (learner,) = system.make(p, [0], torch.device("cpu"), torch.float64).members
    kept = {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes(), x
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        held = {w: x.requires_grad_() for w, x in learner.weights.items()}
        learner.student.mean(held, learner.test)
    saved = sum(size for size, _ in kept.values())
    assert saved < kind.memory(stated, p) < 30 * saved + 1e6


def test_inputs_are_drawn_by_the_law_that_lists_them():
    """How often every input is drawn, against its probability; distinct draws, all
    values of a sample different, an element of another's.
    """
    n, m = sizes("n m")
    group, item, place = sort("group", n), sort("item", m), sort("place", 2)
    member = sort("member", 2, of=group)
    x = sample("x", (place,), item, injective=True)
    f = teacher("f", (group,), item, injective=True)
    g, h = draw(group), draw(group)
    other = draw(item, distinct=(x(draw(place)), f(g)))
    own = draw(member, of=h)
    W, V = weight("W", item, group), weight("V", item, group, member)
    stated = stating(W[other, g] * V[x(draw(place)), h, own])
    numbers = {"n": 2.0, "m": 4.0}
    every = arrays.every_input(stated, numbers, np.random.default_rng(0))
    some = law.inputs(stated, numbers, every.tables, 100_000, keyed(0, 0))

    def names(data):
        columns = [*data.draws.values(), *data.tables[x].T]
        return np.stack(columns, 1) @ 5 ** np.arange(len(columns))

    expected = dict(zip(names(every), every.chances * 100_000, strict=True))
    seen, counts = np.unique(names(some), return_counts=True)
    assert set(seen) <= set(expected)
    observed = dict(zip(seen, counts, strict=True))
    square = sum((observed.get(k, 0) - e) ** 2 / e for k, e in expected.items())
    freedom = len(expected) - 1
    assert square < freedom + 5 * math.sqrt(
        2 * freedom
    )  # a true law exceeds it once in 10^6


def test_gaussian_data_have_the_stated_covariance():
    stated = systems.regression()
    numbers = {"D": 2.0, "N": 3.0, "a": 0.1, "lambda_1": 1.4, "lambda_2": 0.6}
    drawn = law.inputs(stated, numbers, {}, 40_000, keyed(0, 0))
    for g, x in drawn.gausses.items():
        wanted = [1.0, 1.0] if g.name == "t" else [1.4, 0.6]
        found = (x**2).reshape(-1, 2).mean(0)
        assert found == pytest.approx(wanted, rel=0.05)  # five standard errors
    del numbers["lambda_2"]
    with pytest.raises(
        ParameterError, match="^lambda_2: has no value; dim has 2 directions$"
    ):
        law.inputs(stated, numbers, {}, 4, keyed(0, 0))


def test_a_file_is_trained_and_swept(tmp_path, monkeypatch, capsys):
    """By name and behind a folder with a dot; a grid over a size; the file may name its
    system.
    """
    folder = tmp_path / "my.models"
    folder.mkdir()
    (folder / "mine.py").write_text(FILE)
    shared = ["--quiet", "--workers=1", f"--out={tmp_path / 'runs'}", "--json"]
    for name in ("mine.py", "mine.py:bigram", "mine.py.student"):
        assert command.main([str(folder / name), *shared]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["model"] == "statement.bigram" and set(found["final"]) == {
            "delta_W",
            "loss",
        }
    assert len(list(tmp_path.rglob("seed-*.nc"))) == 1
    assert command.main([str(folder / "mine.py"), "--until=1.2", *shared]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 12
    assert sweep.main([str(folder / "mine.py"), "--grid=N=3,5", *shared]) == 0
    assert json.loads(capsys.readouterr().out)["trained"] == 1
    changed = FILE.replace("W[z, y]", "2 * W[z, y]")  # another statement is another run
    (folder / "mine.py").write_text(changed)
    monkeypatch.setattr(stated_models, "of_file", stated_models.of_file.__wrapped__)
    assert command.main([str(folder / "mine.py"), *shared]) == 0
    assert len(list(tmp_path.rglob("seed-*.nc"))) == 4


def test_what_cannot_be_trained_is_refused_in_one_line(tmp_path):
    def trained(stated, **values):
        system = statement.of(stated).SYSTEMS["student"]
        system.train(system.parameters(**values), store=tmp_path, **ALONE)

    N = sizes("N")
    item = sort("item", N)
    rate = weight("W", item)[draw(item)] * number("eta")
    near = systems.retrieval(3, "leading order")
    rows = [
        (
            lambda: trained(systems.bigram()),
            "^N: has no value; set it by --set N=VALUE",
        ),
        (
            lambda: trained(stating(rate)),
            "^statement statement: eta: is the name of a field or result of training; ",
        ),
        (lambda: trained(near, N=9, M=9), "^batch_size = 0: .*; batch_size=256 draws"),
        (
            lambda: trained(systems.retrieval(), N=30, M=30, P=9),
            "too many.*; batch_size=256 draws",
        ),
        (lambda: trained(systems.tracking(), N=3, d=3, A=0.5), "no students yet$"),
        (
            lambda: trained(systems.bigram(), N=4, eta=1e200),
            "^eta = 1e.200: .*take it smaller$",
        ),
    ]
    for refused, message in rows:
        with pytest.raises(ParameterError, match=message) as caught:
            refused()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.nc"))


def test_a_changed_engine_does_not_go_on_with_an_interrupted_run(tmp_path, monkeypatch):
    system, p = made("recall")
    with pool.stopping(lambda done: done == 6), pytest.raises(KeyboardInterrupt):
        system.train(p, store=tmp_path, **ALONE)
    monkeypatch.setattr(type(system), "code", "another")
    with pytest.raises(ParameterError, match="written by other code"):
        system.train(p, store=tmp_path, **ALONE)
    assert isinstance(dataclasses.replace(system, name="other"), plan.System)


@pytest.mark.parametrize(
    "stated", [strangers.masked_copy, strangers.heads, strangers.more_names]
)
def test_students_on_all_inputs_are_descent_of_the_flow(stated, tmp_path):
    """Further systems, to rounding."""
    from verify.statement import trajectories

    stated = stated()
    numbers = next(check.listed(model.theory_of(stated).derived())).numbers
    points = {s.name: int(numbers[s.name]) for s in stated.symbols}
    system = statement.of(stated).SYSTEMS["student"]
    p = system.parameters(**points, **SHORT)
    runs = system.train(p, range(2), store=tmp_path, **ALONE)
    found = trajectories.checks(stated, p, runs)
    assert found and {c.verdict for c in found} == {"exact"}
    assert not np.allclose(runs.loss[:, 0], runs.loss[:, -1])


@pytest.mark.parametrize(
    "how, averages",
    [
        (None, True),
        (Optimiser(momentum=0.9, nesterov=True), True),
        (Optimiser(optimizer="adamw", weight_decay=0.01), False),
        (Optimiser(schedule="cosine", warmup=5, clip=0.05), False),
    ],
)
def test_predict_follows_students_under_their_optimiser(how, averages, tmp_path):
    """To rounding on all inputs; where batches do not average out it says so."""
    system = statement.of(bursty.stated).SYSTEMS["student"]
    p = bursty.Parameters(N=4, B=2, eta=0.2, steps=24, eval_every=4)
    given = {} if how is None else {"optimizer": how}
    runs = system.train(p, range(2), store=tmp_path, **ALONE, **given)
    curve = bursty.predict(p, runs)
    assert set(curve.data_vars) == set(runs.data_vars)
    assert curve.t.equals(runs.t) and curve.step.equals(runs.step)
    for (
        name,
        values,
    ) in curve.data_vars.items():  # the same sums in another order, 24 times
        np.testing.assert_allclose(
            runs[name], values.expand_dims(seed=2), rtol=1e-11, atol=1e-13
        )
    assert bursty.predict(
        p.replace(steps=100), runs
    ).identical(  # schedules end with the runs
        curve.assign_attrs(parameters=p.replace(steps=100).as_json())
    )
    batches = runs.assign_attrs(
        parameters=p.replace(batch_size=8).as_json(training_only=True)
    )
    if averages:
        assert (
            bursty.predict(p.replace(batch_size=8), batches).loss.shape
            == curve.loss.shape
        )
    else:
        with pytest.raises(
            ParameterError, match="^batch_size = 8 under .*must be trained by sgd"
        ):
            bursty.predict(p.replace(batch_size=8), batches)
        with pytest.raises(
            ParameterError, match="^batch_size = 8 under .*must be trained by sgd"
        ):
            bursty.predict(p, batches, batch_size=[0, 8])
        with pytest.raises(
            ParameterError, match="^batch_size = 0: the runs were trained with 8"
        ):
            bursty.predict(p, batches)


def test_predict_refuses_students_of_another_statement(tmp_path):
    """Of the same sizes: one that learns the inverse, and one whose sizes have other
    names.
    """
    token = sort("token", sizes("N"))
    follows = teacher("follows", (token,), token, injective=True)
    W, z = weight("W", token, token), draw(token)
    forward, backward = (
        model.theory_of(
            stating(cross_entropy(loss, over=token, target=target), name=name)
        )
        for name, loss, target in (
            ("forward", lambda y: W[z, y], follows(z)),
            ("backward", lambda y: W[follows(z), y], z),
        )
    )
    p = forward.Parameters(N=4, **SHORT)
    runs = (
        statement.of(forward.statement)
        .SYSTEMS["student"]
        .train(p, store=tmp_path, **ALONE)
    )
    assert forward.predict(p, runs).loss.size == runs.t.size
    with pytest.raises(
        ParameterError, match="^runs: are of another statement than backward$"
    ):
        backward.predict(backward.Parameters(N=4, **SHORT), runs)
    for call in (bursty.predict, model.theory_of(bursty.stated).onset):
        with pytest.raises(ParameterError, match="^p is Parameters.* needs"):
            call(p)


def test_no_student_follows_a_closure():
    mean = model.theory_of(systems.tracking())
    with pytest.raises(
        ParameterError, match="of a closure over teachers there are no students"
    ):
        mean.predict(mean.Parameters(N=3, d=3, A=0.5))
