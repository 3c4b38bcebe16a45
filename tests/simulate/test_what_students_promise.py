"""What a student's methods must do, told before the first step or at the first
checkpoint.
"""

import dataclasses
import itertools
import math
import random
import types

import numpy as np
import pytest
import torch
from test_nothing_lost import faulty, interrupted, stepping, told
from tiny import ALONE, EACH_KIND, bits, in_turn, student

from theory.call.refusal import ParameterError


def measuring(change):
    """`measure` whose n-th result is changed."""

    def method(learner, measure):
        count = itertools.count()
        return lambda: change(next(count), dict(measure()))

    return method


def renamed(k, found):
    return found if k == 0 else {f"{name} {k}": v for name, v in found.items()}


MEASURED = {  # at which step at the latest, what is measured, what is said
    "NaN": (
        0,
        lambda k, f: {n: np.asarray(v) * math.nan for n, v in f.items()},
        "before any training",
    ),
    "names": (4, renamed, "gives other quantities than before"),
    "fewer": (
        4,
        lambda k, f: dict(list(f.items())[: len(f) - k]),
        "gives other quantities",
    ),
    "text": (0, lambda k, f: f | dict.fromkeys(f, "much"), "is no array of numbers"),
    "no axis": (0, lambda k, f: f | dict.fromkeys(f, 1.0), "must have . ax"),
    "shape": (4, lambda k, f: {n: [v[0]] * (1 + k) for n, v in f.items()}, "has shape"),
    "no names": (0, lambda k, f: dict(enumerate(f.values())), "quantities by name"),
    "slash": (0, lambda k, f: f | {"a/b": [1.0]}, "cannot be stored as netCDF"),
}
STATES = {
    "a function": lambda learner, state: lambda b: {**state(b), "rule": lambda: 0},
    "an array": lambda learner, state: lambda b: {**state(b), "w": np.arange(3.0)},
    "none": lambda learner, state: lambda b: None,
    "broken": lambda learner, state: lambda b: {}["weights"],
}


@pytest.mark.parametrize(("name", "fault"), in_turn(MEASURED))
def test_what_is_measured_is_held_against_the_first_time(name, fault, tmp_path):
    system, p = student(name)
    if system.time is None:
        pytest.skip("measures nothing on its way")
    steps, change, said = MEASURED[fault]
    p = p.replace(eval_every=4)
    told(faulty(system, steps, measure=measuring(change)), p, tmp_path, said)


@pytest.mark.parametrize(("name", "fault"), in_turn(STATES))
def test_a_state_that_cannot_be_saved_or_read_is_told_before_the_first_step(
    name, fault, tmp_path
):
    system, p = student(name)
    told(
        faulty(system, 0, state=STATES[fault]),
        p,
        tmp_path,
        r"state|saved and read back",
    )


@EACH_KIND
def test_a_state_that_is_not_taken_up_is_told(name, tmp_path):
    """After one step, where it fails and where it does nothing; when needed, with the
    file.
    """
    system, p = student(name)
    broken = faulty(system, 1, load=lambda learner, load: lambda states: {}["weights"])
    told(broken, p, tmp_path, r"load\(\) does not take what state\(\) gave: KeyError")
    idle = faulty(system, 2, load=lambda learner, load: lambda states: None)
    told(idle, p, tmp_path, "would not go on where it stopped")
    checkpoint = interrupted(system, p, tmp_path)
    with pytest.raises(
        ParameterError, match="would not go on.*; to start over, remove "
    ) as caught:
        idle.train(p, store=tmp_path, **ALONE)
    assert str(checkpoint) in str(caught.value) and not list(tmp_path.rglob("*.nc"))


SHARED = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: float(np.random.rand()),  # noqa: NPY002
    "python": random.random,
}


@pytest.mark.parametrize(("name", "of"), in_turn(SHARED))
def test_a_step_that_is_another_when_repeated_is_told(name, of, tmp_path):
    """From torch's, NumPy's or Python's shared random numbers: after an interrupt the
    rest would be another run.
    """
    system, p = student(name)
    drawing = faulty(system, 2, step=stepping(lambda w, k: w.add_(SHARED[of]())))
    told(
        drawing,
        p,
        tmp_path,
        r"step\(1\) made twice from the same state gives two states",
    )


@EACH_KIND
def test_a_step_that_depends_on_more_than_its_state_is_told(name, tmp_path):
    system, p = student(name)
    count = itertools.count()
    counting = faulty(system, 2, step=stepping(lambda w, k: w.add_(next(count))))
    told(counting, p, tmp_path, r"keep in state\(\) all that step\(\) changes")


@EACH_KIND
def test_an_attribute_that_counts_steps_is_told(name, tmp_path):
    """A schedule that load() does not set back: after an interrupt it would begin
    again.
    """
    system, p = student(name)

    def made(learner, step):
        learner.schedule = types.SimpleNamespace(last_epoch=0)

        def stepped(number):
            learner.schedule.last_epoch += 1
            step(number)

        return stepped

    message = (
        "two values of the attribute schedule.last_epoch, a resumed run may be another"
    )
    told(faulty(system, 3, step=made), p, tmp_path, message)


@pytest.mark.parametrize("at", [2, 9])  # before the first one, and later
@pytest.mark.parametrize("of", SHARED)
def test_shared_random_numbers_that_are_drawn_late_go_into_checkpoints(
    of, at, tmp_path
):
    """Where no repeated step can see it."""
    system, p = student("state_tracking.student")

    def change(w, k):
        if k % 4 == 3:
            w.add_(SHARED[of]() / 100)

    late = faulty(system, 10**6, step=stepping(change))
    seeds = {"torch": torch.manual_seed, "numpy": np.random.seed, "python": random.seed}
    seeds[of](1)
    whole = late.train(p, store=tmp_path / "whole", **ALONE)
    seeds[of](1)
    interrupted(late, p, tmp_path / "cut", at=at)
    seeds[of](2)
    assert bits(late.train(p, store=tmp_path / "cut", **ALONE)) == bits(whole)


LENGTHS = [math.inf, math.nan, 10.5, -1, "10", True]


@EACH_KIND
def test_a_run_that_would_step_for_ever_is_told_before_its_first_step(name, tmp_path):
    system, p = student(name)
    for length in LENGTHS:
        endless = dataclasses.replace(system, length=lambda p, length=length: length)
        told(faulty(endless, 0), p, tmp_path, "length.* must be a whole number")
    if system.time:
        for clock in (
            lambda p, steps: 0.0 * steps,
            lambda p, steps: -1.0 * steps,
            lambda p, steps: np.where(steps > 0, math.nan, 0.0),
            lambda p, steps: 1.0,
        ):
            still = dataclasses.replace(system, clock=clock)
            told(faulty(still, 0), p, tmp_path, "does not advance")


@EACH_KIND
def test_a_time_without_a_clock_is_told(name):
    """Of Stepped parameters, too, if their time has another name."""
    system, _ = student(name)
    with pytest.raises(
        ParameterError, match=f"^{system.name}: time = 'later': needs a clock, or"
    ):
        dataclasses.replace(system, time="later", clock=None)


@EACH_KIND
def test_a_configuration_that_is_no_text_is_told(name, tmp_path):
    system, p = student(name)
    odd = dataclasses.replace(system, identity=lambda p: {"rule": torch.zeros(1)})
    told(odd, p, tmp_path, "what JSON cannot hold")
