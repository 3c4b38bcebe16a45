"""Students that continue training from the final weights of earlier runs with other parameters,
such as another weight decay.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import xarray as xr

from simulate.state_tracking import learner as supervised
from simulate.state_tracking.rewards import digest, go_on
from theory.parameters import ParameterError
from theory.state_tracking import Parameters


def identity(p: Parameters, start: xr.Dataset | None = None) -> dict[str, Any]:
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


class Learner(supervised.Learner):
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


SYSTEM = dataclasses.replace(
    supervised.SYSTEM, name="state_tracking.continued", make=Learner, identity=identity, data=None
)
train = SYSTEM.train
