"""verify.device without a GPU: every stage at tiny sizes, faults that its checks must see, and a
device that is not there.
"""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from simulate import learner, training
from simulate.positional_semantic.student import Problem
from simulate.state_tracking import gradients as tracking
from theory.parameters import ParameterError
from verify.device import __main__ as command
from verify.device import ensembles, paths, scale, stages

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(out, *names, seconds=1800.0):
    said: list[str] = []
    report = stages.run(
        names or list(stages.STAGES), CPU, out, out / "store", seconds, True, said.append
    )
    return report, said


@pytest.fixture(scope="module")
def dry(tmp_path_factory):
    out = tmp_path_factory.mktemp("device")
    return out, *run(out, "speed", "table_1", "transformer", "attention_layer")


def test_stages_leave_one_report_and_few_small_files(dry):
    out, report, _ = dry
    assert {r["status"] for r in report["stages"].values()} == {"done"}
    files = [f for f in out.iterdir() if f.is_file() and not f.name.startswith(".")]
    assert {f.name for f in files} == {
        "report.json",
        "report.txt",
        "table_1.nc",
        "transformer.nc",
        "attention_layer.nc",
    }
    speed = json.loads((out / "report.json").read_text())["stages"]["speed"]["numbers"]
    assert [row["seeds"] for row in speed["steps"]] == [1, 2] and all(
        row["us_per_seed_step"] > 0 for row in speed["steps"]
    )
    assert all(row["kernels"] and 0 <= row["share_idle"] <= 1 for row in speed["steps"])
    assert speed["training"]["us_per_seed_epoch"] > 0
    assert "DRY RUN" in (out / "report.txt").read_text()


def test_what_is_done_is_not_done_again(dry, monkeypatch):
    out, report, _ = dry
    again, said = run(out, "speed", "table_1")
    assert said == ["speed: done before", "table_1: done before"]
    assert again["seconds"] == pytest.approx(report["seconds"])
    monkeypatch.setattr(
        stages.device_time,
        "describe",
        lambda device: {"device": "cuda:0", "torch": "x", "cuda": None},
    )
    with pytest.raises(ParameterError, match="of another run .*device = cpu there, cuda:0 here"):
        run(out, "speed")


def test_a_failing_stage_takes_no_other_with_it(tmp_path, monkeypatch):
    def broken(job):
        raise RuntimeError("no such kernel")

    monkeypatch.setitem(stages.STAGES, "speed", stages.Stage(broken, 10, 0))
    report, said = run(tmp_path, "speed", "emergence")
    assert [report["stages"][n]["status"] for n in ("speed", "emergence")] == ["failed", "done"]
    assert (
        not stages.succeeded(report, ["speed", "emergence"])
        and "no such kernel" in report["stages"]["speed"]["error"]
    )
    assert "no such kernel" in (tmp_path / "report.txt").read_text()
    monkeypatch.undo()
    assert run(tmp_path, "speed")[0]["stages"]["speed"]["status"] == "done"  # and is tried again


def test_a_stage_that_hangs_is_cut_off():
    with pytest.raises(TimeoutError), stages.alarm(0.05):
        while True:
            pass


def test_no_stage_begins_without_time(tmp_path):
    report, _ = run(tmp_path, "emergence", seconds=1.0)
    assert report["stages"]["emergence"]["status"] == "not begun" and not stages.succeeded(
        report, ["emergence"]
    )


def test_time_that_is_over_keeps_the_runs(tmp_path):
    """An ensemble that is stopped goes on where it was."""
    finished, numbers, files = scale.tracking(
        scale.Job("cpu", True, tmp_path, tmp_path / "store", -1.0), "table_1"
    )
    assert (finished, files) == (False, []) and "over" in numbers["note"]
    assert list((tmp_path / "store").glob("**/*.checkpoint"))
    assert scale.tracking(scale.Job("cpu", True, tmp_path, tmp_path / "store", 100.0), "table_1")[0]


def test_large_files_are_thinned_out(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).random((4, 10_000))
    runs = xr.Dataset(
        {"A": (("seed", "alpha"), noise)}, attrs={"kind": "solvable-transformers run"}
    )
    monkeypatch.setattr(scale, "LARGEST", 160_000)
    scale.write(runs, tmp_path / "a.nc", "alpha")
    kept = scale.runs.read(tmp_path / "a.nc")
    step = 10_000 // kept.sizes["alpha"]
    assert (tmp_path / "a.nc").stat().st_size <= 160_000 and step in (2, 4, 8)
    np.testing.assert_allclose(kept.A, noise[:, ::step], rtol=1e-6)


def failed(model):
    return {row.name.rpartition(",")[0] for row in paths.checks(model, CPU) if not row.within}


def test_wrong_gradients_are_seen(monkeypatch):
    """One entry of one gradient off by a thousandth of the largest fails its paths and no other."""
    assert not failed("state_tracking") and not failed("positional_semantic")
    right, risk = tracking.Grouped.gradients, Problem.gradient

    def wrong(self, students):
        right(self, students)
        students.M.grad[0, 1, 2, 3] += 1e-3 * students.M.grad.abs().max()

    def wrong_risk(self, weights):
        value, gradient = risk(self, weights)
        gradient["Q"][0, 0, 0] += 1e-3 * gradient["Q"].abs().max()
        return value, gradient

    monkeypatch.setattr(tracking.Grouped, "gradients", wrong)
    monkeypatch.setattr(Problem, "gradient", wrong_risk)
    assert failed("state_tracking") == {"engine, small", "engine, wide"}
    assert failed("positional_semantic") == {f"batched engine, {name}" for name in paths.LAYERS}


def ensemble(name):
    return next(e for e in ensembles.ensembles(True) if e.name == name)


def verdicts(one, folder):
    return {
        row.name.partition(", ")[2]: row.verdict for row in ensembles.checks(one, "cpu", folder, 1)
    }


def test_ensembles_agree_and_resume(tmp_path):
    found = verdicts(ensemble("induction heads"), tmp_path)
    assert set(found.values()) == {"exact", "coarse"} and len(found) == 6


@pytest.mark.slow
def test_a_resumed_run_that_goes_another_way_is_seen(tmp_path, monkeypatch):
    """A checkpoint read back with other last digits, and one that is never written."""
    one = ensemble("induction heads")
    load = learner.Module.load

    def forgetful(self, state):
        load(self, state)
        with torch.no_grad():
            self.student.W3.mul_(1 + 1e-6)

    with monkeypatch.context() as patch:
        patch.setattr(learner.Module, "load", forgetful)
        assert verdicts(one, tmp_path / "a")["quantities a resumed run has otherwise"] == "FAIL"
    with monkeypatch.context() as patch:
        patch.setattr(training, "_save", lambda *where: None)
        assert verdicts(one, tmp_path / "b")["checkpoint left by an interruption"] == "FAIL"


def test_a_device_that_trains_otherwise_is_seen():
    """A mean shifted by a fifth of the spread, in one quantity at one time."""
    rng = np.random.default_rng(0)
    there = xr.DataArray(rng.normal(size=(8, 3)), dims=("seed", "alpha"))
    here = there.copy()
    here[:, 1] += 0.2 * float(there[:, 1].std(ddof=1))
    assert ensembles.shift("", "A", there, there + 1e-7).within
    assert not ensembles.shift("", "A", there, here).within
    assert not ensembles.shift("", "A", there, there * np.nan).within


@pytest.mark.slow
def test_students_that_depend_on_their_stack_are_seen(monkeypatch):
    p, right = ensembles.ensembles(True)[0].p, tracking.Grouped.gradients
    check = partial(ensembles.stacks, p, (1, 2), CPU, torch.float32)
    rows, equal = check()
    assert all(row.within for row in rows) and set(equal.values()) == {
        1.0
    }  # bit for bit on the CPU

    def wrong(self, students):
        right(self, students)
        students.M.grad *= 1 + 1e-2 * (len(students.M) > 1)

    monkeypatch.setattr(tracking.Grouped, "gradients", wrong)
    assert [row.within for row in check()[0]] == [True, False]


def test_missing_packages_are_named(monkeypatch):
    assert command.missing(triton=False) == []
    monkeypatch.setitem(sys.modules, "numba", None)
    (line,) = command.missing(triton=False)
    assert line.startswith("numba (")


def test_a_checkout_needs_no_installation(monkeypatch):
    """A stored run names versions; that of a package which is not installed must not be an
    error.
    """

    def version(name):
        if name == "solvable-transformers":
            raise scale.runs.importlib.metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(scale.runs.importlib.metadata, "version", version)
    kept = json.loads(
        scale.runs.provenance("m", "{}", scale.setting("table_1", True), 0)["versions"]
    )
    assert kept == {"solvable-transformers": "not installed", "torch": "1", "numpy": "1"}


def finish(*words, **environment):
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
        env=os.environ | environment,
    )


@pytest.mark.slow
def test_the_whole_dry_run(tmp_path):
    """As `make gpu-dry-run` does it: one command, Triton's kernels in its interpreter."""
    pytest.importorskip("triton", reason="Triton has no wheel for this platform")
    done = finish("-m", "verify.device", "--dry-run", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report["stages"]) == set(stages.STAGES) and all(
        r["status"] == "done" for r in report["stages"].values()
    )
    files = [f for f in tmp_path.iterdir() if f.is_file()]
    assert len(files) <= 8 and all(f.stat().st_size < 16e6 for f in files)


ELSEWHERE = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, "tests/verify")
from elsewhere import DEVICE, Elsewhere
import torch
from simulate.state_tracking import cpu, gpu
from verify.check import failed, table
from verify.device import ensembles, paths, scale, stages

class Logic:  # of the GPU's kernels, as far as devices go
    def __init__(self, groups, device):
        assert device == DEVICE
        self.own = cpu.Logic(groups)

    def gradients(self, pi, columns):
        assert pi.device == columns.device == DEVICE
        return tuple(v.to(DEVICE) for v in self.own.gradients(pi.cpu(), columns.cpu()))

    def moments(self, pi, columns):
        assert pi.device == columns.device == DEVICE
        return tuple(v.to(DEVICE) for v in self.own.moments(pi.cpu(), columns.cpu()))

with Elsewhere():
    try:
        torch.ones(2, device=DEVICE) + torch.ones(2)
        sys.exit("tensors of two devices met")
    except RuntimeError:
        pass
    gpu.Logic, gpu.serves = Logic, lambda students: students.M.device == DEVICE and students.M.dtype == torch.float32
    with tempfile.TemporaryDirectory() as folder:
        out, rows = Path(folder), []
        for name in stages.STAGES:
            finished, checks, _, _ = stages.STAGES[name].work(scale.Job(str(DEVICE), True, out, out / "store", 100.0))
            assert finished, name
            rows += checks
assert not failed(rows), table(rows)
print("no tensor left behind")
"""


@pytest.mark.slow
def test_no_tensor_is_left_on_the_cpu():
    """Every student, trainer and stage on a device whose tensors refuse those of the CPU, as a
    GPU's do.
    """
    pytest.importorskip("torch.utils.backend_registration")
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("torch before 2.9 has no devices made in Python")
    done = finish("-W", "ignore", "-c", ELSEWHERE)
    assert done.returncode == 0 and "no tensor left behind" in done.stdout, done.stderr[-2000:]
