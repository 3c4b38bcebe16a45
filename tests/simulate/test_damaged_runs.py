"""Damaged runs and checkpoints: named, set aside, replaced."""

import contextlib
import os
import random
import warnings
from pathlib import Path

import pytest
import torch
import xarray as xr
from test_resume import ALONE, place, stop_at, trained_epochs
from tiny import bits

from simulate.state_tracking import Parameters, train
from simulate.store import runs
from theory.call.refusal import ParameterError


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def text(path: Path) -> None:
    path.write_text("not a run\n")


def foreign(path: Path) -> None:
    xr.Dataset({"A": ("x", [1.0, 2.0])}).to_netcdf(path, engine="netcdf4")


def other_seed(path: Path) -> None:
    path.write_bytes(path.with_name("seed-00001.nc").read_bytes())


def other_configuration(path: Path) -> None:
    dataset = runs.read(path)
    dataset.attrs["configuration"] = dataset.attrs["configuration"].replace(
        '"eta": 0.5', '"eta": 0.25'
    )
    runs.write(dataset, path)


def no_configuration(path: Path) -> None:
    dataset = runs.read(path)
    del dataset.attrs["configuration"]
    runs.write(dataset, path)


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        foreign,
        other_configuration,
        *(
            pytest.param(f, marks=pytest.mark.slow)
            for f in (emptied, text, other_seed, no_configuration)
        ),
    ],
)
def test_a_file_that_is_not_the_run_is_named_set_aside_and_replaced(
    tiny, tmp_path, damage
):
    p = tiny.replace(epochs=2, eval_every=1)
    expected = train(p, seeds=[0, 1], store=tmp_path, **ALONE)
    path = place(p, tmp_path)
    damage(path)
    broken = path.read_bytes()
    with pytest.warns(UserWarning, match=path.name) as caught:
        result = train(p, seeds=[0, 1], store=tmp_path, **ALONE)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert bits(result) == bits(expected)
    assert [f.read_bytes() for f in path.parent.glob("*.damaged")] == [broken]
    assert bits(runs.read(path)) == bits(expected.sel(seed=0).drop_vars("seed"))
    assert runs.open(tmp_path).seed.values.tolist() == [0, 1]


def flip(path: Path) -> None:
    """Print where a flipped bit is trusted:
    one in each of 150 equal parts of the file.
    """
    raw, good, rng = path.read_bytes(), runs.read(path), random.Random(0)
    for k in range(150):
        flipped = bytearray(raw)
        position = rng.randrange(k * len(raw) // 150, (k + 1) * len(raw) // 150)
        flipped[position] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        with contextlib.suppress(ParameterError):
            if not runs.read(path).identical(good):
                print(position)


def test_flipped_bits_are_noticed(tiny, tmp_path, forked):
    """Reading a file with a flipped bit refuses or returns what was written; in a
    process, as it may also hang.
    """
    p = tiny.replace(epochs=2, eval_every=1)
    train(p, store=tmp_path, **ALONE)
    found = forked(lambda: flip(place(p, tmp_path)))
    assert found.returncode == 0, found.stderr[-300:]
    assert found.stdout.split() == []


def interrupted(p: Parameters, store: Path, monkeypatch) -> Path:
    with monkeypatch.context() as patch:
        stop_at(patch, 15, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            train(p, store=store, **ALONE)
    return place(p, store).with_suffix(".checkpoint")


def foreign_checkpoint(path: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, path)


def checkpoint_of_other_sizes(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    state["learner"]["weights"]["M"] = torch.zeros(2, 3, 3)
    torch.save(state, path)


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        checkpoint_of_other_sizes,
        *(
            pytest.param(f, marks=pytest.mark.slow)
            for f in (emptied, text, foreign_checkpoint)
        ),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_run_starts_over(
    tiny, tmp_path, monkeypatch, damage
):
    p = tiny.replace(epochs=20)
    expected = train(p, store=tmp_path / "whole", **ALONE)
    damage(interrupted(p, tmp_path / "cut", monkeypatch))
    epochs = trained_epochs(monkeypatch)
    with pytest.warns(UserWarning, match="seed-00000.checkpoint"):
        result = train(p, store=tmp_path / "cut", **ALONE)
    assert sorted(set(epochs)) == list(range(20))
    assert bits(result) == bits(expected)


@pytest.mark.parametrize("flips", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_flipped_bits_in_a_checkpoint_are_noticed(tiny, tmp_path, monkeypatch, flips):
    p, rng = tiny.replace(epochs=20), random.Random(0)
    expected = bits(train(p, store=tmp_path / "whole", **ALONE))
    checkpoint, trusted = interrupted(p, tmp_path / "cut", monkeypatch), []
    raw = checkpoint.read_bytes()
    for k in range(flips):  # one flipped bit in each of as many equal parts of the file
        flipped = bytearray(raw)
        position = rng.randrange(k * len(raw) // flips, (k + 1) * len(raw) // flips)
        flipped[position] ^= 1 << rng.randrange(8)
        place(p, tmp_path / "cut").unlink(missing_ok=True)
        checkpoint.write_bytes(flipped)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if bits(train(p, store=tmp_path / "cut", **ALONE)) != expected:
                    trusted.append(position)
            except Exception as error:
                trusted.append((position, repr(error)))
    assert trusted == []
