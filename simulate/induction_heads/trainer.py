"""Train disentangled students, all weights or three numbers: one labelled dataset over (seed, t)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from simulate.induction_heads import task
from simulate.induction_heads.run import Run, ensemble
from simulate.induction_heads.student import (
    NAMES,
    THREE,
    Constrained,
    Nineteen,
    Student,
    project,
    residual,
    squared_error,
)
from theory.induction_heads import Parameters
from theory.parameters import ParameterError

MEANING = {
    "loss": "squared error summed over D, relative to predicting zero, on test sequences of the seed",
    "loss_three": "the same loss with only alpha_3, beta_2, gamma_3 kept",
    "loss_others": "the same loss with alpha_3, beta_2, gamma_3 and what lies outside the 19 directions set to zero",
    "residual": "norm of the weights outside the 19 directions, relative to all weights",
    "pseudo": "the 19 pseudo-parameters",
}
KINDS: dict[str, type[torch.nn.Module]] = {
    "all": Student,
    "nineteen": Nineteen,
    "projected": Constrained,
    "three": Constrained,
}
SHORT = dict(zip(("alpha", "beta", "gamma"), THREE, strict=True))  # names of the flow


def train(p: Parameters, t: float | None = None, seeds: Iterable[int] = (0,), *, store: Path | str | None = None,
          device: str | None = None, dtype: str = "float32", keep_weights: bool = False, workers: int | None = None,
          progress: bool = True) -> xr.Dataset:  # fmt: skip
    """Train one student per seed from zero weights by stochastic gradient descent.

    Parameters
    ----------
    p : Parameters
        Task, architecture and training settings.
    t : float, optional
        Run length in three-parameter flow time (see `Parameters.time_per_step`); overrides ``p.steps``.
    seeds : iterable of int
        Seeds; each fixes its training and test sequences.
    store : path, optional
        Where runs are kept; ``output/runs`` by default.
    device : str, optional
        Torch device; a GPU by default if there is one.
    dtype : {'float32', 'float64'}
        Precision.
    keep_weights : bool
        Record W1, W2, W3 at every measurement (large).
    workers : int, optional
        Seeds trained at once; one per core by default on the CPU, one at a time on a GPU.
    progress : bool
        Progress bar on stderr.

    Returns
    -------
    Dataset
        ``alpha``, ``beta``, ``gamma`` (that is alpha_3, beta_2, gamma_3), ``pseudo`` over all 19, and the
        quantities of `MEANING` over ``(seed, t)``, with the coordinate ``step``.

    Raises
    ------
    ParameterError
        For unusable parameters, seeds or device, or a learning rate at which the loss diverges.
    """
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype = {dtype}: must be float32 or float64")
    needed = functools.partial(memory, itemsize=4 if dtype == "float32" else 8, keep_weights=keep_weights)
    return ensemble(Training, p.run_to(t), seeds, memory=needed, store=store, device=device, workers=workers, progress=progress,
                    dtype=dtype, keep_weights=keep_weights)  # fmt: skip


def memory(p: Parameters, itemsize: int = 4, keep_weights: bool = False) -> float:
    """Bytes at the peak of one run, from the shapes it makes; `itemsize` bytes per number."""
    places, D = 2 * p.N + 1, p.dimension
    sequences = p.batch_size * places * 2 * D * itemsize
    scores = p.batch_size * places**2 * itemsize
    frames = 8 * p.batch_size * p.N * D * itemsize if p.data == "orthonormal" else 0  # QR
    weights = 28 * D**2 * itemsize
    # Sequences of test and step, the parts they are put together from, both layers and their gradients. The 19 directions
    # have up to a score each; measuring builds all matrices several times over.
    records = (p.steps // p.eval_every + 2) * 4 * 8 * (24 + (28 * D**2 if keep_weights else 0))
    return 14 * sequences + 20 * scores + frames + 8 * weights + records


class Training(Run):
    """One disentangled student."""

    def __init__(
        self, p: Parameters, seed: int, device: torch.device, dtype: str = "float32", keep_weights: bool = False
    ) -> None:
        super().__init__(p, seed, device)
        self.dtype, self.keep_weights = getattr(torch, dtype), keep_weights
        self.student = KINDS[p.trained](p.dimension, p.mask, self.dtype).to(device)
        # The gradient of a matrix along its kernel, over D, is what a step of the matrices leaves of it.
        rate = p.eta / p.dimension if p.trained in ("nineteen", "projected") else p.eta
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=rate)
        self.test = self._to_device(task.draw(p, task.generator(seed, "test"), dtype=self.dtype))

    def _to_device(self, batch: task.Batch) -> task.Batch:
        return task.Batch(*(x.to(self.device) for x in batch))

    def advance(self) -> None:
        """One step on fresh sequences."""
        batch = self._to_device(task.draw(self.p, task.generator(self.seed, "train", self.step), dtype=self.dtype))
        self.optimizer.zero_grad()
        squared_error(self.student(batch.X), batch.y, self.p.loss).backward()
        self.optimizer.step()

    @torch.no_grad()
    def measure(self) -> dict[str, np.ndarray]:
        """Pseudo-parameters, what they leave out, and the loss."""
        weights = {k: w.detach().cpu() for k, w in self.student.weights().items()}
        loss = squared_error(self.student(self.test.X), self.test.y, "sum") / task.scale(self.p)
        values = project(weights)
        kept = torch.tensor([name in THREE for name in NAMES])
        found = {"pseudo": values, "residual": residual(weights), "loss": loss.cpu(),
                 "loss_three": self._loss_of(values * kept), "loss_others": self._loss_of(values * ~kept)}  # fmt: skip
        if self.keep_weights:
            found |= weights
        return {k: v.double().numpy() for k, v in found.items()}

    def _loss_of(self, values: torch.Tensor) -> torch.Tensor:
        """Loss of the network made of some pseudo-parameters."""
        cut = Nineteen(self.p.dimension, self.p.mask, self.dtype).to(self.device)
        cut.theta.copy_(values)
        return (squared_error(cut(self.test.X), self.test.y, "sum") / task.scale(self.p)).cpu()

    def dataset(self, steps: np.ndarray, records: dict[str, np.ndarray]) -> xr.Dataset:
        """Label what was recorded."""
        axes = {"pseudo": ("t", "parameter"), "W1": ("t", "row_1", "column_1"), "W2": ("t", "row_2", "column_2"),
                "W3": ("t", "row_3", "column_3")}  # fmt: skip
        data = {k: xr.Variable(axes.get(k, ("t",)), v, {"long_name": MEANING.get(k, k)}) for k, v in records.items()}
        result = xr.Dataset(
            data, coords={"t": steps * self.p.time_per_step, "step": ("t", steps), "parameter": list(NAMES)}
        )
        for short, name in SHORT.items():
            result[short] = result.pseudo.sel(parameter=name, drop=True)
        return result
