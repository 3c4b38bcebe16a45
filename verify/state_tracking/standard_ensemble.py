"""Ensembles of standard transformers, and of solvable students of the same sizes: shipped, or
trained.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from simulate import runs as store
from simulate import storage
from simulate.state_tracking.standard import SYSTEM, solvable
from theory.state_tracking import Parameters
from theory.state_tracking.standard import StandardParameters

PLACE = Path(__file__).with_name("ensembles") / "standard.nc"
COMMAND = 'python -c "from verify.state_tracking import standard_ensemble as e; e.renew()"'
SEEDS = range(8)
BASE = StandardParameters(epochs=300)
# Sizes that are varied, both ways, for exponents: fields by name of a setting.
SIZES: dict[str, dict[str, Any]] = {
    "L = 3": {"L": 3},
    "L = 9": {"L": 9, "epochs": 200},
    "N = 4": {"N": 4, "epochs": 160},
    "N = 16": {"N": 16, "epochs": 500},
    "d_g = 4": {"d_g": 4, "epochs": 160},
    "d_g = 16": {"d_g": 16, "epochs": 400},
}
# What differs from the base, by name of a setting.
STANDARD: dict[str, dict[str, Any]] = {
    "base": {},
    **SIZES,
    "2 blocks of one head": {"blocks": 2, "heads": 1, "epochs": 200},
    "4 heads": {"heads": 4, "epochs": 200},
    "no LayerNorm": {"norm": False, "epochs": 200},
    "descent": {"optimizer": "sgd", "momentum": 0.9, "eta": 0.1, "epochs": 400, "eval_every": 20},
    "1 head": {"heads": 1, "epochs": 500, "eval_every": 20},
}
KEPT: tuple[str, ...] = (
    "A",
    "retrieval",
    "retrieval_mean",
    "retrieval_shared",
    "B",
    "R",
    "S",
    "loss",
    "accuracy",
    "rollout_accuracy",
    "logic",
    "heuristic",
)

_SOLVABLE = Parameters(
    N=BASE.N, L=BASE.L, d_g=BASE.d_g, d_h=BASE.d_h, batch_size=256, unit="step", epochs=800, eval_every=10,
)  # fmt: skip
# Solvable students of the base's sizes, by name of a setting.
SOLVABLE = {
    "solvable, descent": _SOLVABLE,
    "solvable, Adam": _SOLVABLE.replace(optimizer="adam", eta=0.02),
}
SETTINGS = (*STANDARD, *SOLVABLE)


def parameters(setting: str) -> Parameters:
    """Parameters of a setting."""
    return SOLVABLE[setting] if setting in SOLVABLE else BASE.replace(**STANDARD[setting])


def train(setting: str, seeds: Iterable[int] = SEEDS, **options: Any) -> xr.Dataset:
    """Students of one setting, trained unless they are in the store."""
    system = solvable.SYSTEM if setting in SOLVABLE else SYSTEM
    return system.train(parameters(setting), seeds, **options)


def joined(found: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Runs of all settings in one dataset over setting, seed and measurement; NaN after the end."""
    parts = []
    for runs in found.values():
        few = runs[[*KEPT, "epoch"]].reset_coords().rename(alpha="measurement")
        few = few.assign_coords(measurement=np.arange(few.sizes["measurement"]))
        parts.append(few.astype("float32"))
    whole = xr.concat(parts, "setting", join="outer", combine_attrs="drop")
    return whole.assign_coords(setting=[*found]).assign_attrs(
        kind=storage.KIND,
        parameters=json.dumps({name: parameters(name).stored() for name in found}),
        command=COMMAND,
    )


def shipped() -> dict[str, xr.Dataset]:
    """Runs by setting, over seed and epoch, from the file that comes with the code."""
    whole = store.read(PLACE)
    found = {}
    for name in map(str, whole.setting.values):
        own = whole.sel(setting=name, drop=True)
        own = own.isel(measurement=own.epoch.notnull().values)
        found[name] = own.swap_dims(measurement="epoch").drop_vars("measurement")
    return found


def renew(settings: Iterable[str] = SETTINGS, **options: Any) -> None:
    """Train all ensembles again and write them in single precision."""
    store.write(joined({name: train(name, **options) for name in settings}), PLACE)
