"""Momentum and schedules: the plain descent that takes the same path, on a flow and on students."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory import Optimiser, clocks
from theory.associative_memory import factual_recall
from theory.state_tracking import Parameters
from verify.check import Check, at_least, listed, near
from verify.emergence import first_crossing, smooth_crossing
from verify.measured import measured
from verify.rates import rates

BALLS = {
    "heavy ball": Optimiser(momentum=0.8),
    "Nesterov": Optimiser(momentum=0.8, nesterov=True),
    "heavy ball, cosine": Optimiser(momentum=0.8, schedule="cosine"),
}
RECALL = factual_recall.Parameters.small().replace(epsilon=0.3)
CLOCK = 60.0  # of a run, at small steps; the relation is known after half of it
RATES = (0.01, 0.005, 0.0025)
NEXT = 5e-4  # of a time: the next order in the rate
LEVEL = 0.5  # share of the relation's loss
# Students: rate of momentum times its steps; rates at which plain descent is stable.
STUDENTS = Parameters.demo().replace(n_test=16, unit="step")
ETA, LENGTH, SEEDS = 0.04, 720.0, range(200, 203)


def of_flow(how: Optimiser, eta: float, steps: int) -> float:
    """Clock at which the relation's loss has halved, by steps of the flow's weights."""
    curve = factual_recall.flow().descend(RECALL, eta, steps, optimizer=how)
    fallen = -curve.loss_relation.assign_coords(t=clocks.clock_of(how, eta, steps))
    return smooth_crossing(fallen, LEVEL * float(fallen[0]))


def gaps(how: Optimiser, eta: float) -> tuple[float, float]:
    """Relative deviation of this clock from that of the equivalent plain descent, with and without
    the correction by the memory of gradients.
    """
    same = clocks.as_plain(how, eta)
    plain = Optimiser(schedule=how.schedule)
    length = CLOCK * (2 if how.schedule == "cosine" else 1)
    deviations, other, bare = (
        of_flow(rule, rate, round(length / effective))
        for rule, rate, effective in (
            (how, eta, eta / (1 - how.momentum)),
            (plain, same.eta, same.eta),
            (plain, eta / (1 - how.momentum), eta / (1 - how.momentum)),
        )
    )
    return (deviations - same.delay) / other - 1, deviations / bare - 1


@listed
def on_flow() -> Iterator[Check]:
    """The deviation falls as the square of the rate, and as its first power without memory."""
    for name, how in BALLS.items():
        found = zip(*(gaps(how, eta) for eta in RATES), strict=True)
        for what, order, deviations in zip(("with", "without"), (2, 1), found, strict=True):
            label = f"power of the rate in its deviation {what} memory, {name}"
            yield rates(0.0, deviations, RATES, order).check(label, "plain_rate")


@measured
def student_times(p: Parameters, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """Clock at which A = 1/2, per seed."""
    runs = train(p, seeds, **training)
    clock = clocks.clock_of(p, p.eta, p.updates)[runs.epoch.values]
    return first_crossing(runs.A.assign_coords(alpha=clock), 0.5).values


def of_students(
    how: Optimiser, p: Parameters, seeds: Iterable[int], length: float, **training: Any
) -> tuple[float, float]:
    """Mean relative deviation from the equivalent plain descent of the same seeds; and of that
    plain descent from one at the rate of momentum.
    """
    same, rate = clocks.as_plain(how, p.eta), p.eta / (1 - how.momentum)
    clock_length = length * (2 if how.schedule == "cosine" else 1)
    fields = dict(momentum=how.momentum, nesterov=how.nesterov, schedule=how.schedule)
    runs = (
        (p.replace(**fields), rate),
        (p.replace(eta=same.eta, schedule=how.schedule), same.eta),
        (p.replace(eta=rate, schedule=how.schedule), rate),
    )
    times = []
    for q, effective in runs:
        steps = round(clock_length / effective)
        q = q.replace(epochs=steps, eval_every=max(1, steps // 400))
        times.append(student_times(q, seeds, **training))
    momentum, plain, bare = times
    gap, worth = (momentum - same.delay) / plain - 1, momentum / bare - 1
    return float(gap.mean()), float(worth.mean())


def on_students(name: str, **training: Any) -> list[Check]:
    """Times of A = 1/2 of the same seeds, trained with momentum and by plain descent."""
    gap, worth = of_students(BALLS[name], STUDENTS.replace(eta=ETA), SEEDS, LENGTH, **training)
    return [
        near(
            f"time of A = 1/2 with memory over that of plain descent, {name}",
            "plain_rate",
            1.0,
            1 + gap,
            NEXT,
            "second order in the rate",
        ),
        at_least(
            f"shift that memory makes, in tolerances of that, {name}",
            "plain_rate",
            3.0,
            abs(worth) / NEXT,
            "the check can detect it",
        ),
    ]


# Rows of students by title.
GROUPS = {f"students, {x}": functools.partial(on_students, x) for x in BALLS}
