"""Students of eight seeds for each setting that come with the code, and how they were
trained.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from simulate.store import runs as store
from standard_transformer.simulate import MEASURED, SYSTEM
from standard_transformer.theory import Parameters
from theory import state_tracking as solvable
from verify.checks.admission import admitted

Ensembles = Mapping[str, xr.Dataset]  # by setting
PLACE = Path(__file__).with_name("students.nc")
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
