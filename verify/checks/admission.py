"""Rules that a shipped ensemble obeys, checked whenever it is read.

How steps change A is measured in tests: a student of a shipped setting is trained with
its step and with halved ones, and descent of the flow is compared at every labelled
setting. Not so for students whose draws change with the step (rewards, standard
transformers, text), and for minima (random starts), where no step is left.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import xarray as xr

from theory.call.refusal import ParameterError

# Of attention, which rises from 1/L to 1: between measurements, so that crossings are
# found by interpolation (at most 0.22 in the files), and in a step of descent (0.013,
# at eta = 1.5). Both were set after these files were made: later ones must be no worse.
DENSE, STEP = 0.25, 0.02
# Where a digest of the code is kept; files from before digests were stored name
# versions.
CODE = {"code", "versions"}


def admitted(path: Path, runs: xr.Dataset) -> xr.Dataset:
    """The runs of a shipped file.

    Raises
    ------
    ParameterError
        Naming the file, and the rule that it breaks.
    """
    for rule, obeyed in rules(runs).items():
        if not obeyed:
            raise ParameterError(f"{path}: not admitted: {rule}")
    return runs


def rules(runs: xr.Dataset) -> dict[str, bool]:
    """Whether each rule is obeyed, in words."""
    seeds, told = runs.seed.values, runs.attrs
    found = {
        "a seed is there twice": len({*seeds.tolist()}) == seeds.size,
        "the command that trained it is not known": bool(told.get("command")),
        "the code that trained it is not known": (
            bool(CODE & told.keys()) or bool({"setting", "student"} & {*runs.dims})
        ),
    }
    if "alpha" not in runs.dims or "epoch" not in runs.variables:  # of several settings
        present = runs.to_array().notnull().any("variable")
        lengths = present.sum([d for d in present.dims if d in ("step", "measurement")])
        whole = (lengths == 0) | (lengths == lengths.max("seed"))
        return found | {"a run ends before the others": bool(whole.all())}
    p = json.loads(told["parameters"])
    numbers = [x.values for x in runs.data_vars.values() if x.dtype.kind == "f"]
    jump = float(abs(runs.A.diff("alpha")).max())
    return found | {
        "a value is missing": all(np.isfinite(x).all() for x in numbers),
        "it ends before its runs do": int(runs.epoch[-1]) == p["epochs"],
        "measurements are too far apart": jump < DENSE,
        "steps are too large": jump < STEP * p["eval_every"],
    }
