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
    seeds, attributes = runs.seed.values, runs.attrs
    several = bool({"setting", "student"} & {*runs.dims})
    obeyed = {
        "a seed is there twice": len({*seeds.tolist()}) == seeds.size,
        "the command that trained it is not known": bool(attributes.get("command")),
    }
    coded = bool(CODE & attributes.keys())
    obeyed["the code that trained it is not known"] = coded or several
    if "alpha" not in runs.dims or "epoch" not in runs.variables:  # of several settings
        present = runs.to_array().notnull().any("variable")
        lengths = present.sum([d for d in present.dims if d in ("step", "measurement")])
        complete = (lengths == 0) | (lengths == lengths.max("seed"))
        return obeyed | {"a run ends before the others": bool(complete.all())}
    p = json.loads(attributes["parameters"])
    numbers = [x.values for x in runs.data_vars.values() if x.dtype.kind == "f"]
    finite = all(np.isfinite(x).all() for x in numbers)
    jump = float(abs(runs.A.diff("alpha")).max())
    return obeyed | {
        "a value is missing": finite,
        "it ends before its runs do": int(runs.epoch[-1]) == p["epochs"],
        "measurements are too far apart": jump < DENSE,
        "steps are too large": jump < STEP * p["eval_every"],
    }
