"""Students that continue training from the final weights of earlier runs with other parameters,
such as another weight decay.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from simulate.state_tracking import learner as supervised
from theory.parameters import ParameterError
from theory.state_tracking import Parameters

WEIGHTS = ("W_Q", "W_K", "M")


def digest(start: xr.Dataset) -> str:
    """Digest of the weights that runs start from."""
    weights = final_weights(start)
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in WEIGHTS)).hexdigest()[:16]


def final_weights(start: xr.Dataset) -> dict[str, np.ndarray]:
    """Final weights of supervised runs, over seeds."""
    if missing := [name for name in WEIGHTS if f"{name}_end" not in start]:
        raise ParameterError(f"start: {missing[0]}_end is missing; train it with keep=True")
    if "seed" not in start.dims:
        raise ParameterError("start: must be runs over seed")
    return {name: np.ascontiguousarray(start[f"{name}_end"].values) for name in WEIGHTS}


@torch.no_grad()
def go_on(learner_: supervised.Learner, start: xr.Dataset) -> None:
    """Give students the final weights of runs of the same seeds."""
    given = final_weights(start.sel(seed=list(learner_.seeds)))
    for name in WEIGHTS:
        weight = learner_.students.get_parameter(name)
        weight.copy_(torch.as_tensor(given[name]).reshape(weight.shape))


def continued_identity(p: Parameters, start: xr.Dataset | None = None) -> dict[str, Any]:
    """Identity of a run: the weights it starts from; it keeps its final weights.

    Raises
    ------
    ParameterError
        Without a start, or for learned embeddings.
    """
    if start is None:
        raise ParameterError("start: must be runs with their final weights (keep=True)")
    if not p.fix_embedding:
        raise ParameterError("fix_embedding = False: must be True for students that go on")
    return {**supervised.identity(p, keep=True), "start": digest(start)}


class ContinuedLearner(supervised.Learner):
    """A stack of students that go on.

    Parameters
    ----------
    p, seeds, device, dtype
        As for training from scratch. Teachers and data are those of the seeds.
    start : Dataset
        Runs of the same seeds with their final weights.
    """

    def __init__(
        self,
        p: Parameters,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        start: xr.Dataset,
    ) -> None:
        super().__init__(p, seeds, device, dtype, keep=True)
        go_on(self, start)


CONTINUED = dataclasses.replace(
    supervised.SYSTEM,
    name="state_tracking.continued",
    make=ContinuedLearner,
    identity=continued_identity,
    data=None,
)
train = CONTINUED.train
