"""Interrupted, killed and damaged runs: the next one ends as the uninterrupted one
would, bit for bit.
"""

import dataclasses
import functools
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import bits

from simulate.state_tracking import Parameters, train
from simulate.state_tracking.learner import Learner
from simulate.store import runs, storage
from simulate.training import plan, pool, stack
from simulate.training.learner import Unstacked
from theory.call.parameters import BaseParameters, Stepped, parameter
from theory.call.refusal import ParameterError

ALONE = dict(progress=False, workers=1)
OPTIONS = {
    "sgd": dict(),
    "learned": dict(
        fix_embedding=False, d_model=3, batch_size=20, optimizer="adam", eta=0.02
    ),
}


def place(p: Parameters, store: Path, seed: int = 0) -> Path:
    return storage.place(
        store, storage.configuration("state_tracking", p, dtype="float32"), seed
    )


def stop_at(monkeypatch, epoch: int, error: BaseException) -> None:
    """Make the run stop when it comes to an epoch: an interrupt between two steps, any
    other error within one.
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
    """Whoever runs the tests may ignore SIGINT (a shell's background job does); here it
    must interrupt.
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


@pytest.mark.parametrize(
    "name", ["learned", pytest.param("sgd", marks=pytest.mark.slow)]
)
def test_a_run_that_dies_goes_on_from_its_last_checkpoint(
    tiny, tmp_path, monkeypatch, name
):
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
        self.rng, self.noise = (
            np.random.default_rng(seed),
            torch.Generator().manual_seed(seed),
        )
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


# what is not in state(), and the step before which it is told; None: when it is kept
HIDDEN = {
    "order of rows": ({"step": shuffled}, None),
    "NumPy's generator": ({"step": noisy(lambda own: own.rng.normal())}, None),
    "torch's generator": (
        {"step": noisy(lambda own: torch.rand(4, generator=own.noise))},
        None,
    ),
    "momentum that begins late": ({"step": inert}, None),
    "average that is measured": (
        {
            "step": averaged,
            "measure": lambda own: {"loss": float(own.mean.square().sum())},
        },
        1,
    ),
    "random numbers of measurements": (
        {
            "measure": lambda own: {
                "loss": float(own.w.square().sum() + own.rng.normal() ** 2)
            }
        },
        1,
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_stranger_hides_makes_no_other_run(name, tmp_path, recwarn):
    """Refused, or no checkpoint is kept and the run begins anew; it went on as another
    one.
    """
    methods, told = HIDDEN[name]
    kind = type("Hiding", (Own,), methods)
    system = plan.System(
        "hiding",
        Flow,
        functools.partial(Unstacked, kind),
        {"loss": ""},
        lambda p, itemsize: 1e4,
    )
    if told:
        with pytest.raises(
            ParameterError, match=r"step\(1\) made twice from the same state"
        ):
            system.train(Flow(), store=tmp_path, **ALONE)
        return
    whole = system.train(Flow(), store=tmp_path / "whole", **ALONE)
    with pool.stopping(lambda done: done == 13), pytest.raises(KeyboardInterrupt):
        system.train(Flow(), store=tmp_path / "cut", **ALONE)
    assert any("no checkpoint: hiding: step(13)" in str(w.message) for w in recwarn)
    assert bits(system.train(Flow(), store=tmp_path / "cut", **ALONE)) == bits(whole)


def test_what_is_not_hidden_goes_on(tmp_path):
    system = plan.System(
        "open",
        Flow,
        functools.partial(Unstacked, Own),
        {"loss": ""},
        lambda p, itemsize: 1e4,
    )
    whole = system.train(Flow(), store=tmp_path / "whole", **ALONE)
    with pool.stopping(lambda done: done == 13), pytest.raises(KeyboardInterrupt):
        system.train(Flow(), store=tmp_path / "cut", **ALONE)
    assert list((tmp_path / "cut").rglob("*.checkpoint"))
    assert bits(system.train(Flow(), store=tmp_path / "cut", **ALONE)) == bits(whole)
