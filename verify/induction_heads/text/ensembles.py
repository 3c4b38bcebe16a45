"""Ensembles of character models: shipped, or trained."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from simulate import runs as store
from simulate.induction_heads.text import SYSTEM, Parameters

PLACE = Path(__file__).with_name("ensembles.nc")
COMMAND = 'python -c "from verify.induction_heads.text import ensembles as e; e.renew()"'
SEEDS = (0, 1, 2, 20, 21, 22)  # the last three after levels, defaults and checks were chosen
FEW: dict[str, range] = {  # a run of six times the length; settings that stand beside the others
    "plain text": range(1),
    "a quarter repeated": range(3),
    "shuffled": range(3),
}
BASE = Parameters()
# What differs from the base, by name of a setting.
CONTEXTS: dict[str, dict[str, Any]] = {
    "C = 16": dict(context=16, steps=1500),
    "C = 64": dict(context=64),
}
BATCHES: dict[str, dict[str, Any]] = {
    "B = 8": dict(batch_size=8, steps=2500),
    "B = 16": dict(batch_size=16, steps=1500),
}
RARE = dict(eval_every=50)
BURSTS: dict[str, dict[str, Any]] = {
    "half repeated": dict(repeats=0.5, steps=2500, **RARE),
    "a quarter repeated": dict(repeats=0.25, steps=2500, **RARE),
    "plain text": dict(repeats=0.0, steps=6000, **RARE),
    "shuffled": dict(piece=1),
}
CHANGES = {"base": {}, **CONTEXTS, **BATCHES, **BURSTS}


def parameters(setting: str) -> Parameters:
    """Parameters of a setting."""
    return BASE.replace(**CHANGES[setting])


def train(setting: str, **options: Any) -> xr.Dataset:
    """Students of one setting, trained unless they are in the store."""
    return SYSTEM.train(parameters(setting), FEW.get(setting, SEEDS), **options)


def joined(found: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Runs of all settings in one dataset over setting, seed and step; NaN after the end."""
    parts = [runs[[*SYSTEM.meaning]].astype("float32") for runs in found.values()]
    whole = xr.concat(parts, "setting", join="outer", combine_attrs="drop")
    return whole.assign_coords(setting=[*found]).assign_attrs(
        kind=store.KIND,
        parameters=json.dumps({name: parameters(name).stored() for name in found}),
        command=COMMAND,
    )


def shipped() -> dict[str, xr.Dataset]:
    """Runs by setting, over seed and step, from the file that comes with the code."""
    whole = store.read(PLACE)
    return {
        str(name): whole.sel(setting=name, drop=True)
        .dropna("step", how="all")
        .dropna("seed", how="all")
        for name in whole.setting.values
    }


def renew(settings: Iterable[str] = tuple(CHANGES), **options: Any) -> None:
    """Train all ensembles again and write them in single precision."""
    store.write(joined({name: train(name, **options) for name in settings}), PLACE)
