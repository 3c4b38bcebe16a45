"""Emergence times fitted and held against their laws: ``python -m verify.timescales [MODEL]``."""

from __future__ import annotations

import sys

from theory import cli
from verify import check
from verify.trajectories import arguments


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    args = arguments("verify.timescales", "Emergence times of ensembles and their scaling.").parse_args(argv)
    cli.offers(args.model, "timescales")
    cli.check_plot(args.plot)
    module = args.model.wing("verify", "timescales")
    p, runs = args.model.wing("verify", "ensemble").get(args)
    checks, notes = module.emergence(p, runs)
    scaled, more, sweeps = module.scaling(args)
    checks, notes = checks + scaled, notes + more
    code = check.report(args.model.name, checks, args.json, notes=notes)
    for note in notes:
        print(note, file=sys.stderr if args.json else sys.stdout)
    if args.plot is not None:
        from theory import plotting

        plotting.deliver(
            module.draw(sweeps),
            args.plot,
            f"timescales_{args.model.name}.png",
            stream=sys.stderr if args.json else None,
        )
    return code


if __name__ == "__main__":
    cli.run(main)
