"""Time of a training step: the plain module of App. B as one would write it, against the engine."""

from __future__ import annotations

import multiprocessing
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from simulate import device as devices
from simulate import pool
from simulate.state_tracking.gradients import engine
from simulate.state_tracking.student import Student, Students
from theory.state_tracking import Parameters, task

PLAIN_STEPS, ENGINE_STEPS = 5, 20
BUDGET = 25.0  # seconds a row may take; on a busy machine it then counts fewer steps, and says so
GPU_SEEDS = (1, 16, 100)


def measure(p: Parameters, device: str | None = None, quiet: bool = True) -> dict[str, Any]:
    """Median times, ratios to the plain module, peak memory, and the floor.

    Every row runs in a process of its own, so that its peak memory is its own; one after the other.
    """
    where = devices.find(device)
    threads = pool.cores()
    on_cpu = where.type == "cpu"
    tried: list[tuple[str, Callable, int, int]] = [("plain module", _plain, threads, 1)]
    if on_cpu:
        tried += [("engine", _engine, n, 1) for n in sorted({1, threads}, reverse=True)]
    else:
        tried += [("engine", _engine, 1, seeds) for seeds in GPU_SEEDS]
    rows: list[dict[str, Any]] = []
    for name, work, n, seeds in tried:
        if not quiet:
            print(f"timing: {name}, {n} threads, {seeds} seeds", file=sys.stderr)
        rows.append(
            {"name": name, "threads": n, "seeds": seeds, **_alone(work, p, str(where), n, seeds)}
        )
        rows[-1]["ratio"] = rows[0]["ms"] / rows[-1]["ms"]
    best = max(rows[1:], key=lambda r: r["ratio"])
    peak = _alone(_peak, p, str(where), best["threads"], 1)["gflops"]
    # Per row and action: one scaled lookup of N entries forward, one in each gradient.
    gather = 6 * p.n_train * p.L * p.L * p.N / 1e9
    dense = 6 * p.n_train * p.L * p.d_g * p.N / 1e9
    traffic = p.n_train * p.L * (2 * p.L + 2) / 1e6
    notes = [
        f"baseline: full-batch step with n_train = {p.n_train}, mixed matrices and autograd, median of {rows[0]['steps']:.0f}",
        f"floor: {gather:.3g} GFLOP per step as lookups ({dense:.3g} as dense products), {traffic:.3g} MB of data read; "
        f"at {peak:.0f} GFLOP/s (a large matrix product here) {gather / peak * 1e3:.3g} ms; "
        f"the engine reaches {gather / peak * 1e3 / best['ms']:.0%} of it",
    ]
    cpu = platform.processor() or platform.machine()
    name = f"{cpu}, {threads} cores" if on_cpu else torch.cuda.get_device_name(where)
    return {
        "device": name,
        "parameters": p.as_dict(training_only=True),
        "ratio": best["ratio"],
        "rows": rows,
        "gflop_per_step": gather,
        "gflops_of_matrix_product": peak,
        "floor_ms": gather / peak * 1e3,
        "notes": notes,
    }


def _alone(work: Callable, *args: Any) -> dict[str, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *args).result()


def students(
    p: Parameters, device: torch.device, seeds: int, dtype: torch.dtype = torch.float32
) -> tuple[Students, list[task.Sequences]]:
    """Untrained students of the first seeds on a device, with their training data."""
    members, data = [], []
    for seed in range(seeds):
        stream = task.streams(seed)
        perms = task.draw_permutations(p, stream["task"])
        data.append(task.draw_sequences(perms, p.n_train, p.L, stream["train"]))
        members.append(Student(p, task.draw_weights(p, stream["initialisation"]), dtype).to(device))
    return Students(members), data


def step(stack: Students, data: list[task.Sequences], threads: int = 1) -> Callable[[], None]:
    """One step of full-batch descent by the engine that training would take."""
    way = engine(stack)(stack, data, threads)
    optimizer = torch.optim.SGD(stack.parameters(), lr=stack.p.eta)

    def advance() -> None:
        way.gradients(stack)
        optimizer.step()

    return advance


def _timed(
    work: Callable[[], Any], steps: int, seeds: int, device: torch.device, warm: bool = False
) -> dict[str, float]:
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    if not warm:
        work()  # compiles, fills caches
    found: list[float] = []
    begin = time.perf_counter()
    while len(found) < steps and (not found or time.perf_counter() - begin < BUDGET):
        wait()
        start = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - start)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device) / 2**20
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            2**20 if sys.platform == "darwin" else 2**10
        )
    return {"ms": statistics.median(found) / seeds * 1e3, "peak_MB": peak, "steps": len(found)}


def _plain(p: Parameters, where: str, threads: int, seeds: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    device = torch.device(where)
    stack, (data,) = students(p, device, 1)
    (student,) = stack.members
    optimizer = torch.optim.SGD(student.parameters(), lr=p.eta)
    actions, states = (torch.as_tensor(x, device=device) for x in (data.actions, data.states))

    def plain(n: int = p.n_train) -> None:
        optimizer.zero_grad()
        student.loss(actions[:n], states[:n]).backward()
        optimizer.step()

    plain(64)
    return _timed(plain, PLAIN_STEPS, 1, device, warm=True)


def _engine(p: Parameters, where: str, threads: int, seeds: int) -> dict[str, float]:
    torch.set_num_threads(1)
    device = torch.device(where)
    return _timed(step(*students(p, device, seeds), threads), ENGINE_STEPS, seeds, device)


def _peak(p: Parameters, where: str, threads: int, seeds: int) -> dict[str, float]:
    """Arithmetic speed of the device: a large matrix product at single precision."""
    torch.set_num_threads(threads)
    device, n = torch.device(where), 2048
    x = torch.rand(n, n, device=device)
    return {"gflops": 2 * n**3 / 1e6 / _timed(lambda: x @ x, 9, 1, device)["ms"]}
