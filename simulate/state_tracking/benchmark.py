"""Benchmark of a training step: the plain module of App. B against the optimised code."""

import functools
import importlib.util
import multiprocessing
import platform
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch
from torch.utils.benchmark import Timer
from torch.utils.benchmark.utils.common import Measurement

from simulate import device as devices
from simulate import pool
from simulate.state_tracking.learner import Learner
from theory.state_tracking import Parameters

# Profile of a training step on a device


def floors(p: Parameters) -> dict[str, float]:
    """Minimum work of a step for one seed: operations as lookups and as dense products, and bytes
    to be moved.

    Per row and action there is one lookup of N entries in the forward pass and one for each
    gradient, each with a multiplication and an addition. Bytes: the actions and targets of all rows
    (16 bits each), the N tables of d_g N single-precision numbers, and their gradient, each once.
    """
    rows = p.n_train * p.L
    return {
        "GFLOP_lookup": 6 * rows * p.L * p.N / 1e9,
        "GFLOP_dense": 6 * rows * p.d_g * p.N / 1e9,
        "MB": (2 * rows * (p.L + 1) + 8 * p.N * p.d_g * p.N) / 1e6,
    }


def timed(work: Callable[[], Any], at_least: float) -> Measurement:
    """Times of one call in seconds, averaged over blocks; the device is synchronised only between
    blocks.
    """
    work()  # compilation and caches
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=at_least)


def ceilings(device: torch.device, size: int) -> dict[str, float]:
    """Measured peak rates of the device: single-precision and tf32 products in GFLOP/s, copies in
    GB/s.
    """
    x, peaks = torch.randn(size, size, device=device), {}
    before = torch.get_float32_matmul_precision()
    try:
        for name, precision in (("GFLOPs_float32", "highest"), ("GFLOPs_tf32", "high")):
            torch.set_float32_matmul_precision(precision)
            peaks[name] = 2 * size**3 / 1e9 / timed(lambda: x @ x, 0.2).median
    finally:
        torch.set_float32_matmul_precision(before)
    much = torch.randn(16 * size * size, device=device)
    target = torch.empty_like(much)
    peaks["GB_per_s"] = 2 * much.nbytes / 1e9 / timed(lambda: target.copy_(much), 0.2).median
    return peaks


def describe(device: torch.device) -> dict[str, Any]:
    """Name and sizes of the device, and software versions."""
    facts = {"device": str(device), "torch": torch.__version__, "cuda": torch.version.cuda}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        names = ("name", "multi_processor_count", "total_memory", "L2_cache_size", "major", "minor")
        facts |= {name: getattr(properties, name, None) for name in names}
    return facts


def step_time(
    p: Parameters, device: torch.device, seeds: int, at_least: float, limits: dict[str, float]
) -> dict[str, Any]:
    """Time of a training step of a stack, relative to the peak rates.

    Ratios are the minimum work of one seed (`floors`) per time over the peak rate; 1 would be ideal
    use of the device.
    """
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    learner = Learner(p, range(seeds), device, torch.float32)
    each = timed(lambda: learner.step(0), at_least).median / seeds
    floor = floors(p)
    return {
        "seeds": seeds,
        "us per seed-step": each * 1e6,
        "of lookup floor": floor["GFLOP_lookup"] / each / limits["GFLOPs_float32"],
        "of dense floor": floor["GFLOP_dense"] / each / limits["GFLOPs_float32"],
        "of bandwidth": floor["MB"] / 1e3 / each / limits["GB_per_s"],
        "peak MB": torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else None,
    }


PLAIN_SECONDS, ENGINE_SECONDS = 20.0, 2.0  # number of timed steps; the median is reported
GPU_SEEDS = (1, 16, 100)


def measure(p: Parameters, device: str | None = None, quiet: bool = True) -> dict[str, Any]:
    """Median times, ratios to the plain module, peak memory, and the lower bound.

    Every row runs in a separate process, one after the other, so that its peak memory is measured
    correctly.
    """
    where = devices.find(device)
    threads = pool.cores()
    on_cpu = where.type == "cpu"
    tried: list[tuple[str, Callable, int, int]] = [("plain module", _plain, threads, 1)]
    if on_cpu:
        tried += [("engine", _engine, n, 1) for n in sorted({1, threads}, reverse=True)]
        if importlib.util.find_spec("jax"):
            for name, lookups in (("JAX, lookups", True), ("JAX, mixed matrices", False)):
                tried.append((name, functools.partial(_jax, lookups=lookups), threads, 1))
    else:
        tried += [("engine", _engine, 1, seeds) for seeds in GPU_SEEDS]
    rows: list[dict[str, Any]] = []
    for name, work, n, seeds in tried:
        if not quiet:
            print(f"timing: {name}, {n} threads, {seeds} seeds", file=sys.stderr)
        rows.append(
            {"name": name, "threads": n, "seeds": seeds, **alone(work, p, str(where), n, seeds)}
        )
        rows[-1]["ratio"] = rows[0]["ms"] / rows[-1]["ms"]
    best = max((r for r in rows if r["name"] == "engine"), key=lambda r: r["ratio"])
    peak = alone(_peak, p, str(where), best["threads"], 1)["GFLOPs_float32"]
    gather, dense, traffic = floors(p).values()
    notes = [
        f"baseline: full-batch step with n_train = {p.n_train}, mixed matrices and autograd, median of {rows[0]['steps']:.0f}",
        f"floor: {gather:.3g} GFLOP per step as lookups ({dense:.3g} as dense products), {traffic:.3g} MB of data and tables moved; "
        f"at {peak:.0f} GFLOP/s (a large matrix product here) {gather / peak * 1e3:.3g} ms; "
        f"the engine reaches {gather / peak * 1e3 / best['ms']:.0%} of it",
    ]
    cpu = platform.processor() or platform.machine()
    name = f"{cpu}, {threads} cores" if on_cpu else torch.cuda.get_device_name(where)
    return {
        "device": name,
        "parameters": p.stored(training_only=True),
        "ratio": best["ratio"],
        "rows": rows,
        "gflop_per_step": gather,
        "gflops_of_matrix_product": peak,
        "floor_ms": gather / peak * 1e3,
        "notes": notes,
    }


def alone(work: Callable, *args: Any) -> Any:
    """Result of a call in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *args).result()


def _timed(work: Callable[[], Any], at_least: float, seeds: int, where: str) -> dict[str, float]:
    measurement = timed(work, at_least)
    if where != "cpu":
        peak = torch.cuda.max_memory_allocated(where) / 2**20
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            2**20 if sys.platform == "darwin" else 2**10
        )
    steps = len(measurement.times) * measurement.number_per_run
    return {"ms": measurement.median / seeds * 1e3, "peak_MB": peak, "steps": steps}


def _plain(p: Parameters, where: str, threads: int, seeds: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    learner = Learner(p, [0], torch.device(where), torch.float32)
    (student,), (data,) = learner.students.members, learner.train_data
    optimizer = torch.optim.SGD(student.parameters(), lr=p.eta)
    actions, states = (torch.as_tensor(x, device=where) for x in (data.actions, data.states))

    def plain() -> None:
        optimizer.zero_grad()
        student.loss(actions, states).backward()
        optimizer.step()

    return _timed(plain, PLAIN_SECONDS, 1, where)


def _engine(p: Parameters, where: str, threads: int, seeds: int) -> dict[str, float]:
    with pool.sharing(pool.cores() // threads):
        learner = Learner(p, range(seeds), torch.device(where), torch.float32)
        return _timed(lambda: learner.step(0), ENGINE_SECONDS, seeds, where)


def _jax(p: Parameters, where: str, threads: int, seeds: int, lookups: bool) -> dict[str, float]:
    """A step of the same student in JAX, compiled; its loss and gradient are `jax_loss`'s."""
    import jax

    torch.set_num_threads(1)
    learner = Learner(p, [0], torch.device("cpu"), torch.float32)
    (student,), (data,) = learner.students.members, learner.train_data
    weights = {k: jax.numpy.asarray(w.detach().numpy()) for k, w in student.named_parameters()}
    loss = functools.partial(jax_loss, p, data.actions, data.states, lookups=lookups)

    @jax.jit
    def step(weights: dict[str, Any]) -> dict[str, Any]:
        return jax.tree.map(lambda w, g: w - p.eta * g, weights, jax.grad(loss)(weights))

    return _timed(lambda: jax.block_until_ready(step(weights)), PLAIN_SECONDS, 1, "cpu")


def jax_loss(
    p: Parameters, actions: np.ndarray, states: np.ndarray, weights: dict[str, Any], lookups: bool
) -> Any:
    """`Student.loss` in JAX, for embeddings held at one: logits from entries of M looked up by
    action and state, or from mixed matrices, as the paper writes it.
    """
    import jax
    from jax import numpy as jnp

    L, current, target = p.L, states[:, :-1], states[:, 1:]

    def rotated(w: Any, positions: Any) -> Any:
        pairs = w.sum(1).reshape(-1, 2) @ jnp.array([1, 1j])
        return pairs * jnp.exp(1j * jnp.outer(positions, jnp.asarray(p.frequencies)))

    q = rotated(weights["W_Q"], L + 1 + jnp.arange(L))
    k = rotated(weights["W_K"], 1 + jnp.arange(L))
    attention = jax.nn.softmax((q @ k.conj().T).real / p.d_h**0.5)
    if lookups:
        read = weights["M"][actions[:, None, :], :, current[:, :, None]]
        logits = jnp.einsum("tj,ntjr->ntr", attention, read)
    else:
        mixed = jnp.einsum(
            "tj,nja,ars->ntrs", attention, jax.nn.one_hot(actions, p.d_g), weights["M"]
        )
        logits = jnp.einsum("ntrs,nts->ntr", mixed, jax.nn.one_hot(current, p.N))
    right = jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], axis=-1)
    return -right.mean()


def _peak(p: Parameters, where: str, threads: int, seeds: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    return ceilings(torch.device(where), 2048)
