"""Training of a stack of seeds in one process: locks, checkpoints,
the loop over steps.
"""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from filelock import Timeout

from simulate.store import checkpoints, runs, storage
from simulate.store.storage import DeferSignals
from simulate.training import interface_checks
from simulate.training.learner import Learner, State
from theory.call.parameters import Stepped
from theory.call.refusal import ParameterError, error_summary
from theory.runtime import output

if TYPE_CHECKING:
    from simulate.training.plan import System

CHECKPOINT_SECONDS = 10.0
CHECKPOINT_SHARE = 0.05  # at most this share of the time is spent on checkpoints
PROBE_SECONDS = 0.1  # time of trial steps for the estimate of the duration
# Shared modules that define students, in addition to their own package.
SHARED = tuple(Path(__file__).with_name(name) for name in ("learner.py", "streams.py"))
Records = dict[
    int, dict[str, np.ndarray]
]  # by step and name; first axis over the students


class Run(NamedTuple):
    """One student: parameters, what identifies them in the store, and its seed. Runs of
    one stack have the same number of steps and measurements.
    """

    p: Any
    config: str
    seed: int


def _learner(
    system: System, members: Sequence[Run], *where: Any, **own: Any
) -> Learner:
    """Learner of runs that are trained together."""
    points = [run.p for run in members]
    seeds = [run.seed for run in members]
    return system.learner(points if system.joint else points[0], seeds, *where, **own)


def seconds_per_step(
    system: System,
    members: Sequence[Run],
    device: torch.device,
    dtype: torch.dtype,
    own: Mapping[str, Any],
) -> float:
    """Measured seconds per step of a job, including its share of the measurements."""
    p = members[0].p
    learner = _learner(system, members, device, dtype, **own)
    length = system.length(p)

    def seconds(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    learner.step(0)  # the first call includes compilation
    if system.time:
        learner.measure()
    spent: list[float] = []
    while len(spent) + 1 < length and sum(spent) < PROBE_SECONDS:
        spent.append(seconds(functools.partial(learner.step, len(spent) + 1)))
    measured = seconds(learner.measure) / p.eval_every if system.time else 0.0
    return float(np.mean(spent)) + measured if spent else 0.0


def train_stack(
    system: System,
    members: Sequence[Run],
    device: torch.device,
    dtype: torch.dtype,
    store: Path,
    own: Mapping[str, Any],
    tick: Callable[[int], None],
    wait: bool,
) -> bool:
    """Train the runs of one job that no other process holds a lock on; returns whether
    all are finished.
    """
    places = [storage.place(store, run.config, run.seed) for run in members]
    code = f"{system.code} {output.digest(SHARED)}"  # digest of the code of a step
    with contextlib.ExitStack() as held:
        mine: dict[Path, tuple[Run, State]] = {}
        for run, path in zip(members, places, strict=True):
            lock = storage.lock(path)
            try:
                held.enter_context(lock.acquire(blocking=wait))
            except Timeout:
                continue
            held.callback(storage.sweep_lock, path, lock)
            checkpoints.sweep_up(path)
            lack = interface_checks.lack(system, run.p)
            if runs.finished(path, run.config, run.seed, lack) is None:
                mine[path] = run, _checkpoint(system, run, code, path)
        # A stack is trained in lockstep, so that students that resume at different
        # steps, or with other measurements, are trained one after the other.
        for start, times in sorted({_reached(state) for _, state in mine.values()}):
            states = {
                path: state
                for path, (_, state) in mine.items()
                if _reached(state) == (start, times)
            }
            stacked = {path: mine[path][0] for path in states}
            made = functools.partial(
                _learner, system, [*stacked.values()], device, dtype, **own
            )
            ours = storage.home(system.make).startswith("simulate.")
            learner = made()
            check = functools.partial(
                interface_checks.resumable,
                system,
                learner,
                None if ours else made,
                len(stacked),
            )
            if start:
                _resume(system, learner, states)
            together = [state["records"] for state in states.values()]
            stacks = {}
            for name in together[0]:
                stacks[name] = np.stack([each[name].numpy() for each in together])
            records: Records = {}
            for k, s in enumerate(times):
                records[s] = {name: values[:, k] for name, values in stacks.items()}
            saving = functools.partial(
                _save, system, code, learner, records, stacked, check
            )
            results = _learn(
                system,
                [*stacked.values()],
                learner,
                start,
                records,
                check,
                saving,
                tick,
            )
            for path, result in zip(states, results, strict=True):
                with interface_checks.named(f"{system.name}: a run"):
                    runs.write(result, path)
                checkpoints.drop_checkpoint(path)
        finished = all(path.exists() for path in places)
    if finished:
        tick(system.length(members[0].p))
    return finished


def _reached(state: State) -> tuple[int, tuple[int, ...]]:
    """The step of a checkpoint, and the steps of its measurements."""
    return state["step"], tuple(map(int, state["times"]))


def _checkpoint(system: System, run: Run, code: str, path: Path) -> State:
    """State from which a run continues: its checkpoint, or the initial state.

    Raises
    ------
    ParameterError
        If the checkpoint was written by other code, as the run would then mix two
        versions, or does not fit the run.
    """
    state = checkpoints.load_checkpoint(path, run.config, run.seed)
    file = path.with_suffix(".checkpoint")
    if state is not None and not {"step", "learner", "times", "records"} <= set(state):
        warnings.warn(
            f"{file}: of another version of this toolkit; starting over", stacklevel=2
        )
        state = None
    if state is None:
        return {"step": 0, "times": [], "records": {}}
    if state.get("code") != code:
        raise ParameterError(
            f"{file}: written by other code than {system.name} has now; "
            "go on with that code, or remove the file to start over"
        )
    try:
        interface_checks.checkpoint(system, run.p, state)
    except Exception as error:  # whatever a file may hold
        why = str(error) if isinstance(error, ParameterError) else error_summary(error)
        raise ParameterError(f"{file}: {why}; to start over, remove it") from error
    if state["step"] == 0:  # as those that have no checkpoint
        return {"step": 0, "times": [], "records": {}}
    return state


def _resume(system: System, learner: Learner, states: Mapping[Path, State]) -> None:
    """Restore a learner from checkpoints."""
    try:
        interface_checks.load(
            system, learner, [state["learner"] for state in states.values()]
        )
        for state in states.values():
            if "generators" in state:
                checkpoints.set_generators(state["generators"])
    except Exception as error:  # whatever a file may hold
        why = str(error) if isinstance(error, ParameterError) else error_summary(error)
        files = ", ".join(str(path.with_suffix(".checkpoint")) for path in states)
        raise ParameterError(f"{why}; to start over, remove {files}") from error


def _save(
    system: System,
    code: str,
    learner: Learner,
    records: Records,
    members: Mapping[Path, Run],
    check: Callable[[int], None],
    step: int,
) -> None:
    """Write one checkpoint per seed, with the generators that all share. Students
    without a state are trained again from the start; those that ``check`` refuses are
    not saved.
    """
    if 0 < step < system.length(next(iter(members.values())).p):
        with storage.defer_signals():
            check(step)
    for b, (path, run) in enumerate(members.items()):
        if state := interface_checks.state(system, learner, b):
            of_student = {}
            for name in next(iter(records.values()), {}):
                values = np.stack([record[name][b] for record in records.values()])
                of_student[name] = torch.as_tensor(values)
            checkpoint = {"step": step, "code": code, "learner": state}
            checkpoint |= {
                "times": [*records],
                "records": of_student,
                "generators": checkpoints.generators(),
            }
            with interface_checks.named(f"{system.name}: its state"):
                checkpoints.save_checkpoint(path, run.config, run.seed, checkpoint)


def _learn(
    system: System,
    members: Sequence[Run],
    learner: Learner,
    step: int,
    records: Records,
    check: Callable[[int], None],
    save: Callable[[int], None],
    tick: Callable[[int], None],
) -> list[xr.Dataset]:
    """Training loop: step, measure and save until the end. Measurements are added to
    ``records``, and ``tick`` is called after every step.
    """
    p, many = members[0].p, len(members)
    length = system.length(p)
    saved, pause = time.monotonic(), CHECKPOINT_SECONDS
    begun = False
    # Overflow is detected below, by name.
    with (
        np.errstate(over="ignore", invalid="ignore", divide="ignore"),
        DeferSignals() as patience,
    ):
        try:
            while True:
                if (
                    system.time
                    and (step % p.eval_every == 0 or step == length)
                    and step not in records
                ):
                    first = records[min(records)] if records else None
                    made = interface_checks.records(
                        system, learner.measure(), many, first, step
                    )
                    for run, now in zip(members, made[system.finite], strict=True):
                        _stay_finite(system, run.p, step, now, first is None)
                    records[step] = made
                if not begun:
                    with interface_checks.named(f"{system.name}: a run"):
                        runs.content(_dataset(system, members[0], records, 0))
                    interface_checks.states(system, learner, many)
                    begun = True
                if step == 1 < length:  # some have no state before the first step
                    with patience.step():
                        check(step)
                if (now := time.monotonic()) - saved > pause:
                    save(step)
                    saved = time.monotonic()
                    usual = CHECKPOINT_SHARE * CHECKPOINT_SECONDS
                    pause = CHECKPOINT_SECONDS * max(1, (saved - now) / usual)
                if step == length:
                    return [
                        _whole(
                            system, run.p, learner, _dataset(system, run, records, b), b
                        )
                        for b, run in enumerate(members)
                    ]
                with patience.step():
                    learner.step(step)
                    step += 1
                tick(step)
        except KeyboardInterrupt:
            if not patience.torn:
                try:
                    save(step)
                except ParameterError as error:
                    warnings.warn(f"no checkpoint: {error}", stacklevel=2)
            raise


def _stay_finite(
    system: System, p: Any, step: int, now: Any, first: bool = False
) -> None:
    """Raise an error if the loss is not finite.

    Raises
    ------
    ParameterError
        Naming the learning rate, unless no step has been made.
    """
    if np.isfinite(now).all():
        return
    where = f"the {system.finite} is not finite at {system.counter} {step}"
    if first:
        raise ParameterError(f"{system.name}: {where}, before any training")
    rate = f"eta = {p.eta:g}" if hasattr(p, "eta") else system.name
    raise ParameterError(f"{rate}: {where}; take it smaller")


def _dataset(system: System, run: Run, records: Records, b: int) -> xr.Dataset:
    """Records of one student as a labelled dataset."""
    p, steps = run.p, np.array(sorted(records))
    attrs = system.provenance(run.config, p, run.seed)
    if not system.time:
        return xr.Dataset(attrs=attrs)
    data = {}
    for name in records[steps[0]]:
        dims = (system.time, *system.dimensions.get(name, ()))
        values = np.stack([records[s][name][b] for s in steps])
        meaning = {"long_name": system.meaning.get(name, name)}
        data[name] = xr.Variable(dims, values, meaning)
    coords: dict[str, Any] = {}
    if system.clock is not None:
        coords[system.time] = interface_checks.increasing_times(system, p, steps)
    coords[system.counter] = (system.time, steps)
    dataset = xr.Dataset(data, coords, attrs)
    return p.timed(dataset) if isinstance(p, Stepped) else dataset


def _whole(
    system: System, p: Any, learner: Learner, records: xr.Dataset, b: int
) -> xr.Dataset:
    """Records of one student together with its final results."""
    result = records.assign(learner.finish(b))
    if system.time is None:
        _stay_finite(system, p, system.length(p), result[system.finite].values)
    return result
