"""Students with clamped weights against the flow with
the same order parameter clamped.
"""

from dataclasses import replace

import numpy as np
import pytest

from simulate.associative_memory.factual_recall import SYSTEM
from simulate.induction_heads.learner import DISENTANGLED
from simulate.systems import find
from theory.associative_memory.factual_recall import Parameters, predict
from theory.associative_memory.factual_recall.dynamics import flow
from theory.call.refusal import ParameterError
from theory.induction_heads import Parameters as Induction
from theory.induction_heads import bursty
from theory.statement.onset import at_sizes

P = Parameters(
    S=4, R=2, D=2, noise_tokens=2, T=4, batch_size=512, eta=0.5, steps=60, eval_every=20
)
RELATIONS = replace(SYSTEM, held={f"w[{P.S}:{P.S + P.R}]": 0.4})
ALONE = {"workers": 1, "progress": False, "dtype": "float64"}


def test_attention_held(tmp_path):
    """The gain follows the descent map of the held flow, which is far from the free
    one.
    """
    runs = RELATIONS.train(P, range(4), store=tmp_path, **ALONE)
    held, free = (
        f.descend(P, P.eta, P.steps).sel(t=runs.t)
        for f in (flow().held(w_r=0.4), flow())
    )
    assert (runs.w_r == 0.4).all()
    later = runs.delta_r.isel(t=slice(1, None))
    error = later.std("seed", ddof=1) / 2  # of four seeds
    assert (error < 1e-4 * later.mean("seed")).all()
    # Batches are random: three degrees of freedom, so 12 standard errors are one in a
    # thousand.
    assert (abs(later.mean("seed") - held.delta_r) < 12 * error).all()
    assert free.delta_r[-1] < 0.01 * held.delta_r[-1]


def test_held_runs_are_runs_of_their_own(tmp_path):
    """Another configuration; resumed bit for bit;
    names and places that do not exist.
    """
    assert RELATIONS.configuration(
        P, RELATIONS.precision("float64")
    ) != SYSTEM.configuration(P, SYSTEM.precision("float64"))
    learner, other = (
        RELATIONS.learner(P, [0, 1], None, RELATIONS.precision("float64")) for _ in "ab"
    )
    for number in range(3):
        learner.step(number)
        other.load([learner.state(b) for b in range(2)])
    for number in range(3, 5):
        learner.step(number)
        other.step(number)
    for a, b in zip(learner.measure().values(), other.measure().values(), strict=True):
        np.testing.assert_array_equal(a, b)
    for wrong in ("q", "w[9]", "w[3:40]", "w[x]"):
        with pytest.raises(
            ParameterError, match=r"^held: no weight .*; there are w \(9,\), V"
        ) as e:
            replace(SYSTEM, held={wrong: 0.1}).learner(
                P, [0], None, SYSTEM.precision(None)
            )
        assert wrong in str(e.value)


def test_one_of_three_numbers_held():
    """A module with an optimiser: alpha stays at 2, the others move."""
    p = Induction(N=3, D=8, trained="three", batch_size=4, steps=3, eval_every=1)
    system = replace(DISENTANGLED, held={"theta[0]": 2.0})
    learner = system.learner(p, [0], system.device("cpu"), system.precision(None))
    for number in range(3):
        learner.step(number)
    found = learner.measure()
    assert found["alpha"] == 2.0 and {0.0, 2.0}.isdisjoint(
        [*found["beta"], *found["gamma"]]
    )


def test_a_single_number_held():
    """A weight without axes is named without a place; the flow with it held is
    followed.
    """
    _, system = find("induction_heads.bursty")
    p = bursty.Parameters(N=4, B=2, eta=0.2, steps=20)
    held = replace(system, held={"alpha": 0.3})
    learner = held.learner(p, [0], system.device("cpu"), system.precision(None))
    for number in range(p.steps):
        learner.step(number)
    flow_held = at_sizes(bursty.stated, p).flow.held(alpha=0.3)
    expected = flow_held.descend(p, p.eta, p.steps).isel(t=-1)
    for name, value in learner.measure().items():
        known = expected.get(name, 0.3)
        assert value == pytest.approx(float(known), rel=1e-12), name
    with pytest.raises(
        ParameterError, match=r"^held: no weight alpha\[0\]; there are gamma \(\)"
    ):
        replace(system, held={"alpha[0]": 0.3}).learner(
            p, [0], None, system.precision(None)
        )


def test_no_curve_is_predicted_for_clamped_students(tmp_path):
    """The flow of all weights is not theirs."""
    runs = RELATIONS.train(P, range(2), store=tmp_path, **ALONE)
    with pytest.raises(
        ParameterError, match=r"^runs: w\[4:6\] is held; solve flow\(\)\.held"
    ):
        predict(P, runs)
