"""Emergence under Adam from sizes and starts alone, and its exponents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.numbers.per_seed import Start, emergence_steps
from verify.check import Check, estimated, near
from verify.emergence import first_crossing
from verify.state_tracking import optimisers

ADAM = optimisers.WAYS[0]
AIM = 0.05  # of the mean time over seeds, set beforehand
DRAWS = 128  # starts that are drawn, for times from sizes alone
FEW = 0.7  # five students scatter by up to a third; rows of their own starts are sharp
# How times go with one field at a time, about this base.
BASE = Parameters.demo().replace(optimizer="adam", eta=0.006, n_test=16, unit="step", epochs=300)
MOVES: dict[str, tuple[Any, Any]] = {
    "eta": (0.003, 0.012),
    "L": (5, 12),
    "N": (12, 24),
    "d_g": (12, 24),
}
SEEDS = range(200, 206)


def times(p: Parameters, seeds: Iterable[int], **training: Any) -> tuple[np.ndarray, np.ndarray]:
    """Steps until A = 1/2 in theory and of students."""
    runs = train(p, seeds, **training)
    measured = first_crossing(runs.A, 0.5).values * p.d_g * p.N
    return emergence_steps(p, Start.measured(runs)), measured


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
            drawn = emergence_steps(p, Start.drawn(p, DRAWS, np.random.default_rng(0)))
            both = float(drawn.std(ddof=1)) * np.sqrt(1 / len(students) + 1 / DRAWS)
            out.append(
                estimated(
                    f"mean time of A = 1/2 under Adam from sizes alone, {title}",
                    "kind_loss",
                    float(drawn.mean()),
                    float(students.mean()),
                    both,
                    required=FEW,
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
