"""Sweeps: the grid, its dataset, shards, failures; and kills of every kind that lose
nothing.
"""

import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from simulate import sweep
from simulate.state_tracking import Parameters, train
from simulate.state_tracking.learner import Learner
from simulate.store import runs
from theory.call.refusal import ParameterError

SMALL = [
    "--set=N=6",
    "--set=d_g=5",
    "--set=d_h=8",
    "--set=n_train=64",
    "--set=n_test=32",
    "--set=eval_every=10",
]
GRID = ["--grid=L=2,4", "--grid=eta=0.25,0.5"]
LENGTH = ["--alpha=2"]  # 60 epochs


def bits(dataset: xr.Dataset) -> dict[str, tuple[tuple[str, ...], bytes]]:
    return {name: (v.dims, v.values.tobytes()) for name, v in dataset.variables.items()}


def run(store: Path, *more: str) -> int:
    return sweep.main(
        [*SMALL, *GRID, *LENGTH, "--quiet", "--workers=1", f"--out={store}", *more]
    )


def test_a_sweep_is_one_dataset_over_seed_and_grid(tmp_path, tiny, capsys):
    assert run(tmp_path, "--seeds=3,1") == 0
    assert capsys.readouterr().out.startswith("8 runs, 8 jobs, 0 failed")
    found = runs.open(tmp_path)
    assert {k: found[k].values.tolist() for k in ("L", "eta", "seed")} == {
        "L": [2, 4],
        "eta": [0.25, 0.5],
        "seed": [1, 3],
    }
    assert found.A.dims == ("L", "eta", "seed", "alpha")
    assert found.attention.dims == ("L", "eta", "seed", "alpha", "step", "action")
    assert np.isnan(found.attention.sel(L=2, step=3)).all()
    p = tiny.replace(L=2, eta=0.5, eval_every=10)
    alone = train(p, [3], alpha=2, store=tmp_path / "alone", progress=False, workers=1)
    assert (found.loss.sel(L=2, eta=0.5, seed=3).values == alone.loss.values[0]).all()


def test_a_finished_sweep_trains_nothing(tmp_path, capsys):
    run(tmp_path)
    run(tmp_path)
    assert (
        capsys.readouterr().out.splitlines()[1].startswith("4 runs, 0 jobs, 0 failed")
    )


def test_lengths_that_follow_from_the_sizes_are_no_dimension(tmp_path):
    sweep.main(
        [*SMALL, "--grid=N=4,6", *LENGTH, "--quiet", "--workers=1", f"--out={tmp_path}"]
    )
    found = runs.open(tmp_path)
    assert found.A.dims == ("N", "seed", "alpha")
    assert found.alpha[-1] == 2 and np.isfinite(found.A.sel(alpha=2)).all()


def test_lengths_that_are_swept_are_a_dimension(tmp_path):
    sweep.main(
        [*SMALL, "--grid=epochs=10,20", "--quiet", "--workers=1", f"--out={tmp_path}"]
    )
    assert runs.open(tmp_path).A.dims == ("epochs", "seed", "alpha")


def test_a_point_that_is_missing_is_not_a_number(tmp_path):
    run(tmp_path)
    sweep.main(
        [
            *SMALL,
            "--set=L=2",
            "--set=eta=0.25",
            *LENGTH,
            "--seeds=5,",
            "--quiet",
            "--workers=1",
            f"--out={tmp_path}",
        ]
    )
    found = runs.open(tmp_path).A.isel(alpha=0)
    assert np.isfinite(found.sel(L=2, eta=0.25, seed=5)) and np.isnan(
        found.sel(L=4, eta=0.25, seed=5)
    )


def test_shards_are_a_partition(tmp_path):
    for k in range(3):
        assert run(tmp_path / "parts", "--seeds=1", f"--shard={k}/3") == 0
        assert len(list((tmp_path / "parts").rglob("seed-*.nc"))) == [2, 3, 4][k]
    run(tmp_path / "whole", "--seeds=1")
    assert bits(runs.open(tmp_path / "parts")) == bits(runs.open(tmp_path / "whole"))


WRONG = [
    ("--grid=L", "NAME=V1,V2"),
    ("--grid=L=2,2", "repeated"),
    ("--grid=L=2,zero", "L = 'zero'"),
    ("--grid=M=2", "M: unknown"),
    ("--shard=3/3", "0 <= i < n"),
    ("--shard=1", "i/n"),
    ("--shard=-1/3", "i/n"),
    ("--shard=a/b", "i/n"),
    ("--scheduler=nowhere", "no scheduler answers"),
    ("--scheduler=tls://127.0.0.1:1", "must be tcp://HOST:PORT"),
    ("--scheduler=ucx://127.0.0.1:1", "must be tcp://HOST:PORT"),
    ("--seeds=999999999999999999999999", "below 10^18"),
]


@pytest.mark.parametrize(
    ("axes", "values"),
    [
        (["eta=0.1,1e-1,0.10,.2"], [0.1, 0.2]),
        (["eta=logspace(-2,-1,3)"], [0.01, 0.0316227766017, 0.1]),
        (["eta=linspace(0.1, 0.3, 3), 0.5"], [0.1, 0.2, 0.3, 0.5]),
        (["L=2:5"], [2, 3, 4]),
        ([" L = 2 , 4"], [2, 4]),
    ],
    ids=str,
)
def test_values_of_a_grid(axes, values):
    """Equal numbers are one point; ranges and spacings are spelled as in Python and
    NumPy.
    """
    name = axes[0].partition("=")[0].strip()
    found = [getattr(p, name) for _, p in sweep.grid(Parameters(), axes)]
    assert found == values


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["eta=0.1,,0.2"], "a value is missing"),
        (["eta=0.1,"], "a value is missing"),
        (["L=5:2"], "a value is missing"),
        (["eta=nan"], "eta = nan"),
        (["eta=logspace(-2,-1)"], "is no value; several are"),
        (["eta=linspace(0,inf,3)"], "is no value|eta = "),
        (["L=0:1000000"], "at most 100,000 values"),
        (
            ["L=1:400", "eta=linspace(0.1,1,400)"],
            "159,600 runs, must be at most 100,000",
        ),
        (["L=2", "L=3"], "each NAME once"),
        (["ete=1"], "did you mean 'eta'"),
        (["L=8.5"], "L = 8.5"),
    ],
    ids=str,
)
def test_grids_that_are_none_are_refused(axes, message):
    """In one line, before anything is trained."""
    with pytest.raises(ParameterError, match=message) as error:
        sweep.grid(Parameters(), axes)
    assert "\n" not in str(error.value)


def test_a_length_is_given_once(tmp_path):
    """By one flag."""
    for words in (["--until=1", "--alpha=5"], ["--until=1", "--set=epochs=5"]):
        with pytest.raises(ParameterError, match="one of|says it, too"):
            sweep.main([*SMALL, *words, f"--out={tmp_path / 'x'}"])
    assert not (tmp_path / "x").exists()


def test_what_follows_from_the_sweep_is_no_dimension(tmp_path):
    """Steps to reach a time follow from the learning rate; rounding tells no times
    apart.
    """
    words = ["--set=S=4", "--set=R=3", "--set=D=2", "--set=eval_every=5", "--seeds=2"]
    grid = ["associative_memory", "--grid=eta=0.1,0.15,0.3", "--until=5"]
    sweep.main([*grid, *words, "--quiet", "--workers=1", f"--out={tmp_path}"])
    found = runs.open(tmp_path)
    assert {d: n for d, n in found.sizes.items() if d in ("eta", "seed", "steps")} == {
        "eta": 3,
        "seed": 2,
    }
    gaps = np.diff(found.t)
    assert (gaps > 1e-9).all() and found.steps.dims == ("eta",)


def test_systems_that_are_not_there_are_refused_by_name():
    with pytest.raises(ParameterError, match="SYSTEM logic: must be one of student"):
        sweep.main(["state_tracking.logic", "--quiet"])


def test_nothing_to_sweep_is_refused():
    """What trains for minutes is asked for."""
    with pytest.raises(
        ParameterError, match="^--grid: none; .*python -m simulate state_tracking$"
    ):
        sweep.main(["state_tracking"])


@pytest.mark.parametrize(("flag", "message"), WRONG, ids=str)
def test_wrong_input_is_refused_in_one_line(tmp_path, flag, message):
    with pytest.raises(ParameterError, match=re.escape(message)) as caught:
        sweep.main([*SMALL, *LENGTH, "--quiet", f"--out={tmp_path}", flag])
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.nc"))


def test_failures_are_listed_and_the_rest_is_done(tmp_path, monkeypatch, capsys):
    one_epoch = Learner.step

    def failing(self, number):
        if self.p.L == 4 and self.p.eta == 0.25 and number == 5:
            raise MemoryError("no room")
        one_epoch(self, number)

    monkeypatch.setattr(Learner, "step", failing)
    assert run(tmp_path, "--json") == 1
    output = capsys.readouterr()
    assert output.err == "failed: L=4 eta=0.25 seed 0: MemoryError: no room\n"
    report = json.loads(output.out)
    assert (report["passed"], report["runs"], report["trained"]) == (False, 4, 3)
    assert report["failed"] == [
        {"job": "L=4 eta=0.25 seed 0", "error": "MemoryError: no room"}
    ]
    assert len(list(tmp_path.rglob("*.nc"))) == 3


def test_damaged_and_foreign_files_are_named_and_left_out(tmp_path):
    run(tmp_path, "--seeds=2")
    whole = runs.open(tmp_path)
    files = sorted(tmp_path.rglob("seed-00001.nc"))
    os.truncate(files[0], 1000)
    raw = bytearray(files[1].read_bytes())
    raw[len(raw) // 2] ^= 1
    files[1].write_bytes(raw)
    (files[2].parent / "seed-00007.nc").write_text("not ours")
    with pytest.warns(UserWarning) as caught:
        found = runs.open(tmp_path)
    named = {
        word
        for w in caught
        for word in str(w.message).split(":")
        if word.endswith(".nc")
    }
    assert named == {
        str(files[0]),
        str(files[1]),
        str(files[2].parent / "seed-00007.nc"),
    }
    assert np.isnan(found.A.sel(seed=1).isel(alpha=0)).sum() == 2
    assert (found.A.sel(seed=0).values == whole.A.sel(seed=0).values).all()


def test_a_store_of_many_files_is_read_once_while_they_stay(tmp_path, monkeypatch):
    """What is kept is what the files hold, word by word; it is not read once a file is
    another, gone or damaged, and a kept file that is damaged is nothing.
    """
    monkeypatch.setattr(runs, "MANY", 2)
    run(tmp_path, "--seeds=2")
    (gone := sorted(tmp_path.rglob("seed-00001.nc"))[0]).unlink()

    def opened():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return runs.open(tmp_path), [str(w.message) for w in caught]

    first, said = opened()
    assert "have no run" in said[0]
    read = []
    monkeypatch.setattr(
        runs, "read", lambda f, *a, of=runs.read: read.append(f) or of(f, *a)
    )
    again, same = opened()
    assert first.identical(again) and said == same and read == [tmp_path / runs.INDEX]
    for damage in (b"", (tmp_path / runs.INDEX).read_bytes()[:-1]):
        (tmp_path / runs.INDEX).write_bytes(damage)
        assert first.identical(opened()[0]) and len(read) > 3
    run(tmp_path, "--seeds=2")
    assert np.isfinite(opened()[0].A.isel(alpha=0)).all()
    raw, date = gone.read_bytes(), gone.stat()
    gone.write_bytes(raw[:200] + bytes([raw[200] ^ 1]) + raw[201:])
    os.utime(gone, ns=(date.st_atime_ns, date.st_mtime_ns))  # and looks as before
    for _ in range(2):
        found, said = opened()
        assert len(said) == 2 and str(gone) in said[0]
        np.testing.assert_array_equal(found.A, first.A)
    for file in [*tmp_path.rglob("seed-*.nc")]:
        file.unlink()
    with pytest.raises(ParameterError, match="no finished runs"):
        runs.open(tmp_path)


def test_parameters_of_the_grid_are_those_of_the_user():
    points = dict(sweep.grid(Parameters.demo(), ["L=3,5", "rope=2pi,plain"]))
    assert list(points) == [
        "L=3 rope=2pi",
        "L=3 rope=plain",
        "L=5 rope=2pi",
        "L=5 rope=plain",
    ]
    assert points["L=5 rope=plain"] == Parameters.demo().replace(L=5, rope="plain")
