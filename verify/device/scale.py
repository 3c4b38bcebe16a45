"""Ensembles at the papers' sizes, as far as the time goes, reduced to small files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from simulate import pool, runs
from simulate.induction_heads import standard
from simulate.induction_heads import train as train_induction
from simulate.positional_semantic import train as train_positional
from simulate.state_tracking import train as train_tracking
from theory import induction_heads as ih
from theory import positional_semantic as ps
from theory.induction_heads.numbers import emergence
from theory.induction_heads.parameters import StandardParameters
from verify.emergence import first_crossing
from verify.state_tracking import ensemble

SEEDS = 100
LARGEST = 16 * 10**6  # bytes of a file
SAFETY = 0.8  # of the time, when the number of seeds is chosen to fit it


@dataclass
class Job:
    """What a stage may use.

    Attributes
    ----------
    device : str
        Torch device.
    tiny : bool
        Dry run: sizes that only show that the code runs.
    out, store : Path
        Folders of results, and of runs.
    seconds : float
        Time this stage may take.
    numbers : dict
        What earlier stages found.
    """

    device: str
    tiny: bool
    out: Path
    store: Path
    seconds: float
    numbers: dict[str, Any] = field(default_factory=dict)
    begin: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.begin + self.seconds - time.monotonic()


@contextmanager
def within(seconds: float) -> Iterator[list[bool]]:
    """Stop a training run when the time is over; the list that is handed out then holds True."""
    end, stopped = time.monotonic() + seconds, [False]

    def over(done: int) -> bool:
        stopped[0] = time.monotonic() > end
        return stopped[0]

    with pool.stopping(over):
        try:
            yield stopped
        except KeyboardInterrupt:
            if not stopped[0]:
                raise


def write(dataset: xr.Dataset, path: Path, along: str) -> None:
    """Write in single precision, every second evaluation left out until the file is small
    enough.
    """
    kept = dataset.astype("float32", keep_attrs=True)
    runs.write(kept, path)
    while path.stat().st_size > LARGEST and kept.sizes[along] > 2:
        kept = kept.isel({along: slice(None, None, 2)})
        runs.write(kept, path)


def setting(name: str, tiny: bool) -> Any:
    """Parameters of a state-tracking ensemble, up to the time of the shipped ones."""
    given = ensemble.SETTINGS[name]
    if tiny:
        return given.p.replace(N=2, L=2, d_g=2, d_h=4, n_train=16, n_test=8, epochs=4, eval_every=2)
    return given.p.run_to(given.alpha)


def a_minute(job: Job, at_least: float) -> dict[str, Any]:
    """Time per seed and epoch of real training at Table 1, measurements included, from the first
    ``at_least`` seconds.

    The runs stay in the store: the ensemble at Table 1 goes on from them.
    """
    p, seeds = setting("table_1", job.tiny), range(2 if job.tiny else SEEDS)
    seen: list[tuple[int, float]] = []

    def enough() -> bool:
        return len(seen) > 1 and seen[-1][1] - seen[0][1] >= at_least

    def watch(done: int) -> bool:
        if (
            done % p.eval_every == 1
        ):  # just after a measurement the device has caught up with Python
            seen.append((done, time.monotonic()))
        return enough()

    begin = time.monotonic()
    with pool.stopping(watch):
        try:
            train_tracking(
                p, seeds=seeds, store=job.store, device=job.device, workers=1, progress=False
            )
        except KeyboardInterrupt:
            if not enough():
                raise
    if len(seen) < 2:
        return {
            "seeds": len(seeds),
            "note": "finished before: nothing was trained" if not seen else "too short",
        }
    (first, start), (last, end) = seen[0], seen[-1]
    each = (end - start) / (last - first) / len(seeds)
    return {
        "seeds": len(seeds),
        "epochs": last - first,
        "seconds": end - start,
        "us_per_seed_epoch": 1e6 * each,
        "seconds_before_the_first_epoch": start - begin,
        "minutes_for_100_seeds_of_20000_epochs": each * 100 * 20000 / 60,
    }


def tracking(job: Job, name: str) -> tuple[bool, dict[str, Any], list[str]]:
    """State tracking at one of the paper's tables: as many seeds as fit, the most first."""
    p, seeds = setting(name, job.tiny), 2 if job.tiny else SEEDS
    each = job.numbers.get("speed", {}).get("training", {}).get("us_per_seed_epoch")
    if each and not job.tiny:
        fit = SAFETY * job.left / (each * 1e-6 * p.epochs)
        seeds = max(2, min(SEEDS, int(fit)))
    found = None
    with within(job.left) as stopped:
        found = train_tracking(
            p, seeds=range(seeds), store=job.store, device=job.device, workers=1, progress=False
        )
    numbers = {"seeds": seeds, "epochs": p.epochs}
    if found is None:
        return not stopped[0], {**numbers, "note": "time is over; the runs are kept"}, []
    found.attrs["command"] = f"python -m verify.device --device {job.device}"
    write(found, job.out / f"{name}.nc", "alpha")
    last = found.isel(alpha=-1)
    return (
        True,
        {
            **numbers,
            **{f"final {n}": float(last[n].mean()) for n in ("A", "R", "loss", "rollout_accuracy")},
        },
        [f"{name}.nc"],
    )


def transformer(job: Job) -> tuple[bool, dict[str, Any], list[str]]:
    """The standard transformer of musat2025 at its printed size; maps of the first seed only."""
    p, seeds = StandardParameters.paper(), range(5)
    if job.tiny:
        p, seeds = p.replace(D=8, batch_size=4, steps=4), range(2)
    found = None
    with within(job.left) as stopped:
        found = standard.train(
            p, seeds, store=job.store, device=job.device, workers=1, progress=False
        )
    if found is None:
        return not stopped[0], {"note": "time is over; the runs are kept"}, []
    maps = [n for n in found if n not in ("loss", "accuracy")]
    kept = found.drop_vars(maps).merge(
        found[maps].isel(seed=0, drop=True), combine_attrs="override"
    )
    write(kept, job.out / "transformer.nc", "step")
    return (
        True,
        {
            "seeds": len(seeds),
            "D": p.D,
            "final accuracy": float(found.accuracy.isel(step=-1).mean()),
        },
        ["transformer.nc"],
    )


def emergence_times(job: Job) -> tuple[bool, dict[str, Any], list[str]]:
    """Fig. 5 of musat2025 at D = 256: emergence times over N, small N first. Its data are drawn on
    the CPU.
    """
    times: dict[str, Any] = {}
    for N in (2,) if job.tiny else (2, 4, 8, 16, 32):
        base = ih.Parameters.emergence().replace(N=N, eval_every=1)
        expected = emergence.Path(N).of_alpha()
        p = base.replace(steps=int(1.1 * expected / base.time_per_step) + 5)
        if job.tiny:
            p = p.replace(D=8, batch_size=2, steps=4)
        found = None
        with within(job.left):
            found = train_induction(
                p,
                seeds=(0,),
                store=job.store,
                device=job.device,
                dtype="float64",
                workers=1,
                progress=False,
            )
        if found is None:
            return False, {**times, "note": f"time is over at N = {N}; the runs are kept"}, []
        levels = {
            "T_gamma": ("gamma", 0.5),
            "T_beta": ("beta", 0.1),
            "T_alpha": ("alpha", 0.1),
            "t_ICL": ("alpha", 0.5),
        }
        times[f"N = {N}"] = {
            "flow t_ICL": expected,
            "steps": p.steps,
            **{
                n: float(first_crossing(found[x], level).values[0])
                for n, (x, level) in levels.items()
            },
        }
    return True, times, []


def attention_layer(job: Job) -> tuple[bool, dict[str, Any], list[str]]:
    """cui2024, Figs. 2 and 3 at d = 1000 with 24 seeds: both starts, sample complexities from
    coarse to fine.

    The published setting but for 4000 test sentences instead of 50,000, which are drawn on the CPU.
    """
    p = ps.Parameters(polish=False, teacher="gaussian", n_test=4000)
    grid, seeds = np.linspace(0.01, 2, 25).round(6), range(24)
    order = [*range(0, 25, 8), *range(4, 25, 8), *range(2, 25, 4), *range(1, 25, 2)]
    if job.tiny:
        p, seeds, order = p.replace(d=12, steps=4, n_test=8), range(2), [12, 24]
    done: dict[str, list[xr.Dataset]] = {"positional": [], "semantic": []}
    complete = True
    for k in order:
        both = []
        with within(job.left):
            both = [
                train_positional(
                    p.replace(start=start),
                    seeds,
                    alpha=float(grid[k]),
                    store=job.store,
                    device=job.device,
                    workers=1,
                    progress=False,
                )
                for start in done
            ]
        if not both:
            complete = False
            break
        for start, found in zip(done, both, strict=True):
            done[start].append(found)
    if not done["positional"]:
        return False, {"note": "time is over before the first sample complexity"}, []
    joined = xr.concat(
        [
            xr.concat(found, dim="alpha", combine_attrs="drop_conflicts").sortby("alpha")
            for found in done.values()
        ],
        dim=xr.DataArray(list(done), dims="start", name="start"),
        combine_attrs="drop_conflicts",
    )
    write(joined, job.out / "attention_layer.nc", "alpha")
    at = joined.alpha.values.tolist()
    return (
        complete,
        {"d": p.d, "seeds": len(seeds), "n_test": p.n_test, "sample complexities": at},
        ["attention_layer.nc"],
    )


STAGES: dict[str, Callable[[Job], tuple[bool, dict[str, Any], list[str]]]] = {
    "table_1": partial(tracking, name="table_1"),
    "table_2": partial(tracking, name="table_2"),
    "transformer": transformer,
    "emergence": emergence_times,
    "attention_layer": attention_layer,
}
