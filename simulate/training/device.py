"""Selection of the torch device, and memory check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.runtime import memory


def require(
    needed: Callable[[Any], float],
    p: BaseParameters,
    device: torch.device,
    times: int = 1,
) -> None:
    """Raise an error if a training does not fit into the memory of the device or of
    this machine.

    Parameters
    ----------
    needed : callable
        Function of Parameters that estimates the peak memory of one run in bytes.
    p : Parameters
        Parameters of the run.
    device : torch.device
        Device of the training.
    times : int
        Number of runs that are trained together.

    Raises
    ------
    ParameterError
        Naming the bytes needed, the bytes available and the parameter to change.
    """
    memory.require(needed, p, "training", times=times)
    if device.type == "cuda":
        memory.require(
            needed,
            p,
            f"training on {device}",
            times=times,
            there=torch.cuda.mem_get_info(device)[0],
        )


def find(name: str | None) -> torch.device:
    """Device by name; by default a GPU if there is one, otherwise the CPU.

    Raises
    ------
    ParameterError
        If the name is malformed or the device does not exist.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        one = torch.ones(1, device=name)
        if float(one) != 1:  # e.g. the meta device holds no numbers
            raise RuntimeError
    except Exception:  # torch raises a different error for every kind of missing device
        there = ", ".join(
            ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        )
        raise ParameterError(
            f"device = {name!r}: not here; there are {there}"
        ) from None
    return one.device  # with its number
