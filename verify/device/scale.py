"""Ensembles at the papers' sizes, as far as time permits, reduced to small files."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate import pool, runs
from simulate.induction_heads import standard
from simulate.induction_heads import train as train_induction
from simulate.positional_semantic import train as train_positional
from simulate.state_tracking import train as train_tracking
from theory import induction_heads as ih
from theory import positional_semantic as ps
from theory.induction_heads import emergence
from theory.induction_heads.parameters import StandardParameters
from verify.check import Check
from verify.device.students import FEW
from verify.emergence import first_crossing
from verify.state_tracking import ensemble

SEEDS = 100
LARGEST = 16 * 10**6  # largest size of a file in bytes
SAFETY = 0.8  # fraction of the time planned for, when the number of seeds is chosen
LEVELS = {"T_gamma": 0.5, "T_beta": 0.1, "T_alpha": 0.1, "t_ICL": 0.5}  # t_ICL: level of alpha


@dataclass
class Job:
    """Settings of a stage (device, dry run, folders of results and runs, time limit, microseconds
    per seed and epoch at Table 1 if known) and its results.
    """

    device: torch.device
    tiny: bool
    out: Path
    store: Path
    seconds: float
    each: float | None = None
    checks: list[Check] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    @property
    def training(self) -> dict[str, Any]:
        """Options of every ``train``."""
        return dict(store=self.store, device=str(self.device), workers=1, progress=False)

    def write(self, dataset: xr.Dataset, name: str, along: str) -> None:
        """Write a dataset in single precision; evaluations are thinned by factors of two until the
        file is small enough.
        """
        kept, path = dataset.astype("float32", keep_attrs=True), self.out / name
        runs.write(kept, path)
        while path.stat().st_size > LARGEST and kept.sizes[along] > 2:
            kept = kept.isel({along: slice(None, None, 2)})
            runs.write(kept, path)
        self.files = sorted({*self.files, name})


def setting(name: str, tiny: bool) -> Any:
    """Parameters of a state-tracking ensemble with the run length of the shipped ones."""
    given = ensemble.SETTINGS[name]
    if tiny:
        return given.p.replace(**FEW)
    return given.p.run_to(given.alpha)


def a_minute(job: Job, at_least: float) -> dict[str, Any]:
    """Time per seed and epoch of training at Table 1, including measurements, from the first
    ``at_least`` seconds.

    The runs remain in the store and are continued by the ensemble at Table 1.
    """
    p, seeds = setting("table_1", job.tiny), range(2 if job.tiny else SEEDS)
    seen: list[tuple[int, float]] = []

    def enough() -> bool:
        return len(seen) > 1 and seen[-1][1] - seen[0][1] >= at_least

    def watch(done: int) -> bool:
        if done % p.eval_every == 1:  # just after a measurement, when the device is synchronised
            seen.append((done, time.monotonic()))
        return enough()

    begin = time.monotonic()
    with pool.stopping(watch):
        try:
            train_tracking(p, seeds, **job.training)
        except KeyboardInterrupt:
            if not enough():
                raise
    if len(seen) < 2:
        return {"seeds": len(seeds), "note": "too short, or finished before"}
    epochs, seconds = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    return {
        "seeds": len(seeds),
        "epochs": epochs,
        "seconds": seconds,
        "us_per_seed_epoch": 1e6 * seconds / epochs / len(seeds),
        "seconds_before_the_first_epoch": seen[0][1] - begin,
        "minutes_for_100_seeds_of_20000_epochs": seconds / epochs / len(seeds) * 100 * 20000 / 60,
    }


def tracking(job: Job, name: str) -> None:
    """State tracking at one of the paper's tables, with as many seeds as fit into the time."""
    p, seeds = setting(name, job.tiny), 2 if job.tiny else SEEDS
    if job.each and not job.tiny:
        seeds = max(2, min(SEEDS, int(SAFETY * job.seconds / (job.each * 1e-6 * p.epochs))))
    job.numbers |= {"seeds": seeds, "epochs": p.epochs}
    runs = train_tracking(p, range(seeds), **job.training)
    runs.attrs["command"] = f"python -m verify.device --device {job.device}"
    job.write(runs, f"{name}.nc", "alpha")
    last = runs[["A", "R", "loss", "rollout_accuracy"]].isel(alpha=-1).mean("seed")
    job.numbers |= {f"final {n}": float(v) for n, v in last.items()}


def transformer(job: Job) -> None:
    """The standard transformer of musat2025 at its published size; maps of the first seed only."""
    p, seeds = StandardParameters.paper(), range(5)
    if job.tiny:
        p, seeds = p.replace(D=8, batch_size=4, steps=4), range(2)
    runs = standard.train(p, seeds, **job.training)
    maps = [n for n in runs if n not in ("loss", "accuracy")]
    first = runs[maps].isel(seed=0, drop=True)
    job.write(runs.drop_vars(maps).merge(first, combine_attrs="override"), "transformer.nc", "step")
    final = float(runs.accuracy.isel(step=-1).mean())
    job.numbers |= {"seeds": len(seeds), "D": p.D, "final accuracy": final}


def emergence_times(job: Job) -> None:
    """Fig. 5 of musat2025 at D = 256: emergence times over N, small N first. Data are drawn on the
    CPU.
    """
    for N in (2,) if job.tiny else (2, 4, 8, 16, 32):
        base = ih.Parameters.emergence().replace(N=N, eval_every=1)
        expected = emergence.Path(N).of_alpha()
        p = base.replace(steps=int(1.1 * expected / base.time_per_step) + 5)
        if job.tiny:
            p = p.replace(D=8, batch_size=2, steps=4)
        runs = train_induction(p, seeds=(0,), dtype="float64", **job.training)
        job.numbers[f"N = {N}"] = {"flow t_ICL": expected, "steps": p.steps}
        for name, level in LEVELS.items():
            curve = runs["alpha" if name == "t_ICL" else name[2:]]
            job.numbers[f"N = {N}"][name] = float(first_crossing(curve, level).values[0])


def attention_layer(job: Job) -> None:
    """cui2024, Figs. 2 and 3 at d = 1000 with 24 seeds: both starts, sample complexities from
    coarse to fine.

    The published setting, except for 4000 test sentences (drawn on the CPU) instead of 50,000.
    """
    p = ps.Parameters(polish=False, teacher="gaussian", n_test=4000)
    grid, seeds, steps = np.linspace(0.01, 2, 25).round(6), range(24), [8, 4, 2, 1]
    if job.tiny:
        p, seeds, grid, steps = p.replace(d=12, steps=4, n_test=8), range(2), grid[12:], [12]
    starts = xr.DataArray(["positional", "semantic"], dims="start", name="start")
    for step in steps:  # students trained before are read from the store
        runs = [
            train_positional(p.replace(start=s), seeds, alpha=grid[::step], **job.training)
            for s in starts.values.tolist()
        ]
        joined = xr.concat(runs, dim=starts, combine_attrs="drop_conflicts")
        job.write(joined, "attention_layer.nc", "alpha")
        complexities = joined.alpha.values.tolist()
        job.numbers |= {"d": p.d, "seeds": len(seeds), "sample complexities": complexities}
