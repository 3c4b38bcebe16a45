"""Sweeps whose workers are killed, die or fail: nothing is lost, and the failure is
named.
"""

import functools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr
from joblib.externals.loky.process_executor import TerminatedWorkerError
from test_sweep import bits

from simulate import sweep
from simulate.store import runs
from simulate.training import jobs

# The sweep whose workers are killed.
KILLED = [
    "--set=N=6",
    "--set=d_g=5",
    "--set=d_h=8",
    "--set=n_train=512",
    "--set=n_test=256",
    "--set=eval_every=5",
    "--grid=L=3,5",
    "--seeds=2",
    "--alpha=12",
]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> xr.Dataset:
    store = tmp_path_factory.mktemp("whole")
    assert sweep.main([*KILLED, "--quiet", "--workers=1", f"--out={store}"]) == 0
    return runs.open(store)


def children(pid: int) -> list[int]:
    return [
        int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


def at_work(pid: int) -> bool:
    return (
        "loky" in Path(f"/proc/{pid}/cmdline").read_text()
        and "resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_text()
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="looks processes up in /proc"
)
def test_a_killed_worker_loses_nothing(tmp_path, uninterrupted):
    """The sweep goes on by itself, says so, and ends well."""
    store = tmp_path / "killed"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "simulate.sweep",
            *KILLED,
            "--quiet",
            "--workers=2",
            f"--out={store}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline, workers = time.monotonic() + 100, []
    while (
        not (workers and any(store.rglob("*.lock")))
        and parent.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
        workers = (
            [c for c in children(parent.pid) if at_work(c)]
            if parent.poll() is None
            else []
        )
    time.sleep(random.Random(1).uniform(0, 0.3))
    os.kill(workers[0], signal.SIGKILL)
    _, errors = parent.communicate(timeout=200)
    assert parent.returncode == 0, errors[-500:]
    assert "a worker process died" in errors
    assert bits(runs.open(store)) == bits(uninterrupted)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["worker", "scheduler"])
def test_a_killed_dask_process_loses_nothing(killed, tmp_path, uninterrupted):
    """Without a worker the others go on; without the scheduler what is missing has
    failed, and the same sweep goes on without it.
    """
    pytest.importorskip("distributed", reason="dask is an optional extra")
    store, address = tmp_path / "killed", f"tcp://127.0.0.1:{free_port()}"
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            address.rsplit(":", 1)[1],
            "--no-dashboard",
        ],
        **quiet,
    )
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                address,
                "--nthreads",
                "1",
                "--no-nanny",
                "--no-dashboard",
            ],
            **quiet,
        )
        for _ in range(2)
    ]
    try:
        user = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "simulate.sweep",
                *KILLED,
                "--quiet",
                f"--out={store}",
                f"--scheduler={address}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        deadline = time.monotonic() + 150
        while (
            not any(store.rglob("*.lock"))
            and user.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        time.sleep(0.2)
        # Whichever of a worker's runs was under way goes to the other.
        {"worker": workers[0], "scheduler": scheduler}[killed].send_signal(
            signal.SIGKILL
        )
        output, _ = user.communicate(timeout=200)
        if killed == "scheduler":
            missing = 4 - len(list(store.rglob("seed-*.nc")))
            summary, *failed = output.splitlines()
            assert (user.returncode, missing > 0) == (1, True), output[-500:]
            assert (
                f"4 runs, 4 jobs, {len(failed)} failed" in summary
                and len(failed) >= missing
            )
            assert all(
                line.startswith("failed: ") and "not in the store" in line
                for line in failed
            )
            assert (
                sweep.main([*KILLED, "--quiet", "--workers=1", f"--out={store}"]) == 0
            )
        else:
            assert user.returncode == 0, output[-500:]
        assert bits(runs.open(store)) == bits(uninterrupted)
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def test_jobs_whose_workers_die_are_tried_alone(monkeypatch):
    """Without real processes: all at once breaks the pool, then one by one; the one
    that breaks it again has failed.
    """
    calls = []

    def breaking(work, sizes, workers, progress, alone=False, **_):
        calls.append((len(work), alone))
        if len(work) > 1 or "dies" in repr(work):
            raise TerminatedWorkerError("a worker died")
        return [job(lambda done: None) for job in work]

    monkeypatch.setattr("simulate.training.jobs.pool.run", breaking)
    done = []
    both = [
        jobs.Job(name, 1, functools.partial(noted, done, name))
        for name in ("lives", "dies")
    ]
    with pytest.warns(UserWarning, match="a worker process died"):
        ((job, error),) = jobs.carry_out(both, 2, False)
    assert (job.name, str(error), done) == (
        "dies",
        "its worker process died again",
        ["lives"],
    )
    assert calls == [(2, False), (2, False), (1, True), (1, True)]


def noted(done: list[str], name: str, tick, wait: bool) -> bool:
    done.append(name)
    return True


@pytest.mark.slow
def test_a_job_whose_worker_dies_every_time_fails(tmp_path):
    """It is tried three times; the others are done."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DYING, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["dies"], done.stderr[-500:]
    assert (tmp_path / "lives").exists()


DYING = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import functools, test_sweep
from pathlib import Path
from simulate.training import jobs
both = [jobs.Job(name, 1, functools.partial(getattr(test_sweep, name), Path(sys.argv[1]))) for name in ("lives", "dies")]
print(*(job.name for job, _ in jobs.carry_out(both, 2, False)))
"""


def lives(folder: Path, tick, wait: bool) -> bool:
    (folder / "lives").touch()
    return True


def dies(folder: Path, tick, wait: bool) -> bool:
    os._exit(9)


def test_an_error_is_not_tried_again():
    tried = []

    def fail(tick, wait):
        tried.append(wait)
        raise ValueError("wrong")

    ((job, error),) = jobs.carry_out([jobs.Job("one", 1, fail)], 1, False)
    assert (job.name, str(error), tried) == ("one", "wrong", [False])
