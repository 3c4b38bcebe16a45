"""Transient failures, for every student: nothing is lost or wrong, and errors are one
line.

Full disk, damaged checkpoints, a clock that goes backwards, a store copied while in
use, signals. Could see: a loop that trusts what it should not, resumes with another
bit, leaves half a file, or ends in a traceback.
"""

import errno
import functools
import itertools
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from tiny import ALONE, STUDENTS, bits, student

from simulate.store import checkpoints, runs
from simulate.training import stack
from theory.runtime import cli, sealed

QUICK = ("positional_semantic.attention, adam", "state_tracking.student")
NAMES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in STUDENTS
]


def train(name, store):
    """Train a student of the table."""
    system, p = student(name)
    return system.train(p, store=store, **ALONE)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a student comes to undisturbed."""
    return functools.cache(
        lambda name: bits(train(name, tmp_path_factory.mktemp("whole")))
    )


@pytest.fixture(autouse=True)
def _checkpoint_whenever_possible(monkeypatch):
    monkeypatch.setattr(stack, "CHECKPOINT_SECONDS", -1.0)


def at_checkpoint(monkeypatch, number, event):
    """Let something happen right after a checkpoint was written."""
    save, count = checkpoints.save_checkpoint, itertools.count(1)

    def saving(*arguments):
        save(*arguments)
        if next(count) == number:
            event()

    monkeypatch.setattr(checkpoints, "save_checkpoint", saving)


def stop(error):
    def event():
        raise error

    return event


def checkpoint_of(name, store, monkeypatch):
    """Interrupt a run after its second checkpoint; its file."""
    with monkeypatch.context() as patch:
        at_checkpoint(
            patch, 2, stop(MemoryError())
        )  # unlike an interrupt, it leaves no time to save again
        with pytest.raises(MemoryError):
            train(name, store)
    (found,) = store.rglob("seed-00000.checkpoint")
    return found


def leftovers(store):
    """Files that are neither runs nor locks."""
    return [
        f.name
        for f in store.rglob("*")
        if f.is_file() and f.suffix not in (".nc", ".lock")
    ]


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), cli.Terminated(), MemoryError()],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("name", NAMES)
def test_stopped_runs_go_on_bit_for_bit(name, error, tmp_path, monkeypatch, expected):
    with monkeypatch.context() as patch:
        at_checkpoint(patch, 2, stop(error))
        with pytest.raises(type(error)):
            train(name, tmp_path)
    assert not list(tmp_path.rglob("*.nc"))
    assert bits(train(name, tmp_path)) == expected(name)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("full_at", [2, "result"])
@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_fills_up_loses_nothing(
    name, full_at, tmp_path, monkeypatch, expected
):
    """While the second checkpoint is written, and while the result is."""
    with monkeypatch.context() as patch:
        seal, count = sealed.seal, itertools.count(1)

        def sealing(path, content):
            if next(count) == full_at or (full_at == "result" and path.suffix == ".nc"):
                patch.setattr(
                    os,
                    "fsync",
                    lambda handle: (_ for _ in ()).throw(
                        OSError(errno.ENOSPC, "No space left on device")
                    ),
                )
            seal(path, content)

        for module in (runs, checkpoints):
            patch.setattr(module, "seal", sealing)
        with pytest.raises(OSError, match="No space left"):
            train(name, tmp_path)
    assert not list(tmp_path.rglob("*.nc")) and leftovers(tmp_path) == [
        "seed-00000.checkpoint"
    ]
    assert bits(train(name, tmp_path)) == expected(name)
    assert leftovers(tmp_path) == []


def truncated(path):
    os.truncate(path, path.stat().st_size * 2 // 3)


def emptied(path):
    os.truncate(path, 0)


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


def unreadable(path):
    """For everyone, root included: a link into nowhere that must be followed."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


@pytest.mark.parametrize("damage", [truncated, emptied, flipped, unreadable])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_checkpoint_is_named_and_the_run_starts_over(
    name, damage, tmp_path, monkeypatch, expected
):
    damage(checkpoint_of(name, tmp_path, monkeypatch))
    with (
        monkeypatch.context() as patch,
        pytest.warns(UserWarning, match="seed-00000.checkpoint") as caught,
    ):
        patch.setattr(checkpoints, "save_checkpoint", lambda *arguments: None)
        assert bits(train(name, tmp_path)) == expected(name)
    assert len(caught) == 1 and "\n" not in str(caught[0].message)


@pytest.mark.parametrize("name", NAMES)
def test_the_clock_may_go_backwards(name, tmp_path, monkeypatch, expected):
    now = itertools.count(2e9, -3600.0)
    monkeypatch.setattr(time, "time", lambda: next(now))
    assert bits(train(name, tmp_path)) == expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_store_copied_while_in_use_is_a_store(name, tmp_path, monkeypatch, expected):
    """Copied between two checkpoints, the copy goes on by itself; the original does not
    notice.
    """
    with monkeypatch.context() as patch:
        at_checkpoint(
            patch, 2, lambda: shutil.copytree(tmp_path / "store", tmp_path / "copy")
        )
        assert bits(train(name, tmp_path / "store")) == expected(name)
    assert list((tmp_path / "copy").rglob("*.checkpoint")) and not list(
        (tmp_path / "copy").rglob("*.nc")
    )
    assert bits(train(name, tmp_path / "copy")) == expected(name)


COMMANDS = {
    "state_tracking": [
        "simulate.state_tracking",
        *(
            f"--set={x}"
            for x in (
                "N=4",
                "L=3",
                "d_g=3",
                "d_h=4",
                "n_train=8",
                "n_test=4",
                "epochs=2",
            )
        ),
    ],
    "sweep": [
        "simulate.sweep",
        "--grid=L=2,3",
        *(
            f"--set={x}"
            for x in ("N=4", "d_g=3", "d_h=4", "n_train=8", "n_test=4", "epochs=2")
        ),
    ],
    "induction_heads": [
        "simulate.induction_heads",
        *(f"--set={x}" for x in ("N=2", "D=4", "batch_size=8", "steps=2")),
    ],
    "standard": [
        "simulate.induction_heads",
        "--system=standard",
        *(f"--set={x}" for x in ("D=8", "batch_size=8", "steps=2")),
    ],
    "positional_semantic": [
        "simulate.positional_semantic",
        "--alpha=1",
        *(f"--set={x}" for x in ("d=20", "steps=8", "n_test=50")),
    ],
    **{
        s: ["simulate.associative_memory", s, "--set=steps=2", "--set=batch_size=8"]
        for s in ("factual_recall", "trigger_task", "noisy_bigram", "k_hop")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_without_home_optimised_strict_and_into_a_closed_pipe(name, tmp_path):
    """No HOME, ``-O``, ``-W error``, and a reader that closes after the first line:
    result stored, nothing on stderr.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "SOLVABLE_TRANSFORMERS_RUNS": str(tmp_path / "runs"),
    }
    root = Path(__file__).parents[2]
    for flags in (["-O"], ["-W", "error"]):
        line = [sys.executable, *flags, "-m", *COMMANDS[name], "--quiet", "--workers=1"]
        plain = subprocess.run(
            line, env=environment, cwd=root, capture_output=True, text=True, timeout=300
        )
        assert (plain.returncode, plain.stderr) == (0, ""), flags
        assert plain.stdout
        shutil.rmtree(tmp_path / "runs")
    reader, writer = os.pipe()
    os.close(reader)  # as `head -1` that has seen enough
    closed = subprocess.run(
        line,
        env=environment,
        cwd=root,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    os.close(writer)
    assert closed.stderr == "" and closed.returncode == 141
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert runs.open(tmp_path / "runs").sizes["seed"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_system_s_signal_ends_in_one_line(workers, tmp_path):
    """SIGTERM to the command alone: one line, exit code 143, no process left, and the
    next call ends as it should.
    """
    line = [
        sys.executable,
        "-m",
        "simulate.associative_memory",
        "noisy_bigram",
        "--set=steps=100000",
        "--set=batch_size=8",
        "--quiet",
        f"--workers={workers}",
        "--seeds=2",
        f"--out={tmp_path}",
    ]
    process = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    while not list(tmp_path.glob("*/")):  # until it has begun
        time.sleep(0.05)
    time.sleep(2)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (143, "terminated\n")
