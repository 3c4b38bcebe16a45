"""``python -m tests.faults``: random faults, and what the tests notice of them."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.faults.sites import Fault, shuffled
from tests.faults.trial import Bench

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def equivalents() -> dict[str, str]:
    """Faults that no test could see, with the proof of each."""
    listed = tomllib.loads((HERE / "equivalent.toml").read_text())["fault"]
    return {f["key"]: f["proof"] for f in listed}


def drawn(
    tree: Path, seed: int, count: int, among: str = "*"
) -> tuple[list[Fault], list[Fault]]:
    """The first `count` faults of a seed that are not listed as equivalent, and those
    passed over; `among` is a pattern for their files.
    """
    proofs, kept, passed = equivalents(), [], []
    for fault in shuffled(tree, seed):
        if not fnmatch(fault.file, among):
            continue
        if len(kept) == count:
            break
        (passed if fault.key in proofs else kept).append(fault)
    return kept, passed


def line(fault: Fault, found: dict[str, Any]) -> str:
    """One trial."""
    change = f"{fault.before}  ->  {fault.after}"
    end = f"  by {found['by']}" if found["by"] else ""
    return f"{found['state']:9}{fault.file}:{fault.line}  {change}{end}"


def main(argv: list[str] | None = None) -> int:
    """Draw, try, report; exit code 1 if a fault was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument(
        "--count", type=int, default=150, help="faults that are not equivalent"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "output" / "faults",
        help="copy of the tree, calls, results; a killed command goes on from here",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=600.0,
        help="CPU seconds of tests per fault and go; beyond, it is left open",
    )
    parser.add_argument(
        "--among", default="*", metavar="PATTERN", help="files to draw from"
    )
    parser.add_argument(
        "--tests", default="*", metavar="PATTERN", help="test files to run"
    )
    parser.add_argument(
        "--list", action="store_true", help="show what is drawn, and end"
    )
    parser.add_argument("--json", action="store_true", help="results for machines")
    args = parser.parse_args(argv)
    faults, passed = drawn(ROOT, args.seed, args.count, args.among)
    if args.list:
        print(
            "\n".join(f"{f.file}:{f.line}  {f.key.partition(': ')[2]}" for f in faults)
        )
        return 0
    bench = Bench(ROOT, args.out, args.tests)
    for file in bench.files:
        if bench.calls(file) is None:
            bench.trace(file)
            print(f"calls of {file}", file=sys.stderr, flush=True)
    results = []
    for fault in faults:
        results.append(bench.try_(fault, args.budget))
        print(line(fault, results[-1]), file=sys.stderr, flush=True)
    states = Counter(found["state"] for found in results)
    if args.json:
        rows = [
            {"key": f.key, "line": f.line, "kind": f.kind, **found}
            for f, found in zip(faults, results, strict=True)
        ]
        print(
            json.dumps(
                {
                    "seed": args.seed,
                    "equivalent": [f.key for f in passed],
                    "faults": rows,
                }
            )
        )
    else:
        for fault, found in zip(faults, results, strict=True):
            if found["state"] != "caught":
                print(line(fault, found))
        said = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
        print(
            f"seed {args.seed}: {len(faults)} faults, {said}; {len(passed)} equivalent"
            " passed over"
        )
    return int(states["caught"] < len(faults))


if __name__ == "__main__":
    raise SystemExit(main())
