"""Cost of theory and of training for single students, in CPU seconds of one thread: their ratio,
and how both grow with sizes.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simulate import jobs, pool
from simulate.benchmark import best
from simulate.state_tracking import train
from simulate.state_tracking.benchmark import alone
from simulate.state_tracking.learner import SYSTEM, Learner
from theory.parameters import ParameterError
from theory.state_tracking import Parameters, predict
from theory.state_tracking.fixed_disorder import FixedDisorder
from theory.state_tracking.integrate import half_times
from theory.state_tracking.realisation import Realisation, Start

TWENTIETH = 0.05  # of the cost of training the same seeds, the aim for theory
TINY = Parameters(N=4, L=2, d_g=3, d_h=4, n_train=16, n_test=8, epochs=20)  # to load and compile
# With seeds and length of the runs, in alpha. A group has 38, 5 and 8 rows in the mean.
SETTINGS = (
    (Parameters(N=18, L=8, d_g=12, d_h=32, n_train=8192), 2, 8.0),
    (Parameters(N=40, L=8, d_g=20, d_h=64, n_train=4096), 2, 8.0),
    (Parameters.demo(), 2, 12.0),
)
BASE = Parameters(N=16, L=8, d_g=16, d_h=32, n_train=4096)
SIZES = {"N": (16, 32, 64), "L": (8, 16, 32), "d_g": (16, 32, 64), "n_train": (2048, 8192, 32768)}
RUNS, WORKERS = 100, (1, 2, 4)


def cpu() -> float:
    """CPU seconds of this process and of its finished child processes."""
    return sum(os.times()[:4])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    began = cpu()
    result = work()
    return cpu() - began, result


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
            finished = train(q, range(many), alpha=until, store=store, workers=1, progress=False)
            return finished.load()

    def times(q: Parameters, runs: Any) -> np.ndarray:
        system = FixedDisorder(q, Start.measured(runs), Realisation.of(q, runs))
        return half_times(system, int(runs.epoch[-1]))

    ways: dict[str, Callable[[Parameters, Any], Any]] = {
        "fixed_disorder, curves": lambda q, runs: predict(q, runs, level="fixed_disorder"),
        "fixed_disorder, times": times,
        "cavity, curves": lambda q, runs: predict(q, runs, level="cavity"),
        "cavity, no accuracies": lambda q, runs: predict(q, runs, level="cavity", accuracies=False),
    }
    # Code for students is compiled by number of states: a few epochs at the setting's own sizes.
    short = 2 / (p.d_g * p.N)
    few = trained(p, 1, short)
    for way in ways.values():
        way(p.run_to(short), few)
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
                np.polyfit(np.log(values), np.log([x[kind] for x in costs]), 1)[0]
                for costs in (measured, counted)
            ]
            seconds = " ".join(f"{1e3 * x[kind]:.3g}" for x in measured)
            sizes = " ".join(map(str, values))
            rows.append([kind, name, sizes, seconds, *(f"{x:.2f}" for x in slopes)])
    return {
        "about": "CPU time against sizes, others at N = d_g = 16, L = 8, n = 4096",
        "header": ["what", "size", "values", "ms", "fitted exponent", "counted exponent"],
        "rows": rows,
        "notes": ["one seed, one thread; counted: multiplications of the innermost loops"],
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
    return {name: best(work) for name, work in works.items()}


def workers() -> dict[str, Any]:
    """CPU time of short runs here and on dask clusters of several workers on this machine, per run:
    of the workers, and of scheduler and client, which share a process.

    Raises
    ------
    ParameterError
        If dask is not installed.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ParameterError("--table workers: needs dask; see the extra 'cluster'") from None
    rows, share = [], {}
    with tempfile.TemporaryDirectory() as store:
        spent = timed(lambda: jobs.carry_out(_planned(store), 1, progress=False))[0]
    rows.append(["no dask, one process", f"{1e3 * spent / RUNS:.3g}", ""])
    for many in WORKERS:
        with (
            tempfile.TemporaryDirectory() as store,
            LocalCluster(n_workers=many, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            client.run(_warm)
            before = sum(client.run(time.process_time).values())
            began = time.process_time()
            failed = jobs.on_cluster(_planned(store), cluster.scheduler_address, progress=False)
            share[many] = (time.process_time() - began) / RUNS
            there = (sum(client.run(time.process_time).values()) - before) / RUNS
        assert not failed
        rows.append([f"dask, {many} workers", f"{1e3 * there:.3g}", f"{1e3 * share[many]:.3g}"])
    most = max(share.values())
    return {
        "about": f"{RUNS} runs of {TINY.epochs} epochs of a tiny student, on {pool.cores()} cores",
        "header": ["where", "workers, CPU ms per run", "scheduler and client, CPU ms per run"],
        "rows": rows,
        "notes": [
            f"a scheduler hands out at most {1 / most:.0f} runs a second, {1e4 * most:.0f} s of its "
            "CPU time for 10^4 runs; w workers wait for it if a run takes less than "
            f"{1e3 * most:.0f} ms times w"
        ],
    }


def _planned(store: str) -> list[jobs.Job]:
    return SYSTEM.plan(TINY, range(RUNS), store=Path(store), device="cpu")


def _warm() -> None:
    with tempfile.TemporaryDirectory() as store:
        train(TINY, [0], store=store, workers=1, progress=False)
