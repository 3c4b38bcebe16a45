"""Remake a paper: ``python -m papers forner2026 [--figure 2] [--scale small|paper]``."""

from __future__ import annotations

import importlib
from pathlib import Path

from papers import claims
from papers.source import Source
from theory import cli
from theory.registry import MODELS


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    keys = {m.paper: m for m in MODELS.values()}
    parser = cli.parser("papers", "Figures, claims and write-up of a paper, all from the code.",
                        "json", "out", "seeds", "device", "quiet", model=False)  # fmt: skip
    parser.add_argument("paper", metavar="PAPER", help="one of " + ", ".join(keys))
    parser.add_argument("--figure", metavar="NAME", help="only this figure")
    parser.add_argument("--scale", choices=("shipped", "small", "paper"),
                        help="shipped: the ensembles that come with the code, where there are any (default); "
                        "small: trained here in minutes; paper: the printed sizes, for a GPU")  # fmt: skip
    parser.add_argument("--claims", action="store_true", help="print the claims ledger and its coverage")
    args = parser.parse_args(argv)
    cli.choose("paper", args.paper, keys)
    paper = importlib.import_module(f"papers.{args.paper}")
    if args.claims:
        ledger = claims.load(Path(str(paper.__file__)).with_name("claims.toml"))
        if args.json:
            print(
                cli.to_json(
                    {"paper": args.paper, "claims": [vars(c) for c in ledger], "coverage": claims.coverage(ledger)}
                )
            )
        else:
            print(claims.report(ledger))
        return 0
    out = args.out or Path("output") / args.paper
    scales = getattr(paper, "SCALES", ("small", "paper"))
    scale = args.scale or scales[-2 if args.seeds or args.device else 0]  # who names seeds wants them trained
    cli.choose("--scale", scale, dict.fromkeys(scales))
    source = Source(scale, cli.seeds(args.seeds, "100" if scale == "paper" else "8"), args.device, not args.quiet)
    if args.figure is not None:
        written = [cli.choose("--figure", args.figure, paper.FIGURES).write(source, out)]
    else:
        written = paper.write_all(source, out)
    print(
        cli.to_json({"paper": args.paper, "written": [str(w) for w in written]})
        if args.json
        else "\n".join(map(str, written))
    )
    return 0


if __name__ == "__main__":
    cli.run(main)
