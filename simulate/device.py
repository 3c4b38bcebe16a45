"""Which torch device to run on."""

from __future__ import annotations

import torch

from theory.parameters import ParameterError


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
