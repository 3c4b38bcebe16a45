"""Reproduce a paper: ``python -m papers forner2026 [--figure 2] [--scale small|paper]
[--claims [--run]]``.
"""

import argparse
import sys
from pathlib import Path

from papers import claims, evidence
from theory import Model, ParameterError
from theory.models import command_line, registry
from theory.runtime import cli, output, progress


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    keys = {m.paper: m for m in registry.MODELS.values()}
    parser = command_line.parser(
        "papers",
        "Figures, claims and write-up of a paper, all from the code.",
        "json",
        "out",
        "seeds",
        "device",
        "quiet",
        "anew",
        model=False,
    )
    paper = parser.add_argument(
        "paper",
        nargs="?",
        default="",
        metavar="PAPER",
        help="one of " + ", ".join(keys),
    )
    paper.completer = lambda **_: keys  # type: ignore[attr-defined]
    parser.add_argument("--figure", metavar="NAME", help="only this figure")
    parser.add_argument(
        "--scale",
        choices=("shipped", "small", "paper"),
        help=(
            "shipped: the ensembles that come with the code, where there are any"
            " (default); small: trained here in minutes; paper: the printed sizes, for"
            " a GPU"
        ),
    )
    parser.add_argument(
        "--claims",
        action="store_true",
        help="print the claims ledger with its verdicts, computed from stored evidence",
    )
    parser.add_argument(
        "--run",
        nargs="?",
        const="all",
        metavar="COMMANDS",
        help=(
            "with --claims: first run the verify commands whose code has changed, and"
            " the cited tests (all, or gradients,tests,...), and store what they find"
        ),
    )
    args = parser.parse_args(argv)
    if not args.paper:
        raise ParameterError(f"which paper? there are {', '.join(keys)}")
    model = cli.choose("paper", args.paper, keys)
    paper = model.ledger()
    if args.figure is not None and args.claims:
        raise ParameterError(
            "--figure: not together with --claims, which is about the whole paper"
        )
    if args.run is not None and not args.claims:
        raise ParameterError("--run: only with --claims")
    if args.claims:
        return _claims(model, args)
    out = args.out or Path("output") / args.paper
    scales = getattr(paper, "SCALES", ("small", "paper"))
    # Seeds or a device imply training.
    scale = args.scale or scales[-2 if args.seeds or args.device else 0]
    cli.choose("--scale", scale, dict.fromkeys(scales))
    from papers.source import Source  # imports matplotlib, needed for figures only

    seeds = cli.seeds(args.seeds, "100" if scale == "paper" else "8")

    def say(path: Path) -> None:
        if not args.json:
            progress.say(str(path))

    source = Source(scale, seeds, args.device, not args.quiet, say)
    figures = paper.FIGURES.values()
    if args.figure is not None:
        figures = [cli.choose("--figure", args.figure, paper.FIGURES)]
    with progress.bar(f"papers {args.paper}", show=not args.quiet):
        if args.figure is None and hasattr(paper, "write_all"):  # with a write-up
            written = paper.write_all(source, out)
        else:
            written = [figure.write(source, out) for figure in figures]
    if args.json:
        paths = [str(path) for path in written]
        print(output.to_json({"paper": args.paper, "written": paths}))
    return 0


def _claims(model: Model, args: argparse.Namespace) -> int:
    """Show the ledger. Exit code 1 if verdicts are not the expected ones, 3 if stored
    evidence is stale.
    """
    path = claims.place(model)
    ledger = claims.load(path)
    stored = evidence.load(model)
    if args.run is not None:
        known = (*model.checks, evidence.TESTS)
        wanted = known if args.run == "all" else args.run.split(",")
        for command in wanted:
            cli.choose("--run", command, dict.fromkeys(known))
        with progress.bar(f"papers {args.paper}", show=not args.quiet):
            stored = evidence.renew(model, wanted, not args.quiet, args.anew)
    found_rows = evidence.found(stored)
    state = evidence.state(model, stored)
    different = claims.different(ledger, found_rows, claims.counted(path))
    if args.json:
        ledger_as_dict = {
            "paper": args.paper,
            "claims": claims.as_dicts(ledger, found_rows),
            "coverage": claims.coverage(ledger, found_rows),
            "without_result": claims.without_result(ledger, found_rows),
            "different": different,
            "evidence": state,
        }
        print(output.to_json(ledger_as_dict))
    else:
        print("\n".join([claims.report(ledger, found_rows), *state]))
        if different:
            print(
                "verdicts are not those that the ledger expects:"
                f" {', '.join(different)}"
            )
    if different:
        return 1
    if evidence.stale(model, stored):
        print("exit code 3: evidence is stale; --run renews it", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    cli.run(main)
