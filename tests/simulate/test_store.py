"""The store of runs: identity of a run, rejected files, and no partial files on a full
disk.
"""

import dataclasses
import functools
import json
import os
import signal
import stat
import sys
import types
import warnings

import numpy as np
import pytest
import xarray as xr
from xarray.backends.locks import CombinedLock

from simulate import systems
from simulate.state_tracking import Parameters, train
from simulate.state_tracking.learner import Learner
from simulate.store import runs, storage
from simulate.store.storage import defer_signals
from simulate.training import plan
from simulate.training.learner import Unstacked
from theory.call.refusal import ParameterError
from theory.runtime import cli

ALONE = dict(progress=False, workers=1)


def dataset(seed: int = 0, **attrs: str) -> xr.Dataset:
    """Something to store that does not compress."""
    values = np.random.default_rng(seed).random((3, 4000))
    return xr.Dataset(
        {"A": (("alpha", "x"), values)},
        coords={"alpha": [0.0, 0.5, 1.0]},
        attrs={"kind": storage.KIND, **attrs},
    )


def test_configuration_does_not_depend_on_the_order_of_fields():
    one = storage.configuration("m", Parameters(N=6, L=4), dtype="float32", extra=1)
    other = storage.configuration("m", Parameters(L=4, N=6), extra=1, dtype="float32")
    assert one == other


def test_configuration_ignores_what_only_theory_uses(tiny):
    plain = storage.configuration("m", tiny)
    assert plain == storage.configuration(
        "m", tiny.replace(zeta=0.3, A_0=0.2, R_0=0.1, S_0=0.1)
    )


def test_equal_numbers_are_equal_configurations(tiny):
    assert storage.configuration("m", tiny.replace(eta=1)) == storage.configuration(
        "m", tiny.replace(eta=1.0)
    )
    assert storage.configuration(
        "m", tiny.replace(N=np.int64(7))
    ) == storage.configuration("m", tiny.replace(N=7))
    assert storage.configuration(
        "m", tiny.parse(["n_train=1e2"])
    ) == storage.configuration("m", tiny.replace(n_train=100))


@pytest.mark.parametrize(
    "change",
    [
        dict(N=7),
        dict(eta=0.25),
        dict(n_test=33),
        dict(eval_every=10),
        dict(epochs=41),
        dict(optimizer="adam"),
        dict(batch_size=8),
        dict(permutations="distinct"),
    ],
    ids=str,
)
def test_every_training_setting_makes_another_run(tiny, tmp_path, change):
    before, after = (
        storage.configuration("m", p) for p in (tiny, tiny.replace(**change))
    )
    assert storage.place(tmp_path, before, 0) != storage.place(tmp_path, after, 0)


def test_model_precision_and_seed_make_another_run(tiny, tmp_path):
    places = {
        storage.place(tmp_path, storage.configuration(model, tiny, dtype=dtype), seed)
        for model in ("m", "n")
        for dtype in ("float32", "float64")
        for seed in (0, 1)
    }
    assert len(places) == 8


def test_runs_of_other_code_are_reported(tiny, tmp_path, monkeypatch):
    """A student that was changed since is not compared in silence; one that was
    documented is the same.
    """
    student = tmp_path / "own" / "student.py"
    student.parent.mkdir()
    own = types.ModuleType("own")
    own.__file__, own.__package__ = str(student.with_name("__init__.py")), "own"
    monkeypatch.setitem(sys.modules, "own", own)
    found = []
    for text in (
        "return 2 * eta",
        '"""Twice."""; return 2 * eta  # eta',
        "return 3 * eta",
    ):
        student.write_text(f"def step(eta):\n    {text}\n")
        storage.statements.cache_clear()
        found.append(storage.statements("own"))
    assert found[0] == found[1] != found[2]
    run = train(tiny, seeds=[0], store=tmp_path, **ALONE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tiny, seeds=[0], store=tmp_path, **ALONE)
    monkeypatch.setattr(storage, "statements", lambda module: "another")
    with pytest.warns(
        UserWarning, match="trained by other code than state_tracking has now"
    ):
        again = train(tiny, seeds=[0], store=tmp_path, **ALONE)
    assert again.identical(run)
    with pytest.warns(
        UserWarning, match=r"has now: 1 of 2 seeds \(0\); remove them to train again"
    ):
        train(tiny, seeds=[0, 1], store=tmp_path, **ALONE)
    with pytest.warns(UserWarning, match="trained by different code; remove"):
        assert runs.open(tmp_path).seed.values.tolist() == [0, 1]


def test_the_code_of_a_student_is_its_own(tmp_path, monkeypatch):
    """Not that of a helper which says what it needs."""
    there = systems.every()["state_tracking.student"]
    shared = functools.partial(plan.records, numbers=3)
    made = functools.partial(Unstacked, Learner)
    assert dataclasses.replace(there, memory=shared, make=made).code == there.code
    assert (
        dataclasses.replace(there, memory=functools.partial(there.memory)).code
        == there.code
    )


def test_a_copy_of_a_run_is_named_and_left_out(tiny, tmp_path):
    whole = train(tiny.replace(epochs=1), seeds=[0, 1], store=tmp_path, **ALONE)
    (first,) = tmp_path.rglob("seed-00000.nc")
    first.with_name("seed-00000 (copy).nc").write_bytes(first.read_bytes())
    with pytest.warns(UserWarning, match="that another file holds already; left out"):
        assert runs.open(tmp_path).identical(whole)


def test_a_run_under_the_name_of_another_seed_is_left_out(tiny, tmp_path):
    """Renamed, so that its seed would be trained again and be there twice."""
    train(tiny.replace(epochs=1), seeds=[0, 1], store=tmp_path, **ALONE)
    (first,) = tmp_path.rglob("seed-00000.nc")
    first.rename(first.with_name("seed-00007.nc"))
    with pytest.warns(
        UserWarning, match="seed-00007.nc: of seed 0, which is not its name"
    ):
        assert runs.open(tmp_path).seed.values.tolist() == [1]


@pytest.mark.parametrize("name", [3, None, 1.5, [1], b"x"])
def test_what_is_no_path_is_refused_in_one_line(name):
    for call in (runs.read, runs.open, lambda x: runs.write(dataset(), x)):
        with pytest.raises(
            ParameterError, match="^path = .*: must be the name of a file"
        ):
            call(name)
    with pytest.raises(ParameterError, match="^cannot be stored as netCDF: "):
        runs.content(name)


def test_configuration_is_readable(tiny):
    found = json.loads(storage.configuration("m", tiny, dtype="float32"))
    assert found["N"] == 6
    assert found["model"] == "m"
    assert found["dtype"] == "float32"


def test_default_store_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SOLVABLE_TRANSFORMERS_RUNS", str(tmp_path))
    assert storage.default_store() == tmp_path
    monkeypatch.delenv("SOLVABLE_TRANSFORMERS_RUNS")
    assert storage.default_store().as_posix() == "output/runs"


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "down" / "a.nc"
    runs.write(dataset(), path)
    assert runs.read(path).identical(dataset())


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, cli.Terminated)],
)
def test_a_signal_waits_until_the_library_has_given_back_its_locks(
    tmp_path, monkeypatch, number, error
):
    """Raised between taking a lock and giving it back, the exception would leave the
    process waiting for itself: one of a thousand kills met that.
    """
    taken, enter = [], CombinedLock.__enter__

    def held(lock):  # CombinedLock.locked() of xarray 2025.10 is always true
        return any(one.locked() for one in lock.locks)

    def interrupted(lock):
        assert not held(lock)
        enter(lock)
        taken.append(lock)
        os.kill(os.getpid(), number)

    words = dataset().assign(word=("alpha", ["a", "b", "c"]))  # which xarray decodes
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cli.heed_termination()
    heeding = signal.getsignal(signal.SIGTERM)
    try:
        monkeypatch.setattr(CombinedLock, "__enter__", interrupted)
        for work in (
            lambda: runs.write(dataset(), tmp_path / "x.nc"),
            lambda: runs.read(tmp_path / "x.nc"),
        ):
            taken.clear()
            with pytest.raises(error):
                work()
            assert taken and not any(map(held, taken))
            monkeypatch.setattr(CombinedLock, "__enter__", enter)
            runs.write(words, tmp_path / "x.nc")
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            signal.signal(signal.SIGTERM, heeding)  # after the first it is ignored
            monkeypatch.setattr(CombinedLock, "__enter__", interrupted)
    finally:
        for s, handler in handlers.items():
            signal.signal(s, handler)


def test_a_signal_that_waited_is_heard_where_the_work_fails():
    """Otherwise a process that was told to stop would go on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), defer_signals():
            os.kill(os.getpid(), signal.SIGINT)
            raise OSError("disk")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_survives_the_disk(tiny, tmp_path):
    result = train(tiny, seeds=[0, 1], store=tmp_path, **ALONE)
    assert train(tiny, seeds=[0, 1], store=tmp_path, **ALONE).identical(result)
    assert runs.open(tmp_path).identical(result)


def test_a_written_file_has_ordinary_permissions(tmp_path):
    before = os.umask(0o022)
    try:
        runs.write(dataset(), tmp_path / "a.nc")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.nc").stat().st_mode) == 0o644
