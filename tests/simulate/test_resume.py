"""Interrupted, killed and damaged runs: the next one ends as the uninterrupted one would, bit for
bit.
"""

import contextlib
import dataclasses
import functools
import os
import random
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from tiny import bits

from simulate import pool, runs, stack, storage, training
from simulate.learner import Unstacked
from simulate.state_tracking import Parameters, train
from simulate.state_tracking.learner import Learner
from theory.parameters import BaseParameters, ParameterError, Stepped, parameter

ALONE = dict(progress=False, workers=1)
OPTIONS = {
    "sgd": dict(),
    "learned": dict(fix_embedding=False, d_model=3, batch_size=20, optimizer="adam", eta=0.02),
}


def place(p: Parameters, store: Path, seed: int = 0) -> Path:
    return storage.place(store, storage.configuration("state_tracking", p, dtype="float32"), seed)


def stop_at(monkeypatch, epoch: int, error: BaseException) -> None:
    """Make the run stop when it comes to an epoch: an interrupt between two steps, any other error
    within one.
    """
    step = Learner.step

    def stopping(self, number):
        if number == epoch:
            raise error
        step(self, number)
        if number + 1 == epoch and isinstance(error, KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Learner, "step", stopping)


def trained_epochs(monkeypatch) -> list[int]:
    """Record every epoch that is trained."""
    found, step = [], Learner.step

    def recording(self, number):
        found.append(number)
        step(self, number)

    monkeypatch.setattr(Learner, "step", recording)
    return found


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts():
    """Whoever runs the tests may ignore SIGINT (a shell's background job does); here it must
    interrupt.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_may_come_while_measuring(tiny, tmp_path, monkeypatch):
    expected = train(tiny, store=tmp_path / "whole", **ALONE)
    measure, calls = Learner.measure, [0]

    def stopping(self):
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return measure(self)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "measure", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(tiny, store=tmp_path / "cut", **ALONE)
    assert bits(train(tiny, store=tmp_path / "cut", **ALONE)) == bits(expected)


@pytest.mark.parametrize("name", ["learned", pytest.param("sgd", marks=pytest.mark.slow)])
def test_a_run_that_dies_goes_on_from_its_last_checkpoint(tiny, tmp_path, monkeypatch, name):
    p = tiny.replace(eval_every=10, **OPTIONS[name])
    expected = train(p, store=tmp_path / "whole", **ALONE)
    monkeypatch.setattr(stack, "CHECKPOINT_SECONDS", -1.0)
    with monkeypatch.context() as patch:
        stop_at(patch, 35, MemoryError())  # unlike an interrupt, leaves no time to save
        with pytest.raises(MemoryError):
            train(p, store=tmp_path / "cut", **ALONE)
    epochs = trained_epochs(monkeypatch)
    result = train(p, store=tmp_path / "cut", **ALONE)
    assert epochs == list(range(35, 40))
    assert bits(result) == bits(expected) and result.identical(expected)
    files = {f.name for f in place(p, tmp_path / "cut").parent.iterdir()}
    assert files == {"seed-00000.nc"}  # checkpoint and lock gone


def test_interrupted_again_and_again(tiny, tmp_path, monkeypatch):
    expected = train(tiny, store=tmp_path / "whole", **ALONE)
    for epoch in (0, 3, 20, 21, 39):
        with monkeypatch.context() as patch:
            stop_at(patch, epoch, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                train(tiny, store=tmp_path / "cut", **ALONE)
    assert bits(train(tiny, store=tmp_path / "cut", **ALONE)) == bits(expected)


def test_an_interrupt_keeps_the_seeds_already_finished(tiny, tmp_path, monkeypatch):
    step = Learner.step

    def stopping(self, number):
        if list(self.seeds) == [1] and number == 5:
            raise KeyboardInterrupt
        step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(tiny, seeds=[0, 1], store=tmp_path, **ALONE)
    assert runs.open(tmp_path).seed.values.tolist() == [0]


def test_finished_seeds_are_not_trained_again(tiny, tmp_path, monkeypatch):
    first = train(tiny, seeds=[0, 1], store=tmp_path, **ALONE)
    stamps = [place(tiny, tmp_path, seed).stat().st_mtime_ns for seed in (0, 1)]

    def never(self, number):
        raise AssertionError("a finished seed is trained again")

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", never)
        again = train(tiny, seeds=[1, 0], store=tmp_path, **ALONE)
    assert bits(again) == bits(first.sel(seed=[1, 0]))
    more = train(tiny, seeds=[0, 1, 2], store=tmp_path, **ALONE)
    assert [place(tiny, tmp_path, seed).stat().st_mtime_ns for seed in (0, 1)] == stamps
    assert bits(more.sel(seed=[0, 1])) == bits(first)


def test_killed_while_writing_the_result(tiny, tmp_path, monkeypatch, forked):
    store = tmp_path / "killed"
    monkeypatch.setattr(stack, "CHECKPOINT_SECONDS", -1.0)
    # The moment the finished run is on its way to the disk.
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: os.kill(os.getpid(), signal.SIGKILL))
        done = forked(lambda: train(tiny, store=store, **ALONE))
    assert done.returncode == -signal.SIGKILL
    assert any(store.rglob("*")), "it died before it wrote anything"
    assert not place(tiny, store).exists()
    with pytest.raises(ParameterError, match="no finished runs"):
        runs.open(store)
    assert bits(train(tiny, store=store, **ALONE)) == bits(
        train(tiny, store=tmp_path / "whole", **ALONE)
    )
    assert runs.open(store).seed.values.tolist() == [0]


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
def test_a_file_that_is_not_the_run_is_named_set_aside_and_replaced(tiny, tmp_path, damage):
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
    """Print where a flipped bit is trusted: one in each of 150 equal parts of the file."""
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
    """Reading a file with a flipped bit refuses or returns what was written; in a process, as it
    may also hang.
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
        *(pytest.param(f, marks=pytest.mark.slow) for f in (emptied, text, foreign_checkpoint)),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_run_starts_over(tiny, tmp_path, monkeypatch, damage):
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


@dataclasses.dataclass(frozen=True)
class Flow(Stepped, BaseParameters):
    """Parameters of these students."""

    eta: float = parameter(0.1, "learning rate", above=0)
    steps: int = parameter(30, "number of steps", low=1)
    eval_every: int = parameter(3, "steps between measurements", low=1)


class Own:
    """A stranger's student: half-squared error of four weights on twenty rows."""

    def __init__(self, p, seed, device, dtype):
        draw = np.random.default_rng(seed).normal
        self.w, self.rows = torch.tensor(draw(size=4)), torch.tensor(draw(size=(20, 4)))
        self.rng, self.noise = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        self.order, self.late, self.mean = self.rng.permutation(20), 0 * self.w, self.w

    def descend(self, rows, rate=0.1):
        self.w = self.w - rate * rows.T @ (rows @ self.w) / len(rows)

    def step(self, number):
        self.descend(self.rows)

    def measure(self):
        return {"loss": float((self.rows @ self.w).square().mean())}

    def state(self):
        return {"w": self.w}

    def load(self, state):
        self.w = state["w"].clone()


def shuffled(self, number):  # every epoch of five batches anew
    if number and number % 5 == 0:
        self.order = self.rng.permutation(20)
    self.descend(self.rows[self.order[4 * (number % 5) :][:4]])


def noisy(draw):
    def step(self, number):
        self.descend(self.rows)
        if number % 5 == 4:
            self.w = self.w + draw(self)

    return step


def inert(self, number):
    self.late = 0.9 * self.late + (number > 8) * self.w
    self.w = self.w - 0.01 * (self.w + self.late)


def averaged(self, number):
    self.descend(self.rows)
    self.mean = 0.9 * self.mean + 0.1 * self.w


HIDDEN = {  # what is not in state(), and the step before which it is told; None: when it is kept
    "order of rows": ({"step": shuffled}, None),
    "NumPy's generator": ({"step": noisy(lambda own: own.rng.normal())}, None),
    "torch's generator": ({"step": noisy(lambda own: torch.rand(4, generator=own.noise))}, None),
    "momentum that begins late": ({"step": inert}, None),
    "average that is measured": (
        {"step": averaged, "measure": lambda own: {"loss": float(own.mean.square().sum())}},
        1,
    ),
    "random numbers of measurements": (
        {"measure": lambda own: {"loss": float(own.w.square().sum() + own.rng.normal() ** 2)}},
        1,
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_stranger_hides_makes_no_other_run(name, tmp_path, recwarn):
    """Refused, or no checkpoint is kept and the run begins anew; it went on as another one."""
    methods, told = HIDDEN[name]
    kind = type("Hiding", (Own,), methods)
    system = training.System(
        "hiding", Flow, functools.partial(Unstacked, kind), {"loss": ""}, lambda p, itemsize: 1e4
    )
    if told:
        with pytest.raises(ParameterError, match=r"step\(1\) made twice from the same state"):
            system.train(Flow(), store=tmp_path, **ALONE)
        return
    whole = system.train(Flow(), store=tmp_path / "whole", **ALONE)
    with pool.stopping(lambda done: done == 13), pytest.raises(KeyboardInterrupt):
        system.train(Flow(), store=tmp_path / "cut", **ALONE)
    assert any("no checkpoint: hiding: step(13)" in str(w.message) for w in recwarn)
    assert bits(system.train(Flow(), store=tmp_path / "cut", **ALONE)) == bits(whole)


def test_what_is_not_hidden_goes_on(tmp_path):
    system = training.System(
        "open", Flow, functools.partial(Unstacked, Own), {"loss": ""}, lambda p, itemsize: 1e4
    )
    whole = system.train(Flow(), store=tmp_path / "whole", **ALONE)
    with pool.stopping(lambda done: done == 13), pytest.raises(KeyboardInterrupt):
        system.train(Flow(), store=tmp_path / "cut", **ALONE)
    assert list((tmp_path / "cut").rglob("*.checkpoint"))
    assert bits(system.train(Flow(), store=tmp_path / "cut", **ALONE)) == bits(whole)
