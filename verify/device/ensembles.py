"""Ensembles on a device: as on the CPU within the seeds' spread, resumed bit for bit, the same in
stacks of any size.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import xarray as xr

from simulate import pool
from simulate.induction_heads import standard
from simulate.induction_heads import train as train_induction
from simulate.positional_semantic import train as train_positional
from simulate.state_tracking import benchmark
from simulate.state_tracking import train as train_tracking
from simulate.state_tracking.gradients import engine
from simulate.state_tracking.student import Students
from theory import induction_heads as ih
from theory import positional_semantic as ps
from theory import state_tracking as st
from theory.induction_heads.parameters import StandardParameters
from verify.check import Check

SHIFT = 0.1
SHIFT_WHY = "standard deviations over seeds: a smaller shift takes 1600 seeds to be seen at z = 4"
BITS_WHY = "the same device, the same stack: bit for bit"
STEPS = 10  # of descent before stacks are compared
STACK = {
    torch.float32: (1e-4, "single precision, 10 steps; sums may be in another order"),
    torch.float64: (1e-11, "double precision, 10 steps; sums may be in another order"),
}


@dataclass(frozen=True)
class Ensemble:
    """Students trained twice.

    Attributes
    ----------
    name : str
        What they are.
    train : callable
        ``train(p, seeds=, store=, device=, workers=, progress=)``.
    p : Parameters
        Sizes and training.
    seeds : range
        Seeds; two at least.
    half : int
        Work (epochs, steps) after which a run is interrupted.
    names : tuple of str
        Quantities to compare.
    """

    name: str
    train: Callable[..., xr.Dataset]
    p: Any
    seeds: range
    half: int
    names: tuple[str, ...]


def ensembles(tiny: bool) -> list[Ensemble]:
    """One ensemble for every trainer that knows devices; tiny ones only show that the code runs."""
    if tiny:
        tracking = st.Parameters(
            N=2, L=2, d_g=2, d_h=4, n_train=16, n_test=8, epochs=4, eval_every=2
        )
        pairs = ih.Parameters.demo().replace(N=2, D=4, batch_size=4, steps=8, eval_every=4)
        plain = StandardParameters(
            D=8, vocabulary=8, block=8, pairs=2, batch_size=8, steps=8, eval_every=4
        )
        layer = ps.Parameters(d=20, alpha=1.0, steps=20, n_test=50)
        seeds = range(2)
    else:
        tracking = st.Parameters.demo().replace(eval_every=64)
        pairs, plain = ih.Parameters.demo(), StandardParameters()
        layer, seeds = ps.Parameters.demo(), range(8)
    order, losses = (
        ("A", "R", "S", "loss", "variance_other", "rollout_accuracy"),
        ("loss", "accuracy"),
    )
    return [
        Ensemble("state tracking", train_tracking, tracking, seeds, tracking.epochs // 2, order),
        Ensemble(
            "induction heads",
            train_induction,
            pairs,
            seeds,
            pairs.steps // 2,
            ("alpha", "beta", "gamma", "loss"),
        ),
        Ensemble("standard transformer", standard.train, plain, seeds, plain.steps // 2, losses),
        Ensemble(
            "attention layer",
            train_positional,
            layer,
            seeds,
            layer.steps // 2,
            ("q", "m", "theta", "test_mse_half"),
        ),
    ]


def checks(ensemble: Ensemble, device: str, folder: Path, workers: int | None) -> list[Check]:
    """Train on the CPU, on the device, and on the device with an interruption; three stores in
    ``folder``.
    """
    run = partial(ensemble.train, ensemble.p, seeds=ensemble.seeds, progress=False)
    with patch.dict(
        os.environ, TRITON_INTERPRET="0"
    ):  # in a dry run the device is the interpreter, the CPU is not
        there = run(store=folder / "cpu", device="cpu", workers=workers)
    here = run(store=folder / "device", device=device, workers=1)
    again, seen = interrupted(
        ensemble,
        partial(run, store=folder / "resumed", device=device, workers=1),
        folder / "resumed",
    )
    differ = [n for n in here.data_vars if here[n].values.tobytes() != again[n].values.tobytes()]
    name = f"{ensemble.name} on {device}"
    return [
        *(
            shift(f"{name}, {quantity}", quantity, there[quantity], here[quantity])
            for quantity in ensemble.names
        ),
        Check(
            f"{name}, checkpoint left by an interruption",
            "device",
            1,
            float(seen),
            float(not seen),
            0.0,
            "else nothing was resumed",
        ),
        Check(
            f"{name}, quantities a resumed run has otherwise",
            "device",
            0,
            len(differ),
            len(differ),
            0.0,
            BITS_WHY,
        ),
    ]


def shift(name: str, quantity: str, there: xr.DataArray, here: xr.DataArray) -> Check:
    """Largest shift of the mean over seeds between two devices, in standard deviations over seeds.

    Where seeds do not differ at all (at time 0, say) the mean must not either, up to rounding.
    """
    spread = there.std("seed", ddof=1)
    gap = np.abs((here - there).mean("seed"))
    rounding = 1e-6 * np.abs(there).max()
    error = (gap / (spread + rounding)).values.ravel()
    k = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    on_cpu, on_device = (float(x.mean("seed").values.ravel()[k]) for x in (there, here))
    return Check(name, quantity, on_cpu, on_device, float(error[k]), SHIFT, SHIFT_WHY)


def interrupted(
    ensemble: Ensemble, run: Callable[[], xr.Dataset], store: Path
) -> tuple[xr.Dataset, bool]:
    """Result of a run that was interrupted whenever it got half way, and whether that left a
    checkpoint.
    """
    seen = False
    for _ in (
        ensemble.seeds
    ):  # where seeds go one after the other, each is interrupted; the rest of the loop is idle
        done, first = [-1], [0]

        def halfway(now: int, done: list[int] = done, first: list[int] = first) -> bool:
            if now <= done[0] or done[0] < 0:  # another run begins, or goes on from its checkpoint
                first[0] = now
            done[0] = now
            return now >= ensemble.half > first[0]

        with pool.stopping(halfway):
            try:
                run()
            except KeyboardInterrupt:
                seen = seen or any(store.glob("**/*.checkpoint"))
    return run(), seen


def stacks(
    p: st.Parameters, sizes: tuple[int, ...], device: torch.device, dtype: torch.dtype
) -> tuple[list[Check], dict[str, float]]:
    """State-tracking students after a few steps in stacks of several sizes, against each of them
    alone.

    Returns
    -------
    list of Check
        Largest difference per size.
    dict
        Share of students whose weights agree bit for bit, by size.
    """
    students, data = benchmark.students(p, device, max(sizes), dtype)
    start = [
        {n: w.detach().clone() for n, w in member.named_parameters()} for member in students.members
    ]
    tolerance, why = STACK[dtype]

    def descend(which: range) -> list[dict[str, np.ndarray]]:
        with torch.no_grad():
            for k in which:
                for name, w in students.members[k].named_parameters():
                    w.copy_(start[k][name])
        stack = Students([students.members[k] for k in which])
        step = benchmark.step(stack, [data[k] for k in which])
        for _ in range(STEPS):
            step()
        found = {n: w.detach().double().cpu().numpy().copy() for n, w in stack.named_parameters()}
        return [{n: w[i] for n, w in found.items()} for i in range(len(which))]

    alone = [descend(range(k, k + 1))[0] for k in range(max(sizes))]
    rows, equal = [], {}
    precision = str(dtype).removeprefix("torch.")
    for size in sizes:
        found = descend(range(size))
        gaps = [
            max(float(np.abs(one[n] - other[n]).max() / np.abs(other[n]).max()) for n in one)
            for one, other in zip(found, alone, strict=False)
        ]
        equal[f"{size}, {precision}"] = float(np.mean([gap == 0 for gap in gaps]))
        way = engine(students).__name__
        rows.append(
            Check(
                f"weights in a stack of {size} against alone, {precision} on {device} ({way})",
                "device",
                0.0,
                max(gaps),
                max(gaps),
                tolerance,
                why,
            )
        )
    return rows, equal
