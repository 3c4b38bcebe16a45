"""Emergence under Adam from sizes and starts alone, and its exponents."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.numbers.per_seed import Start, emergence_steps
from verify.check import Check, estimated, near
from verify.emergence import first_crossing
from verify.kept import kept
from verify.state_tracking import optimisers
from verify.state_tracking.starts import starts_of

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


@kept
def times(p: Parameters, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """Steps until A = 1/2 in theory and of students."""
    runs = train(p, seeds, **training)
    measured = first_crossing(runs.A, 0.5).values * p.d_g * p.N
    return np.stack([emergence_steps(p, Start.measured(runs)), measured])


@kept
def over_starts(p: Parameters, draws: int, seeds: Iterable[int]) -> np.ndarray:
    """Steps until A = 1/2 in theory for so many drawn starts, and for the starts of seeds."""
    drawn = Start.drawn(p, draws, np.random.default_rng(0))
    return np.stack([emergence_steps(p, x) for x in (drawn, starts_of(p, seeds))])


def from_sizes(
    p: Parameters, theory: np.ndarray, students: np.ndarray
) -> tuple[float, float, float]:
    """Mean steps from sizes alone; of students, with the mean over starts of `OTHERS` in place of
    those of the few trained ones; and the standard error of their difference.
    """
    drawn, others = over_starts(p, DRAWS, OTHERS)
    beside = students - theory  # what a start does not fix
    parts = (drawn, others, beside)
    error = float(np.sqrt(sum(x.var(ddof=1) / x.size for x in parts)))
    return float(drawn.mean()), float(others.mean() + beside.mean()), error


def at_settings(**training: Any) -> list[Check]:
    """Mean over the seeds of every setting."""
    out = []
    for (name, way), p in optimisers.cases().items():
        if way == ADAM:
            theory, students = times(p, optimisers.SEEDS, **training)
            title = optimisers.BASES[name][0]
            out.append(
                near(
                    f"mean time of A = 1/2 under Adam, {title}",
                    "kind_loss",
                    0.0,
                    float(theory.mean() / students.mean() - 1),
                    AIM,
                    "aim set beforehand",
                    1.0,
                )
            )
            out.append(
                estimated(
                    f"mean time of A = 1/2 under Adam from sizes alone, {title}",
                    "kind_loss",
                    *from_sizes(p, theory, students),
                    len(students),
                )
            )
    return out


def exponent(field: str, p: Parameters, seeds: Iterable[int], **training: Any) -> tuple[float, ...]:
    """Exponent of the mean number of steps in one field, in theory and of students."""
    low, high = MOVES[field]
    ends = []
    for value in (low, high):
        moved = p.replace(**{field: value})
        if field == "eta":
            moved = moved.replace(epochs=round(p.epochs * p.eta / value))
        ends.append([float(x.mean()) for x in times(moved, seeds, **training)])
    first, last = np.array(ends)
    return tuple(np.log(last / first) / np.log(high / low))


def exponents(**training: Any) -> list[Check]:
    """Exponents against students of the same starts."""
    out = []
    for field in MOVES:
        theory, students = exponent(field, BASE, SEEDS, **training)
        out.append(
            near(
                f"exponent of the time under Adam in {field}",
                "kind_loss",
                theory,
                students,
                0.05,
                "aim set beforehand",
                1.0,
            )
        )
    return out
