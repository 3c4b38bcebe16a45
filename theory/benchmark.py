"""Speed and error of a model's numerical code: ``python -m theory.benchmark [MODEL]``."""

from theory import registry
from theory.runtime import cli, output, progress


def main(argv: list[str] | None = None) -> int:
    """Command line. Exit code 1 if the model's own method (first row) disagrees with its
    reference.
    """
    args = cli.parser(
        "theory.benchmark",
        "Speed and error of a model's numerical functions, compared with direct evaluation.",
        "json",
        "wide",
        "quiet",
    ).parse_args(argv)
    module = registry.having(args.model, "theory", "benchmark")
    with progress.bar(f"theory.benchmark {args.model.name}", show=not args.quiet):
        measured = module.benchmark()
    head = ("way", "points", "seconds", "us per point", "error")
    rows = [
        (
            r["way"],
            f"{r['points']}",
            f"{r['seconds']:.3g}",
            f"{r['microseconds_per_point']:.4g}",
            f"{r['error']:.1e}",
        )
        for r in measured["rows"]
    ]
    said = f"{'within' if measured['agree'] else 'NOT within'} the tolerance"
    text = f"{output.table(head, rows, wide=args.wide)}\nratio {measured['ratio']:.3g}; {said}\n{measured['note']}"
    print(output.to_json({"model": args.model.name, **measured}) if args.json else text)
    return 0 if measured["rows"][0]["within"] else 1


if __name__ == "__main__":
    cli.run(main)
