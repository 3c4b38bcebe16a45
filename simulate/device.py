"""Which torch device to run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from theory import memory
from theory.parameters import BaseParameters, ParameterError


def require(
    needed: Callable[[Any], float], p: BaseParameters, device: torch.device, times: int = 1
) -> None:
    """Refuse a training whose students do not fit into the memory of the device, or of this
    machine.

    Parameters
    ----------
    needed : callable
        Parameters to bytes at the peak of one run.
    p : Parameters
        Those of the run.
    device : torch.device
        Where it is trained.
    times : int
        Runs that step together.

    Raises
    ------
    ParameterError
        In one line: what is needed, what there is, which parameter to change.
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
    """Device by name; without one, a GPU if there is one, else the CPU.

    Raises
    ------
    ParameterError
        If the name is malformed or the device is not there.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if float(torch.ones(1, device=device)) != 1:  # the meta device, for one, holds no numbers
            raise RuntimeError
    except Exception:  # torch has a different error for every kind of device that is not there
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise ParameterError(f"device = {name!r}: not here; there are {there}") from None
    return device
