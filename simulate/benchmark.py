"""Speed of a model's training step, plain module against optimised code: ``python -m
simulate.benchmark``.
"""

from __future__ import annotations

import sys

from simulate import floors
from theory import registry
from theory.runtime import cli, output

TABLES = ("ratios", "scaling", "workers", "students")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser(
        "simulate.benchmark",
        "Time a training step: the plain module, the engine, and a lower bound from the number of "
        "operations.",
        "json",
        "set",
        "preset",
        "device",
        "quiet",
    )
    parser.add_argument(
        "--table",
        choices=TABLES,
        help="another table, of CPU times at settings of its own: theory of single students over "
        "their training (ratios), costs against sizes (scaling), short runs on dask workers "
        "(workers), steps of students without kernels (students)",
    )
    args = parser.parse_args(argv)
    if args.table:
        if args.set or args.preset or args.device:
            parser.error(f"--table {args.table}: has settings of its own")
        table = (
            floors.students()
            if args.table == "students"
            else getattr(registry.having(args.model, "simulate", "costs"), args.table)()
        )
        if args.json:
            print(output.to_json({"model": args.model.name, **table}))
        else:
            print(table["about"], output.table(table["header"], table["rows"]), sep="\n")
            print(*table["notes"], sep="\n")
        return 0
    rows = args.model.wing("simulate", "benchmark").measure(
        cli.parameters(args), args.device, args.quiet
    )
    if args.json:
        print(output.to_json({"model": args.model.name, **rows}))
        return 0
    print(f"one training step of {args.model.name} on {rows['device']}")
    head = ("how", "threads", "seeds", "ms per seed-step", "ratio", "peak memory")
    print(
        output.table(
            head,
            [
                [
                    r["name"],
                    str(r["threads"]),
                    str(r["seeds"]),
                    f"{r['ms']:.3g}",
                    f"{r['ratio']:.1f}",
                    f"{r['peak_MB']:.0f} MB",
                ]
                for r in rows["rows"]
            ],
        )
    )
    for line in rows["notes"]:
        print(line, file=sys.stdout)
    return 0


if __name__ == "__main__":
    cli.run(main)
