"""Process pool: run independent jobs on the cores of this machine with one progress
bar.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from theory.call.refusal import ParameterError
from theory.runtime.cli import heed_termination
from theory.runtime.memory import NEGLIGIBLE_BYTES, available
from theory.runtime.progress import POLL_SECONDS, bar

_share = 1
_stop: Callable[[int], bool] | None = None
WATCH = "parent watch"


def cores() -> int:
    """Number of cores that this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


@contextlib.contextmanager
def sharing(workers: int) -> Iterator[None]:
    """Context manager: limit the threads used here to the share of one of several
    parallel jobs.
    """
    global _share
    before, _share = _share, max(1, cores() // max(1, workers))
    try:
        with one_thread():
            yield
    finally:
        _share = before


def share() -> int:
    """Number of threads that the current job may use. Results must not depend on it."""
    return _share


def at_once(jobs: int, workers: int | None = None, memory: float = 0) -> int:
    """Number of parallel jobs: as many as requested (default: one per core) and as fit
    into memory.
    """
    workers = min(workers or cores(), jobs)
    if memory * workers > NEGLIGIBLE_BYTES:
        workers = max(1, min(workers, int(available() / memory)))
    return workers


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Context manager: run torch on one thread. Parallel seeds are faster than threads
    within a step, and the order of summation stays fixed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def stopping(when: Callable[[int], bool]) -> Iterator[None]:
    """Context manager: interrupt a job in this process, like Ctrl-C, once ``when(work
    done)`` is true; its checkpoint is kept.
    """
    global _stop
    before, _stop = _stop, when
    try:
        yield
    finally:
        _stop = before


def run(
    jobs: Sequence[Callable[[Callable[[int], None]], Any]],
    sizes: list[int],
    workers: int | None = None,
    progress: bool = True,
    alone: bool = False,
    memory: float = 0,
    what: str = "training",
    unit: str = "epoch",
) -> list[Any]:
    """Run the jobs and return their results in order.

    Parameters
    ----------
    jobs : list of callable
        Picklable functions of ``tick``, which they call as ``tick(done)`` with the work
        done so far.
    sizes : list of int
        Work of each job, in the unit of ``tick``.
    workers : int, optional
        Number of processes; by default the smaller of the numbers of cores and jobs.
        With one, the jobs run in this process.
    progress : bool
        Progress bar on stderr; inside a command that shows progress, the command
        decides.
    alone : bool
        Use a process even for a single job.
    memory : float
        Peak memory of a job in bytes; limits the number of processes.
    what, unit : str
        Labels of the progress bar.

    Raises
    ------
    joblib.externals.loky.process_executor.TerminatedWorkerError
        If a worker process dies.
    """
    workers = at_once(len(jobs), workers, memory)
    parent = os.getpid()
    with (
        tempfile.TemporaryDirectory() as folder,
        _counters(Path(folder) / "done", sizes, what, unit, progress) as done,
    ):
        if workers <= 1 and not alone:
            return [_call(job, done, k, cores()) for k, job in enumerate(jobs)]
        # No memory-mapped files are used, which would outlive a killed pool.
        parallel = joblib.Parallel(
            n_jobs=max(2, workers),
            backend="loky",
            max_nbytes=None,
            batch_size=1,
            pre_dispatch="all",
        )
        threads = max(1, cores() // workers)
        with _quiet_tracker():
            return parallel(
                joblib.delayed(_in_worker)(parent, job, done, k, threads)
                for k, job in enumerate(jobs)
            )


def each(
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    what: str,
    unit: str,
) -> list[Any]:
    """Map a picklable function over tuples of arguments on all cores; ``what`` and
    ``unit`` as for `run`.
    """
    jobs = [partial(_ticked, function, given) for given in arguments]
    return run(jobs, [1] * len(jobs), progress=False, what=what, unit=unit)


def _ticked(
    function: Callable[..., Any], given: tuple[Any, ...], tick: Callable[[int], None]
) -> Any:
    result = function(*given)
    tick(1)
    return result


def _in_worker(
    parent: int,
    job: Callable[[Callable[[int], None]], Any],
    done: Path,
    k: int,
    threads: int,
) -> Any:
    """Run a job in a worker process that ends with its parent in any case."""
    if not any(thread.name == WATCH for thread in threading.enumerate()):

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(POLL_SECONDS)
            os._exit(1)

        threading.Thread(target=watch, name=WATCH, daemon=True).start()
    before = signal.getsignal(signal.SIGTERM)
    heed_termination()
    try:
        return _call(job, done, k, threads)
    finally:
        # Between jobs there is nothing to save. SIGTERM, which a notebook's kernel
        # sends to its children when it ends, therefore ends a worker at once instead of
        # raising an exception, which would be printed.
        signal.signal(signal.SIGTERM, before)


def _call(
    job: Callable[[Callable[[int], None]], Any], done: Path, k: int, threads: int
) -> Any:
    global _share
    counter = np.memmap(done, dtype=np.int64, mode="r+")
    _share = threads

    def tick(n: int) -> None:
        counter[k] = n
        if _stop is not None and _stop(n):
            raise KeyboardInterrupt

    with one_thread(), one_line():
        return job(tick)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Context manager: report a learning rate that overflows the students' precision in
    one line instead of torch's traceback.
    """
    try:
        yield
    except RuntimeError as error:
        if "without overflow" not in str(error):
            raise
        raise ParameterError(
            "eta: beyond the students' precision, weights and loss would not be finite;"
            " take it smaller"
        ) from None


@contextlib.contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Suppress warnings of the process that cleans up after the pool; it reads the
    environment when started.
    """
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(
        filter(None, (before, "ignore:resource_tracker"))
    )
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


@contextlib.contextmanager
def _counters(
    path: Path, sizes: list[int], what: str, unit: str, show: bool
) -> Iterator[Path]:
    """Progress bar fed by a file of counters shared by all processes."""
    counters = np.memmap(path, dtype=np.int64, mode="w+", shape=(max(1, len(sizes)),))
    longest = max(sizes, default=0)  # of the jobs, their mean progress is shown
    count = lambda: round(longest * int(counters.sum()) / max(1, sum(sizes)))
    with bar(what, longest, unit, show=show, count=count):
        yield path
