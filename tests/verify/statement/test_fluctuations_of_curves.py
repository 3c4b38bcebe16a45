"""Curves of bias and spread: the recursion, descent, single students, the command,
refusals.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from simulate.statement import Student, of, student
from simulate.statement import data as law
from simulate.training.streams import keyed
from theory.call.refusal import ParameterError
from theory.dynamics.optimisers import Optimiser
from theory.models.registry import find
from theory.statement import (
    draw,
    eq,
    exp,
    gauss,
    gaussian,
    log,
    model,
    sizes,
    sort,
    statement,
    total,
    weight,
)
from theory.statement.derivation.derived import derive
from theory.statement.evaluation import arrays
from theory.statement.randomness import fluctuations
from verify.checks.report import Request
from verify.statement import trajectories

sys.path.insert(0, str(Path(__file__).parents[2] / "theory/statement"))
import random_starts
import systems
from test_fluctuations import derivation, draws


def vectors():
    """Linear regression on Gaussian data."""
    dim = sort("dim", sizes("D"), vector=True)
    x, W = gauss("x", dim), weight("W", dim, dim)
    error = lambda i: x[i] - total(lambda j: W[i, j] * x[j], dim)
    loss = total(lambda i: error(i) ** 2, dim) / 2
    return statement(loss, name="linear", values=dict(D=3, batch_size=2))


def test_the_flow_is_the_recursion_in_small_steps():
    """Their difference falls with the step, at one ratio of step and batch."""
    made, gaps = derivation("bigram"), []
    for eta, batch in ((0.4, 8), (0.2, 4), (0.1, 2)):
        p = model.theory_of(made.statement).Parameters(
            N=5,
            eta=eta,
            batch_size=batch,
            steps=round(8 / eta),
            eval_every=round(2 / eta),
        )
        steps = model.theory_of(made.statement).predict(p, fluctuations=True)
        flow = made.fluctuations.solve(p, at=steps.t.values, t=8.0)
        gaps.append(float(abs(flow.bias_delta_W - steps.delta_W_bias).max()))
        assert float(abs(flow.variance_delta_W).max()) < 1e-15
    assert np.log2(np.array(gaps[:-1]) / gaps[1:]) == pytest.approx(1, abs=0.05)
    text = made.fluctuations.latex()
    assert text.count(r"\frac{d}{d t}") == len(made.fluctuations.state) == 2 + 2 + 11


def test_the_flow_of_random_starts_is_the_recursion_in_small_steps():
    """Likewise, of bias and variance."""
    made = model.theory_of(random_starts.gated(gates=0, N=4)).derived()
    gaps = []
    for eta in (0.2, 0.1, 0.05):
        p = model.theory_of(made.statement).Parameters(
            sigma=0.1, eta=eta, steps=round(4 / eta), eval_every=round(1 / eta)
        )
        steps = model.theory_of(made.statement).predict(p, fluctuations=True)
        flow = made.fluctuations.solve(p, at=steps.t.values, t=4.0)
        off = (
            flow.bias_delta_W - steps.delta_W_bias,
            flow.variance_delta_W - steps.delta_W_sd**2,
        )
        gaps.append([float(abs(x).max()) for x in off])
    with pytest.raises(ParameterError, match="^batch_size = 2: must be 0"):
        made.fluctuations.solve(p.replace(batch_size=2), t=4.0)
    assert float(flow.variance_delta_W[0]) == pytest.approx(0.1**2 * (1 / 4 + 1 / 12))
    assert np.log2(np.array(gaps[:-1]) / gaps[1:]) == pytest.approx(1, abs=0.1)


def test_no_claim_where_shifts_are_large():
    """After the time of trust bias and spread are NaN, and a note says so."""
    stated = derivation("retrieval").statement
    p = model.theory_of(stated).Parameters(
        N=4, M=4, P=2, eta=8.0, batch_size=1, steps=10, eval_every=1
    )
    curve = model.theory_of(stated).predict(p, fluctuations=True)
    trust = curve.attrs["trust"]
    assert 0 < trust < 80 and "claimed before t" in curve.attrs["assumptions"]
    assert (curve.delta_K_bias.isnull() == (curve.t >= trust)).all()
    assert not curve.delta_K.isnull().any()
    near = curve.sel(t=curve.t < trust)
    moved = abs(curve - curve.isel(t=0)).max()
    assert all(
        float(abs(near[f"{x}_bias"]).max()) <= 0.1 * moved[x]
        for x in ("delta_K", "loss")
    )


def test_spread_of_the_loss_near_its_minimum():
    """Where the slope vanishes the spread is of the next order, and is not claimed;
    elsewhere it is that of students.
    """
    letter, w = sort("letter", sizes("N")), weight("w")[()]
    a, b = draw(letter), draw(letter)
    size = dict(N=4, eta=0.1, batch_size=32, steps=300, eval_every=30)
    stated = statement(log(1 + exp(w)) - w * eq(a, b), name="logistic", values=size)
    theory = model.theory_of(stated)
    p = theory.Parameters()
    told, runs = theory.predict(p, fluctuations=True), student.train(stated, p, 4000)
    measured = (np.log1p(np.exp(runs.w)) - runs.w / 4).std("seed").values[1:]
    claimed = told.loss_sd.values[1:]
    sure = np.isfinite(claimed)
    assert sure[:3].all() and not sure[-3:].any()
    np.testing.assert_allclose(
        claimed[sure], measured[sure], rtol=0.08
    )  # next order 5%, chance 3%


def test_curve_is_that_of_descent_and_of_runs():
    """Without fluctuations the same curve; runs at their own times; other runs are
    refused.
    """
    stated = derivation("bigram").statement
    theory = model.theory_of(stated)
    p = theory.Parameters(N=4, batch_size=4, steps=20, eval_every=5)
    one, two = theory.predict(p), theory.predict(p, fluctuations=True)
    for x in one:
        np.testing.assert_allclose(one[x], two[x], rtol=1e-12, atol=1e-15)
    runs = of(stated).train(p, seeds=[0, 1], progress=False)
    again = theory.predict(p, runs, fluctuations=True)
    np.testing.assert_allclose(again.delta_W_bias, two.delta_W_bias)
    with pytest.raises(
        ParameterError, match="batch_size = 8: the runs were trained with 4"
    ):
        theory.predict(p.replace(batch_size=8), runs, fluctuations=True)
    momentum = of(stated).train(
        p, seeds=[0, 1], progress=False, optimizer=Optimiser(momentum=0.9)
    )
    with pytest.raises(ParameterError, match="fluctuations are those of plain descent"):
        theory.predict(p, momentum, fluctuations=True)


def test_a_single_student_is_one_of_many():
    """Descent of the students trained at once is that of the reference, on the same
    inputs.
    """
    stated = derivation("retrieval").statement
    p = model.theory_of(stated).Parameters(
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
        np.testing.assert_allclose(
            runs.delta_K[:, n], np.subtract(diagonal, away), atol=1e-14
        )
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
    """From 500 seeds on `verify.trajectories` compares bias and spread,
    with a figure.
    """
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
    theory = model.theory_of(REFUSED[message]())
    with pytest.raises(ParameterError, match=message):
        theory.predict(theory.Parameters(), fluctuations=True)


def test_closures_are_refused():
    """They have no single students."""
    with pytest.raises(ParameterError, match="of a closure over teachers"):
        fluctuations.moments(derive(systems.tracking()))
