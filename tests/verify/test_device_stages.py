"""verify.device without a GPU: stages at tiny sizes, faults that its checks must detect, and a
simulated device.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from simulate import learner, stack, storage
from simulate.positional_semantic.student import Problem
from simulate.state_tracking import benchmark
from simulate.state_tracking import gradients as tracking
from simulate.state_tracking import learner as trackers
from tests.damage import exchanged
from theory.parameters import ParameterError
from verify.check import failed
from verify.device import __main__ as command
from verify.device import stages, students

CPU = torch.device("cpu")
NAME = "induction_heads.disentangled"


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(out, *names, seconds=1800.0):
    said: list[str] = []
    return stages.run(names, CPU, out, out / "store", seconds, True, said.append), said


def test_every_student_has_a_tiny_setting():
    """The first stage, on a real device as well, resumes each in it."""
    for name in students.kinds():
        students.ensemble(name, tiny=True)


def test_stages_leave_one_report_and_few_small_files(tmp_path, monkeypatch):
    """What is done is not done again, a stage that fails takes no other with it and is tried again,
    a report of another device is refused.
    """

    def broken(job):
        job.numbers["so far"] = 1
        raise RuntimeError("no such kernel")

    with monkeypatch.context() as patch:
        patch.setitem(stages.STAGES, "stacks", (broken, 10))
        report, _ = run(tmp_path, "speed", "stacks")
    status = {name: r["status"] for name, r in report["stages"].items()}
    assert status.pop("stacks") == "failed" and set(status.values()) == {"done"}
    assert report["stages"]["stacks"]["numbers"] == {"so far": 1}
    assert not stages.succeeded(report, ["stacks"]) and stages.succeeded(report, status)
    assert "no such kernel" in (tmp_path / "report.txt").read_text()
    speed = json.loads((tmp_path / "report.json").read_text())["stages"]["speed"]["numbers"]
    assert [row["seeds"] for row in speed["steps"]] == [1, 2]
    assert all(row["us per seed-step"] > 0 and row["of bandwidth"] > 0 for row in speed["steps"])
    assert speed["training"]["us_per_seed_epoch"] > 0
    monkeypatch.setitem(stages.STAGES, "stacks", (lambda job: None, 10))
    again, said = run(tmp_path, "speed", "stacks")
    assert said[0] == "speed: done before" and stages.succeeded(again, ["speed", "stacks"])
    files = {f.name for f in tmp_path.iterdir() if f.is_file() and f.name[0] != "."}
    assert files == {"report.json", "report.txt"}
    other = {"device": "cuda:0", "torch": "x", "cuda": None}
    monkeypatch.setattr(benchmark, "describe", lambda device: other)
    with pytest.raises(ParameterError, match="of another run .*device = cpu there, cuda:0 here"):
        run(tmp_path, "speed")


def test_time_that_is_over_ends_a_stage_and_keeps_what_it_has(tmp_path, monkeypatch):
    """None begins without time; one that is cut off keeps its findings, and is done by the next
    call.
    """
    report, _ = run(tmp_path, "speed", seconds=1.0)
    assert report["stages"]["speed"]["status"] == "not begun"

    def slow(job):
        for n in job.within(range(10**6)):
            job.numbers["so far"] = n
            time.sleep(0.01)

    with monkeypatch.context() as patch:
        patch.setitem(stages.STAGES, "speed", (slow, 0.1))
        report, _ = run(tmp_path, "speed")
    cut = report["stages"]["speed"]
    assert cut["status"] == "unfinished" and cut["numbers"]["so far"] > 0 and cut["seconds"] < 10
    assert not stages.succeeded(report, ["speed"])
    assert stages.succeeded(run(tmp_path, "speed")[0], ["speed"])


def test_wrong_gradients_are_seen(monkeypatch):
    """One entry of one gradient off by a thousandth, in single precision: a fault of the device
    fails its students and no other (students with rewards have gradients of their own).
    """
    for model in ("state_tracking", "positional_semantic", "associative_memory"):
        assert not failed(students.checks(model, CPU))
    objective = Problem.objective

    def wrong(right):
        def gradients(self, students, *given):
            right(self, students, *given)
            if students.M.dtype == torch.float32:
                students.M.grad[0, 1, 2, 2] += 1e-3 * students.M.grad.abs().max()

        return gradients

    def wrong_risk(self, weights):
        fault = 1e-3 * weights["Q"][:, 1, 0] * (weights["Q"].dtype == torch.float32)
        return objective(self, weights) + fault

    for kind in (tracking.Grouped, tracking.Plain):
        monkeypatch.setattr(kind, "gradients", wrong(kind.gradients))
    monkeypatch.setattr(Problem, "objective", wrong_risk)
    for model, right in (
        ("state_tracking", []),
        ("positional_semantic", ["histogram"]),
    ):
        rows = [row for row in students.checks(model, CPU) if "float32" in row.name]
        within = [row.name.partition(",")[0] for row in rows if row.within]
        assert rows and within == [f"{model}.{name}" for name in right]


@pytest.mark.parametrize("fault", ["", "step", "digits", "never"])
def test_a_resumed_run_that_goes_another_way_is_seen(fault, monkeypatch):
    """A step fewer than the checkpoint says, other last digits, and one that is never written."""
    load, save = learner.Module.load, stack._save

    def forgetful(self, state):
        load(self, state)
        with torch.no_grad():
            next(self.student.parameters()).mul_(1 + 1e-6)

    def early(*where):
        save(*where[:-1], where[-1] - 1)

    if fault == "digits":  # training itself holds a state against what is taken up
        monkeypatch.setattr(learner.Module, "load", forgetful)
        with pytest.raises(ParameterError, match="does not take up what state"):
            list(students.agreement(NAME, CPU, True))
        return
    if fault:
        monkeypatch.setattr(stack, "_save", early if fault == "step" else lambda *where: None)
    rows = list(students.agreement(NAME, CPU, True))
    other = "checkpoints of interruptions" if fault == "never" else "quantities a resumed run has"
    assert [other in row.name for row in rows if not row.within] == [True] * bool(fault)
    assert len(rows) == 6


def test_a_device_that_trains_otherwise_is_seen():
    """A mean shifted by a fifth of the spread, in one quantity at one time; one seed that is not a
    number.
    """
    there = xr.DataArray(np.random.default_rng(0).normal(size=(8, 3)), dims=("seed", "alpha"))
    here = there.copy()
    here[:, 1] += 0.2 * float(there[:, 1].std(ddof=1))
    for same, found in ((there, there + 1e-7), (0 * there, 0 * there)):
        assert students.shift("", "A", same, found).within
    for found in (here, there.where(there.seed > 0)):
        assert not students.shift("", "A", there, found).within


def test_students_that_depend_on_their_stack_are_seen(monkeypatch):
    rows, equal = students.stacks(CPU, torch.float32, True)
    assert not failed(rows) and set(equal.values()) == {1.0}  # bit for bit on the CPU
    step = trackers.Learner.step

    def wrong(self, number):
        step(self, number)
        with torch.no_grad():
            self.students.M *= 1 + 2e-5 * (len(self.seeds) > 1)

    monkeypatch.setattr(trackers.Learner, "step", wrong)
    rows, _ = students.stacks(CPU, torch.float32, True)
    assert [row.within for row in rows] == [True, False, False]


def test_a_checkout_needs_packages_but_no_installation(monkeypatch):
    """Packages that are missing are named; a stored run names versions, and that of one which is
    not installed is no error.
    """
    assert command.missing() == []
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert "torch" in command.missing()
    versions = storage.importlib.metadata

    def version(name):
        if name == "solvable-transformers":
            raise versions.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(versions, "version", version)
    monkeypatch.setattr(storage, "_version", storage._version.__wrapped__)
    kept = storage.provenance("m", "{}", stages.setting(True), 0)["versions"]
    assert json.loads(kept)["solvable-transformers"] == "not installed"


def finish(*words):
    given = dict(capture_output=True, text=True, timeout=900, cwd=Path(__file__).parents[2])
    return subprocess.run([sys.executable, *words], **given)


@pytest.mark.slow
def test_the_whole_dry_run(tmp_path):
    """As `make gpu-dry-run` does it: one command."""
    done = finish("-m", "verify.device", "--dry-run", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text())["stages"]
    assert {r["status"] for r in report.values()} == {"done"} and set(report) == set(stages.STAGES)


ELSEWHERE = """
import sys, tempfile
from pathlib import Path
sys.path[:0] = ["tests/verify", "tests/simulate"]
from elsewhere import DEVICE, Elsewhere
import tiny, torch  # tiny: students of another package, too
from verify.check import failed
from verify.check_table import table
from verify.device import stages

with Elsewhere():
    try:
        torch.ones(2, device=DEVICE) + torch.ones(2)
        sys.exit("tensors of two devices met")
    except RuntimeError:
        pass
    torch.accelerator.synchronize = lambda: None  # nothing runs on its own there
    with tempfile.TemporaryDirectory() as folder:
        job = stages.Job(DEVICE, True, Path(folder), 100.0)
        for work, _ in stages.STAGES.values():
            work(job)
assert not failed(job.checks), table(job.checks)
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


def test_a_report_that_was_edited_is_refused(tmp_path):
    """In one line, before anything is run."""
    here = {"dry_run": True, **benchmark.describe(torch.device("cpu"))}
    done = {"status": "done", "seconds": 1.0, "numbers": {"a": [{"x": 1.0}]}, "checks": []}
    good, rng, refused = here | {"stages": {"speed": done}}, random.Random(0), 0
    for k in range(60):
        report = (
            good | {"stages": exchanged(good["stages"], rng)} if k % 2 else exchanged(good, rng)
        )
        (tmp_path / "report.json").write_text(json.dumps(report))
        try:
            stages.text(run(tmp_path)[0])
        except ParameterError as error:
            refused += 1
            assert "; remove it or name another --out" in str(error) and "\n" not in str(error)
    assert refused > 20
