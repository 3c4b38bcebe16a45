"""The tiny students of `simulate.systems`, those of another package among them."""

import dataclasses

import pytest

from simulate.store import storage
from simulate.systems import student, tiny

STUDENTS = tiny()
__all__ = [
    "ALONE",
    "EACH_KIND",
    "FIRST",
    "KINDS",
    "STUDENTS",
    "bits",
    "in_turn",
    "noting",
    "student",
]
FIRST = [name for name in STUDENTS if "," not in name]  # one per system
# Stacks with and without a clock, single students by steps and by time, a statement.
# Where only shared code is left to see a fault: by one of each kind here, by every
# student among the slow tests.
KINDS = (
    "state_tracking.student",
    "positional_semantic.attention",
    "associative_memory.trigger_task",
    "induction_heads.three",
    "induction_heads.bursty",
)
EACH_KIND = pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.slow] * (x not in KINDS)) for x in FIRST],
)
ALONE = dict(progress=False, workers=1, device="cpu")


def in_turn(faults):
    """Every fault by two kinds of students, which take turns; by all others among slow
    tests.
    """
    for k, fault in enumerate(faults):
        for name in FIRST:
            often = name in (KINDS[k % len(KINDS)], KINDS[(k + 2) % len(KINDS)])
            yield pytest.param(name, fault, marks=[pytest.mark.slow] * (not often))


def bits(dataset):
    """Everything that was measured."""
    return {name: v.values.tobytes() for name, v in dataset.variables.items()}


def noting(system, note):
    """The system; whenever it makes a learner, its seeds are noted."""

    def make(p, seeds, *more, **own):
        note(seeds)
        return system.make(p, seeds, *more, **own)

    make.__module__ = storage.home(system.make)  # still one of ours
    return dataclasses.replace(system, make=make)
