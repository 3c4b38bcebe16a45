"""Speed and error of a model's numerical code: ``python -m theory.benchmark [MODEL]``."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from theory import digits, registry
from theory.parameters import Stepped
from theory.runtime import cli, output, progress

POINTS, ALONE, OUTPUTS = 10_000, 20, 13  # parameter points, of which some are integrated alone
AROUND = 0.05  # of a number, over the points
# Columns of the tables, from a row.
WAYS = {
    "way": "{way}",
    "points": "{points}",
    "seconds": "{seconds:.3g}",
    "us per point": "{microseconds_per_point:.4g}",
    "error": "{error:.1e}",
}
FLOWS = {
    "flow": "{flow}",
    "over": "{swept}",
    "points": "{points}",
    "ms together": "{together_ms:.2g}",
    "ms alone": "{alone_ms:.2g}",
    "ratio": "{ratio:.2g}",
    "difference": "{error:.1e}",
}
DIGITS = {"number": "{number}", "points": "{points}", "digits lost": "{lost:.1f}", "at": "{at}"}
SLOW = 0.1  # seconds of one integration: too long for this many


def in_bulk(theory: Any) -> list[dict[str, Any]]:
    """Every flow of a model at many values of one of its numbers: CPU time together, and one point
    after the other; the largest difference, relative to the largest value of an order parameter.
    """
    rows, p = [], theory.Parameters()
    for flow in theory.flows().values() if isinstance(p, Stepped) else ():
        names = [s.name for s in flow._compiled[0]]
        numbers = {name: float(p.values()[name]) for name in names}
        end = getattr(p, p.LENGTH) * p.time_per_step
        at = np.linspace(0, end, OUTPUTS)
        swept = next((name for name in ("eta", *names) if numbers.get(name)), None)
        if swept is None or flow.scope is not None and flow.scope.applies(p):
            continue
        flow.solve(numbers, until=end, at=at)  # compiles
        started = time.process_time()
        flow.solve(numbers, until=end, at=at)
        if time.process_time() - started > SLOW:
            continue
        values = numbers[swept] * np.linspace(1 - AROUND, 1 + AROUND, POINTS)
        begun = time.process_time()
        many = flow.solve(numbers, until=end, at=at, **{swept: values})
        done = time.process_time()
        some = range(0, POINTS, max(POINTS // ALONE, 1))
        alone = [flow.solve({**numbers, swept: values[k]}, until=end, at=at) for k in some]
        spent = (time.process_time() - done) / len(some)
        error = max(
            float(abs(many[x.name][k].values - one[x.name].values).max() / abs(one[x.name]).max())
            for k, one in zip(some, alone, strict=True)
            for x in flow.state
            if abs(one[x.name]).max() > 0
        )
        each = (done - begun) / POINTS
        rows.append(
            {
                "flow": flow.name,
                "swept": swept,
                "points": POINTS,
                "together_ms": 1e3 * each,
                "alone_ms": 1e3 * spent,
                "ratio": spent / each,
                "error": error,
            }
        )
    return rows


def by_number(model: registry.Model) -> list[dict[str, Any]]:
    """Digits that double precision loses: at most, of every closed form at the edges of parameters
    and of every time of an event, the worst first.
    """
    theory = model.wing("theory")
    found = digits.of_model(theory)
    if model.has("theory", "onset"):
        result = model.wing("theory", "onset").onset(theory.Parameters())
        times = digits.of_times(result) if result.crossings else {}
        found |= {name: {"default": lost} for name, lost in times.items()}
    rows = [
        {"number": name, "points": len(lost), "lost": lost[at], "at": at}
        for name, lost in found.items()
        for at in [max(lost, key=lost.__getitem__)]
    ]
    return sorted(rows, key=lambda row: -row["lost"])


def _table(columns: Mapping[str, str], rows: list[dict[str, Any]], wide: bool) -> str:
    cells = [[form.format(**row) for form in columns.values()] for row in rows]
    return output.table([*columns], cells, wide=wide)


def main(argv: list[str] | None = None) -> int:
    """Command line. Exit code 1 if the model's own method (first row) disagrees with its
    reference.
    """
    parser = cli.parser(
        "theory.benchmark",
        "Speed and error of a model's numerical functions, compared with direct evaluation.",
        "json",
        "wide",
        "quiet",
    )
    words = "and digits that double precision loses (needs python-flint)"
    parser.add_argument("--digits", action="store_true", help=words)
    args = parser.parse_args(argv)
    module = registry.optional_module(args.model, "theory", "benchmark")
    with progress.bar(f"theory.benchmark {args.model.name}", show=not args.quiet):
        measured = module.benchmark()
        measured["flows"] = in_bulk(args.model.wing("theory"))
        measured["digits"] = by_number(args.model) if args.digits else []
    said = f"{'within' if measured['agree'] else 'NOT within'} the tolerance"
    text = f"{_table(WAYS, measured['rows'], args.wide)}\nratio {measured['ratio']:.3g}; {said}\n{measured['note']}"
    if measured["flows"]:
        text += f"\n\n{_table(FLOWS, measured['flows'], args.wide)}\nCPU time per point of flow.solve over many values of a number, and of one after the other"
    if measured["digits"]:
        text += f"\n\n{_table(DIGITS, measured['digits'], args.wide)}\nof about 16, beside certified intervals"
    print(output.to_json({"model": args.model.name, **measured}) if args.json else text)
    return 0 if measured["rows"][0]["within"] else 1


if __name__ == "__main__":
    cli.run(main)
