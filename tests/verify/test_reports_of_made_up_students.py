"""Whole reports of commands whose students take minutes or hours, of students that are
made up (`pretend`): every number in rows, notes and tables is one that was frozen.

Could see: another seed, parameter or option of any students, an index, a mean, a sign,
in whatever a report says of them. Whether a row fails as it should is tested where it
has a test of its own.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pretend
import pytest

from simulate.associative_memory.superposition import zipf_error
from tests import frozen
from theory.induction_heads import Parameters as Heads
from theory.induction_heads.all_weights import descent, law
from theory.models.registry import find
from theory.positional_semantic import Parameters as Sentences
from theory.positional_semantic import general
from theory.positional_semantic.branches import Thresholds
from verify.associative_memory import k_hop, superposition
from verify.associative_memory import noisy_bigram as noisy
from verify.checks.report import Request
from verify.induction_heads import flow_laws, pictures, timescales
from verify.induction_heads.all_weights import all_weights_times, gaussian
from verify.positional_semantic import extensions as slices
from verify.positional_semantic import minima, thresholds


@pytest.fixture
def heads(monkeypatch):
    """Made-up students, and flows of made-up times."""
    for module in (timescales, flow_laws, pictures, all_weights_times, gaussian):
        monkeypatch.setattr(module, "train", pretend.heads)
    monkeypatch.setattr(all_weights_times.standard, "train", pretend.standard)

    def times(*asked, **more):
        N, names = asked[0], (*timescales.LEVELS, *timescales.NAMES)
        return {n: 2 * N**2 * (1 + 0.1 * pretend.drawn(n, asked, more)) for n in names}

    monkeypatch.setattr(
        flow_laws,
        "times",
        lambda N, *query: times(N, *(q for q in query if q != "last")),
    )
    # of a single right pair the same times, however the call is spelled
    monkeypatch.setattr(
        all_weights_times,
        "flow_times",
        lambda N, query, right=1: times(N, query, *[right] * (right > 1)),
    )
    monkeypatch.setattr(law, "predicted", lambda *asked: times(*asked, 0))
    return times


def test_induction_heads(heads, monkeypatch):
    """Ensembles of all weights over N, batches and queries; the pictures; both
    hypotheses.
    """
    found = timescales.all_weights(progress=False)
    frozen.hold_all("made-up heads, all weights", found[1:])
    frozen.hold_all("made-up heads, network", flow_laws.network(progress=False)[1])
    for p in (Heads.demo(), timescales.PAPER):
        runs = pretend.heads(p, range(3), alone=True)
        _, notes = timescales.emergence(p, runs)
        frozen.hold_all(f"made-up heads, N = {p.N}", notes)
    pictures.weights(progress=False)
    pictures.ablations(progress=False)
    assert len(found[0]) == 16


def test_every_weight_of_induction_heads(heads, monkeypatch):
    """Students beside descent and laws, on orthonormal and Gaussian data."""
    monkeypatch.setattr(all_weights_times, "STUDENT_SIZES", (3,))
    monkeypatch.setattr(gaussian, "SIZE", 2)
    monkeypatch.setattr(gaussian, "DIMENSIONS", (16, 256))
    monkeypatch.setattr(gaussian, "HALF_FILLED", (2, 3))
    monkeypatch.setattr(descent, "times", heads)
    monkeypatch.setattr(gaussian, "all_weights_times", lambda p: heads(p.N, p.D, p.eta))
    monkeypatch.setattr(
        gaussian,
        "excess",
        lambda *asked: np.array([pretend.drawn(asked, k) for k in range(4)]),
    )
    monkeypatch.setattr(
        all_weights_times, "against_network", lambda: []
    )  # which has tests of its own
    monkeypatch.setattr(all_weights_times, "descent", lambda **more: [])
    checks, notes = all_weights_times.everything(progress=False)
    frozen.hold_all("made-up heads, every weight", notes)
    assert len(checks) > 20 and any("pairs^" in note for note in notes)


def test_exponents_of_the_flow(heads):
    """With their intervals."""
    frozen.hold_all("made-up exponents", flow_laws.exponents()[1])


def _state_evolution(p, *more):
    """A made-up fixed point."""
    found = {
        n: 1 + pretend.drawn(pretend.asked(p, {})[0], more, n)
        for n in (*OVERLAPS, *LOSSES)
    }
    state = SimpleNamespace(q=found["q"], V=found["V"])
    return SimpleNamespace(exists=True, summary=lambda: found, state=state)


def _general(system, start, **more):
    """A made-up fixed point with two columns."""
    seen = float(np.sum(start.q)), float(np.sum(start.theta)), float(np.sum(start.V))
    x = [
        1 + pretend.drawn(np.round(seen, 6).tolist(), system.rank, more, k)
        for k in range(6)
    ]
    order = SimpleNamespace(
        q=np.diag(x[:2])[None, None], theta=np.reshape(x[2:4], (1, 1, 2, 1))
    )
    return SimpleNamespace(order=order, train_loss=x[4], test_full=x[5])


def test_thresholds(monkeypatch):
    """Made-up minima and theory; message passing of a seed by itself, below."""
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    for module in (thresholds, minima, slices):
        monkeypatch.setattr(module, "train", pretend.sentences)
    for module in (minima, slices):
        monkeypatch.setattr(module, "solve", _state_evolution)
    monkeypatch.setattr(general, "solve", _general)
    monkeypatch.setattr(thresholds, "fit_linear", pretend.minimum)
    monkeypatch.setattr(
        minima,
        "_overlaps",
        lambda p, seed: {
            x: 1 + pretend.drawn(pretend.asked(p, {})[0], seed, x) for x in OVERLAPS
        },
    )
    predicted = {
        "global": Thresholds(0.3, 1.25, 1.49),
        "local": Thresholds(0.3, 1.2, 1.48),
    }
    monkeypatch.setattr(thresholds, "thresholds", lambda p: predicted[p.prox])
    monkeypatch.setattr(minima, "GAMP_SEEDS", 4)
    report = thresholds.report(Request(find("positional_semantic"), seeds="5"))
    frozen.hold_all("made-up sentences", [report.notes, report.numbers])
    shown = thresholds.overlaps(thresholds.DEMO, "semantic", "theta", range(3), {})
    frozen.hold_all("made-up overlaps", [shown.alpha.values, shown.values])
    assert len(report.checks) == 39


OVERLAPS = ("V", "q", "m", "theta", "step", "gradient")
LOSSES = ("train_loss", "test_mse_half")


@pytest.mark.parametrize(("start", "alpha"), [("semantic", 2.0), ("positional", 1.0)])
def test_message_passing_of_a_seed(start, alpha):
    """At a small size, to its fixed point; the sentences and the start are those of the
    seed.
    """
    found = minima._overlaps(Sentences(d=40, alpha=alpha, start=start), 3)
    residues = {x: found.pop(x) for x in ("step", "gradient")}
    assert all(0 <= r < 1e-3 for r in residues.values())
    frozen.hold_all(f"message passing, {start}", found)


def test_memories(monkeypatch):
    """Zipf frequencies, quadratures, the ablation; kernel learners that are made up."""
    frozen.hold_all("Zipf", zipf_error(8, 1.5, 64, 4, 2, 5, seed=3))
    assert not zipf_error(
        400, 1.5, 4, 4, 4, 3
    ).any()  # few, in many dimensions: all recalled
    assert all(c.within for c in superposition.quadrature_checks())
    assert all(c.within for c in noisy.ablation())
    monkeypatch.setattr(k_hop, "train", pretend.hops)
    assert len(k_hop.learners()) == 6
    frozen.hold_all(
        "made-up hops", [{n: f[n] for n in TIMED} for f in k_hop.learner_runs(2)]
    )


TIMED = ("predicted", "times", "k")
