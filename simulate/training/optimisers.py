"""Students of any kind under any optimiser: steps of `theory.dynamics.optimisers`,
whose memory is stored beside the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from theory.call.refusal import ParameterError, shown
from theory.dynamics.optimisers import Optimiser, Steps

PREFIX = "optimizer."  # of names in a student's state


def identity(optimizer: Optimiser | None) -> dict[str, Any]:
    """What an optimiser adds to the identity of a run: nothing if it is plain descent.

    Raises
    ------
    ParameterError
        For what is no optimiser.
    """
    if optimizer is None:
        return {}
    if type(optimizer) is not Optimiser:
        raise ParameterError(f"optimizer = {shown(optimizer)}: must be an Optimiser")
    return {} if optimizer == Optimiser() else {"optimizer": optimizer.as_dict()}


class Moves:
    """Steps of one student.

    Parameters
    ----------
    how : Optimiser, optional
        Plain descent by default.
    eta : float
        Learning rate.
    steps : int
        Length of the run, for the schedule.
    """

    def __init__(self, how: Optimiser | None, eta: float, steps: int) -> None:
        self.steps = Steps(how or Optimiser(), eta, steps)

    def __call__(
        self, weights: list[np.ndarray], gradients: list[np.ndarray]
    ) -> list[np.ndarray]:
        """The weights after one step."""
        moved = self.steps([w[None] for w in weights], [g[None] for g in gradients])
        return [np.asarray(w[0]) for w in moved]

    def state(self) -> dict[str, Any]:
        """The optimiser's memory, under names that no weight has."""
        remembered: dict[str, Any] = {
            f"{PREFIX}number": torch.tensor(self.steps.number)
        }
        for name in ("first", "second"):
            for k, x in enumerate(getattr(self.steps, name)):
                remembered[f"{PREFIX}{name}.{k}"] = torch.from_numpy(x.copy())
        return remembered

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the optimiser's memory from a state."""
        self.steps.number = int(state[f"{PREFIX}number"])
        for name in ("first", "second"):
            prefix = f"{PREFIX}{name}."
            places = sorted(
                int(key.removeprefix(prefix)) for key in state if key.startswith(prefix)
            )
            setattr(
                self.steps, name, [state[f"{prefix}{k}"].numpy().copy() for k in places]
            )
