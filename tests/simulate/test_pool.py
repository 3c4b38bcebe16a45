"""Independent jobs: order of results, one thread each, errors and progress."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from simulate.training import pool


def results(jobs, **options):
    return pool.run(
        jobs, [10] * len(jobs), **{"workers": 1, "progress": False, **options}
    )


def test_results_keep_the_order_of_the_jobs():
    assert results([lambda tick, k=k: k * k for k in range(5)]) == [0, 1, 4, 9, 16]
    assert results([]) == []


def test_each_job_has_one_thread():
    torch.set_num_threads(2)
    assert results([lambda tick: torch.get_num_threads()]) == [1]
    assert torch.get_num_threads() == 2


def test_an_error_in_a_job_comes_through():
    def fail(tick):
        raise ZeroDivisionError("in the job")

    with pytest.raises(ZeroDivisionError, match="in the job"):
        results([fail])


def test_progress_is_the_mean_of_jobs(capsys, monkeypatch):
    """Ten epochs of each of two students are ten, not twenty."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    def count(tick):
        for n in range(1, 11):
            tick(n)

    results([count, count], progress=True)
    assert "10/10" in capsys.readouterr().err
    results([count, count])
    assert capsys.readouterr().err == ""


def test_there_is_at_least_one_core():
    assert pool.cores() >= 1


def sleeper(folder: Path, k: int, tick) -> None:
    """Say who is at work, and stay there."""
    (folder / str(k)).write_text(str(os.getpid()))
    time.sleep(120)


def alive(pid: int) -> bool:
    try:
        return (
            "Z"
            not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        )
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks processes up in /proc"
)
def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport"
        " functools, test_pool\nfrom pathlib import Path\nfrom simulate.training import"
        f" pool\njobs = [functools.partial(test_pool.sleeper, Path({str(tmp_path)!r}),"
        " k) for k in range(2)]\npool.run(jobs, [1, 1], workers=2, progress=False)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while (
        len(names := [p for p in tmp_path.iterdir() if p.read_text()]) < 2
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    workers = [int(p.read_text()) for p in names]
    assert len(workers) == 2 and all(map(alive, workers))
    parent.kill()
    parent.wait()
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, workers))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_cores_are_those_that_this_process_may_use(monkeypatch, forked):
    """Not those of another process, nor of the machine."""
    asked = []
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: asked.append(pid) or {3, 5, 8}
    )
    assert pool.cores() == 3 and asked == [0]
    monkeypatch.undo()

    def pinned():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        assert pool.cores() == 1

    assert forked(pinned).returncode == 0
