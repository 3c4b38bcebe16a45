"""The ensemble a check looks at: a given file, or the reference run trained (once) for it."""

from __future__ import annotations

from typing import Any

import xarray as xr

from simulate import runs as store
from simulate.associative_memory.factual_recall import train
from simulate.associative_memory.factual_recall.student import SYSTEM
from theory import cli
from theory.associative_memory.factual_recall import Parameters
from theory.parameters import ParameterError

SEEDS = "4"
NEEDED = {"t": ("t",), "step": ("t",), **{x: ("seed", "t") for x in SYSTEM.meaning}}


def get(args: Any) -> tuple[Parameters, xr.Dataset]:
    """Parameters and ensemble from ``--runs``, or trained: the reference run over ``--seeds``.

    Raises
    ------
    ParameterError
        If the given file is not an ensemble of this system, or parameters are given beside it.
    """
    if args.device not in (None, "cpu"):
        raise ParameterError(f"--device {args.device}: these students run on the CPU only")
    if args.runs is None:
        seeds = cli.seeds(args.seeds, SEEDS)
        if len(seeds) < 2:
            raise ParameterError(f"--seeds {args.seeds}: a comparison needs at least 2 seeds")
        p = cli.parameters(args).run_to(cli.positive("--alpha", args.alpha))
        return p, train(p, seeds=seeds, progress=not args.quiet)
    given = [f"--{name}" for name in ("set", "preset", "seeds", "alpha") if getattr(args, name)]
    if given:
        raise ParameterError(f"{given[0]}: not together with --runs, whose file says with what it was trained")
    return store.ensemble(args.runs, SYSTEM.name, Parameters, NEEDED)
