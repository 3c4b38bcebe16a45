"""Profile of a training step on a device: stacks, kernel launches, kernels, and the device's peak
rates.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer
from torch.utils.benchmark.utils.common import Measurement

from simulate.state_tracking.learner import Learner
from theory.state_tracking import Parameters

SHOWN = 8  # number of kernels in the report
PROFILED = 5  # steps


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


def captured(work: Callable[[], Any]) -> Callable[[], Any]:
    """The same work as one CUDA graph, in which kernels are launched together without Python in
    between.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # work must run once before capture, to compile and allocate
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def kernels(work: Callable[[], Any], on_gpu: bool) -> tuple[float, list[dict[str, Any]]]:
    """Busy time of the device per call in microseconds, in total and by the longest kernels
    (operators on a CPU).
    """
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        for _ in range(PROFILED):
            work()
        if on_gpu:
            torch.cuda.synchronize()
    rows = []
    for event in seen.key_averages():
        spent = (event.self_cpu_time_total, event.self_device_time_total)[on_gpu] / PROFILED
        # On a GPU the profiler lists kernels separately from operators and named regions.
        kernel = (event.device_type != DeviceType.CPU) == on_gpu
        if spent > 0 and kernel and not getattr(event, "is_user_annotation", False):
            calls = event.count / PROFILED
            rows.append({"kernel": event.key[:60], "calls per step": calls, "us per step": spent})
    rows.sort(key=lambda row: -row["us per step"])
    return sum(row["us per step"] for row in rows), rows[:SHOWN]


def step_time(
    p: Parameters, device: torch.device, seeds: int, at_least: float, limits: dict[str, float]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Time of a training step of a stack, launched by Python and as a CUDA graph, relative to the
    peak rates; and its longest kernels.

    Ratios are the minimum work of one seed (`floors`) per time over the peak rate; 1 would be ideal
    use of the device.
    """
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    learner = Learner(p, range(seeds), device, torch.float32)

    def work() -> None:
        learner.step(0)

    best = alone = timed(work, at_least).median
    busy, rows = kernels(work, on_gpu)
    graph: Any = "no CUDA here"
    if on_gpu:
        try:
            best = min(alone, again := timed(captured(work), at_least).median)
            graph = again / seeds * 1e6
        except RuntimeError as error:  # a failed measurement must not stop the others
            graph = str(error).partition("\n")[0]
    floor, each = floors(p), best / seeds
    return {
        "seeds": seeds,
        "us per seed-step": alone / seeds * 1e6,
        "as CUDA graph": graph,
        "of lookup floor": floor["GFLOP_lookup"] / each / limits["GFLOPs_float32"],
        "of dense floor": floor["GFLOP_dense"] / each / limits["GFLOPs_float32"],
        "of bandwidth": floor["MB"] / 1e3 / each / limits["GB_per_s"],
        "idle": max(0.0, 1 - busy / (alone * 1e6)),
        "peak MB": torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else None,
    }, [{"seeds": seeds, **row} for row in rows]
