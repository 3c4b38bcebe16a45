"""The verify commands as a user meets them: tables, JSON, exit codes,
one-line errors.
"""

import json

import matplotlib as mpl
import pytest

from simulate.state_tracking import train
from simulate.store import runs
from theory.call.refusal import ParameterError
from theory.state_tracking import Parameters
from verify import gradients, timescales, trajectories
from verify.checks.check import identity
from verify.checks.report import Report
from verify.state_tracking import gradients as model_gradients
from verify.state_tracking import timescales as model_timescales
from verify.state_tracking import trajectories as model_trajectories

mpl.use("Agg")
TINY = Parameters(
    N=5, L=3, d_g=5, d_h=8, n_train=256, n_test=64, epochs=500, eval_every=25
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train(TINY, seeds=range(3), store=folder, workers=1, progress=False)
    return folder


def test_failed_check_exits_1(monkeypatch, capsys):
    wrong = Report([identity("a", "e", 1, 2, 1e-9, "why")])
    monkeypatch.setattr(model_gradients, "report", lambda request: wrong)
    assert gradients.main([]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_trajectories_of_a_given_ensemble(store, tmp_path, monkeypatch, capsys):
    measured = (
        model_trajectories.untrained_statistics
    )  # whose check has tests of its own
    monkeypatch.setattr(model_trajectories, "UNTRAINED", 16)
    monkeypatch.setattr(
        model_trajectories,
        "untrained_statistics",
        lambda p, seed: measured(p.replace(n_train=64), seed),
    )
    picture = tmp_path / "curves.png"
    code = trajectories.main(["--runs", str(store), "--json", "--plot", str(picture)])
    out, err = capsys.readouterr()
    found = json.loads(out[: out.rindex("}") + 1])
    assert code == int(found["failed"])
    assert {"inside_two_sd", "checks", "notes", "failed", "model"} <= set(found)
    assert picture.stat().st_size > 10_000
    assert str(picture) in err and any(
        "attention factor" in note for note in found["notes"]
    )


def test_students_beyond_the_paper_are_held_against_the_level_that_describes_them(
    tmp_path, capsys
):
    """Under Adam: no curve of Eq. (15), as a note says; a curve that rises too fast is
    seen.
    """
    p = TINY.replace(optimizer="adam", eta=0.01, unit="step", epochs=100, eval_every=10)
    train(p, range(6), store=tmp_path / "runs", workers=1, progress=False)
    words = [
        "--runs",
        str(tmp_path / "runs"),
        "--plot",
        str(tmp_path / "x.png"),
        "--json",
    ]
    assert (
        trajectories.main(["state_tracking", *words]) == 0
        and (tmp_path / "x.png").exists()
    )
    out = capsys.readouterr().out
    found = json.loads(out[: out.rindex("}") + 1])
    assert (
        len(found["checks"]) == 10
        and "not Eq. (15), as optimizer = 'adam'" in found["notes"][1]
    )
    for data in (tmp_path / "runs").rglob("*.nc"):
        run = runs.read(data)
        runs.write(run.assign(A=run.A + 0.01 * run.alpha), data)
    assert trajectories.main(["state_tracking", *words]) == 1


def test_timescales_of_a_given_ensemble(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path))
    sweep = {"eta": ((0.5, 1.0, 2.0), lambda v: TINY.replace(eta=v, eval_every=20))}
    monkeypatch.setattr(model_timescales, "SWEEPS", sweep)
    monkeypatch.setattr(model_timescales, "SEEDS", range(2))
    monkeypatch.setattr(
        "simulate.training.pool.cores", lambda: 1
    )  # seconds of training are not worth processes that load torch
    timescales.main(
        ["--runs", str(store), "--quiet", "--plot", str(tmp_path / "t.png")]
    )
    out, err = capsys.readouterr()
    assert (
        "not run without --full: exponents" in out and "exponent of the time" not in out
    )
    assert "no figure of this form of the command (see --full)" in err
    timescales.main(
        ["--runs", str(store), "--quiet", "--full", "--plot", str(tmp_path / "t.png")]
    )
    out = capsys.readouterr().out
    for text in (
        "onset rate of the flow",
        "onset rate of students",
        "time of A = 1/2",
        "exponent of the time",
        "eta = 1",
    ):
        assert text in out
    assert (tmp_path / "t.png").stat().st_size > 10_000


def test_censored_seeds_are_reported(tmp_path, capsys):
    short = train(
        TINY, alpha=1.0, seeds=range(3), store=tmp_path, workers=1, progress=False
    )
    _, notes = model_timescales.emergence(TINY.run_to(1.0), short)
    assert any("no seed emerged before" in n for n in notes)


@pytest.mark.parametrize(
    "words", [("--set", "N=7"), ("--until", "3"), ("--alpha", "3")]
)
def test_parameters_beside_runs_are_refused(store, words):
    """By the flag that was typed."""
    with pytest.raises(ParameterError, match=f"^{words[0]}: not together with --runs"):
        trajectories.main(["--runs", str(store), *words])


@pytest.mark.parametrize("content", [b"not a netCDF file", b""])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "foreign.nc"
    path.write_bytes(content)
    with pytest.raises(ParameterError, match=str(path)):
        trajectories.main(["--runs", str(path)])
