"""Students of eight seeds for each setting that come with the code, and how they were
trained.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from simulate.store import runs as store
from standard_transformer.simulate import MEASURED, SYSTEM
from standard_transformer.theory import Parameters
from theory import state_tracking as solvable
from theory.runtime.sealed import KIND
from verify.checks.admission import admitted

Ensembles = Mapping[str, xr.Dataset]  # by setting
PLACE = Path(__file__).with_name("students.nc")
COMMAND = "python -m verify.timescales standard_transformer --train"
BASE = Parameters(epochs=200)
ROTARY, ONE_HEAD = "rotary positions", "1 head"
# Rows were written with the first seeds seen; these settings have others, none of which
# was trained before.
FRESH = ("base", ROTARY, ONE_HEAD, "gated MLP", "width 32", "width 128", "2 blocks")
SLOW = {"epochs": 400, "eval_every": 20}
# What differs from the base, by name of a setting.
STANDARD: dict[str, dict[str, Any]] = {
    "base": {},
    ROTARY: {"positions": "rope", "epochs": 250},
    "gated MLP": {"mlp": "glu", "epochs": 150},
    "width 32": {"d_model": 32, "d_ff": 128, "epochs": 260},
    "width 128": {"d_model": 128, "d_ff": 512, "epochs": 120},
    ONE_HEAD: {"heads": 1, **SLOW},
    "4 heads": {"heads": 4},
    "2 blocks": {"blocks": 2, "epochs": 150},
    "2 blocks of one head": {"blocks": 2, "heads": 1},
    "no LayerNorm": {"norm": False},
    "descent": {"optimizer": "sgd", "momentum": 0.9, "eta": 0.1, **SLOW},
    "L = 3": {"L": 3, "epochs": 300},
    "L = 9": {"L": 9},
    "N = 4": {"N": 4, "epochs": 160},
    "N = 16": {"N": 16, "epochs": 500},
    "d_g = 4": {"d_g": 4, "epochs": 160},
    "d_g = 16": {"d_g": 16, "epochs": 400},
}
_DESCENT = solvable.Parameters(
    **{name: getattr(BASE, name) for name in ("N", "L", "d_g", "d_h", "batch_size")},
    **dict(unit="step", epochs=800, eval_every=10),
)
# Solvable students of the base's sizes.
SOLVABLE = {
    "solvable, descent": _DESCENT,
    "solvable, Adam": _DESCENT.replace(optimizer="adam", eta=0.02),
}
SETTINGS = (*STANDARD, *SOLVABLE)


def parameters(setting: str) -> solvable.Parameters:
    """Parameters of a setting."""
    if setting in SOLVABLE:
        return SOLVABLE[setting]
    return BASE.replace(**STANDARD[setting])


def seeds(setting: str) -> range:
    """Seeds of a setting."""
    return range(830, 838) if setting in FRESH else range(8)


def train(setting: str, **options: Any) -> xr.Dataset:
    """Students of one setting over seed and epoch, trained unless they are in the
    store.
    """
    system = MEASURED if setting in SOLVABLE else SYSTEM
    runs = system.train(parameters(setting), seeds(setting), **options)
    return runs[[*system.meaning]].swap_dims(alpha="epoch").drop_vars("alpha")


def joined(by_setting: Ensembles) -> xr.Dataset:
    """Runs of all settings in one dataset over setting, seed and measurement; NaN after
    the end, and for other seeds.
    """
    parts = []
    for runs in by_setting.values():
        numbered = runs.assign_coords(measurement=("epoch", np.arange(runs.epoch.size)))
        part = numbered.swap_dims(epoch="measurement").reset_coords("epoch")
        parts.append(part.astype("float32"))
    whole = xr.concat(parts, "setting", join="outer", combine_attrs="drop")
    fields = {name: parameters(name).stored() for name in by_setting}
    return whole.assign_coords(setting=[*by_setting]).assign_attrs(
        kind=KIND, parameters=json.dumps(fields), command=COMMAND
    )


def shipped() -> dict[str, xr.Dataset]:
    """Runs by setting, over seed and epoch."""
    whole = admitted(PLACE, store.read(PLACE))
    by_setting = {}
    for name in map(str, whole.setting.values):
        runs = whole.sel(setting=name, drop=True)
        present = runs.loss.notnull().any("measurement").values
        runs = runs.isel(measurement=runs.epoch.notnull().values, seed=present)
        by_setting[name] = runs.swap_dims(measurement="epoch").drop_vars("measurement")
    return by_setting


def renew(**options: Any) -> None:
    """Train all settings again, and write the file."""
    store.write(joined({name: train(name, **options) for name in SETTINGS}), PLACE)
