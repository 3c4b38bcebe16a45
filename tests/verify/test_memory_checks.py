"""Checks of the associative-memory systems and their commands pass."""

from __future__ import annotations

import json

import matplotlib as mpl
import numpy as np
import pytest

from simulate.associative_memory.factual_recall import train
from simulate.training.pool import one_thread
from theory.associative_memory import factual_recall
from theory.associative_memory.factual_recall import Parameters
from theory.call.refusal import ParameterError
from theory.models import registry
from verify import gradients, laws, timescales, trajectories
from verify.associative_memory import factual_recall as recall_timescales
from verify.associative_memory import gradient_steps, k_hop, superposition
from verify.checks.check import identity
from verify.checks.report import reporting

mpl.use("Agg")


def test_gradients_of_all_systems(capsys):
    """The bare model runs the systems that have derivatives; a system runs its own."""
    assert gradients.main(["associative_memory", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["failed"] and {
        "gradient lemma",
        "normalisation, least logit 0",
    } <= {c["name"] for c in found["checks"]}
    assert gradients.main(["associative_memory.gradient_memory"]) == 0
    assert "normalisation" not in capsys.readouterr().out
    with pytest.raises(
        ParameterError,
        match=(
            "verify.gradients: not for associative_memory.k_hop, but for .* has"
            " verify.laws"
        ),
    ):
        gradients.main(["associative_memory.k_hop"])


def test_timescales_command(tmp_path, monkeypatch, capsys):
    """A small ensemble, trained and then given as a file; a figure; a run that is too
    short; wrong input.
    """
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("simulate.training.pool.cores", lambda: 1)
    monkeypatch.setattr(
        recall_timescales, "SWEPT", {"epsilon": ((0.02, 0.01), "start")}
    )
    words = [
        "--preset",
        "small",
        "--set",
        "steps=700",
        "--seeds",
        "2",
        "--quiet",
        "--json",
        "--plot",
        str(tmp_path / "t.png"),
    ]
    timescales.main(["associative_memory", *words])
    found = json.loads(capsys.readouterr().out)
    rows = {c["name"]: c for c in found["checks"]}
    assert rows[
        "time of 50% of the relation loss by quadrature, against the integrator"
    ]["within"]
    assert rows["time of 10% of the subject loss in closed form"]["within"]
    assert rows[
        "plateau length grows by 1/lambda_s - 1/lambda_r per e-fold of 1/epsilon"
    ]["within"]
    assert all(
        rows[f"time of 50% of the {q} loss by the flow, students"]["error"] < 0.03
        for q in ("relation", "subject")
    )
    assert (tmp_path / "t.png").stat().st_size > 10_000
    timescales.main(
        [
            "associative_memory",
            "--set",
            "steps=40",
            "--set",
            "batch_size=8",
            "--seeds",
            "2",
            "--quiet",
        ]
    )
    assert "not reached by all seeds in 40 steps" in capsys.readouterr().out
    for wrong, message in (
        (["--seeds", "1"], "at least 2 seeds"),
        (["--device", "cuda"], "CPU only|not here; there are cpu"),
        (["--runs", str(tmp_path / "none.nc")], "no such file"),
    ):
        with pytest.raises(ParameterError, match=message):
            timescales.main(["associative_memory", *wrong, "--quiet"])


def test_trajectories_of_a_given_ensemble(tmp_path, capsys):
    """Curves within 2% of full-batch descent; the same comparison from Python; a
    figure.
    """
    p = Parameters.small().replace(steps=600, eval_every=25)
    runs = train(p, seeds=range(3), store=tmp_path / "runs", workers=1, progress=False)
    picture = tmp_path / "curves.png"
    trajectories.main(
        [
            "associative_memory",
            "--runs",
            str(tmp_path / "runs"),
            "--json",
            "--plot",
            str(picture),
        ]
    )
    out = capsys.readouterr().out
    found = json.loads(out[: out.rindex("}") + 1])
    curve = (
        factual_recall.flow()
        .descend(p, p.eta, p.steps)
        .isel(t=runs.step.values)
        .assign_coords(t=runs.t)
    )
    rows = [c for c in found["checks"] if "largest deviation" in c["name"]]
    assert len(rows) == 8 and {"loss", "w_r"} <= {c["equation"] for c in rows}
    for c in rows:  # batches of 256
        assert abs(c["measured"] - c["predicted"]) < 0.02 * float(
            np.abs(curve[c["equation"]]).max()
        )
    assert picture.stat().st_size > 10_000
    assert {"loss", "w_r"} <= {
        c.equation for c in trajectories.compare(curve, runs).checks
    }


def test_laws_that_cost_nothing(monkeypatch):
    """Agreement by enumeration, kernels, training times (the mixture of a hop less)."""
    whole = k_hop.mixture_time
    monkeypatch.setattr(k_hop, "mixture_time", lambda p: whole(p.replace(k=p.k - 1)))
    found = [*k_hop.agreement(), *k_hop.kernels(), *k_hop.times()]
    assert [c.name for c in found if not c.within] == [] and len(found) > 10


def test_sampled_laws_small(monkeypatch):
    """Moments and recall with fewer draws; gradients of the first two steps from fewer
    sequences.
    """
    monkeypatch.setattr(
        superposition,
        "MOMENTS",
        tuple(p.replace(draws=500) for p in superposition.MOMENTS),
    )
    monkeypatch.setattr(gradient_steps, "BATCHES", 4)
    monkeypatch.setattr(gradient_steps, "P", gradient_steps.P.replace(N=10, K=2, T=10))
    with one_thread():
        found = [*superposition.moment_checks(), *gradient_steps.gradient_checks()]
    assert [c.name for c in found if not c.within] == []


def test_laws_command(monkeypatch, capsys):
    """Table and exit code; a failed law is exit code 1; a model without laws is told
    so.
    """
    monkeypatch.setattr(
        k_hop, "laws", reporting(lambda: [identity("a", "e", 1, 1, 0, "why")])
    )
    assert laws.main(["associative_memory.k_hop"]) == 0
    assert "1 exact, 0 FAIL" in capsys.readouterr().out
    monkeypatch.setattr(
        k_hop, "laws", reporting(lambda: [identity("a", "e", 1, 2, 0, "why")])
    )
    assert laws.main(["associative_memory.k_hop", "--json"]) == 1
    with pytest.raises(ParameterError, match="verify.laws: not for induction_heads"):
        laws.main(["induction_heads"])


def test_every_system_is_whole():
    """Each system has parameters, equations, presets, and the check modules it
    promises.
    """
    model = registry.find("associative_memory")
    for system in model.systems:
        name = system.name.partition(".")[2]
        wing = system.wing("theory")
        assert wing.equations() and all(
            make() for make in wing.Parameters.presets().values()
        )
        for flow in wing.flows().values():
            p = wing.Parameters() if name != "k_hop" else wing.Parameters(k=3)
            assert flow.solve(p, t=1.0).sizes["t"] == 601
        assert all(callable(system.command(c)) for c in system.checks)
    assert model.wing("theory").Parameters is Parameters
