"""Single students under any optimiser against the fixed-disorder theory: times of A = 1/2 and of
rollout accuracy 1/2, seed by seed, nothing fitted.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.levels import LEVELS
from theory.state_tracking.numbers.per_seed import Realisation, Start, solve, system
from verify.check import Check, listed, near
from verify.emergence import first_crossing
from verify.measured import measured
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
    runs = train(p, seeds, **training)
    asked = [times(p)[name] for name in NAMES]
    return np.stack([first_crossing(runs[of], level).values for of, level in asked], 1)


@kept
def predicted(p: Parameters, seed: int, last: float) -> np.ndarray:
    """These times of one seed in theory, followed to a last time."""
    epochs = np.arange(0, p.epochs + 1, p.eval_every)
    epochs = epochs[p.alpha(epochs) <= last]
    theory = system(p, Start.of_seeds(p, [seed]), Realisation.of_seeds(p, [seed]))
    curves, asked = solve(theory, epochs), [times(p)[name] for name in NAMES]
    return np.array([first_crossing(curves[of], level).values[0] for of, level in asked])


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
        size = float(np.sqrt(np.mean(reached**2)))
        why = "bar set beforehand; fluctuations within groups of rows are kept to fourth order"
        if reached.size < errors_of.size:
            why += f"; {errors_of.size - reached.size} of {errors_of.size} do not get there"
        label = f"{NAMES[name]} per seed, rms, {title}"
        level = LEVELS["fixed_disorder"].title
        yield near(label, level, 0.0, size, BARS[name], why, 1.0)


# Rows of every optimiser at every setting, by title.
GROUPS = {
    title: functools.partial(rows, title, p, SEEDS)
    for (name, way), p in cases().items()
    for title in [f"{BASES[name][0]}, {way}"]
}
