"""Train students: full-batch descent, resumable, one labelled dataset over (seed, alpha)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate import device as devices
from simulate import pool, runs
from simulate.state_tracking import task
from simulate.state_tracking.gradients import Grouped, Plain
from simulate.state_tracking.measure import MEANING, measure
from simulate.state_tracking.student import Student, draw_weights
from theory.parameters import ParameterError
from theory.state_tracking import Parameters

MODEL = "state_tracking"
DIMENSIONS = {"step_accuracy": ("step",), "attention": ("step", "action")}
CHECKPOINT_SECONDS = 10.0


def train(p: Parameters, alpha: float | None = None, seeds: Iterable[int] = (0,), *, store: Path | str | None = None,
          device: str | None = None, dtype: torch.dtype | str = torch.float32, permutations: np.ndarray | None = None,
          workers: int | None = None, progress: bool = True) -> xr.Dataset:  # fmt: skip
    """Train one student per seed.

    Finished seeds are taken from the store; an interrupted seed goes on from its last checkpoint
    (on the CPU bit for bit as if it had not been interrupted).

    Parameters
    ----------
    p : Parameters
        Model and training settings.
    alpha : float, optional
        Run length in the time unit ``alpha = epochs / (d_g N)``; overrides ``p.epochs``.
    seeds : iterable of int
        Seeds; each fixes teachers, data and initial weights through separate streams.
    store : path, optional
        Where runs are kept; ``output/runs`` by default.
    device : str, optional
        Torch device; a GPU by default if there is one.
    dtype : torch.dtype or str
        ``float32`` or ``float64``.
    permutations : ndarray, shape (d_g, N), optional
        A given action of a group instead of random permutations.
    workers : int, optional
        Seeds trained at once, each in a process of its own; one per core by default on the CPU,
        one at a time on a GPU.
    progress : bool
        Progress bar on stderr.

    Returns
    -------
    Dataset
        Variables of `measure.MEANING` over ``(seed, alpha)``, initial ``W_Q`` and ``W_K``, and the
        drawn teachers' overlap ``tau``; parameters and provenance in the attributes.

    Raises
    ------
    ParameterError
        For unusable parameters, seeds, permutations or device.
    """
    p, seeds = p.run_to(alpha), list(seeds)
    whole = all(isinstance(s, int | np.integer) and s >= 0 for s in seeds)
    if not seeds or not whole or len(set(seeds)) < len(seeds):
        raise ParameterError(f"seeds = {seeds}: must be distinct whole numbers >= 0, at least one")
    where = devices.find(device)
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ParameterError(f"dtype = {name}: must be float32 or float64")
    given = None if permutations is None else task.check_permutations(permutations, p)
    more = {} if given is None else {"given_permutations": given.tolist()}
    config = runs.configuration(MODEL, p, dtype=name, **more)
    paths = [runs.place(Path(store or runs.default_store()), config, seed) for seed in seeds]
    stored = {seed: runs.finished(path, config, seed) for seed, path in zip(seeds, paths, strict=True)}
    done = {seed: run for seed, run in stored.items() if run is not None}
    missing = [(seed, path) for seed, path in zip(seeds, paths, strict=True) if seed not in done]
    jobs = [functools.partial(_train_one, p, seed, where, name, given, path, config) for seed, path in missing]
    results = pool.run(jobs, [p.epochs] * len(jobs), workers if where.type == "cpu" else 1, progress) if jobs else []
    done |= {seed: result for (seed, _), result in zip(missing, results, strict=True)}
    return runs.combine([done[s] for s in seeds], seeds)


def _train_one(p: Parameters, seed: int, device: torch.device, dtype: str, permutations: np.ndarray | None,
               path: Path, config: str, tick: Callable[[int], None]) -> xr.Dataset:  # fmt: skip
    result = Run(p, seed, device, getattr(torch, dtype), permutations, path, config).finish(tick)
    result.attrs = runs.provenance(MODEL, config, p, seed)
    runs.write(result, path)
    runs.drop_checkpoint(path)
    return result


class Run:
    """One student on its way: data, weights, optimiser, records; can be checkpointed at every measurement."""

    def __init__(self, p: Parameters, seed: int, device: torch.device, dtype: torch.dtype,
                 permutations: np.ndarray | None, path: Path, config: str = "") -> None:  # fmt: skip
        self.p, self.seed, self.path, self.config, self.device = p, seed, path, config, device
        stream = task.streams(seed)
        drawn = task.draw_permutations(p, stream["task"])
        self.permutations = drawn if permutations is None else permutations
        self.train_data = task.draw_sequences(self.permutations, p.n_train, p.L, stream["train"])
        self.test_data = task.draw_sequences(self.permutations, p.n_test, p.L, stream["test"])
        weights = draw_weights(p, stream["initialisation"])
        self.student = Student(p, weights, dtype, learn_embedding=not p.fix_embedding).to(device)
        self.start = {name: weights[name][:, 0] for name in ("W_Q", "W_K")}
        self.teachers = torch.as_tensor(task.teacher_matrices(self.permutations), device=device)
        self.engine = Grouped if p.fix_embedding else Plain
        self.full = self.engine(self.student, self.train_data)
        self.optimizer = _optimizer(p, self.student)
        self.epoch, self.updating = 0, False
        self.records: dict[int, dict[str, np.ndarray]] = {}

    def finish(self, tick: Callable[[int], None]) -> xr.Dataset:
        """Train to the end, from the checkpoint if there is one; ``tick`` hears of every epoch."""
        self._resume()
        saved = time.monotonic()
        try:
            while True:
                if self.epoch % self.p.eval_every == 0 or self.epoch == self.p.epochs:
                    if self.epoch not in self.records:
                        self.records[self.epoch] = measure(self.student, self.full, self.test_data, self.teachers)
                    if time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self._save()
                        saved = time.monotonic()
                if self.epoch == self.p.epochs:
                    return self._dataset()
                self._one_epoch()
                self.epoch += 1
                self.updating = False
                tick(self.epoch)
        except KeyboardInterrupt:
            if not self.updating:
                self._save()
            raise

    def _one_epoch(self) -> None:
        for batch in self._batches():
            batch.gradients(self.student)
            self.updating = True  # from here to the next epoch's start, weights and epoch do not belong together
            self.optimizer.step()

    def _batches(self) -> list[Grouped | Plain]:
        size = self.p.batch_size or self.p.n_train
        if size == self.p.n_train:
            return [self.full]
        # A generator of (seed, epoch), so that a resumed run shuffles as the uninterrupted one would.
        order = np.random.default_rng([self.seed, task.STREAMS.index("batches"), self.epoch]).permutation(
            self.p.n_train
        )
        parts = np.split(order, range(size, self.p.n_train, size))
        data = self.train_data
        return [self.engine(self.student, task.Sequences(data.actions[i], data.states[i])) for i in parts]

    def _save(self) -> None:
        records = {str(e): {k: torch.as_tensor(v) for k, v in r.items()} for e, r in self.records.items()}
        runs.save_checkpoint(self.path, self.config, self.seed, {"epoch": self.epoch, "student": self.student.state_dict(),
                                         "optimizer": self.optimizer.state_dict(), "records": records})  # fmt: skip

    def _resume(self) -> None:
        state = runs.load_checkpoint(self.path, self.config, self.seed)
        if state is None:
            return
        self.student.load_state_dict(state["student"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]
        self.records = {int(e): {k: v.numpy() for k, v in r.items()} for e, r in state["records"].items()}

    def _dataset(self) -> xr.Dataset:
        epochs = sorted(self.records)
        data = {}
        for name, meaning in MEANING.items():
            stacked = np.stack([self.records[e][name] for e in epochs])
            data[name] = xr.Variable(("alpha", *DIMENSIONS.get(name, ())), stacked, {"long_name": meaning})
        result = xr.Dataset(data, coords={"alpha": self.p.alpha(np.array(epochs)), "epoch": ("alpha", epochs)})
        result["tau"] = task.teacher_overlap(self.permutations)
        if self.p.fix_embedding:
            for name, value in self.start.items():
                result[f"{name}_start"] = ("head", value)
        return result


def _optimizer(p: Parameters, student: Student) -> torch.optim.Optimizer:
    kind: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[p.optimizer]
    return kind(student.parameters(), lr=p.eta, weight_decay=p.weight_decay)
