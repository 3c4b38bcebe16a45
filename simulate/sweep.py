"""Train a grid of ensembles:
``python -m simulate.sweep MODEL[.SYSTEM] --grid L=5,10,20 --seeds 0:20 --out DIR``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulate import __main__ as command
from simulate import systems
from simulate.store import storage
from simulate.training import jobs
from simulate.training.plan import System
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.runtime import cli, output

MOST_RUNS = 10**5  # of one sweep; job arrays of several sweeps are faster to plan, too
SPACED = r"(linspace|logspace|geomspace)\(([^,()]+),([^,()]+),\s*(\d+)\s*\)"
RANGE = r"(-?\d+):(-?\d+)"


def listed(name: str, text: str, words: bool) -> list[str]:
    """Values of one axis as texts, from values, ranges (``2:5``, half-open) and
    ``logspace(-2,-1,3)``, ``linspace`` or ``geomspace`` as in NumPy, separated by
    commas.

    Raises
    ------
    ParameterError
        If a value is missing or repeated, or there are too many.
    """
    values: list[str] = []
    for part in re.split(r",(?![^(]*\))", text):
        part = part.strip()
        between = re.fullmatch(RANGE, part)
        spaced = re.fullmatch(SPACED, part)
        more: Sequence[Any] = [part]
        try:
            if between and not words:
                more = range(int(between[1]), int(between[2]))
            elif spaced and not words:
                count = min(int(spaced[4]), MOST_RUNS + 1)
                with np.errstate(all="raise"):
                    ends = float(spaced[2]), float(spaced[3])
                    more = [f"{v:.12g}" for v in getattr(np, spaced[1])(*ends, count)]
            elif not words and re.search(r"[()\[\]:]", part):
                raise ValueError
        except (ValueError, ArithmeticError):
            raise ParameterError(
                f"--grid {name}={text}: {part} is no value; several are 0.1,0.2 or 2:5"
                " (half-open) or linspace(1,2,5) or logspace(-2,-1,3)"
            ) from None
        if not len(more) or more[0] == "":
            raise ParameterError(f"--grid {name}={text}: a value is missing")
        if len(values) + len(more) > MOST_RUNS:
            raise ParameterError(
                f"--grid {name}={text}: must be at most {MOST_RUNS:,} values"
            )
        values += map(str, more)
    (most, times), *_ = Counter(values).most_common(1)
    if times > 1:
        raise ParameterError(f"--grid {name}={text}: a value is repeated: {most}")
    return values


def grid(
    base: BaseParameters, axes: list[str], seeds: int = 1
) -> list[tuple[str, Any]]:
    """Label and parameters of every point of a grid given as ``NAME=V1,V2`` texts (see
    `listed`). Values that are equal, as 0.1 and 1e-1, are one.

    Raises
    ------
    ParameterError
        If an axis is malformed, named twice, or holds a value that is not allowed, or
        if there are more than `MOST_RUNS` runs.
    """
    values: dict[str, list[str]] = {}
    for text in axes:
        name, sign, several = (part.strip() for part in text.partition("="))
        if not sign or not name or name in values:
            raise ParameterError(
                f"--grid {text}: must be NAME=V1,V2,..., each NAME once"
            )
        base._known([name])
        texts = listed(name, several, str in base._kinds(name))
        values[name] = [*{base._read(name, v): v for v in reversed(texts)}.values()][
            ::-1
        ]
    runs = seeds * math.prod(map(len, values.values()))
    if runs > MOST_RUNS:
        raise ParameterError(
            f"--grid: {runs:,} runs, must be at most {MOST_RUNS:,}; take fewer"
        )
    points = []
    for point in itertools.product(*values.values()):
        settings = [
            f"{name}={value}" for name, value in zip(values, point, strict=True)
        ]
        points.append((" ".join(settings), base.parse(settings)))
    return points


def _check_distinct(
    points: list[tuple[str, Any]], system: System, dtype: str | None
) -> None:
    """Raise an error if two points of a grid are the same run."""
    labels: dict[str, str] = {}
    for label, p in points:
        other = labels.setdefault(
            system.configuration(p, system.precision(dtype)), label
        )
        if other != label:
            raise ParameterError(
                f"--grid: {other} and {label} are one run of {system.name}: --until"
                " sets its length, or the field belongs to the theory alone; leave it"
                " out of the grid"
            )


def shard(text: str | None, count: int) -> slice:
    """Part ``i/n`` of a list of jobs, with i counted from 0; the whole list without a
    text.

    Raises
    ------
    ParameterError
        Unless 0 <= i < n.
    """
    if text is None:
        return slice(count)
    part, _, parts = text.partition("/")
    if not (re.fullmatch("[0-9]{1,9}/[0-9]{1,9}", text) and int(part) < int(parts)):
        raise ParameterError(f"--shard {text}: must be i/n with 0 <= i < n")
    return slice(int(part), count, int(parts))


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = command.parser(
        "simulate.sweep",
        "Train an ensemble at every point of a grid; finished runs are not trained"
        " again.",
    )
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help=(
            "swept parameter (repeatable): 0.1,0.2 or 2:5 (half-open) or"
            " logspace(-2,-1,3)"
        ),
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="hand the jobs to a dask scheduler, e.g. tcp://host:8786",
    )
    where.add_argument(
        "--shard",
        metavar="i/n",
        help="do only part i = 0..n-1 of the jobs, for job arrays",
    )
    args = parser.parse_args(argv)
    _, system = systems.find(args.model)
    seeds = cli.seeds(args.seeds, "1")
    chosen = command.chosen(args)
    points = grid(command.base(args, system), args.grid, len(seeds))
    for name in [text.partition("=")[0].strip() for text in args.grid]:
        if chosen.get(name, "--set") != "--set":
            raise ParameterError(
                f"--grid {name}: {chosen[name]} says it, too; give one of them"
            )
    points = [(label, command.reaching(args, system, p)) for label, p in points]
    _check_distinct(points, system, args.dtype)
    if not (args.grid or args.seeds or args.shard or args.scheduler):
        raise ParameterError(
            "--grid: none; --grid eta=0.1,0.2, or for one run: python -m simulate"
            f" {args.model}"
        )
    if not args.quiet:
        count = f"{len(points)} x {len(seeds)} seeds = {len(points) * len(seeds)} runs"
        print(f"settings: {count}", file=sys.stderr, flush=True)
    # Write errors are found before anything is trained.
    store = Path(os.path.realpath(args.out or storage.default_store()))
    store.mkdir(parents=True, exist_ok=True)
    # Runs are assigned to shards before finished ones are removed, so that a shard does
    # not depend on when it starts.
    seeds_of: dict[str, list[int]] = {label: [] for label, _ in points}
    tasks = list(itertools.product([label for label, _ in points], seeds))
    mine = tasks[shard(args.shard, len(tasks))]
    for label, seed in mine:
        seeds_of[label].append(seed)
    options = {"store": store, "device": args.device, "dtype": args.dtype}
    todo = []
    for label, p in points:
        for job in system.plan(p, seeds_of[label], **options):
            name = f"{label} {job.name}".strip()
            todo.append(dataclasses.replace(job, name=name))
    if args.scheduler:
        failures = jobs.on_cluster(todo, args.scheduler, not args.quiet)
    else:
        workers = args.workers if system.device(args.device).type == "cpu" else 1
        failures = jobs.carry_out(todo, workers, not args.quiet)
    lost = [
        {"job": job.name, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        for job, error in failures
    ]
    if args.json:
        print(
            output.to_json(
                {
                    "model": args.model,
                    "out": str(store),
                    "runs": len(mine),
                    "trained": len(todo) - len(lost),
                    "failed": lost,
                    "passed": not lost,
                }
            )
        )
    else:
        print(f"{len(mine)} runs, {len(todo)} jobs, {len(lost)} failed; in {store}")
    for failure in lost:
        print(f"failed: {failure['job']}: {failure['error']}", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    cli.run(main)
