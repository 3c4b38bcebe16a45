"""Carry out many runs: on the cores of this machine, or on a dask cluster."""

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

from simulate import pool
from theory.parameters import ParameterError
from theory.progress import bar

Tick = Callable[[int], None]
LONG_SECONDS = 300.0  # what takes longer is announced
PROBED_SECONDS = 3.0  # in which settings are tried before


@dataclass(frozen=True)
class Job:
    """Runs that belong together; picklable, and free to be done twice: what is finished is skipped.

    Attributes
    ----------
    name : str
        What it is, for the list of failures.
    epochs : int
        Its length.
    work : callable
        ``work(tick, wait)`` writes finished runs to their store and calls ``tick(epochs done)``. It
        returns False if another process is at some of them; with ``wait`` it waits for that one.
    memory : float
        Bytes it needs at its peak.
    setting : str
        Jobs of one setting cost the same per epoch.
    probe : callable, optional
        ``probe()`` measures what that is, in seconds.
    places : tuple of path
        Files of its runs.
    """

    name: str
    epochs: int
    work: Callable[[Tick, bool], bool]
    memory: float = 0
    setting: str = ""
    probe: Callable[[], float] | None = None
    places: tuple[Path, ...] = ()


Failures = list[tuple[Job, Exception]]


def carry_out(jobs: Sequence[Job], workers: int | None = None, progress: bool = True) -> Failures:
    """Do the jobs in a process pool; return those that failed, each with its error.

    A worker that dies takes no other job with it: what it left is begun again, and after a second
    death one job at a time, which shows whose it is.
    """
    failures: Failures = []
    waiting = list(jobs)
    memory = max((job.memory for job in jobs), default=0)
    if progress:
        announce(jobs, pool.at_once(len(jobs), workers, memory))
    for wait in (False, True):  # first what is free, then what other processes were at
        calls = [functools.partial(_attempt, job, wait) for job in waiting]
        try:
            outcomes = (
                pool.run(calls, [job.epochs for job in waiting], workers, progress, memory=memory)
                if calls
                else []
            )
        except TerminatedWorkerError:
            warnings.warn("a worker process died; what it left is begun again", stacklevel=2)
            continue
        failures += [
            (job, e) for job, e in zip(waiting, outcomes, strict=True) if isinstance(e, Exception)
        ]
        waiting = [job for job, done in zip(waiting, outcomes, strict=True) if done is False]
    for job in waiting:
        try:
            (outcome,) = pool.run(
                [functools.partial(_attempt, job, True)], [job.epochs], 1, progress, alone=True
            )
        except TerminatedWorkerError:
            outcome = RuntimeError("its worker process died again")
        if isinstance(outcome, Exception):
            failures.append((job, outcome))
    return failures + _lost(jobs, failures)


def _lost(jobs: Sequence[Job], failures: Failures) -> Failures:
    """Jobs that nobody says have failed, and whose runs are not in the store."""
    failed = {id(job) for job, _ in failures}
    return [
        (job, FileNotFoundError(f"not in the store: {missing[0]}; run it again to go on"))
        for job in jobs
        if id(job) not in failed
        and (missing := [place for place in job.places if not place.exists()])
    ]


def _attempt(job: Job, wait: bool, tick: Tick) -> bool | Exception:
    try:
        with pool.one_line():
            return job.work(tick, wait)
    except Exception as error:
        return error


def announce(jobs: Sequence[Job], workers: int | None) -> None:
    """Say on stderr how long the jobs will take, if that is long; ``workers``: how many run side by
    side, None where that is for a cluster to say.
    """
    with pool.sharing(workers or pool.cores()):
        seconds = estimate(jobs)
    if seconds / (workers or 1) <= LONG_SECONDS:
        return
    took = (
        f"about {duration(seconds)} of computing in all"
        if workers is None
        else f"about {duration(seconds / workers)} here ({workers} of {len(jobs)} jobs at a time)"
    )
    print(
        f"training will take {took}; if interrupted, it goes on from its last checkpoint",
        file=sys.stderr,
        flush=True,
    )


def estimate(jobs: Sequence[Job]) -> float:
    """Seconds that the jobs take one after the other: a few settings are tried, the others take
    their mean per epoch. Zero where none could be tried.
    """
    settings = {job.setting: job.probe for job in jobs if job.probe is not None}
    order = sorted(settings)
    random.Random(0).shuffle(order)  # a grid is ordered by cost
    started, found = time.monotonic(), {}
    for setting in order:
        with contextlib.suppress(Exception):  # whatever is wrong, the training itself will say
            probe = settings[setting]
            assert probe is not None
            found[setting] = probe()
        if time.monotonic() - started > PROBED_SECONDS:
            break
    mean = sum(found.values()) / max(1, len(found))
    return sum(job.epochs * found.get(job.setting, mean) for job in jobs)


def duration(seconds: float) -> str:
    """Time in words, to two digits."""
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.2g} hours" if seconds < 172800 else f"{seconds / 86400:.2g} days"


def on_cluster(jobs: Sequence[Job], address: str, progress: bool = True) -> Failures:
    """Hand the jobs to a dask scheduler, whose workers must see the same store; as `carry_out`.

    Dask's messages are pickles: whoever reaches the scheduler can run any code here and on the
    workers. Trusted networks only.

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
        )  # one that fails must not stay behind as the default
    except (OSError, ValueError) as error:
        raise ParameterError(f"--scheduler {address}: no scheduler answers ({error})") from None
    failures: Failures = []
    # Where its scheduler is lost it prints tracebacks, and takes the jobs for done: see `_lost`.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    if progress:
        announce(jobs, None)
    with client, bar("training", len(jobs), "job", show=progress) as shown:
        futures = {
            # A key that another client of this scheduler has, too, would be given his result.
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

    # Files are ours alone: without this xarray would ask the cluster for a lock to write them.
    with pool.one_thread(), dask.config.set(scheduler="synchronous"):
        job.work(lambda epochs: None, True)
