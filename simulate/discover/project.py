"""Trained networks in discovered coordinates: where they move, and what lies outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr

from theory.statement.tree import require

if TYPE_CHECKING:
    from simulate.discover.found import Discovered


def project(
    found: Discovered, checkpoints: Sequence[Any] | xr.Dataset, times: Sequence[float] | None = None
) -> xr.Dataset:
    """Order parameters of checkpoints of a run, with any optimiser, batches and start.

    Parameters
    ----------
    found : Discovered
    checkpoints : sequence
        Modules, ``state_dict()`` mappings, or paths of saved ones, in the order of training; or a
        sequence of these for every seed; or what `simulate.ensemble.ensemble` gives with
        ``weights=True``, at its times.
    times : sequence of float, optional
        When, as learning rate times steps; by default 0, 1, 2, ...

    Returns
    -------
    Dataset
        Order parameters and ``loss`` over ``t``. ``outside`` is the share of the squared distance
        from the start that lies outside of the subspace, ``update_outside`` that of the move since
        the last checkpoint; ``by_chance`` is the share of random weights.

    Raises
    ------
    ParameterError
        If a weight is missing, or has another shape.
    """
    if isinstance(checkpoints, xr.Dataset):
        runs, names = checkpoints, {*found.loss.shapes}
        know = names | {"seed", "t"} <= {*runs.variables}
        require(know, "checkpoints: need seed, t and all weights; train with weights=True")
        of = {k: runs[k].transpose("seed", "t", ...).values for k in names}
        every = [
            [{k: of[k][b, n] for k in of} for n in range(len(runs.t))]
            for b in range(len(runs.seed))
        ]
        return project(found, every, runs.t.values).assign_coords(seed=runs.seed)
    require(len(checkpoints), "checkpoints: there are none")
    if isinstance(checkpoints[0], list | tuple):
        return xr.concat([project(found, run, times) for run in checkpoints], "seed")
    s, loss = found.subspace, found.loss
    t = np.arange(len(checkpoints)) if times is None else np.asarray(times)
    require(len(t) == len(checkpoints), f"times: {len(t)} for {len(checkpoints)} checkpoints")
    thetas = np.array([flat(found, c, n) for n, c in enumerate(checkpoints)])

    def outside(moves: np.ndarray) -> np.ndarray:
        """Share of squared moves outside of the subspace; NaN for no move."""
        inside = np.array([s.weights(s.coordinates(s.start + m)) - s.start for m in moves])
        with np.errstate(invalid="ignore"):
            return ((moves - inside) ** 2).sum(1) / (moves**2).sum(1)

    values = np.array([s.coordinates(theta) for theta in thetas]).T
    data = {
        x.name: ("t", v, {"meaning": meaning})
        for x, v, meaning in zip(found.flow.state, values, found.order_parameters, strict=True)
    }
    made = {
        "loss": [loss(theta) for theta in thetas],
        "outside": outside(thetas - s.start),
        "update_outside": outside(np.diff(thetas, axis=0, prepend=thetas[:1])),
    }
    chance = {"by_chance": 1 - len(values) / loss.size}
    about = {"kind": "students", "inputs": found.scope}
    return xr.Dataset(
        data | {k: ("t", v) for k, v in made.items()} | chance, {"t": t.astype(float)}, about
    )


def flat(found: Discovered, checkpoint: Any, number: int) -> np.ndarray:
    """All weights of a checkpoint in one vector."""
    if isinstance(checkpoint, torch.nn.Module):
        checkpoint = dict(checkpoint.named_parameters())
    elif not isinstance(checkpoint, Mapping):
        checkpoint = torch.load(checkpoint, map_location="cpu", weights_only=True)
    for name, shape in found.loss.shapes.items():
        require(name in checkpoint, f"checkpoint {number}: has no weight {name}")
        got = tuple(checkpoint[name].shape)
        require(got == shape, f"checkpoint {number}: {name} has shape {got}, must have {shape}")
    theta = found.loss.flat(checkpoint)
    require(np.isfinite(theta).all(), f"checkpoint {number}: weights are not finite")
    return theta
