"""Nothing lost, nothing mixed, for every student: what was interrupted goes on by its
own code, what cannot be stored is found before the first step, and a student that does
not keep to what training needs is told in one line.

Could see: a checkpoint that is taken up by other code, a training that ends in nothing,
half a run kept as a whole one, a stranger's mistake that ends in a traceback or is
stored.
"""

import contextlib
import dataclasses
import itertools
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import ALONE, EACH_KIND, FIRST, bits, in_turn, student

from simulate.statement.student import Stated
from simulate.store import checkpoints, runs, storage
from simulate.training import jobs, pool, stack
from simulate.training.learner import _tensors
from theory.call.refusal import ParameterError
from theory.runtime import sealed

EVERY = pytest.mark.parametrize("name", FIRST)


def interrupted(system, p, store, at=6):
    with pool.stopping(lambda done: done == at), pytest.raises(KeyboardInterrupt):
        system.train(p, store=store, **ALONE)
    (found,) = store.rglob("*.checkpoint")
    return found


@EACH_KIND
def test_a_checkpoint_is_refused_by_other_code_and_kept(name, tmp_path, monkeypatch):
    """By another student, and by shared code; its own code continues, and so does a run
    whose owner removes it.
    """
    system, p = student(name)
    checkpoint = interrupted(system, p, tmp_path)
    whole = bits(system.train(p, store=tmp_path / "whole", **ALONE))
    before = checkpoint.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "statements", lambda module: "another")
        patch.setattr(Stated, "code", "another")
        with pytest.raises(
            ParameterError, match="written by other code.* to start over"
        ) as caught:
            system.train(p, store=tmp_path, **ALONE)
        assert str(checkpoint) in str(caught.value) and "\n" not in str(caught.value)
    digest = stack.output.digest
    with monkeypatch.context() as patch:
        patch.setattr(
            "simulate.training.stack.output.digest", lambda files: digest(files)[::-1]
        )
        with pytest.raises(ParameterError, match="written by other code"):
            system.train(p, store=tmp_path, **ALONE)
    assert checkpoint.read_bytes() == before and not list(
        checkpoint.parent.glob("*.nc")
    )
    assert bits(system.train(p, store=tmp_path, **ALONE)) == whole
    assert not checkpoint.exists()


@EVERY
def test_what_decides_whether_a_run_can_be_stored_is_tried_before_the_first_step(
    name, tmp_path
):
    system, p = student(name)
    stepped = []

    def made(*arguments, **own):
        stepped.append(arguments)
        return system.make(*arguments, **own)

    watched = dataclasses.replace(system, make=made)
    time = {"until": ("2", b"2", True, [1.0], math.nan, math.inf, 10**400, "")}
    wrong = {
        "seeds": (
            *([s] for s in (2**64, 2**63, True, np.True_, 1.0, "0", None, [0])),
            *(None, 1.5, "01", b"01", True, {}.items, -1, 10**12, np.array(1.0)),
        ),
        "store": (b"", b"x", "", 3, "a\0b", ["x"]),
        "workers": (0, -1, "2", 1.5, True),
        **(time if hasattr(p, "run_to") and system.time else {}),
    }
    for option, values in wrong.items():
        for value in values:
            given = {"store": tmp_path, **ALONE, option: value}
            with pytest.raises(ParameterError, match=f"^{option}") as caught:
                watched.train(p, **given)
            assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    named = (
        rf"^p = None.* give Parameters: \S*\.{system.parameters.__name__}\(\.\.\.\)$"
    )
    with pytest.raises(ParameterError, match=named):
        watched.train(None, store=tmp_path, **ALONE)
    assert stepped == [] and not list(tmp_path.rglob("*.nc"))
    for value in (
        np.int64(2),
        np.array(2),
        range(2),
        np.arange(2),
        torch.tensor([0, 1]),
    ):
        made = [job.name for job in system.plan(p, value, store=tmp_path, device="cpu")]
        assert made == ["seed 0", "seed 1"]


def test_the_largest_seed_can_be_stored(tmp_path):
    system, p = student("induction_heads.three")
    found = system.train(p, [2**63 - 1], store=tmp_path, **ALONE)
    assert (
        found.seed.values.tolist()
        == runs.open(tmp_path).seed.values.tolist()
        == [2**63 - 1]
    )
    with pytest.raises(
        ParameterError, match=r"^seeds = count\(\d+\): must be .* at most 1000000$"
    ):
        system.train(p, itertools.count(), store=tmp_path, **ALONE)


def test_a_command_that_is_no_text_can_be_stored(tmp_path, monkeypatch):
    """A path may hold any bytes."""
    system, p = student("induction_heads.three")
    monkeypatch.setattr(sys, "argv", ["simulate", "--out=\udcff"])
    assert (
        system.train(p, store=tmp_path, **ALONE).attrs["command"]
        == r"simulate --out=\udcff"
    )


class Stopped(Exception):
    """A step too many."""


def faulty(system, steps, **methods):
    """A system whose learner has other methods,
    and makes no more than so many steps.
    """

    def made(*arguments, **own):
        learner = system.make(*arguments, **own)
        step = learner.step

        def limited(number):
            if number >= steps:
                raise Stopped(number)
            step(number)

        learner.step = limited
        for name, method in methods.items():
            setattr(learner, name, method(learner, getattr(learner, name)))
        return learner

    return dataclasses.replace(system, make=made)


def told(system, p, store, message):
    """The one line that training ends in, before anything is stored."""
    with pytest.raises(ParameterError, match=message) as caught:
        system.train(p, store=store, **ALONE)
    assert "\n" not in str(caught.value) and system.name in str(caught.value)
    assert not list(store.rglob("*.nc")) and not list(store.rglob("*.checkpoint"))


def stepping(change):
    """`step` followed by a change of the state; ``change`` gets its tensors and the
    step.
    """

    def method(learner, step):
        def stepped(number):
            step(number)
            states = [learner.state(0)]
            change(next(_tensors(states[0]))[1], number)
            learner.load(states)

        return stepped

    return method


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    """A hundred students with many measurements, on a GPU, spent half of theirs on
    them.
    """
    system, p = student("state_tracking.student")
    system = faulty(
        system, 10**6, step=stepping(lambda w, k: clock.update(now=clock["now"] + 1))
    )
    clock, saved = {"now": 0.0}, []

    def save(*_):
        saved.append(clock["now"])
        clock["now"] += 5.0

    monkeypatch.setattr(stack.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(checkpoints, "save_checkpoint", save)
    system.train(p.replace(epochs=400, eval_every=400), store=tmp_path, **ALONE)
    assert saved[0] < 15 and 2 < len(saved) < 7 and min(np.diff(saved)) > 100


def random_numbers(place):
    """Shared generators with NumPy's at another place;
    beyond 624 it ends the process.
    """
    now = checkpoints.generators()
    return now | {"numpy": [*now["numpy"][:2], place, *now["numpy"][3:]]}


FORGED = {
    "negative": lambda s: s | {"step": -1},
    "true": lambda s: s | {"step": True},
    "later than the end": lambda s: s | {"step": 10**9},
    "half a step": lambda s: s | {"step": 5.5},
    "text": lambda s: s | {"step": "6"},
    "earlier": lambda s: s | {"step": 2},
    "no records": lambda s: s | {"records": {}},
    "no times": lambda s: s | {"times": []},
    "fewer records": lambda s: (
        s | {"records": {k: v[:-1] for k, v in s["records"].items()}}
    ),
    "records": lambda s: s | {"records": [1.0]},
    "more records": lambda s: (
        s | {"records": {k: torch.cat([v, v]) for k, v in s["records"].items()}}
    ),
    "names": lambda s: s | {"records": {"x": torch.ones(len(s["times"]))}},
    "axes": lambda s: s | {"records": {k: v[:, None] for k, v in s["records"].items()}},
    "shapes": lambda s: (
        s
        | {
            "learner": {
                k: torch.ones(7) if k != "optimizer" else v
                for k, v in s["learner"].items()
            }
        }
    ),
    "learner": lambda s: s | {"learner": []},
    "random numbers": lambda s: s | {"generators": {"numpy": []}},
    "place among random numbers": lambda s: s | {"generators": random_numbers(10**6)},
}


UNMEASURED = (
    "no records",
    "no times",
    "fewer records",
    "more records",
    "names",
    "axes",
    "earlier",
)


@pytest.mark.parametrize(("name", "forged"), in_turn(FORGED))
def test_a_checkpoint_of_another_run_is_refused_whoever_sealed_it(
    name, forged, tmp_path
):
    system, p = student(name)
    if system.time is None and forged in UNMEASURED:
        pytest.skip("measures nothing on its way")
    p = p.replace(eval_every=4) if system.time else p
    file = interrupted(system, p, tmp_path)
    said = FORGED[forged](checkpoints.unpickled(sealed.unseal(file)))
    sealed.seal(file, checkpoints.pickled(said))
    with pytest.raises(ParameterError, match="start over, remove") as caught:
        system.train(p, store=tmp_path, **ALONE)
    assert "\n" not in str(caught.value) and str(file) in str(caught.value)
    assert not list(tmp_path.rglob("*.nc")) and file.exists()


@EACH_KIND
def test_a_student_without_a_state_starts_over(name, tmp_path):
    """Its checkpoint would have been a number of steps, and a fresh student."""
    system, p = student(name)
    bare = faulty(
        system,
        24,
        state=lambda learner, state: lambda b: {},
        load=lambda learner, load: lambda s: None,
    )
    with pool.stopping(lambda done: done == 6), pytest.raises(KeyboardInterrupt):
        bare.train(p, store=tmp_path, **ALONE)
    assert not list(tmp_path.rglob("*.checkpoint"))
    whole = system.train(p, store=tmp_path / "whole", **ALONE)
    assert bits(bare.train(p, store=tmp_path, **ALONE)) == bits(whole)


@EACH_KIND
def test_what_cannot_be_stored_in_the_end_is_told(name, tmp_path):
    system, p = student(name)

    def method(learner, finish):
        return lambda b: {**finish(b), "rule": ((), np.array([{}], object)[0])}

    told(
        faulty(system, 10**6, finish=method), p, tmp_path, "cannot be stored as netCDF"
    )


@EACH_KIND
def test_what_killed_writers_left_is_swept_up(name, tmp_path):
    """Only files of the runs being trained are removed; a finished run needs no
    checkpoint.
    """
    system, p = student(name)
    first = system.train(p, [1], store=tmp_path, **ALONE)
    (folder,) = (f.parent for f in tmp_path.rglob("seed-00001.nc"))
    mine = [folder / f".seed-00000-{'abc_1234'}{s}" for s in (".nc", ".checkpoint")]
    others = [folder / ".seed-00002-abc_1234.nc", folder / "notes.txt"]
    for file in (*mine, *others, folder / "seed-00001.checkpoint"):
        file.write_bytes(b"half")
    both = system.train(p, [0, 1], store=tmp_path, **ALONE)
    assert bits(both.sel(seed=[1])) == bits(first)
    left = {f.name for f in folder.iterdir() if f.suffix != ".lock"}
    assert left == {"seed-00000.nc", "seed-00001.nc", *(f.name for f in others)}


def nothing(tick, wait):
    return True


def test_what_is_done_is_counted_in_the_store(tmp_path):
    """Jobs that say they are done, of which one is."""
    places = [tmp_path / "a.nc", tmp_path / "b.nc"]
    places[0].write_bytes(b"run")
    both = [
        jobs.Job(str(k), 1, nothing, places=(place,)) for k, place in enumerate(places)
    ]
    ((job, error),) = jobs.carry_out(both, 1, False)
    assert job is both[1] and str(places[1]) in str(error) and "\n" not in str(error)


@EACH_KIND
def test_every_job_says_where_its_runs_will_be(name, tmp_path):
    system, p = student(name)
    planned = system.plan(p, [0, 7], store=tmp_path, device="cpu")
    said = [place for job in planned for place in job.places]
    assert jobs.carry_out(planned, 1, False) == []
    assert sorted(said) == sorted(tmp_path.rglob("seed-*.nc")) and len(said) == 2


def test_every_job_is_counted_in_the_store(tmp_path):
    """Of four, whichever run is missing: told once, unless its failure was reported
    already.
    """
    for missing in range(4):
        planned = [
            SimpleNamespace(places=[tmp_path / f"{missing}-{k}-{s}" for s in (0, 1)])
            for k in range(4)
        ]
        for job in planned:
            for place in job.places:
                place.touch()
        lost = planned[missing].places[1]
        lost.unlink()
        ((job, error),) = jobs._lost(planned, [])
        assert job is planned[missing] and lost.name in str(error)
        assert jobs._lost(planned, [(planned[missing], ValueError())]) == []


STRANGE = {
    "fewer": lambda run, time: run.isel({time: slice(0, -1)}),
    "backwards": lambda run, time: run.isel({time: slice(None, None, -1)}),
    "no steps": lambda run, time: run.drop_vars("step"),
    "axes": lambda run, time: run.expand_dims("z"),
    "code": lambda run, time: run.assign_attrs(code=np.arange(3)),
    "dimension": lambda run, time: run.expand_dims("_run"),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_a_finished_run_of_another_kind_is_not_taken(strange, tmp_path):
    """Sealed, with configuration and seed as they should be: trained again, or one
    line.
    """
    system, p = student("associative_memory.pointers")
    truth = system.train(p, 2, store=tmp_path, **ALONE)
    file = sorted(tmp_path.rglob("*.nc"))[1]
    runs.write(STRANGE[strange](runs.read(file), system.time), file)
    with (
        pytest.raises(ParameterError) if strange == "axes" else contextlib.nullcontext()
    ):
        runs.open(tmp_path)  # with what it has, or a note
    with pytest.warns(UserWarning, match="training again"):
        found = system.train(p, 2, store=tmp_path, **ALONE)
    assert bits(found) == bits(truth)


def test_a_process_that_waits_for_another_says_so(monkeypatch):
    """Its bar stood at 0% and said that it trains."""
    shown = []

    def run(work, sizes, workers, progress, what, **how):
        shown.append(what)
        return [len(shown) > 1]

    monkeypatch.setattr(pool, "run", run)
    jobs.carry_out([jobs.Job("one", 3, lambda tick, wait: True)], 1, False)
    assert shown == ["training", "training or waiting for another process"]
