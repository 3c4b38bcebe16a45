"""Execute many runs on the cores of this machine or on a dask cluster."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from joblib.externals.loky.process_executor import TerminatedWorkerError

from simulate.training import pool
from theory.call.refusal import ParameterError
from theory.runtime.progress import bar

Tick = Callable[[int], None]
LONG_SECONDS = 300.0  # longer computations are announced
PROBED_SECONDS = 3.0  # time for trying settings beforehand


@dataclass(frozen=True)
class Job:
    """Runs that are trained together. A job is picklable and may be executed twice:
    finished runs are skipped.

    Attributes
    ----------
    name : str
        Name for the list of failures.
    epochs : int
        Number of epochs.
    work : callable
        ``work(tick, wait)`` writes finished runs to the store and calls ``tick(epochs
        done)``. It returns False if another process is training some of them; with
        ``wait`` it waits for that process.
    memory : float
        Peak memory in bytes.
    setting : str
        Jobs of one setting cost the same per epoch.
    probe : callable, optional
        ``probe()`` measures the cost per epoch in seconds.
    places : tuple of path
        Files of the runs.
    unit : str
        What these students' epochs are called.
    """

    name: str
    epochs: int
    work: Callable[[Tick, bool], bool]
    memory: float = 0
    setting: str = ""
    probe: Callable[[], float] | None = None
    places: tuple[Path, ...] = ()
    unit: str = "epoch"


Failures = list[tuple[Job, Exception]]


def carry_out(
    jobs: Sequence[Job], workers: int | None = None, progress: bool = True
) -> Failures:
    """Execute the jobs in a process pool; returns those that failed, each with its
    error.

    If a worker process dies, unfinished jobs are started again; after a second death
    they run one at a time, which identifies the job that fails.
    """
    failures: Failures = []
    waiting = list(jobs)
    memory = max((job.memory for job in jobs), default=0)
    if progress:
        announce(jobs, pool.at_once(len(jobs), workers, memory))
    # First free jobs, then those that other processes were working on.
    for wait in (False, True):
        if not waiting:
            break
        attempts = [functools.partial(_attempt, job, wait) for job in waiting]
        try:
            outcomes = pool.run(
                attempts,
                [job.epochs for job in waiting],
                workers,
                progress,
                memory=memory,
                what=_what(waiting) + " or waiting for another process" * wait,
                unit=waiting[0].unit,
            )
        except TerminatedWorkerError:
            warnings.warn(
                "a worker process died; its unfinished jobs are started again",
                stacklevel=2,
            )
            continue
        failures += [
            (job, e)
            for job, e in zip(waiting, outcomes, strict=True)
            if isinstance(e, Exception)
        ]
        waiting = [
            job for job, done in zip(waiting, outcomes, strict=True) if done is False
        ]
    for job in waiting:
        try:
            (outcome,) = pool.run(
                [functools.partial(_attempt, job, True)],
                [job.epochs],
                1,
                progress,
                alone=True,
            )
        except TerminatedWorkerError:
            outcome = RuntimeError("its worker process died again")
        if isinstance(outcome, Exception):
            failures.append((job, outcome))
    return failures + _lost(jobs, failures)


def _what(jobs: Sequence[Job]) -> str:
    """Label of a progress bar: how many students are trained at once, all by the same
    epochs.
    """
    students = sum(len(job.places) for job in jobs)
    return f"training {students} students" if students > 1 else "training"


def _lost(jobs: Sequence[Job], failures: Failures) -> Failures:
    """Jobs not reported as failed whose runs are missing in the store."""
    failed = {id(job) for job, _ in failures}
    lost: Failures = []
    for job in jobs:
        missing = [place for place in job.places if not place.exists()]
        if missing and id(job) not in failed:
            message = f"not in the store: {missing[0]}; run it again to go on"
            lost.append((job, FileNotFoundError(message)))
    return lost


def _attempt(job: Job, wait: bool, tick: Tick) -> bool | Exception:
    try:
        with pool.one_line():
            return job.work(tick, wait)
    except Exception as error:
        return error


def announce(jobs: Sequence[Job], workers: int | None) -> None:
    """Print the estimated duration of the jobs on stderr if it is long. ``workers`` is
    the number of parallel jobs; None on a cluster.
    """
    with pool.sharing(workers or pool.cores()):
        seconds = estimate(jobs)
    if seconds / (workers or 1) <= LONG_SECONDS:
        return
    took = (
        f"about {duration(seconds)} of computing in all"
        if workers is None
        else (
            f"about {duration(seconds / workers)} here ({workers} of {len(jobs)} jobs"
            " at a time)"
        )
    )
    print(
        f"training will take {took}; if interrupted, it goes on from its last"
        " checkpoint",
        file=sys.stderr,
        flush=True,
    )


def estimate(jobs: Sequence[Job]) -> float:
    """Estimated serial time of the jobs in seconds. A few settings are tried; the
    others are assigned their mean time per epoch. Zero if none could be tried.
    """
    settings = {job.setting: job.probe for job in jobs if job.probe is not None}
    order = sorted(settings)
    random.Random(0).shuffle(order)  # grids are ordered by cost
    started, seconds = time.monotonic(), {}
    for setting in order:
        with contextlib.suppress(
            Exception
        ):  # the training itself will report the error
            probe = settings[setting]
            assert probe is not None
            seconds[setting] = probe()
        if time.monotonic() - started > PROBED_SECONDS:
            break
    mean = sum(seconds.values()) / max(1, len(seconds))
    return sum(job.epochs * seconds.get(job.setting, mean) for job in jobs)


def duration(seconds: float) -> str:
    """Duration in words, to two digits."""
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return (
        f"{seconds / 3600:.2g} hours"
        if seconds < 172800
        else f"{seconds / 86400:.2g} days"
    )


def on_cluster(jobs: Sequence[Job], address: str, progress: bool = True) -> Failures:
    """As `carry_out`, on the workers of a dask scheduler, which must have access to the
    same store.

    Use on trusted networks only: dask messages are pickles, so that anyone with access
    to the scheduler can run arbitrary code here and on the workers.

    Raises
    ------
    ParameterError
        If dask is not installed or no scheduler answers.
    """
    if "://" in address and not address.startswith("tcp://"):
        raise ParameterError(f"--scheduler {address}: must be tcp://HOST:PORT")
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ParameterError(
            "--scheduler: needs dask; pip install 'solvable-transformers[cluster]'"
        ) from None
    try:
        client = Client(
            address, timeout="10s", set_as_default=False
        )  # a failed client must not remain the default
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"--scheduler {address}: no scheduler answers ({error})"
        ) from None
    failures: Failures = []
    # If the connection to the scheduler is lost, dask prints tracebacks and treats jobs
    # as done: see `_lost`.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    if progress:
        announce(jobs, None)
    with client, bar("training", len(jobs), "job", show=progress) as shown:
        futures = {
            # With a key that another client uses, too, dask would return that client's
            # result.
            client.submit(_on_worker, job, key=f"{job.name}-{uuid.uuid4().hex}"): job
            for job in jobs
        }
        for future in as_completed(futures, loop=client.loop):
            failed = future.exception()
            if failed is not None and not future.cancelled():
                failures.append((futures[future], failed))
            if shown is not None:
                shown.done += 1
    return failures + _lost(jobs, failures)


def _on_worker(job: Job) -> None:
    import dask

    # The files are private to a job; otherwise xarray would request a lock from the
    # cluster.
    with pool.one_thread(), dask.config.set(scheduler="synchronous"):
        job.work(lambda epochs: None, True)
