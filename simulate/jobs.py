"""Carry out many runs: on the cores of this machine, or on a dask cluster."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm import tqdm

from simulate import pool
from theory.parameters import ParameterError

Tick = Callable[[int], None]


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
    """

    name: str
    epochs: int
    work: Callable[[Tick, bool], bool]
    memory: float = 0


Failures = list[tuple[Job, Exception]]


def carry_out(jobs: Sequence[Job], workers: int | None = None, progress: bool = True) -> Failures:
    """Do the jobs in a process pool; return those that failed, each with its error.

    A worker that dies takes no other job with it: what it left is begun again, and after a second
    death one job at a time, which shows whose it is.
    """
    failures: Failures = []
    waiting = list(jobs)
    memory = max((job.memory for job in jobs), default=0)
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
    return failures


def _attempt(job: Job, wait: bool, tick: Tick) -> bool | Exception:
    try:
        with pool.one_line():
            return job.work(tick, wait)
    except Exception as error:
        return error


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
    with client, tqdm(total=len(jobs), unit="job", desc="training", disable=not progress) as bar:
        futures = {
            client.submit(_on_worker, job, key=f"{job.name}-{k}", pure=False): job
            for k, job in enumerate(jobs)
        }
        for future in as_completed(futures, loop=client.loop):
            failed = future.exception()
            if failed is not None:
                failures.append((futures[future], failed))
            bar.update()
    return failures


def _on_worker(job: Job) -> None:
    import dask

    # Files are ours alone: without this xarray would ask the cluster for a lock to write them.
    with pool.one_thread(), dask.config.set(scheduler="synchronous"):
        job.work(lambda epochs: None, True)
