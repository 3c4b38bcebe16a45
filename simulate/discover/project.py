"""Trained networks in discovered coordinates: where they move, and what lies outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr

from theory.parameters import ParameterError

if TYPE_CHECKING:
    from simulate.discover.found import Discovered


def project(
    found: Discovered, checkpoints: Iterable[Any], times: Iterable[float] | None = None
) -> xr.Dataset:
    """Order parameters of checkpoints of a run, with any optimiser, batches and start.

    Parameters
    ----------
    found : Discovered
    checkpoints : iterable
        Modules, ``state_dict()`` mappings, or paths of saved ones, in the order of training.
    times : iterable of float, optional
        When; by default 0, 1, 2, ...

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
    s, loss = found.subspace, found.loss
    thetas = np.array([_flat(found, c, n) for n, c in enumerate(checkpoints)])
    if not len(thetas):
        raise ParameterError("checkpoints: there are none")
    t = np.arange(len(thetas), dtype=float) if times is None else np.array([*times], float)
    if len(t) != len(thetas):
        raise ParameterError(f"times: {len(t)} for {len(thetas)} checkpoints")

    def outside(moves: np.ndarray) -> np.ndarray:
        """Share of squared moves outside of the subspace; NaN for no move."""
        inside = np.array([s.weights(s.coordinates(s.start + m)) - s.start for m in moves])
        size = (moves**2).sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(size > 0, ((moves - inside) ** 2).sum(1) / size, np.nan)

    steps = np.diff(thetas, axis=0, prepend=thetas[:1])
    values = np.array([s.coordinates(theta) for theta in thetas])
    data = {
        x.name: ("t", v, {"meaning": meaning})
        for x, v, meaning in zip(found.symbols, values.T, found.order_parameters, strict=True)
    }
    return xr.Dataset(
        {
            **data,
            "loss": ("t", [loss(theta) for theta in thetas]),
            "outside": ("t", outside(thetas - s.start)),
            "update_outside": ("t", outside(steps)),
            "by_chance": 1 - len(s.forms) / loss.size,
        },
        coords={"t": t},
        attrs={"kind": "students", "inputs": found.scope},
    )


def _flat(found: Discovered, checkpoint: Any, number: int) -> np.ndarray:
    """All weights of a checkpoint in one vector."""
    if isinstance(checkpoint, torch.nn.Module):
        checkpoint = dict(checkpoint.named_parameters())
    elif not isinstance(checkpoint, Mapping):
        checkpoint = torch.load(checkpoint, map_location="cpu", weights_only=True)
    for name, shape in found.loss.shapes.items():
        if name not in checkpoint:
            raise ParameterError(f"checkpoint {number}: has no weight {name}")
        if tuple(checkpoint[name].shape) != shape:
            got = tuple(checkpoint[name].shape)
            raise ParameterError(f"checkpoint {number}: {name} has shape {got}, must have {shape}")
    theta = found.loss.flat(checkpoint)
    if not np.isfinite(theta).all():
        raise ParameterError(f"checkpoint {number}: weights are not finite")
    return theta
