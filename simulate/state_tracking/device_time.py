"""Where the time of a training step goes on a device: stacks, launches, kernels, and the device's
own ceilings.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from simulate.state_tracking.benchmark import step, students
from theory.state_tracking import Parameters

BLOCKS = 5  # timed blocks of steps; their median counts
SHOWN = 8  # kernels in the report


def floors(p: Parameters) -> dict[str, float]:
    """Least work of one seed's step: operations as lookups and as dense products, and bytes that
    must move.

    Per row and action there is one lookup of N entries forward and one in each gradient, each a
    multiplication and an addition. Bytes: the actions and targets of all rows (16 bits each), the N
    tables of d_g N single-precision numbers, and their gradient, each once.
    """
    rows = p.n_train * p.L
    return {
        "GFLOP_lookup": 6 * rows * p.L * p.N / 1e9,
        "GFLOP_dense": 6 * rows * p.d_g * p.N / 1e9,
        "MB": (2 * rows * (p.L + 1) + 8 * p.N * p.d_g * p.N) / 1e6,
    }


def wait(device: torch.device) -> None:
    """Let the device finish what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], Any], device: torch.device, times: int) -> float:
    """Median time of one call over blocks of calls; the device is waited for only between
    blocks.
    """
    work()  # compiles, fills caches
    found = []
    for _ in range(BLOCKS):
        wait(device)
        start = time.perf_counter()
        for _ in range(times):
            work()
        wait(device)
        found.append((time.perf_counter() - start) / times)
    return statistics.median(found)


def ceilings(device: torch.device, size: int) -> dict[str, float]:
    """What the device does at best, measured: single-precision and tf32 products in GFLOP/s, copies
    in GB/s.
    """
    x, found = torch.randn(size, size, device=device), {}
    before = torch.get_float32_matmul_precision()
    try:
        for name, precision in (("GFLOPs_float32", "highest"), ("GFLOPs_tf32", "high")):
            torch.set_float32_matmul_precision(precision)
            found[name] = 2 * size**3 / 1e9 / seconds(lambda: x @ x, device, 3)
    finally:
        torch.set_float32_matmul_precision(before)
    much = torch.randn(16 * size * size, device=device)
    target = torch.empty_like(much)
    found["GB_per_s"] = 2 * much.nbytes / 1e9 / seconds(lambda: target.copy_(much), device, 3)
    return found


def describe(device: torch.device) -> dict[str, Any]:
    """Name and sizes of the device, and the versions that drive it."""
    found: dict[str, Any] = {
        "device": str(device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    if device.type == "cuda":
        own = torch.cuda.get_device_properties(device)
        names = ("name", "multi_processor_count", "total_memory", "L2_cache_size", "major", "minor")
        found |= {name: getattr(own, name, None) for name in names}
    return found


def captured(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """The same work as one CUDA graph: kernels are launched together, without Python in between."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(
        side
    ):  # what is captured must have run before: it compiles and allocates
        for _ in range(3):
            work()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def kernels(work: Callable[[], Any], device: torch.device, times: int) -> dict[str, Any]:
    """Time per call that the device was busy, in all and by its longest kernels (by its operators
    on a CPU).

    Returns
    -------
    dict
        ``busy_us`` and ``kernels``: name, calls and microseconds per call of ``work``.
    """
    work()
    wait(device)
    on_gpu = device.type == "cuda"
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    ) as seen:
        for _ in range(times):
            work()
        wait(device)
    rows = []
    for event in seen.key_averages():
        times_of = (event.self_cpu_time_total, event.self_device_time_total)
        operator, spent = event.device_type == DeviceType.CPU, times_of[on_gpu]
        if (
            spent > 0 and operator != on_gpu
        ):  # on a GPU kernels have rows of their own, beside the operators'
            rows.append({"name": event.key[:60], "calls": event.count / times, "us": spent / times})
    rows.sort(key=lambda row: -row["us"])
    return {"busy_us": sum(row["us"] for row in rows), "kernels": rows[:SHOWN]}


def step_time(
    p: Parameters, device: torch.device, seeds: int, times: int, limits: dict[str, float]
) -> dict[str, Any]:
    """Time of a step of a stack, launched by Python and as a CUDA graph, with its shares of the
    ceilings.

    Shares are of one seed's least work (`floors`) over its time: 1 would be a device that does
    nothing else.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    work = step(*students(p, device, seeds))
    alone = seconds(work, device, times)
    found: dict[str, Any] = {
        "seeds": seeds,
        "us_per_seed_step": alone / seeds * 1e6,
        **kernels(work, device, times),
    }
    found["graph_us_per_seed_step"], found["graph_error"] = (
        None,
        "no CUDA here" if device.type != "cuda" else None,
    )
    if device.type == "cuda":
        found["peak_MB"] = torch.cuda.max_memory_allocated(device) / 2**20
        try:
            found["graph_us_per_seed_step"] = (
                seconds(captured(work, device), device, times) / seeds * 1e6
            )
        except (
            RuntimeError
        ) as error:  # a measurement that cannot be made must not take the others with it
            found["graph_error"] = str(error).splitlines()[0]
    floor, best = (
        floors(p),
        1e-6 * min(t for t in (found["us_per_seed_step"], found["graph_us_per_seed_step"]) if t),
    )
    found["share_lookup"] = floor["GFLOP_lookup"] / best / limits["GFLOPs_float32"]
    found["share_dense"] = floor["GFLOP_dense"] / best / limits["GFLOPs_float32"]
    found["share_bandwidth"] = floor["MB"] / 1e3 / best / limits["GB_per_s"]
    found["share_idle"] = max(0.0, 1 - found["busy_us"] / (alone * 1e6))
    return found
