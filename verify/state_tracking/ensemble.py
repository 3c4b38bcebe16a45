"""The ensemble a check looks at: a given file, or students trained (once) for it."""

from __future__ import annotations

import json
from typing import Any

import xarray as xr

from simulate import runs as store
from simulate.state_tracking import train
from theory import cli
from theory.parameters import ParameterError
from theory.state_tracking import Parameters

SEEDS, ALPHA = "8", 12.0


def get(args: Any) -> tuple[Parameters, xr.Dataset]:
    """Parameters and ensemble from ``--runs``, or trained with the demo preset by default.

    Raises
    ------
    ParameterError
        If the given file is not an ensemble of this model, or parameters are given beside it.
    """
    if args.runs is None:
        seeds = cli.seeds(args.seeds, SEEDS)
        if len(seeds) < 2:
            raise ParameterError(f"--seeds {args.seeds}: a comparison needs at least 2 seeds")
        p = cli.parameters(args, Parameters.demo())
        alpha = cli.positive("--alpha", args.alpha) or (ALPHA if not args.set and not args.preset else None)
        return p.run_to(alpha), train(
            p, alpha, seeds, device=args.device, progress=not args.quiet
        )
    given = [f"--{name}" for name in ("set", "preset", "seeds", "alpha", "device") if getattr(args, name)]
    if given:
        raise ParameterError(f"{given[0]}: not together with --runs, whose file says with what it was trained")
    return read(args.runs)


def read(path: Any) -> tuple[Parameters, xr.Dataset]:
    """Parameters and ensemble of a stored file or folder."""
    runs = store.open_store(path) if path.is_dir() else store.read(path)
    if runs.attrs.get("model") != "state_tracking":
        raise ParameterError(f"{path}: an ensemble of {runs.attrs.get('model')}, not of state_tracking")
    if runs.sizes.get("seed", 1) < 2:
        raise ParameterError(f"{path}: holds one seed; a comparison needs at least 2")
    return Parameters(**json.loads(runs.attrs["parameters"])), runs
