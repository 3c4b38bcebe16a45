"""Bias and spread by batches: against the recursion on all weights by autograd, students, faults."""

import inspect
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from simulate.statement import Student, many
from theory.parameters import ParameterError
from theory.statement import (
    batches,
    check,
    cross_entropy,
    draw,
    eq,
    fixed,
    fluctuations,
    gauss,
    gaussian,
    model,
    number,
    onset,
    sizes,
    sort,
    statement,
    total,
    weight,
)
from theory.statement.derived import derive
from verify.report import Request
from verify.statement import fluctuations as rows
from verify.statement import trajectories

sys.path.insert(0, str(Path(__file__).parents[2] / "theory/statement"))
import strangers
import systems

ETA, BATCH, STEPS = 0.3, 2, 8
FAULTS = {
    "noise without the mean of the slopes": ("self.squares - one * two", "self.squares"),
    "the half of the shift": ("bent / 2", "bent"),
    "batches of one input less": ("eta**2 / batch", "eta**2 / (batch - 1)"),
    "curvature on one side": ("left - eta * self.product(left, self.hessian)", "left"),
    "shifts are not carried on": ("self.jacobian @ self.bias", "0"),
    "noise of steps twice as large": ("eta**2 / batch", "4 * eta**2 / batch"),
}


def noisy():
    """Linear regression of one-hot inputs on labels with noise."""
    token, sign = sort("token", sizes("N")), sort("sign", 2)
    w, z, b = weight("w", token), draw(token), draw(sign)
    label = 1 + number("s") * (1 - 2 * eq(b, fixed(sign, 1)))
    loss = (number("a") * w[z] - label) ** 2 / 2
    values = dict(N=3, s=0.5, a=0.8, eta=0.5, steps=60, eval_every=10, batch_size=16)
    return statement(loss, name="noisy", observables={"square": w[z] ** 2}, values=values)


KINDS = {
    "retrieval": systems.retrieval,
    "bigram": systems.bigram,
    "noisy": noisy,
    **{
        k: getattr(strangers, k)
        for k in "more_names choices hidden begin_token coinciding_values occurs_twice".split()
    },
}


def all_weights(made, data):
    """Class means, bias, covariance and shift of the loss per step, from autograd of all entries."""
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

    mean = lambda x: (each(x) * chances).sum()  # noqa: E731
    slopes = lambda x: torch.func.grad(mean)(x)  # noqa: E731
    starts = [torch.full((m.size,), data.scalar(w.mean)) for w, m in members.items()]
    x, one = torch.cat(starts).double(), torch.eye(size, dtype=torch.float64)
    bias, moments = torch.zeros_like(x), torch.zeros_like(one)
    for _ in range(STEPS + 1):
        h, g = torch.func.hessian(mean)(x), slopes(x)
        shift = g @ bias + (h * moments).sum() / 2
        yield means @ x, means @ bias, means @ moments @ means.T, shift
        each_slope = torch.func.jacrev(each)(x)
        noise = (each_slope.T * chances) @ each_slope - torch.outer(g, g)
        bent = torch.func.grad(lambda y, c: (torch.func.hessian(mean)(y) * c).sum())(x, moments)
        bias = bias - ETA * h @ bias - ETA / 2 * bent
        left = one - ETA * h
        moments = left @ moments @ left + ETA**2 * noise / BATCH
        x = x - ETA * g


def off(made, found, data):
    """Largest deviation from `all_weights`, relative to the largest of each kind."""
    path, gaps = batches.Recursion(found, made, data.numbers), []
    one = np.eye(len(made.classes))
    for reference in all_weights(made, data):
        path.here()
        table = path.state(one)
        values, bias, covariance, shift = (x.numpy() for x in reference)
        theirs = [values, np.append(bias, shift), np.diag(covariance)]
        k = len(values)
        ours = [table[0, :k], table[1, : k + 1], table[2, :k] ** 2]
        gaps.append([(abs(a - b).max(), abs(b).max()) for a, b in zip(ours, theirs, strict=True)])
        path.step(ETA, BATCH)
    worst, scale = np.moveaxis(np.array(gaps).max(0), -1, 0)
    return worst / np.maximum(scale, 1e-6)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """A derivation, its moments, and all inputs at the smallest sizes that fill every class."""
    made = derive(KINDS[request.param]())
    return made, made.moments, next(check.listed(made))


def test_moments_are_those_of_all_weights(kind):
    """Means, bias, spread and shift of the loss, on all weights by autograd."""
    assert off(*kind).max() < 1e-10


def test_moments_of_orbits_without_pairs():
    """Sizes at which some orbits are empty: three keys have no four different ones."""
    made = derive(systems.retrieval())
    data = next(d for d in check.listed(made) if d.numbers["N"] == 3)
    assert (batches.Recursion(made.moments, made, data.numbers).pairs == 0).any()
    assert off(made, made.moments, data).max() < 1e-10


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_step_are_seen(fault, monkeypatch):
    """By the recursion on all weights."""
    made = derive(strangers.coinciding_values())
    data = next(check.listed(made))
    assert off(made, made.moments, data).max() < 1e-10
    inject(fault, monkeypatch)
    assert off(made, made.moments, data).max() > 1e-3


def inject(fault, monkeypatch):
    """A step with a fault."""
    text = inspect.cleandoc("\n" + inspect.getsource(batches.Recursion.step))
    old, new = FAULTS[fault]
    assert text.count(old) == 1
    names = dict(vars(batches))
    exec(text.replace(old, new), names)
    monkeypatch.setattr(batches.Recursion, "step", names["step"])


@pytest.fixture(scope="module")
def students():
    """Four thousand students of retrieval on pairs of inputs."""
    stated = systems.retrieval()
    p = model.offered(stated).Parameters(
        N=4, M=4, P=2, eta=0.25, batch_size=2, steps=120, eval_every=20
    )
    return stated, p, many.train(stated, p, 4000)


def judged(stated, p, runs):
    """Rows of these students."""
    names = [x.name for x in onset.at_sizes(stated, p).flow.state]
    return rows.checks(names, model.offered(stated).predict(p, fluctuations=True), runs)[0]


def test_students_of_retrieval(students):
    """Bias within its standard errors, a change of sign included; 20% would be seen in one."""
    stated, p, runs = students
    found = judged(stated, p, runs)
    assert [c.within for c in found] == [True, True] and min(c.detectable for c in found) < 0.3
    curve = model.offered(stated).predict(p, fluctuations=True)
    assert curve.delta_K_bias[3] < 0 < curve.delta_K_bias[-1]
    error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
    for name in ("delta_K", "delta_V"):
        z = (runs[name].mean("seed") - curve[name] - curve[f"{name}_bias"]) / error[name]
        assert float(abs(z[1:]).max()) < 4
        assert float(curve[f"{name}_sd"].max()) == 0


@pytest.mark.parametrize("fault", list(FAULTS)[:4])
def test_students_tell_faults(students, fault, monkeypatch):
    """Rows fail with a fault in the theory."""
    inject(fault, monkeypatch)
    assert any(c.verdict == "FAIL" for c in judged(*students))


def test_spread_of_students_whose_inputs_differ():
    """Of two statements: variances agree, and one that is a third off would be seen."""
    for make, more in (
        (noisy, {}),
        (strangers.coinciding_values, dict(N=4, M=2, eta=0.1, batch_size=16, steps=200)),
    ):
        p = model.offered(stated := make()).Parameters(**more)
        runs = many.train(stated, p, 1000)
        found = [c for c in judged(stated, p, runs) if c.name.startswith("variance")]
        assert found and all(c.within and c.detectable < 0.33 for c in found)
        less = model.offered(stated).predict(p.replace(batch_size=24), fluctuations=True)
        names = [c.name.split()[2] for c in found]
        failed = [c.verdict == "FAIL" for c in rows.checks(names, less, runs)[0]]
        assert sum(failed) >= len(names)


def test_stationary_variance_of_regression():
    """One-pass linear regression: eta s^2 / (B (2 - eta a^2 / N)) per entry at the optimum."""
    stated = noisy()
    p = model.offered(stated).Parameters(steps=400, eval_every=100)
    curve, rate = model.offered(stated).predict(p, fluctuations=True), 0.8**2 / 3
    one = p.eta * 0.5**2 / (p.batch_size * (2 - p.eta * rate))
    assert float(curve.w_sd[-1] ** 2) == pytest.approx(one / 3, rel=1e-9)  # of a mean of three
    assert float(curve.w_bias[-1]) == pytest.approx(0, abs=1e-15)
    assert float(curve.square_bias[-1]) == pytest.approx(one, rel=1e-9)
