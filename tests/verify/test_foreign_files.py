"""Foreign files and streams: any input to ``--runs`` or ``--text`` ends with a one-line
error that names it.
"""

import functools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

from simulate.associative_memory import __main__ as memories
from simulate.associative_memory import factual_recall
from simulate.induction_heads import Parameters as Heads
from simulate.induction_heads import train as train_heads
from simulate.state_tracking import Parameters, train
from simulate.store import runs, storage
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.runtime import memory, sealed
from verify import timescales, trajectories

ALONE = dict(progress=False, workers=1)
MODELS = [m.name for m in registry.MODELS.values() if "timescales" in m.checks]


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory):
    """A tiny ensemble of a model that is compared with one, as the file a user would
    have.
    """
    store, short = tmp_path_factory.mktemp("store"), dict(steps=2, eval_every=1)
    tracking = Parameters(
        N=6, L=4, d_g=5, d_h=8, n_train=64, n_test=32, epochs=4, eval_every=2
    )
    making = {
        "state_tracking": (train, tracking),
        "induction_heads": (train_heads, Heads(N=2, D=4, batch_size=8, **short)),
        "associative_memory": (
            factual_recall.train,
            factual_recall.Parameters(**short),
        ),
    }
    assert set(making) == set(MODELS)

    @functools.cache
    def made(model):
        train_it, p = making[model]
        return train_it(p, seeds=[0, 1], store=store, **ALONE)

    return made


def refused(path, model, command=timescales):
    """The one line a command says about a file."""
    with pytest.raises((ParameterError, OSError)) as caught:
        command.main([model, f"--runs={path}"])
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def without(name):
    def change(found):
        del found.attrs[name]
        return found

    return change


def with_(**attrs):
    return lambda found: found.assign_attrs(attrs)


NESTED = '{"a":' * 10**4 + "1" + "}" * 10**4
ATTRIBUTES = [
    (without("model"), "model is missing"),
    (without("parameters"), "parameters"),
    (with_(parameters="no json"), "parameters"),
    (with_(parameters="[1, 2]"), "parameters"),
    (with_(parameters=3), "parameters"),
    (with_(parameters=[1.0, 2.0]), "parameters"),
    (with_(parameters='{"self": 1}'), "parameters"),
    (with_(parameters='{"eta": "fast"}'), "eta"),
    (with_(parameters='{"eta": [1]}'), "eta"),
    (with_(model=7), "model"),
    (with_(model="another"), "an ensemble of another"),
    (with_(kind="another"), "not a run"),
    (with_(configuration="{"), "configuration"),
    (with_(seed="first"), "seed"),
    *((with_(**{name: "[" * 10**4}), name) for name in ("configuration", "parameters")),
    *((with_(**{name: NESTED}), name) for name in ("configuration", "parameters")),
]


@pytest.mark.parametrize(
    ("change", "named", "model"),
    [
        pytest.param(
            *wrong,
            model,
            id=f"{k}-{model}",
            marks=[pytest.mark.slow] * (n != k % len(MODELS)),
        )
        for k, wrong in enumerate(ATTRIBUTES)
        for n, model in enumerate(MODELS)
    ],
)
def test_attributes_of_another_kind(ensembles, tmp_path, model, change, named):
    """By one model, which take turns; by all three among the slow tests."""
    runs.write(change(ensembles(model).copy()), tmp_path / "a.nc")
    assert named in refused(tmp_path / "a.nc", model)


@pytest.mark.parametrize("model", MODELS)
def test_every_variable_is_asked_for(ensembles, tmp_path, model):
    """Some of them left out, one cut along a dimension, or of text, one after the
    other.
    """
    whole = ensembles(model)
    asked = [
        str(n)
        for n in whole.data_vars
        if whole[n].dims[:1] == ("seed",) and n not in ("W_Q_start", "W_K_start", "tau")
    ]
    assert len(asked) > 5
    for name in asked[:: len(asked) // 3]:
        runs.write(whole.drop_vars(name), tmp_path / "a.nc")
        assert f"variable {name} is missing" in refused(tmp_path / "a.nc", model)
    name = asked[0]
    for changed, said in (
        (whole[name].isel(seed=0, drop=True), "dimensions"),
        (whole[name].astype(str), "no numbers"),
    ):
        runs.write(whole.assign({name: changed}), tmp_path / "a.nc")
        assert (
            f"variable {name}" in (line := refused(tmp_path / "a.nc", model))
            and said in line
        )
    time = "alpha" if model == "state_tracking" else "t"
    runs.write(whole.isel({time: slice(None, None, -1)}), tmp_path / "a.nc")
    assert f"coordinate {time} does not increase" in refused(tmp_path / "a.nc", model)


def test_lengths_follow_from_the_parameters(ensembles, tmp_path):
    whole = ensembles("state_tracking")
    runs.write(whole.isel(step=slice(2)), tmp_path / "a.nc")
    assert "dimension step has length 2, must be 4" in refused(
        tmp_path / "a.nc", "state_tracking", trajectories
    )


@pytest.mark.parametrize(
    "path", ["/", "/dev/null", "/dev/zero", "/proc", "/nowhere/at/all.nc"]
)
def test_what_is_no_store(path):
    """No tree is walked: / answers as fast as an empty folder."""
    refused(path, "state_tracking")


def test_a_tree_is_not_walked(tmp_path, ensembles):
    """A run three folders down belongs to another store."""
    runs.write(
        ensembles("state_tracking"), tmp_path / "a" / "b" / "c" / "seed-00000.nc"
    )
    assert "no finished runs" in refused(tmp_path, "state_tracking")


def test_a_pipe_is_no_file(tmp_path):
    """It would wait for a writer for ever."""
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "state_tracking")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(ParameterError, match="--text .*: must be a regular file"):
            memories.main(["trigger_task", f"--text={path}"])


def test_a_text_is_read_up_to_a_stated_amount(tmp_path):
    """A hole of a terabyte takes no disk, and must take no memory."""
    path = tmp_path / "big.txt"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ParameterError, match="must have at most 268435456 bytes"):
        memories.main(["trigger_task", f"--text={path}"])


def test_a_file_larger_than_memory_is_not_read(tmp_path):
    path = tmp_path / "big.nc"
    with path.open("wb") as file:
        file.truncate(2**43)
    assert "8 TiB" in refused(path, "state_tracking")


def bomb(path, **sizes):
    """A file that says to hold numbers, and has no place for them: HDF5 keeps none that
    are all the same.
    """
    with netCDF4.Dataset(path, "w") as file:
        for name, size in sizes.items():
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,), zlib=True)
        file.setncattr("kind", storage.KIND)
    content = path.read_bytes()
    sealed.seal(path, content)
    assert len(content) < 20_000


def test_a_file_that_unpacks_to_more_than_was_packed_is_not_read(tmp_path, ensembles):
    """Named in a store, too, whose other runs are there."""
    bomb(tmp_path / "seed-00000.nc", x=4 * 10**8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = refused(tmp_path / "seed-00000.nc", "state_tracking")
    assert "hold 2.98 GiB, more than can be packed" in line
    runs.write(
        ensembles("state_tracking").isel(seed=0, drop=True), tmp_path / "seed-00001.nc"
    )
    one = runs.read(tmp_path / "seed-00001.nc")
    runs.write(one.assign_attrs(seed=1), tmp_path / "seed-00001.nc")
    with pytest.warns(UserWarning, match="seed-00000.nc.*left out"):
        assert runs.open(tmp_path).seed.values.tolist() == [1]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 2e8  # a fifteenth of what it says to hold


@pytest.mark.parametrize("name", ["configuration", "parameters"])
def test_a_nested_attribute_does_not_break_its_folder(ensembles, tmp_path, name):
    one = ensembles("state_tracking").isel(seed=0, drop=True).assign_attrs(seed=0)
    runs.write(one, tmp_path / "seed-00000.nc")
    runs.write(one.assign_attrs({name: NESTED, "seed": 1}), tmp_path / "seed-00001.nc")
    with pytest.warns(
        UserWarning, match=f"{name} is not a JSON object; left out"
    ) as caught:
        assert runs.open(tmp_path).seed.values.tolist() == [0]
    assert len(caught) == 1 and "\n" not in str(caught[0].message)


@pytest.mark.slow
def test_a_store_larger_than_memory_stays_on_the_disk(tmp_path, monkeypatch):
    """Lazily opened, the numbers are the same; without dask it is refused."""
    p = Parameters(
        N=6, L=4, d_g=5, d_h=8, n_train=64, n_test=32, epochs=4, eval_every=2
    )
    for eta in (0.25, 0.5):
        train(p.replace(eta=eta), seeds=[0, 1], store=tmp_path, **ALONE)
    whole = runs.open(tmp_path)
    monkeypatch.setattr(memory, "available", lambda: 10_000.0)
    monkeypatch.setattr(memory, "NEGLIGIBLE_BYTES", 10_000)
    monkeypatch.setattr(sealed, "_sizable", lambda path: None)
    lazy = runs.open(tmp_path)
    assert whole.A.chunks is None and lazy.A.chunks is not None
    assert lazy.compute(scheduler="synchronous").identical(whole)
    monkeypatch.setattr(runs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ParameterError, match="or install dask"):
        runs.open(tmp_path)


NOBODY = """
import os, sys
from simulate import sweep, training
from simulate.training import stack
from theory.runtime import cli
from simulate.state_tracking import __main__ as single
folder, which = sys.argv[1:]
def never(*args, **kwargs):
    raise AssertionError("trained before it was found out")
training.train_stack = never
os.setuid(65534)
flags = ["--set=epochs=1", "--set=N=4", "--quiet", "--workers=1"]
command = sweep if which == "sweep" else single
cli.run(lambda: command.main([*flags, f"--out={folder}"]))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    os.getuid() != 0,
    reason="only root can become nobody; others cannot write here anyway",
)
@pytest.mark.parametrize(
    ("command", "out"), [("sweep", "store"), ("single", "file.nc")]
)
def test_a_store_that_cannot_be_written_is_found_before_the_first_epoch(
    tmp_path, command, out
):
    """As a user without rights, in a folder of another's."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    (tmp_path / "store").mkdir(mode=0o755)
    place = tmp_path / out
    done = subprocess.run(
        [sys.executable, "-c", NOBODY, place, command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "SOLVABLE_TRANSFORMERS_RUNS": str(tmp_path / "store")},
    )
    assert done.returncode == 2, done.stderr
    assert (
        done.stderr.startswith("error: [Errno 13] Permission denied: ")
        and done.stderr.count("\n") == 1
    )


def test_a_run_of_a_store_without_its_attributes_is_named_and_left_out(
    ensembles, tmp_path
):
    one = ensembles("state_tracking").isel(seed=0, drop=True)
    text = one.attrs["configuration"]
    for k, attrs in enumerate(
        (
            {},
            {"seed": 1},
            {"configuration": json.dumps({"format": storage.FORMAT}), "seed": 2},
            {"configuration": text},
        )
    ):
        runs.write(
            xr.Dataset(
                one.data_vars,
                one.coords,
                {**{n: one.attrs[n] for n in ("kind", "model", "parameters")}, **attrs},
            ),
            tmp_path / f"seed-{k:05d}.nc",
        )
    runs.write(one.assign_attrs(seed=np.int64(4)), tmp_path / "seed-00004.nc")
    with pytest.warns(UserWarning, match="left out") as caught:
        assert runs.open(tmp_path).seed.values.tolist() == [4]
    assert len(caught) == 4 and all("\n" not in str(w.message) for w in caught)
