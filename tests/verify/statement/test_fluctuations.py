"""Bias and spread by batches and random starts: all weights by autograd, students, faults."""

import functools
import inspect
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simulate.statement import Student, of, student
from simulate.statement import data as law
from simulate.streams import keyed
from theory.optimisers import Optimiser
from theory.parameters import ParameterError
from theory.registry import find
from theory.statement import (
    arrays,
    check,
    draw,
    eq,
    exp,
    fluctuations,
    gauss,
    gaussian,
    log,
    model,
    number,
    onset,
    orthogonal,
    recursion,
    sizes,
    sort,
    starts,
    statement,
    total,
    uniform,
    weight,
)
from theory.statement.derived import derive
from verify.report import Request
from verify.statement import fluctuations as rows
from verify.statement import trajectories

sys.path.insert(0, str(Path(__file__).parents[2] / "theory/statement"))
import random_starts
import strangers
import systems

ETA, BATCH, STEPS = 0.3, 2, 5
FAULTS = {
    "noise without the mean of the slopes": ("self.squares - one * two", "self.squares"),
    "the half of the shift": ("bent / 2", "bent"),
    "batches of one input less": ("eta**2 / batch", "eta**2 / (batch - 1)"),
    "curvature on one side": ("left - eta * self.product(left, self.hessian)", "left"),
    "shifts are not carried on": ("self.jacobian @ self.bias", "0"),
    "noise of steps twice as large": ("eta**2 / batch", "4 * eta**2 / batch"),
}


noisy = lambda: find(f"{Path(__file__).parent / 'noisy.py'}").statement  # noqa: E731


def draws(**law):
    """Entry of a drawn token, less one."""
    token = sort("token", sizes("N"))
    return weight("w", token, **law)[draw(token)] - 1


def vectors():
    """Linear regression on Gaussian data."""
    dim = sort("dim", sizes("D"), vector=True)
    x, W = gauss("x", dim), weight("W", dim, dim)
    error = lambda i: x[i] - total(lambda j: W[i, j] * x[j], dim)  # noqa: E731
    loss = total(lambda i: error(i) ** 2, dim) / 2
    return statement(loss, name="linear", values=dict(D=3, batch_size=2))


KINDS = {
    "retrieval": systems.retrieval,
    "bigram": systems.bigram,
    "noisy": noisy,
    "more_names": strangers.more_names,
    "choices": strangers.choices,
    "hidden": strangers.hidden,
    "begin_token": strangers.begin_token,
    "coinciding_values": strangers.coinciding_values,
    "occurs_twice": strangers.occurs_twice,
    "random": lambda: random_starts.KINDS["no saddle"](sigma=0.3),
    "orthogonal": lambda: random_starts.KINDS["no saddle"](start=orthogonal(number("sigma"))),
    "uniform": lambda: statement(draws(start=uniform(0.3)) ** 4, name="uniform", values=dict(N=3)),
}
LONG = ("more_names", "begin_token", "occurs_twice", "random")  # the last: independent, as uniform
VARIANCE = {"gaussian": lambda n: 1, "uniform": lambda n: 1 / 3, "orthogonal": lambda n: 1 / n}


@functools.cache
def derivation(kind):
    """A statement's derivation, once."""
    return model.offered(KINDS[kind]()).derived()


def all_weights(made, data, from_means=False):
    """Class means, bias, covariance and shift of the loss per step, by autograd of all entries."""
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
    begun = [torch.full((m.size,), data.scalar(w.mean)) for w, m in members.items()]
    x, one = torch.cat(begun).double(), torch.eye(size, dtype=torch.float64)
    bias, moments = torch.zeros_like(x), torch.zeros_like(one)
    if starts.laws(made):
        of = [
            data.scalar(w.start.size) ** 2 * VARIANCE[w.start.kind](len(m)) * np.ones(m.size)
            for w, m in members.items()
        ]
        beside = one - from_means * means.T @ (means > 0).double()
        moments = beside @ torch.diag(torch.tensor(np.concatenate(of))) @ beside.T
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


def off(made, found, data, from_means=False):
    """Largest deviation from `all_weights`, relative to the largest of each kind."""
    path, gaps = recursion.Recursion(found, made, data.numbers), []
    if from_means:
        path.from_means()
    one = np.eye(len(made.classes))
    for reference in all_weights(made, data, from_means):
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


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in LONG)) for k in KINDS]
)
def test_moments_are_those_of_all_weights(kind):
    """Means, bias, spread and shift of the loss, on all weights by autograd, of all inputs at the
    smallest sizes that fill every class.
    """
    made = derivation(kind)
    assert off(made, made.moments, next(check.listed(made))).max() < 1e-10


def test_moments_of_orbits_without_pairs():
    """Sizes at which some orbits are empty: three keys have no four different ones."""
    made = derivation("retrieval")
    data = next(d for d in check.listed(made) if d.numbers["N"] == 3)
    assert (recursion.Recursion(made.moments, made, data.numbers).pairs == 0).any()
    assert off(made, made.moments, data).max() < 1e-10


def test_what_class_means_leave_out():
    """Of random starts from the same class means nothing at first, then what is beside them."""
    made = derivation("orthogonal")
    data = next(check.listed(made))
    assert off(made, made.moments, data, from_means=True).max() < 1e-10
    walk = recursion.Recursion(made.moments, made, data.numbers)
    walk.from_means()
    walk.here()
    assert abs(walk.state(np.eye(len(made.classes)))[2]).max() < 1e-15


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_step_are_seen(fault, monkeypatch):
    """By the recursion on all weights."""
    made = derivation("coinciding_values")
    data = next(check.listed(made))
    inject(fault, monkeypatch)
    assert off(made, made.moments, data).max() > 1e-3


def inject(fault, monkeypatch):
    """A step with a fault."""
    old, new = FAULTS[fault]
    of = {x: inspect.getsource(getattr(recursion.Recursion, x)) for x in ("here", "step")}
    ((name, text),) = [(x, text) for x, text in of.items() if text.count(old) == 1]
    names = dict(vars(recursion))
    exec(inspect.cleandoc("\n" + text).replace(old, new), names)
    monkeypatch.setattr(recursion.Recursion, name, names[name])


@pytest.fixture(scope="module")
def students():
    """Four thousand students of retrieval on pairs of inputs."""
    stated = derivation("retrieval").statement
    p = model.offered(stated).Parameters(
        N=4, M=4, P=2, eta=0.25, batch_size=2, steps=120, eval_every=20
    )
    return stated, p, student.train(stated, p, 4000)


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
    for name, more in (
        ("noisy", {}),
        ("coinciding_values", dict(N=4, M=2, eta=0.1, batch_size=16, steps=200)),
    ):
        p = model.offered(stated := derivation(name).statement).Parameters(**more)
        runs = student.train(stated, p, 1000)
        found = [c for c in judged(stated, p, runs) if c.name.startswith("variance")]
        assert found and all(c.within and c.detectable < 0.33 for c in found)
        less = model.offered(stated).predict(p.replace(batch_size=24), fluctuations=True)
        names = [c.name.split()[2] for c in found]
        failed = [c.verdict == "FAIL" for c in rows.checks(names, less, runs)[0]]
        assert sum(failed) >= len(names)


def test_stationary_variance_of_regression():
    """One-pass linear regression: eta s^2 / (B (2 - eta a^2 / N)) per entry at the optimum."""
    stated = derivation("noisy").statement
    p = model.offered(stated).Parameters(steps=400, eval_every=100)
    curve, rate = model.offered(stated).predict(p, fluctuations=True), 0.8**2 / 3
    one = p.eta * 0.5**2 / (p.batch_size * (2 - p.eta * rate))
    assert float(curve.w_sd[-1] ** 2) == pytest.approx(one / 3, rel=1e-9)  # of a mean of three
    assert float(curve.w_bias[-1]) == pytest.approx(0, abs=1e-15)
    assert float(curve.square_bias[-1]) == pytest.approx(one, rel=1e-9)


def test_the_flow_is_the_recursion_in_small_steps():
    """Their difference falls with the step, at one ratio of step and batch."""
    made, gaps = derivation("bigram"), []
    for eta, batch in ((0.4, 8), (0.2, 4), (0.1, 2)):
        p = model.offered(made.statement).Parameters(
            N=5, eta=eta, batch_size=batch, steps=round(8 / eta), eval_every=round(2 / eta)
        )
        steps = model.offered(made.statement).predict(p, fluctuations=True)
        flow = made.fluctuations.solve(p, at=steps.t.values, t=8.0)
        gaps.append(float(abs(flow.bias_delta_W - steps.delta_W_bias).max()))
        assert float(abs(flow.variance_delta_W).max()) < 1e-15
    assert np.log2(np.array(gaps[:-1]) / gaps[1:]) == pytest.approx(1, abs=0.05)
    text = made.fluctuations.latex()
    assert text.count(r"\frac{d}{d t}") == len(made.fluctuations.state) == 2 + 2 + 11


def test_the_flow_of_random_starts_is_the_recursion_in_small_steps():
    """Likewise, of bias and variance."""
    made = model.offered(random_starts.gated(gates=0, N=4)).derived()
    gaps = []
    for eta in (0.2, 0.1, 0.05):
        p = model.offered(made.statement).Parameters(
            sigma=0.1, eta=eta, steps=round(4 / eta), eval_every=round(1 / eta)
        )
        steps = model.offered(made.statement).predict(p, fluctuations=True)
        flow = made.fluctuations.solve(p, at=steps.t.values, t=4.0)
        off = flow.bias_delta_W - steps.delta_W_bias, flow.variance_delta_W - steps.delta_W_sd**2
        gaps.append([float(abs(x).max()) for x in off])
    with pytest.raises(ParameterError, match="^batch_size = 2: must be 0"):
        made.fluctuations.solve(p.replace(batch_size=2), t=4.0)
    assert float(flow.variance_delta_W[0]) == pytest.approx(0.1**2 * (1 / 4 + 1 / 12))
    assert np.log2(np.array(gaps[:-1]) / gaps[1:]) == pytest.approx(1, abs=0.1)


def test_moments_are_compared_before_they_are_used():
    """Curvature, noise and products that are off are refused, each by name."""
    made = derivation("bigram")
    orbit = made.moments.orbits[0]
    less = {k: v / 2 for k, v in orbit.curvature.items()}
    triples = {k: 2 * v if n == 0 else v for n, (k, v) in enumerate(made.moments.triples.items())}
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


def test_no_claim_where_shifts_are_large():
    """After the time of trust bias and spread are NaN, and a note says so."""
    stated = derivation("retrieval").statement
    p = model.offered(stated).Parameters(
        N=4, M=4, P=2, eta=8.0, batch_size=1, steps=30, eval_every=1
    )
    curve = model.offered(stated).predict(p, fluctuations=True)
    trust = curve.attrs["trust"]
    assert 0 < trust < 240 and "claimed before t" in curve.attrs["assumptions"]
    assert (curve.delta_K_bias.isnull() == (curve.t >= trust)).all()
    assert not curve.delta_K.isnull().any()
    near = curve.sel(t=curve.t < trust)
    moved = abs(curve - curve.isel(t=0)).max()
    assert all(float(abs(near[f"{x}_bias"]).max()) <= 0.1 * moved[x] for x in ("delta_K", "loss"))


def test_spread_of_the_loss_near_its_minimum():
    """Where the slope vanishes the spread is of the next order, and is not claimed; elsewhere it is
    that of students.
    """
    letter, w = sort("letter", sizes("N")), weight("w")[()]
    a, b = draw(letter), draw(letter)
    size = dict(N=4, eta=0.1, batch_size=32, steps=300, eval_every=30)
    stated = statement(log(1 + exp(w)) - w * eq(a, b), name="logistic", values=size)
    theory = model.offered(stated)
    p = theory.Parameters()
    told, runs = theory.predict(p, fluctuations=True), student.train(stated, p, 10_000)
    measured = (np.log1p(np.exp(runs.w)) - runs.w / 4).std("seed").values[1:]
    claimed = told.loss_sd.values[1:]
    sure = np.isfinite(claimed)
    assert sure[:3].all() and not sure[-3:].any()
    np.testing.assert_allclose(claimed[sure], measured[sure], rtol=0.08)  # next order 5%, chance 3%


def test_curve_is_that_of_descent_and_of_runs():
    """Without fluctuations the same curve; runs at their own times; other runs are refused."""
    stated = derivation("bigram").statement
    theory = model.offered(stated)
    p = theory.Parameters(N=4, batch_size=4, steps=20, eval_every=5)
    one, two = theory.predict(p), theory.predict(p, fluctuations=True)
    for x in one:
        np.testing.assert_allclose(one[x], two[x], rtol=1e-12, atol=1e-15)
    runs = of(stated).train(p, seeds=[0, 1], progress=False)
    again = theory.predict(p, runs, fluctuations=True)
    np.testing.assert_allclose(again.delta_W_bias, two.delta_W_bias)
    with pytest.raises(ParameterError, match="batch_size = 8: the runs were trained with 4"):
        theory.predict(p.replace(batch_size=8), runs, fluctuations=True)
    momentum = of(stated).train(p, seeds=[0, 1], progress=False, optimizer=Optimiser(momentum=0.9))
    with pytest.raises(ParameterError, match="fluctuations are those of plain descent"):
        theory.predict(p, momentum, fluctuations=True)


def test_a_single_student_is_one_of_many():
    """Descent of the students trained at once is that of the reference, on the same inputs."""
    stated = derivation("retrieval").statement
    p = model.offered(stated).Parameters(
        N=4, M=3, P=2, eta=0.7, batch_size=3, steps=5, eval_every=1
    )
    runs, one = student.train(stated, p, 4, seed=3), Student(stated)
    numbers, rng = arrays.counted(p), keyed(3, student.STREAM)
    every = one.taken(arrays.every_input(stated, numbers, None))
    weights = [
        {
            w: torch.zeros(n, n, dtype=torch.float64)
            for w, n in zip(stated.weights, (4, 3), strict=True)
        }
        for _ in range(4)
    ]
    for n in range(6):
        diagonal = [float(x[stated.weights[0]].diagonal().mean()) for x in weights]
        away = [
            float(x[stated.weights[0]].sum() - 4 * d) / 12
            for x, d in zip(weights, diagonal, strict=True)
        ]
        np.testing.assert_allclose(runs.delta_K[:, n], np.subtract(diagonal, away), atol=1e-14)
        drawn = law.inputs(stated, numbers, {}, 12, rng)
        for k, x in enumerate(weights):
            own = slice(3 * k, 3 * k + 3)
            part = arrays.Data(
                numbers,
                {f: v[own] for f, v in drawn.tables.items()},
                {i: v[own] for i, v in drawn.draws.items()},
                chances=np.full(3, 1 / 3),
            )
            _, slopes = one.gradients(x, one.taken(part))
            loss = float(one.mean(x, every))
            assert float(runs.loss[k, n]) == pytest.approx(loss, rel=1e-12)
            for w in x:
                x[w] = x[w] - p.eta * slopes[w]


def test_command_of_many_seeds():
    """From 500 seeds on `verify.trajectories` compares bias and spread, with a figure."""
    found = find(f"{Path(__file__).parent / 'noisy.py'}")
    report = trajectories.of(found.statement).report(Request(found, seeds="600"))
    assert [c.name.split()[0] for c in report.checks] == ["bias", "variance"]
    assert report.exit_code == 0 and report.draw is not None
    report.draw()
    few = trajectories.of(found.statement).report(Request(found, seeds="2"))
    assert not any(c.name.startswith("bias") for c in few.checks)


REFUSED = {
    "batch_size = 0: all inputs at every step": lambda: statement(
        draws() ** 2, name="none", values=dict(N=2)
    ),
    "where weights start at random": lambda: statement(
        draws(start=gaussian(0.1)) ** 2, name="random", values=dict(N=2, batch_size=2)
    ),
    "Gaussian data and vectors are not supported": vectors,
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    """In one line."""
    theory = model.offered(REFUSED[message]())
    with pytest.raises(ParameterError, match=message):
        theory.predict(theory.Parameters(), fluctuations=True)


def test_closures_are_refused():
    """They have no single students."""
    with pytest.raises(ParameterError, match="of a closure over teachers"):
        fluctuations.moments(derive(systems.tracking()))
