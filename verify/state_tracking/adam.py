"""Emergence under Adam from sizes and starts alone, and its exponents."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.numbers.per_seed import Start, emergence_steps
from verify.check import Check, estimated, near
from verify.emergence import first_crossing
from verify.measured import measured
from verify.state_tracking import optimisers
from verify.stored import kept

ADAM = optimisers.WAYS[0]
AIM = 0.05  # of the mean time over seeds, set beforehand
DRAWS = 1024  # starts that are drawn, for times from sizes alone
OTHERS = range(2000, 2000 + DRAWS)  # seeds that are not trained, for the mean over starts
# How times go with one field at a time, about this base.
BASE = Parameters.demo().replace(optimizer="adam", eta=0.006, n_test=16, unit="step", epochs=300)
MOVES: dict[str, tuple[Any, Any]] = {
    "eta": (0.003, 0.012),
    "L": (5, 12),
    "N": (12, 24),
    "d_g": (12, 24),
}
SEEDS = range(200, 206)


@measured
def student_steps(p: Parameters, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """Steps of students until A = 1/2."""
    return first_crossing(train(p, seeds, **training).A, 0.5).values * p.d_g * p.N


@kept
def theory_steps(p: Parameters, seeds: Iterable[int]) -> np.ndarray:
    """The same in theory, from the starts of seeds."""
    return emergence_steps(p, Start.of_seeds(p, seeds))


@kept
def over_starts(p: Parameters, draws: int, seeds: Iterable[int]) -> np.ndarray:
    """Steps until A = 1/2 in theory for so many drawn starts, and for the starts of seeds."""
    drawn = Start.drawn(p, draws, np.random.default_rng(0))
    return np.stack([emergence_steps(p, x) for x in (drawn, Start.of_seeds(p, seeds))])


def from_sizes(
    p: Parameters, theory: np.ndarray, students: np.ndarray
) -> tuple[float, float, float]:
    """Mean steps from sizes alone; mean steps of students, corrected for their few starts: the mean
    theory of `OTHERS` plus the students' mean deviation from theory; and the standard error of the
    difference of the two.
    """
    drawn, others = over_starts(p, DRAWS, OTHERS)
    beside = students - theory  # scatter at a given start
    parts = (drawn, others, beside)
    error = float(np.sqrt(sum(x.var(ddof=1) / x.size for x in parts)))
    return float(drawn.mean()), float(others.mean() + beside.mean()), error


def at_setting(title: str, p: Parameters, **training: Any) -> list[Check]:
    """Mean over the seeds of a setting."""
    students = optimisers.student_times(p, optimisers.SEEDS, **training)[:, 0] * p.d_g * p.N
    theory = theory_steps(p, optimisers.SEEDS)
    return [
        near(
            f"mean time of A = 1/2 under Adam, {title}",
            "kind_loss",
            0.0,
            float(theory.mean() / students.mean() - 1),
            AIM,
            "aim set beforehand",
            1.0,
        ),
        estimated(
            f"mean time of A = 1/2 under Adam from sizes alone, {title}",
            "kind_loss",
            *from_sizes(p, theory, students),
            len(students),
        ),
    ]


def exponent(field: str, p: Parameters, seeds: Iterable[int], **training: Any) -> tuple[float, ...]:
    """Exponent of the mean number of steps in one field, in theory and of students."""
    low, high = MOVES[field]
    ends = []
    for value in (low, high):
        moved = p.replace(**{field: value})
        if field == "eta":
            moved = moved.replace(epochs=round(p.epochs * p.eta / value))
        students = student_steps(moved, seeds, **training)
        ends.append([float(x.mean()) for x in (theory_steps(moved, seeds), students)])
    first, last = np.array(ends)
    return tuple(np.log(last / first) / np.log(high / low))


def exponent_rows(field: str, **training: Any) -> list[Check]:
    """Exponent against students of the same starts."""
    theory, students = exponent(field, BASE, SEEDS, **training)
    title = f"exponent of the time under Adam in {field}"
    return [near(title, "kind_loss", theory, students, 0.05, "aim set beforehand", 1.0)]


# Rows by title: times at every setting, exponents in every field.
GROUPS = {
    f"Adam from sizes, {title}": functools.partial(at_setting, title, p)
    for (name, way), p in optimisers.cases().items()
    if way == ADAM
    for title in [optimisers.BASES[name][0]]
} | {f"exponent of Adam in {x}": functools.partial(exponent_rows, x) for x in MOVES}
