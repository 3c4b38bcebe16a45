"""One training loop: sweeps, shards, interrupts, kills, locks and errors work in the
same way for every student.

Could see: a learner whose state leaves something out, that depends on its company or on
the process it runs in, that two processes train twice, that knows no precision, or
whose numbers may overflow unseen.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import signal

import numpy as np
import pytest
import torch
from modules import Line, X, Y
from tiny import ALONE, EACH_KIND, FIRST, KINDS, STUDENTS, bits, noting, student

from simulate import __main__ as command
from simulate import sweep, systems
from simulate.ensemble import ensemble
from simulate.ensemble.copies import SYSTEM
from simulate.store import checkpoints, runs, storage
from simulate.training import jobs, plan, pool, stack
from theory.call.parameters import Stepped
from theory.call.refusal import ParameterError
from theory.runtime import cli

FORKED = [
    "induction_heads.all"
]  # processes cost seconds; all students in the long form
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in KINDS))
    for name in STUDENTS
]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the first seed of a student comes to undisturbed."""

    @functools.cache
    def undisturbed(name):
        system, p = student(name)
        return system.train(p, store=tmp_path_factory.mktemp("whole"), **ALONE)

    return undisturbed


def test_every_system_is_here():
    assert set(FIRST) == set(systems.every())


@pytest.mark.parametrize("name", FIRST)
def test_wrong_options_are_refused_in_one_line(name, tmp_path):
    system, p = student(name)
    wrong = [
        (dict(seeds=[]), "seeds"),
        (dict(seeds=0), "seeds"),
        (dict(seeds=[1, 1]), "distinct whole numbers"),
        (dict(seeds=[0.5]), "whole numbers"),
        (dict(seeds=[-1]), ">= 0"),
        (dict(dtype="float16"), "dtype = float16: must be float32 or float64"),
        (dict(dtype=torch.int64), "dtype = int64"),
        (dict(device="nowhere"), "device = 'nowhere'"),
        (dict(device="meta"), "device = 'meta'"),
        (
            dict(until=-1.0),
            "must be positive" if hasattr(p, "run_to") else "has no time of its",
        ),
    ]
    for options, message in wrong:
        with pytest.raises(ParameterError, match=message) as caught:
            system.train(p, store=tmp_path, **{**ALONE, **options})
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FIRST)
def test_a_loss_that_overflows_is_refused_and_names_eta(name, tmp_path):
    if (
        name == "positional_semantic.online"
    ):  # at any rate that it takes its loss is finite
        with pytest.raises(ParameterError, match=r"^eta = 1e\+37: must be"):
            student(name, eta=1e37)
        return
    system, p = student(name, eta=1e37)
    dtype = None
    # A probability is learned: in double precision its logits stay finite at any rate.
    if name.endswith("k_hop"):
        p, dtype = p.replace(eta=1e150), "float32"
    with pytest.raises(
        ParameterError, match=r"^eta.* finite.*; take it smaller$"
    ) as caught:
        system.train(p, store=tmp_path, dtype=dtype, **ALONE)
    assert "\n" not in str(caught.value) and not list(tmp_path.rglob("*.nc"))


@pytest.mark.parametrize("name", FIRST)
def test_both_precisions(name):
    """Another precision is another run with other last digits; the default is what a
    configuration leaves out, if anything.
    """
    system, p = student(name)
    found, stored = [], []
    for precision in plan.PRECISIONS:
        dtype = system.precision(precision)
        learner = system.make(p, [0], torch.device("cpu"), dtype)
        for number in range(system.length(p) if system.time is None else 2):
            learner.step(number)
        found.append(
            learner.measure()
            if system.time
            else {n: v[1] for n, v in learner.finish(0).items() if isinstance(v, tuple)}
        )
        stored.append(
            json.loads(system.configuration(p, dtype)).get(
                "dtype", system.default_dtype
            )
        )
    assert stored == list(plan.PRECISIONS)
    assert any(
        (np.asarray(found[0][n]) != np.asarray(found[1][n])).any() for n in found[0]
    )
    one, two = (np.ravel(f[system.finite]) for f in found)
    assert np.isfinite([one, two]).all()
    # Torch draws others in another precision.
    if not name.startswith("induction_heads.") or name.endswith("standard"):
        # some hundred roundings of 6e-8, times what they meet
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


@EACH_KIND
def test_a_sweep_in_shards_is_what_training_gives(name, tmp_path, capsys, expected):
    """Over a grid, by the command; a finished sweep trains nothing."""
    system, p = student(name)
    settings = [f"--set={n}={v}" for n, v in STUDENTS[name].items()]
    words = [
        name.partition(",")[0],
        *settings,
        f"--grid=eta={p.eta},{p.eta / 2}",
        "--quiet",
        "--workers=1",
        "--device=cpu",
    ]
    for k in range(2):
        assert sweep.main([*words, f"--out={tmp_path}", f"--shard={k}/2"]) == 0
        assert len(list(tmp_path.rglob("seed-*.nc"))) == k + 1
    capsys.readouterr()
    assert sweep.main([*words, f"--out={tmp_path}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["trained"], found["failed"]) == (2, 0, [])
    alone = expected(name)
    whole = runs.open(tmp_path).sel(
        eta=p.eta, **({system.time: alone[system.time]} if system.time else {})
    )
    if isinstance(p, Stepped) and p.TIME in alone.coords:
        told = f"training time {p.TIME} = {p.CLOCK}"
        assert alone[p.TIME].long_name == whole[p.TIME].long_name == told
    for quantity in alone.data_vars:
        assert (
            whole[quantity].squeeze().values.tobytes()
            == alone[quantity].squeeze().values.tobytes()
        ), quantity


@contextlib.contextmanager
def cluster():
    """Address of a dask cluster of two."""
    distributed = pytest.importorskip("distributed", reason="dask is an optional extra")
    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with distributed.LocalCluster(**options) as found:
        yield found.scheduler_address


@pytest.mark.parametrize(
    "way", ["workers", pytest.param("cluster", marks=pytest.mark.slow)]
)
def test_where_students_are_trained_changes_nothing(way, tmp_path, expected):
    """All at once in two processes, or on a dask cluster of two, bit for bit what one
    process does.
    """
    made = {name: student(name) for name in FIRST}
    plans = [
        system.plan(p, [0], store=tmp_path, device="cpu") for system, p in made.values()
    ]
    planned = [*itertools.chain(*plans)]
    if way == "workers":
        failures = jobs.carry_out(planned, 2, progress=False)
    else:
        with cluster() as address:
            failures = jobs.on_cluster(planned, address, progress=False)
    places = sorted(place for job in planned for place in job.places)
    assert failures == [] and len(places) == len(FIRST)
    assert places == sorted(tmp_path.rglob("seed-*.nc"))
    for name, (system, p) in made.items():
        assert bits(system.train(p, store=tmp_path, **ALONE)) == bits(expected(name)), (
            name
        )


@pytest.mark.parametrize(
    "where", ["workers", pytest.param("cluster", marks=pytest.mark.slow)]
)
def test_where_copies_are_trained_changes_nothing(where, tmp_path, monkeypatch):
    """In two processes, which the test before has started in another folder, or by
    dask, in stacks of two.
    """
    made = functools.partial(
        ensemble, Line, (X, Y), seeds=4, steps=12, optimizer="adam", progress=False
    )
    expected = bits(made(store=tmp_path / "one"))
    monkeypatch.setattr(
        "simulate.ensemble.copies.SYSTEM", dataclasses.replace(SYSTEM, stack=2)
    )
    if where == "workers":
        monkeypatch.chdir(tmp_path)
        assert bits(made(store="two", workers=2)) == expected
        return
    with cluster() as address:
        assert bits(made(store=tmp_path / "two", scheduler=address)) == expected


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM],
    ids=lambda s: s.name,
)
@pytest.mark.parametrize("name", NAMES)
def test_a_signal_in_the_middle_of_a_step_leaves_a_checkpoint_after_it(
    name, number, tmp_path, expected
):
    system, p = student(name)
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cli.heed_termination()
    made = []

    def patient(*arguments, **own):
        learner = system.make(*arguments, **own)
        step = learner.step

        def stopping(k):
            if k == 6:
                os.kill(os.getpid(), number)
            made.append(k)
            step(k)

        learner.step = stopping
        return learner

    patient.__module__ = storage.home(system.make)
    try:
        with pytest.raises(
            cli.Terminated if number == signal.SIGTERM else KeyboardInterrupt
        ):
            dataclasses.replace(system, make=patient).train(
                p, store=tmp_path / "cut", **ALONE
            )
    finally:
        for s, handler in handlers.items():
            signal.signal(s, handler)
    (file,) = tmp_path.rglob("*.checkpoint")
    config = system.configuration(p, system.precision(None))
    assert (
        made[-1]
        == 6 + name.startswith("linear_attention")  # of others the next step is tried
        and checkpoints.load_checkpoint(file.with_suffix(".nc"), config, 0)["step"] == 7
    )
    assert bits(system.train(p, store=tmp_path / "cut", **ALONE)) == bits(
        expected(name)
    )
    assert not list(tmp_path.rglob("*.checkpoint"))


@pytest.mark.parametrize(
    "name",
    ["state_tracking.student, adamw, minibatches", "associative_memory.noisy_bigram"],
)
def test_a_stack_resumes_at_different_steps(name, tmp_path, monkeypatch):
    """As on a GPU: of three seeds that step together one has a checkpoint, one is
    finished; each ends as it does alone.
    """
    system, p = student(name)
    whole = system.train(p, [0, 1, 2], store=tmp_path / "whole", **ALONE)
    system.train(p, [2], store=tmp_path / "cut", **ALONE)
    with pool.stopping(lambda done: done == 6), pytest.raises(KeyboardInterrupt):
        system.train(p, [1], store=tmp_path / "cut", **ALONE)
    config, dtype = (
        system.configuration(p, system.precision(None)),
        system.precision(None),
    )
    made = []
    stacks = noting(system, made.append)
    every = [stack.Run(p, config, seed) for seed in range(3)]
    for where, stacked in (("cut", [[0], [1]]), ("stack", [[0, 1, 2]])):
        made.clear()
        more = torch.device("cpu"), dtype, tmp_path / where, {}, lambda done: None, True
        assert stack.train_stack(stacks, every, *more)
        assert made == stacked
        assert bits(
            system.train(p, [0, 1, 2], store=tmp_path / where, **ALONE)
        ) == bits(whole)


@EACH_KIND
def test_command(name, tmp_path, capsys):
    """By the model's name and by its own: the same runs, a table and JSON."""
    model, _, short = name.partition(".")
    settings = [f"--set={n}={v}" for n, v in STUDENTS[name].items()]
    shared = ["--quiet", "--workers=1", "--device=cpu", f"--out={tmp_path}"]
    assert command.main([name, *settings, *shared]) == 0
    table = capsys.readouterr().out
    assert table.startswith("students at ") and table.splitlines()[1].startswith("seed")
    assert command.main([short, *settings, *shared, "--json"], model=model) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["system"] == short and len(list(tmp_path.rglob("seed-*.nc"))) == 1
    assert all(len(values) == 1 for values in found["final"].values())


# One process. Per student: two processes on one store; then a child
# per run, killed at a random moment.
PROCESSES = """
import json, os, random, signal, sys, tempfile, time, warnings
from pathlib import Path
import torch
from tiny import ALONE, STUDENTS, bits, noting, student
from simulate import runs, training
from simulate.training import stack
from theory.runtime import cli
torch.set_num_threads(1)
stack.CHECKPOINT_SECONDS = -1.0
os.fsync = lambda handle: None  # against power cuts; of a killed process the system keeps what was written
kills, draw = int(sys.argv[1]), random.Random(0)

def child(work):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(300)  # one that hangs fails
        cli.heed_termination()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        code = 0
    except KeyboardInterrupt:
        code = 143
    finally:
        os._exit(code)

def logged(system, log):
    def note(seeds):
        with open(log, "a") as file:
            file.write(f"{seeds[0]} ")
    return noting(system, note)

found = {}
for name in sys.argv[2:]:
    system, p = student(name)
    with tempfile.TemporaryDirectory() as folder:
        system.train(p, store=folder + "/warm", **ALONE)  # compiled, imported
        begun = time.monotonic()
        expected = bits(system.train(p, store=folder + "/whole", **ALONE))
        takes = time.monotonic() - begun
        both = logged(system, folder + "/log")
        pids = [child(lambda: both.train(p, range(2), store=folder + "/both", **ALONE)) for _ in range(2)]
        ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        together = {"ended": ended, "begun": sorted(Path(folder, "log").read_text().split()),
                    "stored": runs.open(folder + "/both").sizes["seed"]}
        killed, wrong, resumed, tries = 0, [], 0, 0
        while killed < kills:
            store, tries = f"{folder}/{tries}", tries + 1
            for _ in range(draw.randint(1, 4)):  # the same run, several times
                pid = child(lambda: system.train(p, store=store, **ALONE))
                time.sleep(draw.uniform(0, 1.1 * takes))
                number = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                killed += code in (-9, -15, 143)  # -15: before it heeds SIGTERM
                if code == 0:
                    break
                if code not in (-9, -15, 143):
                    wrong.append(f"exit code {code} after {number}")
                for run in Path(store).rglob("seed-*.nc"):
                    runs.read(run)  # what has its name is whole
            resumed += bool(list(Path(store).rglob("seed-*.checkpoint")))
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                if bits(system.train(p, store=store, **ALONE)) != expected:
                    wrong.append("other bits")
            wrong += [f.name for f in Path(store).glob("*/*") if f.suffix not in (".nc", ".lock")
                      or f.suffix == ".nc" and f.name.startswith(".")]
            wrong += [str(w.message) for w in said if issubclass(w.category, UserWarning)]
    found[name] = {"killed": killed, "wrong": wrong, "resumed": resumed, **together}
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
@pytest.mark.parametrize(
    ("kills", "names"),
    [(2, FORKED), pytest.param(0, list(STUDENTS), marks=pytest.mark.slow)],
    ids=["some", "many"],
)
def test_killed_again_and_again_nothing_is_lost_and_two_processes_share(
    kills, names, forked
):
    """SIGKILL and SIGTERM at random moments, on to the same bits; of two processes on
    one store one trains a seed, both see it.

    Twenty kills per student in the long form; SOLVABLE_TRANSFORMERS_KILLS sets how
    many.
    """
    kills = kills or int(os.environ.get("SOLVABLE_TRANSFORMERS_KILLS", "20"))
    done = forked(lambda: exec(PROCESSES, {}), str(kills), *names, seconds=7200)
    assert done.returncode == 0, done.stderr[-800:]
    found = json.loads(done.stdout)
    assert set(found) == set(names)
    for name, row in found.items():
        assert row["wrong"] == [] and row["killed"] >= kills, name
        assert (
            row["ended"] == [0, 0] and row["begun"] == ["0", "1"] and row["stored"] == 2
        ), name
    # Of many, some leave a checkpoint; two may both come too early.
    assert kills < 20 or all(row["resumed"] for row in found.values())


@pytest.mark.parametrize("name", FIRST)
def test_unknown_keywords_are_told_the_nearest(name):
    """A misspelt option, a parameter given beside the parameters, the time twice."""
    system, p = student(name)
    with pytest.raises(
        ParameterError, match=rf"give Parameters: .*\.{type(p).__name__}\(eta=8\)$"
    ):
        system.train(eta=8)
    with pytest.raises(
        ParameterError, match="^seed: unknown keyword; did you mean 'seeds'"
    ):
        system.train(p, seed=3)
    with pytest.raises(
        ParameterError, match="^eta: belongs to the parameters: p.replace"
    ):
        system.train(p, eta=0.1)
    if system.time and hasattr(p, "run_to"):
        with pytest.raises(
            ParameterError, match=f"^{system.time}: says the same as until"
        ):
            system.train(p, until=1.0, **{system.time: 1.0})
