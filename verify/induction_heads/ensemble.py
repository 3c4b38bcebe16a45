"""The ensemble a check looks at: a given file, or students trained (once) for it."""

from __future__ import annotations

from typing import Any

import xarray as xr

from simulate import runs as store
from simulate.induction_heads import train
from simulate.induction_heads.learner import MEANING, SHORT
from theory import cli
from theory.induction_heads import Parameters
from theory.parameters import ParameterError

SEEDS = "4"
NEEDED = {"t": ("t",), "step": ("t",), "pseudo": ("seed", "t", "parameter"),
          **{x: ("seed", "t") for x in (*MEANING, *SHORT) if x != "pseudo"}}  # fmt: skip


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
        p = cli.parameters(args, Parameters.demo()).run_to(cli.positive("--alpha", args.alpha))
        return p, train(p, seeds, device=args.device, progress=not args.quiet)
    given = [f"--{name}" for name in ("set", "preset", "seeds", "alpha", "device") if getattr(args, name)]
    if given:
        raise ParameterError(f"{given[0]}: not together with --runs, whose file says with what it was trained")
    return store.ensemble(args.runs, "induction_heads", Parameters, NEEDED)
