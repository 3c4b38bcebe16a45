"""One training loop for all systems: seeds in parallel, every run stored, interrupted runs resumed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import xarray as xr

from simulate import device as devices
from simulate import pool, runs
from theory.parameters import BaseParameters, ParameterError

CHECKPOINT_SECONDS = 10.0


class Learner(Protocol):
    """A student on its way."""

    def step(self, number: int) -> None:
        """Make training step ``number`` (0, 1, ...), whose data depend on the seed and the number only."""

    def measure(self) -> dict[str, Any]:
        """Quantities of the system's ``meaning``, by name."""

    def state(self) -> dict[str, Any]:
        """Tensors (or nested dictionaries of them) that determine all later steps."""

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state."""


@dataclass(frozen=True)
class System:
    """What the loop needs to know about a system.

    Attributes
    ----------
    name : str
        Full name, ``associative_memory.<system>``.
    make : callable
        ``make(p, seed)`` gives a `Learner`.
    meaning : mapping
        Measured quantities and what they are.
    clock : str or None
        ``"t"`` where time is ``eta * step``; without it, time is the step.
    dimensions : mapping
        Extra dimensions of a measured quantity.
    memory : callable
        ``memory(p)``: bytes at the peak of one run, records aside.
    """

    name: str
    make: Callable[[Any, int], Learner]
    meaning: Mapping[str, str]
    memory: Callable[[Any], float]
    clock: str | None = None
    dimensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def train(system: System, p: BaseParameters, seeds: Iterable[int] = (0,), *, store: Path | str | None = None,
          workers: int | None = None, progress: bool = True) -> xr.Dataset:  # fmt: skip
    """Train one student per seed; finished seeds come from the store, interrupted ones go on bit for bit.

    Parameters
    ----------
    system : System
        What to train.
    p : Parameters
        Of that system, with ``steps`` and ``eval_every``.
    seeds : iterable of int
        Distinct, at least one.
    store : path, optional
        Where runs are kept; ``output/runs`` by default.
    workers : int, optional
        Processes; one per core by default.
    progress : bool
        Progress bar on stderr.

    Returns
    -------
    Dataset
        The system's quantities over ``(seed, t)`` with the coordinate ``step``, or over ``(seed, step)``.

    Raises
    ------
    ParameterError
        For unusable seeds.
    """
    seeds = list(seeds)
    whole = all(isinstance(s, int | np.integer) and s >= 0 for s in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        raise ParameterError(f"seeds = {seeds}: must be distinct whole numbers >= 0, at least one")
    config = runs.configuration(system.name, p)
    paths = {seed: runs.place(Path(store or runs.default_store()), config, seed) for seed in seeds}
    done = {seed: run for seed, path in paths.items() if (run := runs.finished(path, config, seed)) is not None}
    missing = [seed for seed in seeds if seed not in done]
    if missing:
        devices.require(functools.partial(_memory, system), p, torch.device("cpu"))
        runs.writable(paths[seed] for seed in missing)
    jobs = [functools.partial(_train_one, system, p, seed, paths[seed], config) for seed in missing]
    results = pool.run(jobs, [p.steps] * len(jobs), workers, progress, memory=_memory(system, p)) if jobs else []  # type: ignore[attr-defined]
    done |= dict(zip(missing, results, strict=True))
    return runs.combine([done[s] for s in seeds], seeds)


def _memory(system: System, p: Any) -> float:
    """Bytes of one run and its records."""
    return system.memory(p) + (p.steps // p.eval_every + 2) * 4 * 16 * len(system.meaning)


def _train_one(system: System, p: Any, seed: int, path: Path, config: str, tick: Callable[[int], None]) -> xr.Dataset:
    result = _dataset(system, p, _records(system, p, seed, path, config, tick))
    result.attrs = runs.provenance(system.name, config, p, seed)
    runs.write(result, path)
    runs.drop_checkpoint(path)
    return result


def _records(system: System, p: Any, seed: int, path: Path, config: str,
             tick: Callable[[int], None]) -> dict[int, dict[str, np.ndarray]]:  # fmt: skip
    learner = system.make(p, seed)
    step, records, saved = 0, {}, time.monotonic()
    if (state := runs.load_checkpoint(path, config, seed)) is not None:
        learner.load(state["learner"])
        step = state["step"]
        records = {int(s): {k: v.numpy() for k, v in r.items()} for s, r in state["records"].items()}
    while True:
        if step % p.eval_every == 0 or step == p.steps:
            if step not in records:
                found = learner.measure()
                records[step] = {name: np.asarray(found[name], float) for name in system.meaning}
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                kept = {str(s): {k: torch.as_tensor(v) for k, v in r.items()} for s, r in records.items()}
                runs.save_checkpoint(path, config, seed, {"step": step, "learner": learner.state(), "records": kept})
                saved = time.monotonic()
        if step == p.steps:
            return records
        learner.step(step)
        step += 1
        tick(step)


def _dataset(system: System, p: Any, records: Mapping[int, Mapping[str, np.ndarray]]) -> xr.Dataset:
    steps = np.array(sorted(records))
    time_name = system.clock or "step"
    data = {name: xr.Variable((time_name, *system.dimensions.get(name, ())), np.stack([records[s][name] for s in steps]),
                              {"long_name": meaning}) for name, meaning in system.meaning.items()}  # fmt: skip
    if system.clock:
        return xr.Dataset(data, coords={system.clock: p.eta * steps, "step": (system.clock, steps)})
    return xr.Dataset(data, coords={"step": steps})
