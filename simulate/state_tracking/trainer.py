"""Train students: full-batch descent, resumable, one labelled dataset over (seed, alpha)."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from filelock import Timeout

from simulate import device as devices
from simulate import jobs, pool, runs
from simulate.state_tracking import task
from simulate.state_tracking.gradients import Grouped, Plain, engine
from simulate.state_tracking.measure import MEANING, measure
from simulate.state_tracking.student import Student, Students, draw_weights
from theory.parameters import ParameterError
from theory.state_tracking import Parameters

MODEL = "state_tracking"
DIMENSIONS = {"step_accuracy": ("step",), "attention": ("step", "action")}
CHECKPOINT_SECONDS = 10.0
GPU_BATCH = 128  # seeds trained together; at Table 1 each needs some 10 MB of training rows and partial sums


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
    if not seeds:
        raise ParameterError("seeds = []: must be at least one")
    store = Path(store or runs.default_store())
    planned = plan(p, seeds, store=store, device=device, dtype=dtype, permutations=permutations)
    workers = workers if devices.find(device).type == "cpu" else 1
    for _, error in jobs.carry_out(planned, workers, progress):
        raise error
    config = configuration(p, dtype, permutations)
    return runs.combine([runs.read(runs.place(store, config, seed)) for seed in seeds], seeds)


def configuration(
    p: Parameters, dtype: torch.dtype | str = torch.float32, permutations: np.ndarray | None = None
) -> str:
    """Canonical text of what fixes a run but for its seed."""
    more = {} if permutations is None else {"given_permutations": task.check_permutations(permutations, p).tolist()}
    return runs.configuration(MODEL, p, dtype=str(dtype).removeprefix("torch."), **more)


def plan(p: Parameters, seeds: Iterable[int], *, store: Path, device: str | None = None,
         dtype: torch.dtype | str = torch.float32, permutations: np.ndarray | None = None) -> list[jobs.Job]:  # fmt: skip
    """Jobs for the runs that are not finished yet: one per seed on the CPU, large batches on a GPU.

    Parameters and errors as in `train`; ``p.epochs`` is the run length.
    """
    seeds = list(seeds)
    whole = all(isinstance(s, int | np.integer) and s >= 0 for s in seeds)
    if not whole or len(set(seeds)) < len(seeds):
        raise ParameterError(f"seeds = {seeds}: must be distinct whole numbers >= 0")
    where = devices.find(device)
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ParameterError(f"dtype = {name}: must be float32 or float64")
    config = configuration(p, name, permutations)
    missing = [s for s in seeds if runs.finished(runs.place(store, config, s), config, s) is None]
    if not missing:
        return []
    size = 1 if where.type == "cpu" else GPU_BATCH
    needed = functools.partial(memory, itemsize=4 if name == "float32" else 8)
    devices.require(needed, p, where, min(size, len(missing)))
    runs.writable(runs.place(store, config, s) for s in missing)
    batches = [missing[i : i + size] for i in range(0, len(missing), size)]
    return [jobs.Job(f"seed {','.join(map(str, batch))}", p.epochs,
                     functools.partial(_train, p, batch, where, name, permutations, store, config),
                     len(batch) * needed(p))
            for batch in batches]  # fmt: skip


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Bytes at the peak of one run, from the shapes it makes; `itemsize` bytes per weight."""
    rows = p.n_train * p.L
    data = 8 * (p.n_train + p.n_test) * (2 * p.L + 1) + 8 * p.n_test * (2 * p.L + 1)
    entries, head = p.d_g * p.N**2, p.d_h * p.d_model
    # Drawn, stacked and transposed weights, gradients, moments of the optimiser; teachers and overlaps in double precision.
    weights = entries * (48 + 8 * itemsize) + (2 * head + (p.d_g + p.N) * p.d_model) * (16 + 4 * itemsize)
    drawn = 16 * p.d_g * p.N + p.d_g**2 * p.N  # permutations, and all pairs of them for their overlap
    if p.fix_embedding:
        part = p.batch_size if p.batch_size and p.batch_size < p.n_train else 0
        grouped = (p.n_train + part) * p.L * (10 * p.L + 40)  # rows sorted by state: 8-byte actions, then 2-byte ones
        tables = p.L**2 * (p.d_h // 2) * (32 + 4 * itemsize)  # cosines and sines, in double precision first
        sums = 8 * p.N * p.L**2 + p.L * p.d_g * p.N * itemsize
    else:
        some = min(1024, p.n_train) * p.L  # rows of a slice, by autograd
        grouped = rows * 8
        tables = some * (3 * p.N**2 + 8 * p.d_h + 4 * p.d_g + 4 * p.L) * itemsize
        sums = p.n_test * p.L * (6 * p.d_h) * itemsize
    tested = p.n_test * (4 * p.N * itemsize + 8 * p.L)
    records = (p.epochs // p.eval_every + 2) * 8 * (p.L**2 + p.L + 24) * 4  # kept, stacked, packed, written
    return data + weights + drawn + grouped + tables + sums + tested + records


def _train(p: Parameters, seeds: list[int], device: torch.device, dtype: str, permutations: np.ndarray | None,
           store: Path, config: str, tick: Callable[[int], None], wait: bool) -> bool:  # fmt: skip
    """Train the runs of one job that nobody else is training; whether all are finished then."""
    with contextlib.ExitStack() as held:
        mine: dict[int, dict | None] = {}
        for seed in seeds:
            path = runs.place(store, config, seed)
            try:
                held.enter_context(runs.lock(path).acquire(blocking=wait))
            except Timeout:
                continue
            if runs.finished(path, config, seed) is None:
                mine[seed] = runs.load_checkpoint(path, config, seed)
        # Students step together, so those that resume at different epochs go one after the other.
        for start in sorted({state["epoch"] if state else 0 for state in mine.values()}):
            states = {s: state for s, state in mine.items() if (state["epoch"] if state else 0) == start}
            run = Run(p, list(states), device, getattr(torch, dtype), permutations, store, config)
            if start:
                run.resume([state for state in states.values() if state])
            for seed, result in zip(run.seeds, run.finish(tick), strict=True):
                result.attrs = runs.provenance(MODEL, config, p, seed)
                runs.write(result, runs.place(store, config, seed))
                runs.drop_checkpoint(runs.place(store, config, seed))
        finished = all(runs.place(store, config, seed).exists() for seed in seeds)
    if finished:
        tick(p.epochs)
    return finished


class Run:
    """Students on their way together: data, weights, optimiser, records; can be checkpointed at every measurement."""

    def __init__(self, p: Parameters, seeds: list[int], device: torch.device, dtype: torch.dtype,
                 permutations: np.ndarray | None, store: Path, config: str = "") -> None:  # fmt: skip
        self.p, self.seeds, self.store, self.config = p, seeds, store, config
        self.permutations, self.train_data, test, start = [], [], [], []
        for seed in seeds:
            stream = task.streams(seed, p.data_draw)
            drawn = task.draw_permutations(p, stream["task"])
            self.permutations.append(drawn if permutations is None else np.asarray(permutations))
            self.train_data.append(task.draw_sequences(self.permutations[-1], p.n_train, p.L, stream["train"]))
            test.append(task.draw_sequences(self.permutations[-1], p.n_test, p.L, stream["test"]))
            start.append(draw_weights(p, stream["initialisation"]))
        self.students = Students([Student(p, w, dtype, learn_embedding=not p.fix_embedding).to(device) for w in start])
        self.start = [{name: w[name][:, 0] for name in ("W_Q", "W_K")} for w in start]
        self.test_data = (torch.as_tensor(np.stack([t.actions for t in test]), device=device),
                          torch.as_tensor(np.stack([t.states for t in test]), device=device))  # fmt: skip
        self.teachers = torch.as_tensor(np.stack([task.teacher_matrices(x) for x in self.permutations]), device=device)
        self.engine = engine(self.students)
        self.full = self.engine(self.students, self.train_data, pool.share())
        self.optimizer = _optimizer(p, self.students)
        self.epoch, self.updating = 0, False
        self.records: dict[int, dict[str, np.ndarray]] = {}

    def finish(self, tick: Callable[[int], None]) -> list[xr.Dataset]:
        """Train to the end; ``tick`` hears of every epoch."""
        saved = time.monotonic()
        try:
            while True:
                if self.epoch % self.p.eval_every == 0 or self.epoch == self.p.epochs:
                    if self.epoch not in self.records:
                        self.records[self.epoch] = measure(self.students, self.full, self.test_data, self.teachers)
                    if time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self.save()
                        saved = time.monotonic()
                if self.epoch == self.p.epochs:
                    return [self._dataset(b) for b in range(len(self.seeds))]
                self._one_epoch()
                self.epoch += 1
                self.updating = False
                tick(self.epoch)
        except KeyboardInterrupt:
            if not self.updating:
                self.save()
            raise

    def _one_epoch(self) -> None:
        for batch in self._batches():
            batch.gradients(self.students)
            self.updating = True  # from here to the next epoch's start, weights and epoch do not belong together
            self.optimizer.step()

    def _batches(self) -> Iterator[Grouped | Plain]:
        size, n = self.p.batch_size or self.p.n_train, self.p.n_train
        if size == n:
            yield self.full
            return
        # A generator of (seed, epoch), so that a resumed run shuffles as the uninterrupted one would.
        orders = [np.random.default_rng([seed, task.STREAMS.index("batches"), self.epoch]).permutation(n)
                  for seed in self.seeds]  # fmt: skip
        for start in range(0, n, size):
            part = [task.Sequences(d.actions[order[start : start + size]], d.states[order[start : start + size]])
                    for d, order in zip(self.train_data, orders, strict=True)]  # fmt: skip
            yield self.engine(self.students, part, pool.share())

    def save(self) -> None:
        """Write one checkpoint per seed."""
        optimizer = self.optimizer.state_dict()["state"]
        for b, seed in enumerate(self.seeds):
            own = {i: {k: v[b] if v.ndim else v for k, v in state.items() if isinstance(v, torch.Tensor)}
                   for i, state in optimizer.items()}  # fmt: skip
            records = {str(e): {k: torch.as_tensor(v[b]) for k, v in r.items()} for e, r in self.records.items()}
            weights = {name: w[b] for name, w in self.students.state_dict().items()}
            runs.save_checkpoint(runs.place(self.store, self.config, seed), self.config, seed,
                                 {"epoch": self.epoch, "weights": weights, "optimizer": own, "records": records})  # fmt: skip

    def resume(self, states: list[dict[str, Any]]) -> None:
        """Go on from the checkpoints of all seeds, which are of the same epoch."""
        with torch.no_grad():
            for name, w in self.students.named_parameters():
                w.copy_(torch.stack([state["weights"][name] for state in states]))
        found = [state["optimizer"] for state in states]
        stacked = {i: {k: torch.stack([f[i][k] for f in found]) if v.ndim else v for k, v in kept.items()}
                   for i, kept in found[0].items()}  # fmt: skip
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": stacked})
        self.epoch = states[0]["epoch"]
        self.records = {int(e): {k: np.stack([s["records"][e][k].numpy() for s in states]) for k in r}
                        for e, r in states[0]["records"].items()}  # fmt: skip

    def _dataset(self, b: int) -> xr.Dataset:
        epochs = sorted(self.records)
        data = {}
        for name, meaning in MEANING.items():
            stacked = np.stack([self.records[e][name][b] for e in epochs])
            data[name] = xr.Variable(("alpha", *DIMENSIONS.get(name, ())), stacked, {"long_name": meaning})
        result = xr.Dataset(data, coords={"alpha": self.p.alpha(np.array(epochs)), "epoch": ("alpha", epochs)})
        result["tau"] = task.teacher_overlap(self.permutations[b])
        if self.p.fix_embedding:
            for name, value in self.start[b].items():
                result[f"{name}_start"] = ("head", value)
        return result


def _optimizer(p: Parameters, students: Students) -> torch.optim.Optimizer:
    kind: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[p.optimizer]
    return kind(students.parameters(), lr=p.eta, weight_decay=p.weight_decay)
