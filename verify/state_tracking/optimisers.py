"""Times of students under other optimisers: single students against the fixed-disorder theory,
nothing fitted; Adam from sizes and starts alone; momentum and schedules as plain descent with
the same path.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import sem

from simulate.state_tracking import train
from theory import Optimiser, clocks
from theory.associative_memory import factual_recall
from theory.state_tracking import Parameters
from theory.state_tracking.arrivals import emergence_steps
from theory.state_tracking.integrate import solve
from theory.state_tracking.levels import LEVELS
from theory.state_tracking.realisation import Realisation, Start
from theory.state_tracking.trained import system
from verify.check import Check, at_least, estimated, listed, near, rms
from verify.emergence import first_crossing, power, smooth_crossing
from verify.measured import measured
from verify.rates import rates
from verify.state_tracking.ensemble import TESTED
from verify.state_tracking.ladder import times
from verify.stored import kept

SEEDS = range(700, 705)  # trained after the theory was committed
EVALUATIONS = 120  # of a run; theory is evaluated at the same steps
AHEAD = 1.1  # of a student's last time: as far as theory is followed
BARS = {"half_time": 0.003, "rollout_half_time": 0.006}  # rms over seeds, set beforehand
NAMES = {"half_time": "time of A = 1/2", "rollout_half_time": "time of rollout 1/2"}
BASES = {
    "table_1": ("Table 1", Parameters.table_1()),
    "table_2": ("Table 2", Parameters.table_2()),
    "demo": ("small", Parameters.demo()),
    "unequal": ("12 actions", Parameters(N=20, L=5, d_g=12, d_h=64, n_train=16384)),
}
# Learning rates at which attention emerges after some hundred steps, and steps of a run: of Adam,
# of momentum (a tenth as large for the same clock), and of batches.
RATES = {
    "table_1": ((0.004, 400), (0.5, 1500), (4.0, 1000)),
    "table_2": ((0.01, 300), (0.5, 1000), (4.0, 700)),
    "demo": ((0.006, 320), (0.25, 1100), (2.0, 700)),
    "unequal": ((0.004, 400), (0.25, 800), (2.0, 500)),
}
WAYS = ("Adam", "AdamW, decay 0.1", "momentum, cosine", "batches n/8", "batches n/64")


def cases() -> dict[tuple[str, str], Parameters]:
    """Parameters by setting and optimiser."""
    parameters = {}
    for name, (_, p) in BASES.items():
        (adam, short), (slow, long), (eta, steps) = RATES[name]
        ways: list[dict[str, Any]] = [
            dict(optimizer="adam", eta=adam, epochs=short),
            dict(optimizer="adamw", eta=adam, epochs=short, weight_decay=0.1),
            dict(momentum=0.9, eta=slow, epochs=long, schedule="cosine", warmup=20),
            dict(batch_size=p.n_train // 8, eta=eta, epochs=steps),
            dict(batch_size=p.n_train // 64, eta=eta, epochs=steps),
        ]
        for way, fields in zip(WAYS, ways, strict=True):
            every = max(1, fields["epochs"] // EVALUATIONS)
            setting = p.replace(n_test=TESTED, unit="step", eval_every=every, **fields)
            parameters[name, way] = setting
    return parameters


@measured
def student_times(p: Parameters, seeds: Iterable[int], **training: Any) -> np.ndarray:
    """Times in the order of `NAMES`, one row per seed; NaN where a student does not get there."""
    return _times(p, train(p, seeds, **training))


def _times(p: Parameters, curves: xr.Dataset) -> np.ndarray:
    asked = [times(p)[name] for name in NAMES]
    return np.stack([first_crossing(curves[of], level).values for of, level in asked], 1)


@kept
def predicted(p: Parameters, seed: int, last: float) -> np.ndarray:
    """These times of one seed in theory, followed to a last time."""
    epochs = np.arange(0, p.epochs + 1, p.eval_every)
    epochs = epochs[p.alpha(epochs) <= last]
    theory = system(p, Start.of_seeds(p, [seed]), Realisation.of_seeds(p, [seed]))
    return _times(p, solve(theory, epochs))[0]


def errors(p: Parameters, seeds: Iterable[int], **training: Any) -> dict[str, np.ndarray]:
    """Relative errors of the predicted times, per seed: NaN where neither theory nor student gets
    there within the run, infinite where one alone does.
    """
    seeds = [*seeds]
    theirs = student_times(p, seeds, **training)
    ends = np.where(np.isfinite(theirs).all(1), AHEAD * theirs.max(1), np.inf)
    ours = np.array([predicted(p, s, float(end)) for s, end in zip(seeds, ends, strict=True)])
    one = np.isfinite(ours) != np.isfinite(theirs)
    return dict(zip(NAMES, np.where(one, np.inf, ours / theirs - 1).T, strict=True))


@listed
def rows(title: str, p: Parameters, seeds: Iterable[int], **training: Any) -> Iterator[Check]:
    """Root mean squares of these errors against bars set beforehand."""
    for name, errors_of in errors(p, seeds, **training).items():
        reached = errors_of[~np.isnan(errors_of)]
        why = "bar set beforehand; fluctuations within groups of rows are kept to fourth order"
        if reached.size < errors_of.size:
            why += f"; {errors_of.size - reached.size} of {errors_of.size} do not get there"
        label = f"{NAMES[name]} per seed, rms, {title}"
        yield rms(label, LEVELS["fixed_disorder"].title, reached, BARS[name], why)


# Rows of every optimiser at every setting, by title.
GROUPS = {
    title: functools.partial(rows, title, p, SEEDS)
    for (name, way), p in cases().items()
    for title in [f"{BASES[name][0]}, {way}"]
}


# Emergence under Adam from sizes and starts alone, and its exponents

ADAM = WAYS[0]
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
ADAM_SEEDS = range(200, 206)


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
    parts = (
        *over_starts(p, DRAWS, OTHERS),
        students - theory,
    )  # the last: scatter at a given start
    drawn, others, beside = (float(x.mean()) for x in parts)
    return drawn, others + beside, float(np.linalg.norm([sem(x) for x in parts]))


def at_setting(title: str, p: Parameters, **training: Any) -> list[Check]:
    """Mean over the seeds of a setting."""
    students = student_times(p, SEEDS, **training)[:, 0] * p.d_g * p.N
    theory = theory_steps(p, SEEDS)
    name, off = "mean time of A = 1/2 under Adam", theory.mean() / students.mean() - 1
    means = from_sizes(p, theory, students)
    return [
        near(f"{name}, {title}", "kind_loss", 0.0, off, AIM, "aim set beforehand", 1.0),
        estimated(f"{name} from sizes alone, {title}", "kind_loss", *means, len(students)),
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
        ends.append([theory_steps(moved, seeds).mean(), students.mean()])
    return tuple(power([low, high], ends))


def exponent_rows(field: str, **training: Any) -> list[Check]:
    """Exponent against students of the same starts."""
    theory, students = exponent(field, BASE, ADAM_SEEDS, **training)
    title = f"exponent of the time under Adam in {field}"
    return [near(title, "kind_loss", theory, students, 0.05, "aim set beforehand", 1.0)]


# Rows by title: times at every setting, exponents in every field.
ADAM_GROUPS = {
    f"Adam from sizes, {title}": functools.partial(at_setting, title, p)
    for (name, way), p in cases().items()
    if way == ADAM
    for title in [BASES[name][0]]
} | {f"exponent of Adam in {x}": functools.partial(exponent_rows, x) for x in MOVES}


# Momentum and schedules

BALLS = {
    "heavy ball": Optimiser(momentum=0.8),
    "Nesterov": Optimiser(momentum=0.8, nesterov=True),
    "heavy ball, cosine": Optimiser(momentum=0.8, schedule="cosine"),
}
RECALL = factual_recall.Parameters.small().replace(epsilon=0.3)
CLOCK = 60.0  # of a run, at small steps; the relation is known after half of it
MOMENTUM_RATES = (0.01, 0.005, 0.0025)
NEXT = 5e-4  # of a time: the next order in the rate
LEVEL = 0.5  # share of the relation's loss
# Students: rate of momentum times its steps; rates at which plain descent is stable.
STUDENTS = Parameters.demo().replace(n_test=16, unit="step")
ETA, LENGTH, MOMENTUM_SEEDS = 0.04, 720.0, range(200, 203)


def of_flow(how: Optimiser, eta: float, steps: int) -> float:
    """Clock at which the relation's loss has halved, by steps of the flow's weights."""
    curve = factual_recall.flow().descend(RECALL, eta, steps, optimizer=how)
    fallen = -curve.loss_relation.assign_coords(t=clocks.clock_of(how, eta, steps))
    return smooth_crossing(fallen, LEVEL * float(fallen[0]))


def gaps(how: Optimiser, eta: float) -> tuple[float, float]:
    """Relative deviation of this clock from that of the equivalent plain descent, with and without
    the correction by the memory of gradients.
    """
    same, rate = clocks.as_plain(how, eta), eta / (1 - how.momentum)
    plain = Optimiser(schedule=how.schedule)
    ways = ((how, eta, rate), (plain, same.eta, same.eta), (plain, rate, rate))
    deviations, other, bare = (
        of_flow(rule, step, round(CLOCK * _longer(how) / effective))
        for rule, step, effective in ways
    )
    return (deviations - same.delay) / other - 1, deviations / bare - 1


def _longer(how: Optimiser) -> int:
    """Length of a run over that at a constant rate."""
    return 2 if how.schedule == "cosine" else 1


@listed
def on_flow() -> Iterator[Check]:
    """The deviation falls as the square of the rate, and as its first power without memory."""
    for name, how in BALLS.items():
        found = zip(*(gaps(how, eta) for eta in MOMENTUM_RATES), strict=True)
        for what, order, deviations in zip(("with", "without"), (2, 1), found, strict=True):
            label = f"power of the rate in its deviation {what} memory, {name}"
            yield rates(0.0, deviations, MOMENTUM_RATES, order).check(label, "plain_rate")


@measured
def times_of_clocks(p: Parameters, seeds: Iterable[int], **training: Any) -> np.ndarray:
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
    p = p.replace(schedule=how.schedule)
    runs = (
        (p.replace(momentum=how.momentum, nesterov=how.nesterov), rate),
        (p.replace(eta=same.eta), same.eta),
        (p.replace(eta=rate), rate),
    )
    times = []
    for q, effective in runs:
        steps = round(length * _longer(how) / effective)
        q = q.replace(epochs=steps, eval_every=max(1, steps // 400))
        times.append(times_of_clocks(q, seeds, **training))
    momentum, plain, bare = times
    gap, worth = (momentum - same.delay) / plain - 1, momentum / bare - 1
    return float(gap.mean()), float(worth.mean())


def on_students(name: str, **training: Any) -> list[Check]:
    """Times of A = 1/2 of the same seeds, trained with momentum and by plain descent."""
    p = STUDENTS.replace(eta=ETA)
    gap, worth = of_students(BALLS[name], p, MOMENTUM_SEEDS, LENGTH, **training)
    memory = f"time of A = 1/2 with memory over that of plain descent, {name}"
    shift = f"shift that memory makes, in tolerances of that, {name}"
    why = "the check can detect it"
    return [
        near(memory, "plain_rate", 1.0, 1 + gap, NEXT, "second order in the rate"),
        at_least(shift, "plain_rate", 3.0, abs(worth) / NEXT, why),
    ]


# Rows of students by title.
CLOCK_GROUPS = {f"students, {x}": functools.partial(on_students, x) for x in BALLS}
