"""The ensemble a check looks at: a given file, or students of the demo preset trained (once) for it."""

from __future__ import annotations

from typing import Any

import xarray as xr

from simulate.induction_heads import train
from simulate.induction_heads.trainer import MEANING, SHORT
from theory.induction_heads import Parameters
from verify.ensemble import Source

NEEDED = {"t": ("t",), "step": ("t",), "pseudo": ("seed", "t", "parameter"),
          **{x: ("seed", "t") for x in (*MEANING, *SHORT) if x != "pseudo"}}  # fmt: skip


def trained(p: Parameters, until: float | None, seeds: list[int], device: str | None, progress: bool) -> tuple[Any, xr.Dataset]:
    """Students of some length over seeds."""
    p = p.run_to(until)
    return p, train(p, None, seeds, device=device, progress=progress)


SOURCE = Source("induction_heads", Parameters.demo(), "4", NEEDED, trained)
