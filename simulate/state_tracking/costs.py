"""What theory and training of single students cost, in CPU seconds of one thread: over each other,
and against sizes.
"""

from __future__ import annotations

import functools
import resource
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from simulate import pool
from simulate.state_tracking import train
from simulate.state_tracking.benchmark import alone
from simulate.state_tracking.learner import Learner
from theory.state_tracking import Parameters, predict
from theory.state_tracking.numbers.per_seed import FixedDisorder, Realisation, Start, half_times

TWENTIETH = 0.05  # of the cost of training the same seeds, the aim for theory
TINY = Parameters(N=4, L=2, d_g=3, d_h=4, n_train=16, n_test=8, epochs=20)  # to load and compile
# With seeds and length of the runs, in alpha. A group of rows has 38, 5 and 4 of them.
SETTINGS = (
    (Parameters(N=18, L=8, d_g=12, d_h=32, n_train=8192), 2, 8.0),
    (Parameters(N=40, L=8, d_g=20, d_h=64, n_train=4096), 2, 8.0),
    (Parameters.demo(), 2, 12.0),
)
BASE = Parameters(N=16, L=8, d_g=16, d_h=32, n_train=4096)
SIZES = {"N": (16, 32, 64), "L": (8, 16, 32), "d_g": (16, 32, 64), "n_train": (2048, 8192, 32768)}
AT_LEAST = 0.1  # CPU seconds of a timing


def cpu() -> float:
    """CPU seconds of this process and of those that it has ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    began = cpu()
    found = work()
    return cpu() - began, found


def ratios(settings: Any = SETTINGS) -> dict[str, Any]:
    """CPU time of the theory of single students over that of training them: the same seeds, epochs
    and evaluations, every setting in a process of its own.
    """
    rows = [row for setting in settings for row in alone(_ratios, *setting)]
    return {
        "about": "CPU time of per-seed theory over that of training the same seeds",
        "header": ["setting", "training, CPU s", "theory", "CPU s", "ratio"],
        "rows": rows,
        "notes": [
            f"one thread, code compiled before; aim: a ratio of {TWENTIETH:g}; curves have every "
            "observable at all evaluations of the students, accuracies among them; times: of A = 1/2"
        ],
    }


def _ratios(p: Parameters, seeds: int, alpha: float) -> list[list[Any]]:
    torch.set_num_threads(1)

    def trained(q: Parameters, many: int, until: float | None = None) -> Any:
        with tempfile.TemporaryDirectory() as store:
            found = train(q, range(many), alpha=until, store=store, workers=1, progress=False)
            return found.load()

    def times(q: Parameters, runs: Any) -> np.ndarray:
        system = FixedDisorder(q, Start.measured(runs), Realisation.of(q, runs))
        return half_times(system, int(runs.epoch[-1]))

    ways: dict[str, Callable[[Parameters, Any], Any]] = {
        "fixed_disorder, curves": lambda q, runs: predict(q, runs, level="fixed_disorder"),
        "fixed_disorder, times": times,
        "cavity, curves": lambda q, runs: predict(q, runs, level="cavity"),
        "cavity, no accuracies": lambda q, runs: predict(q, runs, accuracies=False),
    }
    small = trained(TINY, 1)
    for way in ways.values():
        way(TINY, small)
    spent, runs = timed(lambda: trained(p, seeds, alpha))
    title = f"N = {p.N}, L = {p.L}, d_g = {p.d_g}, n = {p.n_train}, {seeds} seeds"
    rows = []
    for name, way in ways.items():
        seconds = timed(functools.partial(way, p.run_to(alpha), runs))[0]
        rows.append([title, f"{spent:.3g}", name, f"{seconds:.3g}", f"{seconds / spent:.3f}"])
    return rows


def scaling() -> dict[str, Any]:
    """CPU time of a training step and of the theory, one size at a time; fitted exponents beside
    those of the counted operations over the same sizes.
    """
    rows = []
    for name, values in SIZES.items():
        points = [BASE.replace(**{name: value}) for value in values]
        measured = [_costs(p) for p in points]
        counted = [counts(p) for p in points]
        for kind in measured[0]:
            slopes = [
                np.polyfit(np.log(values), np.log([x[kind] for x in found]), 1)[0]
                for found in (measured, counted)
            ]
            seconds = " ".join(f"{1e3 * x[kind]:.3g}" for x in measured)
            sizes = " ".join(map(str, values))
            rows.append([kind, name, sizes, seconds, *(f"{x:.2f}" for x in slopes)])
    return {
        "about": "CPU time against sizes, others at N = d_g = 16, L = 8, n = 4096",
        "header": ["what", "size", "values", "ms", "fitted exponent", "counted exponent"],
        "rows": rows,
        "notes": [
            "one thread; counted: multiplications of the innermost loops; everything is proportional "
            "to the number of seeds, which neither share steps nor strides"
        ],
    }


def counts(p: Parameters) -> dict[str, float]:
    """Multiplications of the innermost loops: lookups of every row forth and back, and what is done
    once per group; matrix products and pair counts of the theory; its normal probabilities.
    """
    rows, groups = p.n_train * p.L, p.N * p.L * p.d_g
    pairs = p.N * (p.L * p.d_g) ** 2
    return {
        "training step": 2 * rows * p.L * p.N + 2 * groups * p.L * p.N,
        "rates of fixed_disorder": groups * p.N * (3 * p.d_g + 3 * p.N) + 2 * pairs,
        "observables of fixed_disorder": groups * p.N * (p.d_g + p.N) + pairs + 150 * groups * p.N,
        "counting a training set": float(p.n_train * p.L**2 + pairs),
    }


def _costs(p: Parameters) -> dict[str, float]:
    torch.set_num_threads(1)
    with pool.sharing(pool.cores()):
        learner = Learner(p, [0], torch.device("cpu"), torch.float32)
    given = Realisation.of_seeds(p, (0,))
    system = FixedDisorder(p, Start.drawn(p, 1, np.random.default_rng(0)), given)
    works: dict[str, Callable[[], Any]] = {
        "training step": lambda: learner.step(0),
        "rates of fixed_disorder": system.rates,
        "observables of fixed_disorder": system.observe,
        "counting a training set": lambda: Realisation.of_seeds(p, (0,)),
    }
    return {name: _best(work) for name, work in works.items()}


def _best(work: Callable[[], Any]) -> float:
    """Least CPU time of a call, so that other work on the machine does not count."""
    work()
    found = [timed(work)[0]]
    while sum(found) < AT_LEAST or len(found) < 3:
        found.append(timed(work)[0])
    return min(found)
