"""Times of A = 1/2 over random initial weights: single students' own, and from sizes alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from simulate.state_tracking import train
from theory.state_tracking import Parameters
from theory.state_tracking.attention import Attention
from theory.state_tracking.integrate import half_times
from theory.state_tracking.levels import LEVELS
from theory.state_tracking.predict import BEST, drawn_times
from theory.state_tracking.realisation import Realisation, Start
from verify.check import Band, Check, estimated, listed, near
from verify.emergence import first_crossing
from verify.measured import measured
from verify.state_tracking.ensemble import TESTED, shipped
from verify.stored import kept

DEMO = Parameters.demo().replace(n_test=16, eval_every=30)
TABLE_1 = Parameters.table_1().replace(n_test=TESTED).run_to(8.0)  # of the hundred seeds
SETTINGS = {
    "demo": DEMO,
    "demo with four actions": DEMO.replace(d_g=4),
    "24 states, 12 actions, words of 5": DEMO.replace(N=24, L=5, d_g=12, d_h=16, epochs=4096),
    "Table 1": TABLE_1,
}
SEEDS, DRAWS = range(10_000, 10_400), 2000
FEW = DEMO.replace(N=3, d_g=2, L=6, d_h=8, epochs=1200, eval_every=6)  # actions do the same in 1/3!
OWN, ALONE = 0.005, Band(-0.01, 0.01, "a closure has no order; set beforehand")


@measured
def student_times(p: Parameters, seeds: list[int], **training: Any) -> np.ndarray:
    """Times of A = 1/2 of trained students, in alpha."""
    return np.round(first_crossing(train(p, seeds, **training).A, 0.5).values, 4)


def students(p: Parameters, **training: Any) -> tuple[list[int], np.ndarray, int]:
    """Seeds and times of students that come with the code, and how many starts are drawn (a second
    each at Table 1).
    """
    if p != TABLE_1:
        return list(SEEDS), student_times(p, list(SEEDS), **training), DRAWS
    runs = shipped("table_1_100")[1]
    return runs.seed.values.tolist(), first_crossing(runs.A, 0.5).values, DRAWS // 10


@kept
def theory_times(p: Parameters, seeds: list[int]) -> np.ndarray:
    """The same by the default level, with what each time depends on most (columns)."""
    start, given = Start.of_seeds(p, seeds), Realisation.of_seeds(p, seeds)
    times = half_times(LEVELS[BEST].system(p, start, given, False), p.epochs, size=1)
    A = np.einsum("bii->b", Attention(p).forward(start.W_Q, start.W_K)) / p.L
    return np.stack([times, A, start.R - start.S], 1)


@kept
def times_alone(p: Parameters, draws: int) -> np.ndarray:
    """Times of drawn starts, as `theory_times`."""
    found = drawn_times(p, draws)
    return np.stack([found.alpha_half, found.A_0, found.R_0 - found.S_0], 1)


def beside_luck(times: np.ndarray, start: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Logarithms of times, less what a linear law of the start explains."""
    return np.log(times) - features(start) @ slopes


def features(start: np.ndarray) -> np.ndarray:
    """Logit of A(0), and R(0) - S(0)."""
    A, D = start.T
    return np.stack([np.log(A / (1 - A)), D], 1)


@listed
def checks(**training: Any) -> Iterator[Check]:
    """Own starts first, which leave no luck; then sizes alone, less the luck of these seeds, by a
    law of the start that is fitted to drawn starts.
    """
    for title, p in SETTINGS.items():
        seeds, times, draws = students(p, **training)
        own, alone = theory_times(p, seeds), times_alone(p, draws)
        off = np.log(own[:, 0] / times)
        spread = f"set beforehand; single students scatter by {off.std():.4f}"
        yield near(
            f"ln of time of A = 1/2, own starts, {title}", BEST, 0.0, off.mean(), OWN, spread, 1.0
        )
        x = np.column_stack([np.ones(len(alone)), features(alone[:, 1:])])
        slopes = np.linalg.lstsq(x, np.log(alone[:, 0]), rcond=None)[0][1:]
        ours, theirs = (
            beside_luck(t, of[:, 1:], slopes) for t, of in ((alone[:, 0], alone), (times, own))
        )
        yield estimated(
            f"ln of time of A = 1/2, sizes alone, {title}",
            BEST,
            float(ours.mean()),
            float(theirs.mean()),
            float(np.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs))),
            len(times),
            band=ALONE,
            scale=1.0,
        )


@listed
def arrivals(**training: Any) -> Iterator[Check]:
    """With two actions some students never learn to attend; the theory knows which, and when the
    others do.
    """
    seeds = list(SEEDS)[:200]
    times, own = student_times(FEW, seeds, **training), theory_times(FEW, seeds)[:, 0]
    never, told = np.isnan(times), np.isnan(own)
    both = never.sum(), (never & told).sum()
    name = "students of 200 that never reach A = 1/2, two actions"
    yield near(name, BEST, told.sum(), both, 0.5 / told.sum(), "half a student; the same ones")
    off = np.log(own / times)[~never]
    name = "ln of time of A = 1/2, own starts, two actions, all others"
    yield near(name, BEST, 0.0, off, OWN, "set beforehand", 1.0)


GROUPS = {"times over initial weights": checks, "two actions": arrivals}
