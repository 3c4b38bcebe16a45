"""Checks of the induction-head model: laws, network, hypotheses, controls, and
commands.
"""

import matplotlib as mpl
import numpy as np
import pytest

from simulate.induction_heads import Parameters
from theory.call.refusal import ParameterError
from theory.induction_heads import predict
from theory.induction_heads.parameters import StandardParameters
from theory.models.registry import find
from verify import timescales as command
from verify.checks import ensemble_source
from verify.checks.check import failed
from verify.checks.report import Request
from verify.compare.emergence import power
from verify.induction_heads import flow_laws, gradients, pictures, symmetry, timescales
from verify.induction_heads import trajectories as all_weights_trajectories
from verify.trajectories import compare

mpl.use("Agg")
ALONE = {"progress": False, "workers": 1, "device": "cpu"}
LONG = pytest.param(True, marks=pytest.mark.slow)


def test_all_checks_pass_on_the_derived_equations():
    """Those of Theorem 1, which hold for no equation; the rest in `test_faults`."""
    found = gradients.theorem_1({})
    assert not failed(found) and len(found) > 15


@pytest.mark.parametrize("whole", [False, LONG])
def test_laws(whole, monkeypatch):
    """Constants and exponents of the flow; three sizes in short."""
    if not whole:
        monkeypatch.setattr(flow_laws, "EXPONENT_SIZES", (64, 128, 256))
        monkeypatch.setattr(flow_laws, "DROP_SIZES", (10**7,))
    found = [*flow_laws.constants(), *flow_laws.exponents()[0]]
    assert [c.name for c in found if not c.within] == []


def test_a_wrong_constant_is_caught(monkeypatch):
    """0.1% in any coefficient of T_beta or T_alpha shows in the fit."""
    right = flow_laws.coefficients
    for k in range(3):
        monkeypatch.setattr(
            flow_laws,
            "coefficients",
            lambda name, k=k: right(name) * (1 + 0.001 * (np.arange(3) == k)),
        )
        wrong = [c.name for c in flow_laws.fitted() if not c.within]
        assert wrong == [
            f"fitted coefficient of {('N^2', 'N', '1')[k]} in {name}"
            for name in ("T_beta", "T_alpha")
        ]


def test_powers_and_limits():
    """Exponents of powers, seed by seed, one of which does not reach every event; the
    limit of what approaches it as 1/size.
    """
    sizes = np.array([4, 6, 8, 12])
    times = [[3 * N**1.5, 7 * N**-0.5, N if N < 12 else np.nan] for N in sizes]
    assert power(sizes, times) == pytest.approx([1.5, -0.5, np.nan], nan_ok=True)
    approach = [2.0 + np.array([5.0, -3.0]) / size for size in (32, 128)]
    assert flow_laws.limit((32, 128), approach) == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize(("query", "batch"), [("last", 1), ("uniform", 6)])
def test_nineteen_directions_need_no_batch(query, batch):
    """Each queried pair once; of all weights a batch is what it is said to be. The step
    in t is the rate.
    """
    nineteen = flow_laws.orthonormal(6, query, "nineteen", 0.1, 10, 32)
    assert (nineteen.query, nineteen.batch_size) == (
        {"uniform": "each"}.get(query, query),
        batch,
    )
    every = flow_laws.orthonormal(6, query, "all", 0.1, 10, 32)
    assert (every.query, every.batch_size) == (query, 32)
    assert nineteen.time_per_step == pytest.approx(0.1) == every.time_per_step


def test_network_is_euler(tmp_path, monkeypatch):
    """Constrained network against Euler; order of convergence."""
    monkeypatch.setattr(flow_laws, "SIZE", 2)
    checks, notes = flow_laws.network(store=tmp_path, **ALONE)
    assert [c.name for c in checks if not c.within] == [] and any(
        "flow" in n for n in notes
    )


@pytest.fixture
def small(monkeypatch):
    """Sweeps of seconds."""
    monkeypatch.setattr(timescales, "SIZES", (2, 3))
    monkeypatch.setattr(timescales, "SEEDS", range(2))
    monkeypatch.setattr(timescales, "NOISE_SIZE", 2)
    monkeypatch.setattr(timescales, "RATE", 0.4)


@pytest.mark.slow
def test_all_weights(small, tmp_path):
    """Exponents with intervals, for both queries, and a figure."""
    checks, notes, sweeps = timescales.all_weights(store=tmp_path, **ALONE)
    for label in ("q = N", "uniform q"):
        assert any(
            c.name == f"exponent of T_drop, all weights, {label}" for c in checks
        )
        assert any(f"all weights, {label}" in n for n in notes) and label in sweeps
    figure = timescales.draw(sweeps)
    assert len(figure.axes) == 2


def test_weights_have_the_structure_of_the_pictures(tmp_path, monkeypatch):
    """At the first picture of App. C, in smaller batches: the three lead, students
    share nothing else; a cosine of 5% would be seen.
    """
    p = pictures.structure(4).replace(batch_size=64, steps=100)
    monkeypatch.setattr(pictures, "STRUCTURE", {4: (100,)})
    monkeypatch.setattr(pictures, "structure", lambda N: p)
    checks = pictures.weights(store=tmp_path, **ALONE)
    assert [c.verdict for c in checks] == ["bound", "agrees"]
    runs = timescales.train(
        p, seeds=pictures.SEEDS, keep_weights=True, store=tmp_path, **ALONE
    )
    rows = pictures.outside(runs.isel(t=-1))
    size = np.linalg.norm(rows, axis=1).mean()
    common = np.random.default_rng(0).normal(size=rows.shape[1])
    # A quarter of the norm in common is 6% of its square: the cosine.
    rows = rows + size / 4 * common / np.linalg.norm(common)
    off = pictures.sampled("", "", 0.0, pictures.shared(rows), scale=1.0)
    assert off.verdict == "FAIL"


@pytest.mark.parametrize("whole", [False, LONG])
def test_mechanism_of_the_standard_transformer(whole, tmp_path, monkeypatch):
    """Where Fig. 2 shows lines; before training there are none. In short half the size,
    and two seeds: of 21 positions the last, which no label has, is the one row that may
    be missed.
    """
    p = StandardParameters()
    if not whole:
        p = p.replace(
            D=64, vocabulary=16, block=22, pairs=4, eta=3e-3, batch_size=64, steps=150
        )
        monkeypatch.setattr(pictures, "SEEDS", range(2))
    found = pictures.mechanism(p, store=tmp_path, **ALONE)
    assert [c.verdict for c in found] == ["agrees"] * 3
    start = pictures.mechanism(p.replace(steps=1), store=tmp_path, **ALONE)
    assert [c.verdict for c in start] == ["FAIL"] * 3


def test_all_weights_beside_three_directions(tmp_path, monkeypatch):
    """A reduced App. D: both losses drop, and the ratio of their times is a row."""
    monkeypatch.setattr(pictures, "ABLATION", {(2, 8): 40})
    monkeypatch.setitem(pictures.BANDS, (2, 8), None)
    monkeypatch.setattr(pictures, "ABLATED", range(2))
    lead, ratio = pictures.ablations(store=tmp_path, **ALONE)
    assert (
        lead.within and lead.id == "smallest_of_the_three_over_the_largest_of_sixteen"
    )
    assert ratio.equation == "Hypothesis 2" and 0.5 < ratio.measured < 2


def test_hypotheses(tmp_path):
    """No drop without the head, a drop with the head alone."""
    p = Parameters(
        N=2,
        D=4,
        data="orthonormal",
        query="last",
        eta=4.0,
        batch_size=32,
        steps=120,
        eval_every=2,
    )
    runs = timescales.train(p, seeds=range(2), store=tmp_path, **ALONE)
    checks, notes = timescales.emergence(p, runs, store=tmp_path, **ALONE)
    names = [c.name for c in checks]
    assert (
        names[0].startswith("smallest loss without the head")
        and checks[0].equation == "Hypothesis 1"
        and checks[0].within
    )
    assert any(
        c.name.startswith("T_drop of all weights") and c.equation == "Hypothesis 2"
        for c in checks
    )
    assert any("T_alpha" in n for n in notes)


def test_controls_name_what_fails():
    """Every control leaves the 19 directions at D = 2; the whole group does not."""
    sample = symmetry.Sample(3, 2, 1, seed=5)
    for subgroup in symmetry.CONTROLS.values():
        assert symmetry.outside(sample.gradient(subgroup(2))) > 1e-4
    assert symmetry.outside(sample.gradient(symmetry.whole_group(2))) < 1e-14


def test_commands_that_do_not_apply():
    """The registry says which commands there are."""
    assert find("induction_heads").checks == ("gradients", "timescales", "trajectories")
    from verify import fidelity

    with pytest.raises(
        ParameterError, match="verify.fidelity: not for induction_heads"
    ):
        fidelity.main(["induction_heads"])
    with pytest.raises(ParameterError, match="needs at least 2 seeds"):
        command.main(["induction_heads", "--seeds", "1"])


@pytest.mark.slow
def test_trajectories_of_all_weights(monkeypatch, tmp_path):
    """Students against descent of the closed flow: off by what the batches' noise was
    measured to do; 5% more or less fails.
    """
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path))
    asked = Request(find("induction_heads"))
    p, runs = ensemble_source.get(asked)
    found = {c.id: c.verdict for c in all_weights_trajectories.report(asked).checks}
    assert found.pop("loss") in ("limit", "undecided")  # scatters by its own noise
    assert found == dict.fromkeys(("alpha", "beta", "gamma"), "limit")
    curve = predict(p, runs)
    for factor in (0.95, 1.05):
        found = compare(curve * factor, runs, all_weights_trajectories.BANDS).checks
        assert {c.id for c in found if c.verdict == "FAIL"} >= {"beta", "gamma"}
    with pytest.raises(ParameterError, match="orthonormal"):
        predict(p.replace(data="gaussian"), runs)
