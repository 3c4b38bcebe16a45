"""Checks of every kind of student on a device: gradients against autograd on the CPU,
ensembles against the CPU within the spread of seeds, resumption bit for bit, and
independence of the stack size.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from simulate.state_tracking.gradients import Plain
from simulate.systems import student, tiny
from simulate.training import learner, pool
from simulate.training.plan import System
from verify.checks.check import Check, at_least, identity, vanishing

CPU = torch.device("cpu")
# perturbation of the weights before gradients are compared, as many start at zero
SHAKE = 0.3
TOLERANCE = {
    torch.float32: (
        1e-4,
        "single precision, sums that cancel; products at tf32 would leave 1e-3",
    ),
    torch.float64: (
        1e-11,
        "double precision; one operation at single precision would leave 1e-8",
    ),
}
# About forty rows per state, in groups of different sizes.
WIDE = dict(N=3, L=3, d_g=17, d_h=8, n_train=120, n_test=16)
FEW = dict(N=2, L=3, d_g=2, d_h=4, n_train=24, n_test=8, epochs=4, eval_every=2)
# Ensembles compared with the CPU, and the compared variables.
COMPARED = {
    "state_tracking.student": (
        "A",
        "R",
        "S",
        "loss",
        "variance_other",
        "rollout_accuracy",
    ),
    "induction_heads.disentangled": ("alpha", "beta", "gamma", "loss"),
    "induction_heads.standard": ("loss", "accuracy"),
    "positional_semantic.attention": ("q", "m", "theta", "test_mse_half"),
}
SHIFT = 0.1
SHIFT_WHY = (
    "standard deviations over seeds: a smaller shift takes 1600 seeds to be seen at"
    " z = 4"
)
BITS_WHY = "the same device, the same stack: bit for bit"
LEFT_WHY = "else nothing was resumed"
STEPS = 10  # steps of descent before stacks are compared


def kinds(model: str = "") -> list[str]:
    """Kinds of students (of a model) that can be trained on any device."""
    return [n for n in tiny() if n.startswith(model) and not student(n)[0].devices]


@contextmanager
def watched() -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
    """Context manager: collect trained weights with their first gradients, in order."""
    seen: dict[int, tuple[Tensor, Tensor]] = {}
    descend = learner.Descent.step
    differentiate = torch.autograd.grad

    def note(weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        for w, g in zip(weights, gradients, strict=True):
            if g is not None:
                seen.setdefault(id(w), (w, g.detach().clone()))

    def step(self: learner.Descent) -> None:
        note(self.weights, [w.grad for w in self.weights])
        descend(self)

    def grad(outputs: Any, inputs: Any, **more: Any) -> Any:
        slopes = differentiate(outputs, inputs, **more)
        note([inputs] if isinstance(inputs, Tensor) else list(inputs), slopes)
        return slopes

    def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            weights = group["params"]
            note(weights, [w.grad for w in weights])

    descends = patch.object(learner.Descent, "step", step)
    handle = register_optimizer_step_pre_hook(hook)
    try:
        with descends, patch.object(torch.autograd, "grad", grad):
            yield seen
    finally:
        handle.remove()


def observed(
    system: System,
    p: Any,
    device: torch.device,
    dtype: torch.dtype,
    weights: list[Tensor],
) -> dict[str, np.ndarray]:
    """Measurements and gradients of a stack of two students at given weights. An empty
    list of weights is filled with perturbed initial weights.
    """
    draw, random = (
        torch.randn,
        torch.Generator().manual_seed(20260616),
    )  # any fixed seed

    def randn(*size: Any, dtype: torch.dtype | None = None, **more: Any) -> Tensor:
        """The same numbers at both precisions."""
        drawn = draw(*size, dtype=torch.float64, **more)
        return drawn.to(dtype or torch.get_default_dtype())

    with patch.object(torch, "randn", randn):
        stack = system.make(p, [0, 1], device, dtype)
        with watched() as first:
            stack.step(0)
        trained = [w for w, _ in first.values()]
        if not weights:
            shaken = (
                SHAKE * draw(w.shape, generator=random, dtype=w.dtype) for w in trained
            )
            weights += [
                w.detach().cpu() + s for w, s in zip(trained, shaken, strict=True)
            ]
        with torch.no_grad():
            for w, value in zip(trained, weights, strict=True):
                w.copy_(value)
        measured = dict(stack.measure()) if system.time else {}
        with watched() as second:
            stack.step(1)
    for k, (w, gradient) in enumerate(second.values(), 1):
        measured[f"gradient {k}, {tuple(w.shape)}"] = gradient.double().cpu().numpy()
    return measured


def gradients(name: str, device: torch.device, **settings: Any) -> list[Check]:
    """One row per precision: the gradient or measurement that differs most from
    autograd in double precision on the CPU.
    """
    system, p = student(name, **settings)
    by_hand = system.name == "state_tracking" and p.fix_embedding
    weights: list[Tensor] = []
    with patch("simulate.state_tracking.learner.engine", lambda students: Plain):
        expected = observed(system, p, CPU, torch.float64, weights)
    rows = []
    for dtype, (tolerance, why) in TOLERANCE.items():
        if (device, dtype) == (CPU, torch.float64) and not by_hand:
            continue  # would compare the reference with itself
        where = f"{name}{', wide' * bool(settings)}, {str(dtype)[6:]} on {device}"
        worst = observed(system, p, device, dtype, weights)
        if worst.keys() != expected.keys():
            raise RuntimeError(
                f"{where}: gives {sorted(worst)}, not {sorted(expected)}"
            )
        every = [
            identity(where, quantity, value, worst[quantity], tolerance, why)
            for quantity, value in expected.items()
            if np.isfinite(value).all()
        ]
        rows.append(
            max(every, key=lambda row: np.inf if np.isnan(row.error) else row.error)
        )
    return rows


def checks(model: str, device: torch.device) -> list[Check]:
    """Gradients of every student of a model."""
    rows: list[Check] = []
    if model == "state_tracking":
        rows += gradients("state_tracking.student", device, **WIDE)
    for name in kinds(model):
        rows += gradients(name, device)
    return rows


def ensemble(name: str, tiny: bool) -> tuple[System, Any, range]:
    """System, parameters and seeds of an ensemble to be compared; ``tiny`` ones only
    test that the code runs.
    """
    if tiny:
        return (
            *student(name, **FEW if name.startswith("state_tracking") else {}),
            range(2),
        )
    system, p = student(name)
    return system, getattr(type(p), "demo", type(p))(), range(8)


def agreement(name: str, device: torch.device, tiny: bool) -> Iterator[Check]:
    """Students trained on the CPU and on the device, the latter also with an
    interruption.
    """
    here, *rows = resumed(name, device, tiny)
    system, p, seeds = ensemble(name, tiny)
    with tempfile.TemporaryDirectory() as folder:
        on_cpu = partial(system.train, store=folder, device="cpu", progress=False)
        there = on_cpu(p, seeds, workers=1 if tiny else None)
    for quantity in COMPARED[name]:
        yield shift(
            f"{name} on {device}, {quantity}", quantity, there[quantity], here[quantity]
        )
    yield from rows


def shift(name: str, quantity: str, there: xr.DataArray, here: xr.DataArray) -> Check:
    """Largest shift of the mean over seeds between two devices, in standard deviations
    over seeds.

    If seeds do not differ at all (e.g. at time 0), the mean must be equal up to
    rounding.
    """
    rounding = 1e-6 * np.abs(there).max() + np.finfo(float).tiny
    gap = np.abs((here - there).mean("seed", skipna=False))
    return vanishing(
        name, quantity, gap / (there.std("seed", ddof=1) + rounding), SHIFT, SHIFT_WHY
    )


def resumed(
    name: str, device: torch.device, tiny: bool
) -> tuple[xr.Dataset, Check, Check]:
    """Students trained on a device, and whether interrupting them half-way gives the
    same result.
    """
    system, p, seeds = ensemble(name, tiny)
    left, half, stops = 0, system.length(p) // 2, [False]

    def halfway(done: int) -> bool:
        stops[0] = done == half
        return stops[0]

    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as cut:
        train = partial(
            system.train, p, seeds, device=str(device), workers=1, progress=False
        )
        for (
            _
        ) in seeds:  # seeds that are trained one after the other are each interrupted
            with pool.stopping(halfway):
                try:
                    train(store=cut)
                except KeyboardInterrupt:
                    if not stops[0]:
                        raise
            left += len(list(Path(cut).rglob("*.checkpoint")))
        agree, again = train(store=whole), train(store=cut)
    differ = [
        str(n)
        for n, v in agree.items()
        if v.values.tobytes() != again[n].values.tobytes()
    ]
    same = f"{name} on {device}, quantities a resumed run has otherwise"
    return (
        agree,
        at_least(
            f"{name} on {device}, checkpoints of interruptions",
            "device",
            1,
            left,
            LEFT_WHY,
        ),
        vanishing(same, ", ".join(differ), len(differ), 0, BITS_WHY),
    )


def stacks(
    device: torch.device, dtype: torch.dtype, tiny: bool
) -> tuple[list[Check], dict[str, float]]:
    """Weights of state-tracking students after a few steps in stacks of several sizes
    against those of single students, and the fraction of students whose weights agree
    bit for bit.
    """
    system, p, _ = ensemble("state_tracking.student", tiny)
    sizes = (1, 2, 3) if tiny else (1, 16, 100, 128)

    def descend(seeds: Sequence[int]) -> list[dict[str, np.ndarray]]:
        stack = system.make(p, seeds, device, dtype)
        for number in range(STEPS):
            stack.step(number)
        return [weights(stack.state(b)["weights"]) for b in range(len(seeds))]

    def weights(state: dict[str, Tensor]) -> dict[str, np.ndarray]:
        return {n: w.double().cpu().numpy() for n, w in state.items()}

    def gap(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
        """Largest change of a weight relative to the largest weight of its matrix."""
        changes = [
            np.abs(one[n] - other[n]).max() / np.abs(other[n]).max() for n in one
        ]
        return float(max(changes))

    alone = [descend([seed])[0] for seed in range(sizes[-1])]
    rows, equal = [], {}
    for size in sizes:
        together = zip(descend(range(size)), alone, strict=False)
        gaps = [gap(one, other) for one, other in together]
        where = f"stack of {size} against alone, {str(dtype)[6:]} on {device}"
        rows.append(vanishing(where, "device", gaps, *TOLERANCE[dtype]))
        equal[where] = float(np.mean(np.equal(gaps, 0)))
    return rows, equal
