"""Bias and spread by batches and random starts: all weights by autograd, students,
faults.
"""

import functools
import inspect
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simulate.statement import Student, student
from theory.call.refusal import ParameterError
from theory.models.registry import find
from theory.statement import (
    draw,
    model,
    number,
    onset,
    orthogonal,
    sizes,
    sort,
    statement,
    uniform,
    weight,
)
from theory.statement.derivation import check
from theory.statement.randomness import random_starts as law_of_starts
from theory.statement.randomness import recursion
from verify.statement import fluctuations as rows

sys.path.insert(0, str(Path(__file__).parents[2] / "theory/statement"))
import random_starts
import strangers
import systems

ETA, BATCH, STEPS = 0.3, 2, 3
FAULTS = {
    "noise without the mean of the slopes": (
        "self.squares - one * two",
        "self.squares",
    ),
    "the half of the shift": ("bent / 2", "bent"),
    "batches of one input less": ("eta**2 / batch", "eta**2 / (batch - 1)"),
    "curvature on one side": ("left - eta * self.product(left, self.hessian)", "left"),
    "shifts are not carried on": ("self.jacobian @ self.bias", "0"),
    "noise of steps twice as large": ("eta**2 / batch", "4 * eta**2 / batch"),
}


noisy = lambda: find(f"{Path(__file__).parent / 'noisy.py'}").statement


def draws(**law):
    """Entry of a drawn token, less one."""
    token = sort("token", sizes("N"))
    return weight("w", token, **law)[draw(token)] - 1


KINDS = {
    "bigram": systems.bigram,
    "noisy": noisy,
    "more_names": strangers.more_names,
    "choices": strangers.choices,
    "hidden": strangers.hidden,
    "begin_token": strangers.begin_token,
    "coinciding_values": strangers.coinciding_values,
    "occurs_twice": strangers.occurs_twice,
    "retrieval": systems.retrieval,
    "random": lambda: random_starts.KINDS["no saddle"](sigma=0.3),
    "orthogonal": lambda: random_starts.KINDS["no saddle"](
        start=orthogonal(number("sigma"))
    ),
    "uniform": lambda: statement(
        draws(start=uniform(0.3)) ** 4, name="uniform", values=dict(N=3)
    ),
}
LONG = (
    "more_names",
    "begin_token",
    "occurs_twice",
    "random",
)  # the last: independent, as uniform
VARIANCE = {
    "gaussian": lambda n: 1,
    "uniform": lambda n: 1 / 3,
    "orthogonal": lambda n: 1 / n,
}


@functools.cache
def derivation(kind):
    """A statement's derivation, once."""
    return model.theory_of(KINDS[kind]()).derived()


def smallest(kind):
    """All inputs at the smallest sizes."""
    return next(check.listed(derivation(kind)))


def all_weights(made, data, from_means=False):
    """Class means, bias, covariance and shift of the loss per step, by autograd of all
    entries.
    """
    student, members = Student(made.statement), made.members(data)
    taken, chances = student.taken(data), torch.as_tensor(data.chances)
    parts = [m.size for m in members.values()]
    numbers = np.concatenate([m.ravel() for m in members.values()])
    means = [(numbers == k) / (numbers == k).sum() for k in range(len(made.classes))]
    means, size = torch.tensor(np.array(means)), sum(parts)

    def each(x):
        split = zip(members.items(), torch.split(x, parts), strict=True)
        losses = student.each({w: v.reshape(m.shape) for (w, m), v in split}, taken)
        return losses * torch.ones_like(chances)

    mean = lambda x: (each(x) * chances).sum()
    curved = lambda x, c: (((h := torch.func.hessian(mean)(x)) * c).sum(), h)
    begun = [torch.full((m.size,), data.scalar(w.mean)) for w, m in members.items()]
    x, one = torch.cat(begun).double(), torch.eye(size, dtype=torch.float64)
    bias, moments = torch.zeros_like(x), torch.zeros_like(one)
    if law_of_starts.laws(made):
        of = [
            data.scalar(w.start.size) ** 2
            * VARIANCE[w.start.kind](len(m))
            * np.ones(m.size)
            for w, m in members.items()
        ]
        beside = one - from_means * means.T @ (means > 0).double()
        moments = beside @ torch.diag(torch.tensor(np.concatenate(of))) @ beside.T
    for _ in range(STEPS + 1):
        g = torch.func.grad(mean)(x)
        bent, h = torch.func.grad(curved, has_aux=True)(x, moments)
        shift = g @ bias + (h * moments).sum() / 2
        yield means @ x, means @ bias, means @ moments @ means.T, shift
        each_slope = torch.func.jacrev(each)(x)
        noise = (each_slope.T * chances) @ each_slope - torch.outer(g, g)
        bias = bias - ETA * h @ bias - ETA / 2 * bent
        left = one - ETA * h
        moments = left @ moments @ left + ETA**2 * noise / BATCH
        x = x - ETA * g


@functools.cache
def reference(kind, from_means):
    """`all_weights` at the smallest sizes, once for all faults."""
    return [*all_weights(derivation(kind), smallest(kind), from_means)]


def off(kind, data=None, from_means=False):
    """Largest deviation from `all_weights`, relative to the largest of each kind."""
    made, gaps = derivation(kind), []
    expected = all_weights(made, data) if data else reference(kind, from_means)
    path = recursion.Recursion(made.moments, made, (data or smallest(kind)).numbers)
    if from_means:
        path.from_means()
    one = np.eye(len(made.classes))
    for state in expected:
        path.here()
        table = path.state(one)
        values, bias, covariance, shift = (x.numpy() for x in state)
        theirs = [values, np.append(bias, shift), np.diag(covariance)]
        k = len(values)
        ours = [table[0, :k], table[1, : k + 1], table[2, :k] ** 2]
        gaps.append(
            [
                (abs(a - b).max(), abs(b).max())
                for a, b in zip(ours, theirs, strict=True)
            ]
        )
        path.step(ETA, BATCH)
    worst, scale = np.moveaxis(np.array(gaps).max(0), -1, 0)
    return worst / np.maximum(scale, 1e-6)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in LONG)) for k in KINDS]
)
def test_moments_are_those_of_all_weights(kind):
    """Means, bias, spread and shift of the loss, on all weights by autograd, of all
    inputs at the smallest sizes that fill every class.
    """
    assert off(kind).max() < 1e-10


def test_moments_of_orbits_without_pairs():
    """Sizes at which some orbits are empty: three keys have no four different ones."""
    made = derivation("retrieval")
    data = next(d for d in check.listed(made) if d.numbers["N"] == 3)
    assert (recursion.Recursion(made.moments, made, data.numbers).pairs == 0).any()
    assert off("retrieval", data).max() < 1e-10


def test_what_class_means_leave_out():
    """Of random starts from the same class means nothing at first, then what is beside
    them.
    """
    assert off("orthogonal", from_means=True).max() < 1e-10
    made = derivation("orthogonal")
    walk = recursion.Recursion(made.moments, made, smallest("orthogonal").numbers)
    walk.from_means()
    walk.here()
    assert abs(walk.state(np.eye(len(made.classes)))[2]).max() < 1e-15


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_step_are_seen(fault, monkeypatch):
    """By the recursion on all weights."""
    inject(fault, monkeypatch)
    assert off("coinciding_values").max() > 1e-3


def inject(fault, monkeypatch):
    """A step with a fault."""
    old, new = FAULTS[fault]
    of = {
        x: inspect.getsource(getattr(recursion.Recursion, x)) for x in ("here", "step")
    }
    ((name, text),) = [(x, text) for x, text in of.items() if text.count(old) == 1]
    names = dict(vars(recursion))
    exec(inspect.cleandoc("\n" + text).replace(old, new), names)
    monkeypatch.setattr(recursion.Recursion, name, names[name])


@pytest.fixture(scope="module")
def students():
    """Four thousand students of retrieval on pairs of inputs."""
    stated = derivation("retrieval").statement
    p = model.theory_of(stated).Parameters(
        N=4, M=4, P=2, eta=0.25, batch_size=2, steps=120, eval_every=20
    )
    return stated, p, student.train(stated, p, 4000)


def judged(stated, p, runs):
    """Rows of these students."""
    names = [x.name for x in onset.at_sizes(stated, p).flow.state]
    return rows.checks(
        names, model.theory_of(stated).predict(p, fluctuations=True), runs
    )[0]


def test_students_of_retrieval(students):
    """Bias within its standard errors, a change of sign included; 20% would be seen in
    one.
    """
    stated, p, runs = students
    found = judged(stated, p, runs)
    assert [c.within for c in found] == [True, True] and min(
        c.detectable for c in found
    ) < 0.3
    curve = model.theory_of(stated).predict(p, fluctuations=True)
    assert curve.delta_K_bias[3] < 0 < curve.delta_K_bias[-1]
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    for name in ("delta_K", "delta_V"):
        z = (runs[name].mean("seed") - curve[name] - curve[f"{name}_bias"]) / error[
            name
        ]
        assert float(abs(z[1:]).max()) < 4
        assert float(curve[f"{name}_sd"].max()) == 0


@pytest.mark.parametrize("fault", list(FAULTS)[:4])
def test_students_tell_faults(students, fault, monkeypatch):
    """Rows fail with a fault in the theory."""
    inject(fault, monkeypatch)
    assert any(c.verdict == "FAIL" for c in judged(*students))


def test_spread_of_students_whose_inputs_differ():
    """Of two statements: variances agree, and one that is a third off would be seen."""
    for name, more in (
        ("noisy", {}),
        ("coinciding_values", dict(N=4, M=2, eta=0.1, batch_size=16, steps=200)),
    ):
        p = model.theory_of(stated := derivation(name).statement).Parameters(**more)
        runs = student.train(stated, p, 1000)
        found = [c for c in judged(stated, p, runs) if c.name.startswith("variance")]
        assert found and all(c.within and c.detectable < 0.33 for c in found)
        less = model.theory_of(stated).predict(
            p.replace(batch_size=24), fluctuations=True
        )
        names = [c.name.split()[2] for c in found]
        failed = [c.verdict == "FAIL" for c in rows.checks(names, less, runs)[0]]
        assert sum(failed) >= len(names)


def test_stationary_variance_of_regression():
    """One-pass linear regression: eta s^2 / (B (2 - eta a^2 / N)) per entry at the
    optimum.
    """
    stated = derivation("noisy").statement
    p = model.theory_of(stated).Parameters(steps=400, eval_every=100)
    curve, rate = model.theory_of(stated).predict(p, fluctuations=True), 0.8**2 / 3
    one = p.eta * 0.5**2 / (p.batch_size * (2 - p.eta * rate))
    assert float(curve.w_sd[-1] ** 2) == pytest.approx(
        one / 3, rel=1e-9
    )  # of a mean of three
    assert float(curve.w_bias[-1]) == pytest.approx(0, abs=1e-15)
    assert float(curve.square_bias[-1]) == pytest.approx(one, rel=1e-9)


def test_moments_are_compared_before_they_are_used():
    """Curvature, noise and products that are off are refused, each by name."""
    made = derivation("bigram")
    orbit = made.moments.orbits[0]
    less = {k: v / 2 for k, v in orbit.curvature.items()}
    triples = {
        k: 2 * v if n == 0 else v
        for n, (k, v) in enumerate(made.moments.triples.items())
    }
    for what, changed in (
        ("curvature of loss", {"orbits": [replace(orbit, curvature=less)]}),
        ("noise", {"orbits": [replace(orbit, squares=orbit.squares / 2)]}),
        ("product", {"triples": triples}),
    ):
        if "orbits" in changed:
            changed["orbits"] += made.moments.orbits[1:]
        with pytest.raises(ParameterError, match=f"fluctuations: {what} over orbits"):
            recursion.confirmed(replace(made.moments, **changed))
    assert recursion.confirmed(made.moments) is made.moments
