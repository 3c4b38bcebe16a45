"""Faults of the moment, for every student: nothing lost, nothing wrong, one line.

Full disk, damaged checkpoints, a clock that goes backwards, a store copied while in use, signals. Could see: a loop that
trusts what it should not, resumes with another bit, leaves half a file, or ends in a traceback.
"""

import errno
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import xarray as xr

from simulate import runs
from theory import cli

# Every kind of student at a tiny size: (what identifies it, its loop, call).
CODE = """

from simulate import induction_heads as ih, positional_semantic as ps, state_tracking as st
from simulate.associative_memory import factual_recall, k_hop, noisy_bigram, trigger_task
from simulate.induction_heads import standard
from simulate import training

ALONE = dict(progress=False, workers=1)
TRACKING = dict(N=6, L=4, d_g=5, d_h=8, n_train=64, n_test=32, epochs=24, eval_every=4)
STEPS = dict(steps=24, eval_every=4)
SENTENCES = dict(d=20, alpha=2.0, steps=24, n_test=50)
HEADS = dict(N=2, D=4, batch_size=8, **STEPS)
TRIGGER = dict(N=8, K=2, T=6, d=8, batch_size=4, n_test=16, **STEPS)

STUDENTS = {
    "state_tracking": (st.train, st.Parameters(**TRACKING)),
    "state_tracking, adamw, minibatches": (st.train, st.Parameters(**TRACKING, optimizer="adamw", eta=0.02, batch_size=20)),
    "state_tracking, embedding": (st.train, st.Parameters(**TRACKING, fix_embedding=False, d_model=3)),
    "induction_heads": (ih.train, ih.Parameters(**HEADS)),
    "induction_heads, nineteen": (ih.train, ih.Parameters(**HEADS, trained="nineteen")),
    "induction_heads, three": (ih.train, ih.Parameters(**HEADS, trained="three")),
    "standard": (standard.train, ih.StandardParameters(D=8, vocabulary=8, block=9, pairs=2, batch_size=4, **STEPS)),
    "positional_semantic": (ps.train, ps.Parameters(**SENTENCES)),
    "positional_semantic, adam": (ps.train, ps.Parameters(**SENTENCES, optimizer="adam", polish=False)),
    "factual_recall": (factual_recall.train, factual_recall.Parameters(batch_size=16, **STEPS)),
    "trigger_task": (trigger_task.train, trigger_task.Parameters(**TRIGGER)),
    "trigger_task, transformer": (trigger_task.train, trigger_task.Parameters(**TRIGGER, student="transformer")),
    "noisy_bigram": (noisy_bigram.train, noisy_bigram.Parameters(N=8, batch_size=4, **STEPS)),
    "k_hop": (k_hop.train, k_hop.Parameters(N=3, k=2, batch_size=8, curriculum=True, **STEPS)),
    "pointers": (k_hop.train_pointers, k_hop.Pointers(N=3, layers=1, batch_size=4, **STEPS)),
}
"""
exec(CODE)  # the same lines run in processes of their own, below
EVERY = list(STUDENTS)  # noqa: F821
QUICK = ("induction_heads, three", "positional_semantic, adam", "state_tracking", "noisy_bigram")  # one per loop
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in EVERY]
TRAIN = {name: (lambda store, train=train, p=p: train(p, store=store, **ALONE)) for name, (train, p) in STUDENTS.items()}  # noqa: F821


def bits(dataset: xr.Dataset) -> dict[str, bytes]:
    """Everything that was measured."""
    return {name: v.values.tobytes() for name, v in dataset.variables.items()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a student comes to undisturbed."""
    return functools.cache(lambda name: bits(TRAIN[name](tmp_path_factory.mktemp("whole"))))


@pytest.fixture(autouse=True)
def _checkpoint_whenever_possible(monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)  # noqa: F821


def at_checkpoint(monkeypatch, number, event):
    """Let something happen right after a checkpoint was written."""
    save, count = runs.save_checkpoint, itertools.count(1)

    def saving(*arguments):
        save(*arguments)
        if next(count) == number:
            event()

    monkeypatch.setattr(runs, "save_checkpoint", saving)


def stop(error):
    def event():
        raise error

    return event


def checkpoint_of(name, store, monkeypatch):
    """Interrupt a run after its second checkpoint; its file."""
    with monkeypatch.context() as patch:
        at_checkpoint(patch, 2, stop(MemoryError()))  # unlike an interrupt, it leaves no time to save again
        with pytest.raises(MemoryError):
            TRAIN[name](store)
    (found,) = store.rglob("seed-00000.checkpoint")
    return found


def leftovers(store):
    """Files that are neither runs nor locks."""
    return [f.name for f in store.rglob("*") if f.is_file() and f.suffix not in (".nc", ".lock")]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), cli.Terminated(), MemoryError()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_stopped_runs_go_on_bit_for_bit(name, error, tmp_path, monkeypatch, expected):
    with monkeypatch.context() as patch:
        at_checkpoint(patch, 2, stop(error))
        with pytest.raises(type(error)):
            TRAIN[name](tmp_path)
    assert not list(tmp_path.rglob("*.nc"))
    assert bits(TRAIN[name](tmp_path)) == expected(name)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("full_at", [2, "result"])
@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_fills_up_loses_nothing(name, full_at, tmp_path, monkeypatch, expected):
    """While the second checkpoint is written, and while the result is."""
    with monkeypatch.context() as patch:
        seal, count = runs._seal, itertools.count(1)

        def sealing(path, content):
            if next(count) == full_at or (full_at == "result" and path.suffix == ".nc"):
                patch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
            seal(path, content)

        patch.setattr(runs, "_seal", sealing)
        with pytest.raises(OSError, match="No space left"):
            TRAIN[name](tmp_path)
    assert not list(tmp_path.rglob("*.nc")) and leftovers(tmp_path) == ["seed-00000.checkpoint"]
    assert bits(TRAIN[name](tmp_path)) == expected(name)
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
def test_a_damaged_checkpoint_is_named_and_the_run_starts_over(name, damage, tmp_path, monkeypatch, expected):
    damage(checkpoint_of(name, tmp_path, monkeypatch))
    with monkeypatch.context() as patch, pytest.warns(UserWarning, match="seed-00000.checkpoint") as caught:
        patch.setattr(runs, "save_checkpoint", lambda *arguments: None)
        assert bits(TRAIN[name](tmp_path)) == expected(name)
    assert len(caught) == 1 and "\n" not in str(caught[0].message)


@pytest.mark.parametrize("name", NAMES)
def test_the_clock_may_go_backwards(name, tmp_path, monkeypatch, expected):
    now = itertools.count(2e9, -3600.0)
    monkeypatch.setattr(time, "time", lambda: next(now))
    assert bits(TRAIN[name](tmp_path)) == expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_store_copied_while_in_use_is_a_store(name, tmp_path, monkeypatch, expected):
    """Copied between two checkpoints, the copy goes on by itself; the original does not notice."""
    with monkeypatch.context() as patch:
        at_checkpoint(patch, 2, lambda: shutil.copytree(tmp_path / "store", tmp_path / "copy"))
        assert bits(TRAIN[name](tmp_path / "store")) == expected(name)
    assert list((tmp_path / "copy").rglob("*.checkpoint")) and not list((tmp_path / "copy").rglob("*.nc"))
    assert bits(TRAIN[name](tmp_path / "copy")) == expected(name)


# Kills: one process that has imported everything forks a child per run and kills it at a random moment.
KILLS = CODE + """
import json, os, random, signal, sys, tempfile, time, warnings
import torch
from pathlib import Path
from simulate import runs
from theory import cli
torch.set_num_threads(1)
warnings.simplefilter("ignore")
training.CHECKPOINT_SECONDS = -1.0
os.fsync = lambda handle: None  # against power cuts; of a killed process the system keeps what was written
kills, long, draw = int(sys.argv[1]), 2, random.Random(int(sys.argv[2]))

def bits(dataset):
    return {name: v.values.tobytes() for name, v in dataset.variables.items()}

def child(train, p, store):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        cli.heed_termination()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        train(p, store=store, **ALONE)
        code = 0
    except KeyboardInterrupt:
        code = 143
    finally:
        os._exit(code)

found = {}
plan = list(STUDENTS.items())
wanted = {name: kills // len(plan) + (k < kills % len(plan)) for k, (name, _) in enumerate(plan)}
for name, (train, p) in plan:
    length = "epochs" if hasattr(p, "epochs") else "steps"
    p = p.replace(**{length: long * getattr(p, length)})
    with tempfile.TemporaryDirectory() as folder:
        train(p, store=folder + "/warm", **ALONE)
        start = time.monotonic()
        expected = bits(train(p, store=folder + "/whole", **ALONE))
        takes = time.monotonic() - start
        killed = {"SIGKILL": 0, "SIGTERM": 0}
        wrong, tries, resumed = [], 0, 0
        while sum(killed.values()) < wanted[name]:
            store, tries = f"{folder}/{tries}", tries + 1
            for _ in range(draw.randint(1, 4)):  # the same run, several times
                pid = child(train, p, store)
                time.sleep(draw.uniform(0, 1.1 * takes))
                kind = draw.choice(list(killed))
                try:
                    os.kill(pid, getattr(signal, kind))
                except ProcessLookupError:
                    pass
                _, status = os.waitpid(pid, 0)
                ended = os.waitstatus_to_exitcode(status)
                if ended in (-9, 143):
                    killed[kind] += 1
                elif ended == 0:
                    break
                else:
                    wrong.append(f"exit code {ended} after {kind}")
                for run in Path(store).rglob("*.nc"):
                    if run.name.startswith("seed-"):
                        runs.read(run)  # what has its name is whole
            resumed += bool(list(Path(store).rglob("seed-*.checkpoint")))
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                if bits(train(p, store=store, **ALONE)) != expected:
                    wrong.append("other bits")
            wrong += [str(w.message) for w in said if issubclass(w.category, UserWarning)]
    found[name] = {"killed": killed, "wrong": wrong, "resumed": resumed}
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_again_and_again_nothing_is_lost():
    """A thousand kills over all students by default, SIGKILL and SIGTERM at random moments; SOLVABLE_TRANSFORMERS_KILLS sets how many."""
    kills = int(os.environ.get("SOLVABLE_TRANSFORMERS_KILLS", "1000"))
    done = subprocess.run([sys.executable, "-c", KILLS, str(kills), "0"], capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr[-800:]
    found = json.loads(done.stdout)
    assert {name: row["wrong"] for name, row in found.items() if row["wrong"]} == {}
    total = sum(sum(row["killed"].values()) for row in found.values())
    print(f"{total} kills", {name: row["killed"] for name, row in found.items()})
    assert set(found) == set(EVERY) and total >= kills
    assert all(row["resumed"] for row in found.values()) or kills < 20 * len(EVERY)  # many went on from a checkpoint


COMMANDS = {
    "state_tracking": ["simulate.state_tracking", *(f"--set={x}" for x in ("N=4", "L=3", "d_g=3", "d_h=4", "n_train=8", "n_test=4", "epochs=2"))],
    "sweep": ["simulate.sweep", "--grid=L=2,3", *(f"--set={x}" for x in ("N=4", "d_g=3", "d_h=4", "n_train=8", "n_test=4", "epochs=2"))],
    "induction_heads": ["simulate.induction_heads", *(f"--set={x}" for x in ("N=2", "D=4", "batch_size=8", "steps=2"))],
    "standard": ["simulate.induction_heads", "--system=standard", *(f"--set={x}" for x in ("D=8", "batch_size=8", "steps=2"))],
    "positional_semantic": ["simulate.positional_semantic", "--alpha=1", *(f"--set={x}" for x in ("d=20", "steps=8", "n_test=50"))],
    **{s: ["simulate.associative_memory", s, "--set=steps=2", "--set=batch_size=8"] for s in ("factual_recall", "trigger_task", "noisy_bigram", "k_hop")},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_without_home_optimised_strict_and_into_a_closed_pipe(name, tmp_path):
    """No HOME, ``-O``, ``-W error``, and a reader that closes after the first line: result stored, nothing on stderr."""
    environment = {"PATH": os.environ["PATH"], "SOLVABLE_TRANSFORMERS_RUNS": str(tmp_path / "runs")}
    root = Path(__file__).parents[2]
    for flags in (["-O"], ["-W", "error"]):
        line = [sys.executable, *flags, "-m", *COMMANDS[name], "--quiet", "--workers=1"]
        plain = subprocess.run(line, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
        assert (plain.returncode, plain.stderr) == (0, ""), flags
        assert plain.stdout
        shutil.rmtree(tmp_path / "runs")
    reader, writer = os.pipe()
    os.close(reader)  # as `head -1` that has seen enough
    closed = subprocess.run(line, env=environment, cwd=root, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writer)
    assert closed.stderr == "" and closed.returncode == 141
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert runs.open(tmp_path / "runs").sizes["seed"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_system_s_signal_ends_in_one_line(workers, tmp_path):
    """SIGTERM to the command alone: one line, exit code 143, no process left, and the next call ends as it should."""
    line = [sys.executable, "-m", "simulate.associative_memory", "noisy_bigram", "--set=steps=100000", "--set=batch_size=8", "--quiet",
            f"--workers={workers}", "--seeds=2", f"--out={tmp_path}"]  # fmt: skip
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    while not list(tmp_path.glob("*/")):  # until it has begun
        time.sleep(0.05)
    time.sleep(2)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (143, "terminated\n")
