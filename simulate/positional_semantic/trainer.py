"""Empirical risk minimisation: full-batch descent batched over runs, L-BFGS polish, one dataset over (seed, alpha)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import torch
import xarray as xr

from simulate import device as devices
from simulate import pool, runs
from simulate.positional_semantic import task
from simulate.positional_semantic.measure import MEANING, TEST_BLOCK, measure, test_error
from simulate.positional_semantic.student import Problem, Weights, initial_weights
from theory.parameters import ParameterError
from theory.positional_semantic import Parameters

MODEL = "positional_semantic"
CHECKPOINT_SECONDS = 10.0
AVERAGED = 5  # last steps over which the paper averages
GPU_GROUP = 24  # runs trained at once on a GPU
POLISH = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-7, "maxcor": 30}


def train(p: Parameters, alpha: float | Sequence[float] | None = None, seeds: Iterable[int] = (0,), *,
          store: Path | str | None = None, device: str | None = None, dtype: torch.dtype | str = torch.float32,
          group: int | None = None, workers: int | None = None, progress: bool = True) -> xr.Dataset:  # fmt: skip
    """Train one student per sample complexity and seed.

    Finished runs are taken from the store; an interrupted one goes on from its last checkpoint.

    Parameters
    ----------
    p : Parameters
        Task, student and training settings.
    alpha : float or sequence of float, optional
        Sample complexities n/d; ``p.alpha`` by default.
    seeds : iterable of int
        Seeds; each fixes teacher, data and initial weights through separate streams.
    store : path, optional
        Where runs are kept; ``output/runs`` by default.
    device : str, optional
        Torch device; a GPU by default if there is one.
    dtype : torch.dtype or str
        Precision of the descent; the polish is in float64.
    group : int, optional
        Runs trained at once as one batch; 1 on the CPU, 24 on a GPU by default.
    workers : int, optional
        Processes, on the CPU; one per core by default.
    progress : bool
        Progress bar on stderr.

    Returns
    -------
    Dataset
        Variables of `measure.MEANING` over ``(seed, alpha)``.

    Raises
    ------
    ParameterError
        For unusable parameters, seeds or device.
    """
    seeds = list(seeds)
    if not seeds or not all(isinstance(s, int | np.integer) and s >= 0 for s in seeds) or len(set(seeds)) < len(seeds):
        raise ParameterError(f"seeds = {seeds}: must be distinct whole numbers >= 0, at least one")
    given = [p.alpha] if alpha is None else np.atleast_1d(alpha).tolist()
    settings = [p.replace(alpha=a) for a in given]
    if len({s.n for s in settings}) < len(settings):
        raise ParameterError(f"alpha: must give distinct numbers of sentences at d = {p.d}")
    where = devices.find(device)
    name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ParameterError(f"dtype = {name}: must be float32 or float64")
    folder = Path(store or runs.default_store())
    items = []
    for s in settings:
        config = runs.configuration(MODEL, s, dtype=name)
        items += [Item(s, seed, config, runs.place(folder, config, seed)) for seed in seeds]
    done = {item: runs.finished(item.path, item.config, item.seed) for item in items}
    missing = [item for item, run in done.items() if run is None]
    size = group or (GPU_GROUP if where.type != "cpu" else 1)
    groups = [missing[k : k + size] for k in range(0, len(missing), size)]
    needed = functools.partial(memory, itemsize=4 if name == "float32" else 8)
    for s in {item.p: None for item in missing}:
        devices.require(needed, s, where, min(size, len(missing)))
    runs.writable(item.path for item in missing)
    jobs = [functools.partial(_train_group, g, where, name) for g in groups]
    if jobs:
        many = workers if where.type == "cpu" else 1
        heaviest = size * max(needed(item.p) for item in missing)
        results = pool.run(jobs, [max(1, p.steps)] * len(jobs), many, progress, memory=heaviest)
        done |= {
            item: run for g, found in zip(groups, results, strict=True) for item, run in zip(g, found, strict=True)
        }
    rows = [runs.combine([run for i, run in done.items() if i.p is s and run is not None], seeds) for s in settings]
    joined = xr.concat(rows, dim="alpha", combine_attrs="drop_conflicts", join="exact")
    return joined.assign_coords(alpha=("alpha", [s.alpha for s in settings])).transpose("seed", "alpha")


def memory(p: Parameters, itemsize: int = 4) -> float:
    """Bytes at the peak of one run, from the shapes it makes; `itemsize` bytes per number of the descent."""
    tokens = 2 * p.n * p.d
    # Drawn, shifted, Gram matrices by way of double precision; a copy in double precision for the polish.
    sentences = tokens * (8 + itemsize + 16 + (8 if p.polish else 0)) + 40 * 8 * p.n
    tested = 2 * min(p.n_test, TEST_BLOCK) * p.d * 40
    weights = (2 if not p.tied else 1) * p.d * p.rank
    if p.value:  # outputs and their gradient, and a matrix
        sentences += tokens * 8 * (8 if p.polish else itemsize)
        weights += p.d**2
    kept = 6 * itemsize + (8 * (2 * POLISH["maxcor"] + 12) if p.polish else 0)  # L-BFGS remembers pairs of vectors
    return sentences + tested + weights * kept


class Item:
    """One run to be done: what, which seed, where it is kept."""

    def __init__(self, p: Parameters, seed: int, config: str, path: Path) -> None:
        self.p, self.seed, self.config, self.path = p, seed, config, path


def _train_group(items: list[Item], device: torch.device, dtype: str, tick: Callable[[int], None]) -> list[xr.Dataset]:
    group = Group(items, device, getattr(torch, dtype))
    results = group.finish(tick)
    for item, result in zip(items, results, strict=True):
        result.attrs = runs.provenance(MODEL, item.config, item.p, item.seed)
        runs.write(result, item.path)
        runs.drop_checkpoint(item.path)
    return results


class Group:
    """A batch of runs on their way: data, weights, optimiser; can be checkpointed after every step."""

    def __init__(self, items: list[Item], device: torch.device, dtype: torch.dtype) -> None:
        self.items, self.p, self.device, self.dtype = items, items[0].p, device, dtype
        drawn = [task.draw(item.p, item.seed, dtype) for item in items]
        self.teachers = [teacher for teacher, _ in drawn]
        data = [task.Data(*(v.to(device) for v in vars(d).values())) for _, d in drawn]
        self.problem = Problem(data, self.p.lam)
        starts = [initial_weights(item.p, teacher, task.streams(item.seed)["initialisation"])
                  for item, teacher in zip(items, self.teachers, strict=True)]  # fmt: skip
        self.weights = {k: torch.stack([torch.as_tensor(s[k]) for s in starts]).to(device, dtype) for k in starts[0]}
        self.adam = torch.optim.Adam(list(self.weights.values()), lr=self.p.eta) if self.p.optimizer == "adam" else None
        self.step = 0
        self.tail: list[Weights] = []

    def finish(self, tick: Callable[[int], None]) -> list[xr.Dataset]:
        """Descend, polish, measure; ``tick`` hears of every step."""
        self._resume()
        saved, updating = time.monotonic(), False
        try:
            while self.step < self.p.steps:
                updating = True  # from here to the end of the step, weights and step do not belong together
                self._one_step()
                self.step += 1
                if self.p.steps - self.step < AVERAGED:
                    self.tail.append({k: v.clone() for k, v in self.weights.items()})
                updating = False
                tick(self.step)
                if time.monotonic() - saved > CHECKPOINT_SECONDS and self.p.steps - self.step > AVERAGED:
                    self._save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not updating and self.p.steps - self.step > AVERAGED:
                self._save()
            raise
        return [self._result(k) for k in range(len(self.items))]

    def _one_step(self) -> None:
        _, gradient = self.problem.gradient(self.weights)
        if self.adam is not None:
            for name, value in self.weights.items():
                value.grad = gradient[name]
            self.adam.step()
        else:
            with torch.no_grad():
                for name, value in self.weights.items():
                    value -= self.p.eta * gradient[name]

    def _result(self, k: int) -> xr.Dataset:
        item, teacher = self.items[k], self.teachers[k]
        # A problem of its own: padding is for the batch.
        n = item.p.n
        data = task.Data(self.problem.tokens[k, :n], self.problem.target[k, :n], self.problem.tt[k, :n],
                         self.problem.ts[k, :n], self.problem.ss[k, :n])  # fmt: skip
        if item.p.polish:
            exact = Problem([task.Data(*(v.double() for v in vars(data).values()))], item.p.lam)
            states = [polish(exact, {name: w[k : k + 1].double() for name, w in self.weights.items()})]
        else:
            exact = Problem([data], item.p.lam)
            states = [{name: w[k : k + 1] for name, w in s.items()} for s in self.tail or [self.weights]]
        rows = []
        for state in states:
            value, gradient = exact.gradient(state)
            size = float(sum(float(g.square().sum()) for g in gradient.values())) ** 0.5
            rows.append(measure(item.p, {name: w[0] for name, w in state.items()}, teacher, float(value), size))
        found = {name: float(np.mean([r[name] for r in rows])) for name in rows[0]}
        last = {name: w[0] for name, w in states[-1].items()}
        found["test_mse_half"] = test_error(item.p, last, teacher, task.streams(item.seed)["test"])
        return xr.Dataset({name: ((), found[name], {"long_name": text}) for name, text in MEANING.items()})

    def _save(self) -> None:
        for k, item in enumerate(self.items):
            state: dict[str, Any] = {"step": self.step, "weights": {n: w[k].clone() for n, w in self.weights.items()}}
            if self.adam is not None:
                state["adam"] = [{n: v[k].clone() for n, v in self.adam.state[w].items() if v.ndim}
                                 for w in self.weights.values()]  # fmt: skip
            runs.save_checkpoint(item.path, item.config, item.seed, state)

    def _resume(self) -> None:
        loaded = [runs.load_checkpoint(i.path, i.config, i.seed) for i in self.items]
        states = [s for s in loaded if s is not None]
        if len(states) < len(loaded) or len({s["step"] for s in states}) > 1:
            return
        self.step = states[0]["step"]
        for name, value in self.weights.items():
            value.copy_(torch.stack([s["weights"][name] for s in states]))
        if self.adam is not None:
            for j, value in enumerate(self.weights.values()):
                moments = {n: torch.stack([s["adam"][j][n] for s in states]).to(value) for n in states[0]["adam"][j]}
                self.adam.state[value] = {"step": torch.tensor(float(self.step)), **moments}


def polish(problem: Problem, weights: Weights) -> Weights:
    """Minimum of the basin the weights lie in, by L-BFGS in float64; one run."""
    shapes = {k: v.shape for k, v in weights.items()}
    like = next(iter(weights.values()))

    def unpack(x: np.ndarray) -> Weights:
        parts = np.split(x, np.cumsum([int(np.prod(s)) for s in shapes.values()])[:-1])
        return {k: torch.as_tensor(v).reshape(s).to(like) for (k, s), v in zip(shapes.items(), parts, strict=True)}

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = problem.gradient(unpack(x))
        return float(f[0]), torch.cat([v.reshape(-1) for v in g.values()]).cpu().numpy()

    start = torch.cat([v.reshape(-1) for v in weights.values()]).cpu().numpy()
    return unpack(scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", options=POLISH).x)
