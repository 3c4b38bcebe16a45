"""Files of the store: what is no run, full disks,
several configurations in one folder.
"""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import xarray as xr
from test_store import ALONE, dataset

from simulate.state_tracking import train
from simulate.store import checkpoints, joined_runs, runs, storage
from theory.call.refusal import ParameterError


@contextlib.contextmanager
def full_disk(free: int = 4096) -> Iterator[None]:
    """The kernel refuses files above ``free`` bytes: writes end half-way, as on a full
    disk.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def foreign(path):
    xr.Dataset({"A": ("x", [1.0])}).to_netcdf(path, engine="netcdf4")


def other_kind(path):
    runs.write(xr.Dataset({"A": ("x", [1.0])}), path)


def half(path):
    runs.write(dataset(), path)
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    "make_file",
    [
        lambda path: None,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("text"),
        lambda path: path.mkdir(),
        foreign,
        other_kind,
        half,
    ],
    ids=["missing", "empty", "text", "folder", "foreign", "other_kind", "half"],
)
def test_what_is_not_a_run_is_refused(tmp_path, make_file):
    path = tmp_path / "a.nc"
    make_file(path)
    with pytest.raises(ParameterError, match=r"a\.nc") as caught:
        runs.read(path)
    assert "\n" not in str(caught.value)


def failing_fsync(monkeypatch):
    def fsync(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    return contextlib.nullcontext()


@pytest.mark.parametrize(
    "fill", [failing_fsync, lambda monkeypatch: full_disk()], ids=["fsync", "write"]
)
@pytest.mark.parametrize("before", [None, 7], ids=["new", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, fill, before):
    path = tmp_path / "a.nc"
    if before is not None:
        runs.write(dataset(before), path)
    with (
        monkeypatch.context() as patch,
        fill(patch),
        pytest.raises(OSError, match=r"No space|too large"),
    ):
        runs.write(dataset(), path)
    if before is None:
        assert list(tmp_path.iterdir()) == []
    else:
        assert list(tmp_path.iterdir()) == [path]
        assert runs.read(path).identical(dataset(before))


@pytest.mark.parametrize(
    "fill", [failing_fsync, lambda monkeypatch: full_disk()], ids=["fsync", "write"]
)
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch, fill):
    """An OSError, so that the command line can say it in one line."""
    path = tmp_path / "seed-00000.nc"
    checkpoints.save_checkpoint(path, "c", 0, {"epoch": 1})
    with (
        monkeypatch.context() as patch,
        fill(patch),
        pytest.raises(OSError, match=r"No space|too large"),
    ):
        checkpoints.save_checkpoint(
            path, "c", 0, {"epoch": 2, "student": {"M": torch.zeros(5000)}}
        )
    assert len(list(tmp_path.iterdir())) == 1
    assert checkpoints.load_checkpoint(path, "c", 0)["epoch"] == 1


def test_a_run_that_cannot_be_stored_fails_and_can_be_repeated(tiny, tmp_path):
    with full_disk(), pytest.raises(OSError, match="too large"):
        train(tiny, store=tmp_path, **ALONE)
    assert not list(tmp_path.rglob("*.nc"))
    assert train(tiny, store=tmp_path, **ALONE).identical(runs.open(tmp_path))


def test_runs_of_one_name_and_unlike_values():
    """Gaps in truths are NaN beside 0 and 1; what depends on another dimension is
    refused.
    """

    def run(dims, values):
        return xr.Dataset({"found": (dims, values)}, {"t": [0.0, 1.0, 2.0]})

    def both(*each):
        return joined_runs.Grid(["eta", "seed"], [(1, 0), (2, 1)], list(each)).dataset(
            {}
        )

    found = both(run("t", [False, True, True]), run("t", [True, True, False])).found
    assert found.dtype == float and found.isnull().sum() == 6
    assert found.sel(eta=1, seed=0).values.tolist() == [0.0, 1.0, 1.0]
    with pytest.raises(
        ParameterError, match=r"found: over \(t\) in one run, over \(\) in another"
    ):
        both(run("t", np.ones(3)), run((), 1.0))
    words = run("t", np.ones(3)).assign_coords(t=["0.0", "1.0", "2.0"])
    with pytest.raises(ParameterError, match="t: words in one run, numbers in another"):
        both(run("t", np.ones(3)), words)
    with pytest.raises(
        ParameterError, match="found: words in one run, numbers in another"
    ):
        both(run("t", np.ones(3)), run("t", ["a", "b", "c"]))


def test_a_run_in_the_place_of_another_is_set_aside(tmp_path):
    """Of another seed or another configuration, whatever its file is called."""
    path = tmp_path / "seed-00000.nc"
    for config, seed in (("{}", 1), ('{"other": 1}', 0)):
        runs.write(dataset(configuration="{}").assign_attrs(seed=0), path)
        assert runs.finished(path, "{}", 0) is not None
        with pytest.warns(
            UserWarning, match="another configuration or seed; set aside as"
        ):
            assert runs.finished(path, config, seed) is None
        assert not path.exists()


def test_checkpoints_come_back(tmp_path):
    path = tmp_path / "seed-00000.nc"
    assert checkpoints.load_checkpoint(path, "c", 0) is None
    checkpoints.save_checkpoint(
        path, "c", 0, {"epoch": 3, "student": {"M": torch.arange(4.0)}}
    )
    found = checkpoints.load_checkpoint(path, "c", 0)
    assert found["epoch"] == 3
    assert torch.equal(found["student"]["M"], torch.arange(4.0))
    for config, seed in (("other", 0), ("c", 1)):
        with pytest.warns(UserWarning, match="another configuration or seed"):
            assert checkpoints.load_checkpoint(path, config, seed) is None
    checkpoints.drop_checkpoint(path)
    checkpoints.drop_checkpoint(path)  # nothing there is no mistake
    assert list(tmp_path.iterdir()) == []


def test_a_store_needs_runs(tmp_path):
    for store in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ParameterError, match="no finished runs"):
            runs.open(store)


def test_a_store_of_several_configurations_is_a_grid(tiny, tmp_path):
    short = tiny.replace(epochs=1)
    result = train(short, seeds=[2, 0], store=tmp_path, **ALONE)
    train(short.replace(eta=0.1), store=tmp_path, **ALONE)
    both = runs.open(tmp_path)
    assert both.A.dims == ("eta", "seed", "alpha")
    assert (both.A.sel(eta=0.5).values == result.A.sel(seed=[0, 2]).values).all()
    folder = storage.place(tmp_path, result.attrs["configuration"], 0).parent
    assert runs.open(folder).identical(result.sel(seed=[0, 2]))


def test_a_store_of_several_models_is_ambiguous(tiny, tmp_path):
    run = train(tiny.replace(epochs=1), store=tmp_path, **ALONE).isel(seed=0, drop=True)
    run.attrs |= {
        "configuration": run.attrs["configuration"].replace("state_tracking", "other"),
        "seed": 0,
    }
    runs.write(run, tmp_path / "elsewhere" / "seed-00000.nc")
    with pytest.raises(ParameterError, match="holds runs of other, state_tracking"):
        runs.open(tmp_path)


def test_a_damaged_run_in_a_store_is_named_and_left_out(tiny, tmp_path):
    result = train(tiny.replace(epochs=1), seeds=[0, 1], store=tmp_path, **ALONE)
    damaged = storage.place(tmp_path, result.attrs["configuration"], 1)
    os.truncate(damaged, 1000)
    with pytest.warns(UserWarning, match=damaged.name):
        found = runs.open(tmp_path)
    assert found.seed.values.tolist() == [0]
