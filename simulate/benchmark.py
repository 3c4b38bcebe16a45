"""Speed of a model's training step, plain module against optimised code: ``python -m
simulate.benchmark``.
"""

from __future__ import annotations

import sys

from theory.runtime import cli, output


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
    args = parser.parse_args(argv)
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
