"""One training run that survives being killed: steps, measurements, checkpoints, and the ensemble around it."""

from __future__ import annotations

import functools
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate import device as devices
from simulate import pool, runs
from theory.parameters import BaseParameters, ParameterError

MODEL = "induction_heads"
CHECKPOINT_SECONDS = 10.0


class Run:
    """A student on its way; subclasses say what a step, a measurement and the finished dataset are.

    A step may depend on nothing but the student, the optimiser and its own number, so that a resumed
    run goes on as the uninterrupted one would.
    """

    optimizer: torch.optim.Optimizer
    student: Any  # a module

    def __init__(self, p: Any, seed: int, device: torch.device) -> None:
        self.p, self.seed, self.device = p, seed, device
        self.step, self.updating = 0, False
        self.records: dict[int, dict[str, np.ndarray]] = {}

    @abstractmethod
    def advance(self) -> None:
        """One optimiser step."""

    @abstractmethod
    def measure(self) -> dict[str, np.ndarray]:
        """What is recorded."""

    @abstractmethod
    def dataset(self, steps: np.ndarray, records: dict[str, np.ndarray]) -> xr.Dataset:
        """Labelled result."""

    def finish(self, path: Path, config: str, tick: Callable[[int], None]) -> xr.Dataset:
        """Train to the end, from the checkpoint if there is one; ``tick`` hears of every step."""
        self._resume(path, config)
        saved = time.monotonic()
        try:
            while True:
                if (self.step % self.p.eval_every == 0 or self.step == self.p.steps) and self.step not in self.records:
                    self.records[self.step] = self.measure()
                    if not np.isfinite(self.records[self.step]["loss"]):
                        raise ParameterError(
                            f"eta = {self.p.eta:g}: the loss is not finite at step {self.step}; take it smaller"
                        )
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self._save(path, config)
                    saved = time.monotonic()
                if self.step == self.p.steps:
                    break
                self.updating = True  # from here to the end of the step, weights and step do not belong together
                self.advance()
                self.step += 1
                self.updating = False
                tick(self.step)
        except KeyboardInterrupt:
            if not self.updating:
                self._save(path, config)
            raise
        steps = np.array(sorted(self.records))
        return self.dataset(
            steps, {k: np.stack([self.records[s][k] for s in steps]) for k in self.records[int(steps[0])]}
        )

    def _save(self, path: Path, config: str) -> None:
        records = {str(s): {k: torch.as_tensor(v) for k, v in r.items()} for s, r in self.records.items()}
        runs.save_checkpoint(path, config, self.seed, {"step": self.step, "student": self.student.state_dict(),
                                                       "optimizer": self.optimizer.state_dict(), "records": records})  # fmt: skip

    def _resume(self, path: Path, config: str) -> None:
        state = runs.load_checkpoint(path, config, self.seed)
        if state is None:
            return
        self.student.load_state_dict(state["student"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.records = {int(s): {k: v.numpy() for k, v in r.items()} for s, r in state["records"].items()}


def ensemble(make: Callable[..., Run], p: BaseParameters, seeds: Iterable[int], *, memory: Callable[[Any], float], store: Path | str | None,
             device: str | None, workers: int | None, progress: bool, **more: Any) -> xr.Dataset:  # fmt: skip
    """Train what is not in the store, one process per seed, and join the runs along ``seed``.

    ``make(p, seed, device, **more)`` makes a run; ``more`` identifies it together with ``p``; ``memory(p)`` gives the
    bytes at its peak.

    Raises
    ------
    ParameterError
        For unusable seeds or device, or a run whose loss does not stay finite.
    """
    seeds = list(seeds)
    whole = all(isinstance(s, int | np.integer) and s >= 0 for s in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        raise ParameterError(f"seeds = {seeds}: must be distinct whole numbers >= 0, at least one")
    where = devices.find(device)
    config = runs.configuration(MODEL, p, **more)
    paths = {seed: runs.place(Path(store or runs.default_store()), config, seed) for seed in seeds}
    done = {seed: run for seed in seeds if (run := runs.finished(paths[seed], config, seed)) is not None}
    missing = [seed for seed in seeds if seed not in done]
    if missing:
        devices.require(memory, p, where)
        runs.writable(paths[seed] for seed in missing)
    jobs = [functools.partial(_train_one, make, p, seed, where, more, paths[seed], config) for seed in missing]
    steps: int = p.steps  # type: ignore[attr-defined]
    results = pool.run(jobs, [steps] * len(jobs), workers if where.type == "cpu" else 1, progress, memory=memory(p)) if jobs else []
    done |= dict(zip(missing, results, strict=True))
    return runs.combine([done[s] for s in seeds], seeds)


def _train_one(make: Callable[..., Run], p: Any, seed: int, device: torch.device, more: dict[str, Any],
               path: Path, config: str, tick: Callable[[int], None]) -> xr.Dataset:  # fmt: skip
    result = make(p, seed, device, **more).finish(path, config, tick)
    result.attrs = runs.provenance(MODEL, config, p, seed)
    runs.write(result, path)
    runs.drop_checkpoint(path)
    return result
