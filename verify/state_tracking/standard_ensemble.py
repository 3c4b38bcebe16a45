"""Ensembles of standard transformers, and of solvable students of the same sizes: shipped, or
trained.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from simulate import runs as store
from simulate import storage
from simulate.state_tracking.standard import MEASURED, SYSTEM
from theory.state_tracking import Parameters
from theory.state_tracking.parameters import StandardParameters
from verify.admission import admitted

Ensembles = Mapping[str, xr.Dataset]  # by setting
PLACE = Path(__file__).with_name("ensembles") / "standard.nc"
COMMAND = 'python -c "from verify.state_tracking import standard_ensemble as e; e.renew()"'
BASE = StandardParameters(epochs=200)
# Rows of `standard` were written with the first seeds seen; these settings have others, none of
# which was trained before.
FRESH = ("base", "rotary positions", "1 head", "gated MLP", "width 32", "width 128", "2 blocks")
# Sizes that are varied, both ways, for exponents: fields by name of a setting.
SIZES: dict[str, dict[str, Any]] = {
    "L = 3": {"L": 3, "epochs": 300},
    "L = 9": {"L": 9},
    "N = 4": {"N": 4, "epochs": 160},
    "N = 16": {"N": 16, "epochs": 500},
    "d_g = 4": {"d_g": 4, "epochs": 160},
    "d_g = 16": {"d_g": 16, "epochs": 400},
}
# Other architectures, and another optimiser, at the base's sizes.
OTHERS: dict[str, dict[str, Any]] = {
    "rotary positions": {"positions": "rope", "epochs": 250},
    "gated MLP": {"mlp": "glu", "epochs": 150},
    "width 32": {"d_model": 32, "d_ff": 128, "epochs": 260},
    "width 128": {"d_model": 128, "d_ff": 512, "epochs": 120},
    "1 head": {"heads": 1, "epochs": 400, "eval_every": 20},
    "4 heads": {"heads": 4},
    "2 blocks": {"blocks": 2, "epochs": 150},
    "2 blocks of one head": {"blocks": 2, "heads": 1},
    "no LayerNorm": {"norm": False},
    "descent": {"optimizer": "sgd", "momentum": 0.9, "eta": 0.1, "epochs": 400, "eval_every": 20},
}
# What differs from the base, by name of a setting.
STANDARD: dict[str, dict[str, Any]] = {"base": {}, **OTHERS, **SIZES}
KEPT: tuple[str, ...] = (
    "A",
    "retrieval",
    "retrieval_mean",
    "retrieval_shared",
    "visible",
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


def seeds(setting: str) -> range:
    """Seeds of a setting."""
    return range(830, 838) if setting in FRESH else range(8)


def train(setting: str, **options: Any) -> xr.Dataset:
    """Students of one setting over seed and epoch, trained unless they are in the store."""
    system = MEASURED if setting in SOLVABLE else SYSTEM
    runs = system.train(parameters(setting), seeds(setting), **options)
    return runs[[*KEPT]].swap_dims(alpha="epoch").drop_vars("alpha")


def joined(by_setting: Ensembles) -> xr.Dataset:
    """Runs of all settings in one dataset over setting, seed and measurement; NaN after the end,
    and for other seeds.
    """
    parts = []
    for runs in by_setting.values():
        few = runs.assign_coords(measurement=("epoch", np.arange(runs.sizes["epoch"])))
        few = few.swap_dims(epoch="measurement").reset_coords("epoch")
        parts.append(few.astype("float32"))
    whole = xr.concat(parts, "setting", join="outer", combine_attrs="drop")
    return whole.assign_coords(setting=[*by_setting]).assign_attrs(
        kind=storage.KIND,
        parameters=json.dumps({name: parameters(name).stored() for name in by_setting}),
        command=COMMAND,
    )


def shipped() -> dict[str, xr.Dataset]:
    """Runs by setting, over seed and epoch, from the file that comes with the code."""
    whole = admitted(PLACE, store.read(PLACE))
    by_setting = {}
    for name in map(str, whole.setting.values):
        of_setting = whole.sel(setting=name, drop=True)
        present = of_setting.loss.notnull().any("measurement").values
        of_setting = of_setting.isel(measurement=of_setting.epoch.notnull().values, seed=present)
        by_setting[name] = of_setting.swap_dims(measurement="epoch").drop_vars("measurement")
    return by_setting


def renew(*settings: str, **options: Any) -> None:
    """Train ensembles again, all unless some are named, and write the file in single precision."""
    by_setting = {} if not settings else shipped()
    by_setting |= {name: train(name, **options) for name in settings or SETTINGS}
    store.write(joined({name: by_setting[name] for name in SETTINGS}), PLACE)
