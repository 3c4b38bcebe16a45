"""Train a grid of ensembles:
``python -m simulate.sweep MODEL[.SYSTEM] --grid L=5,10,20 --seeds 0:20 --out DIR``.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

from simulate import __main__ as command
from simulate import jobs, storage, systems
from theory.parameters import BaseParameters, ParameterError
from theory.runtime import cli, output


def grid(base: BaseParameters, axes: list[str]) -> Iterator[tuple[str, Any]]:
    """Label and parameters of every point of a grid given as ``NAME=V1,V2`` texts.

    Raises
    ------
    ParameterError
        If an axis is malformed, named twice, or holds a value that is not allowed.
    """
    values: dict[str, list[str]] = {}
    for text in axes:
        name, sign, listed = text.partition("=")
        if not sign or name in values:
            raise ParameterError(f"--grid {text}: must be NAME=V1,V2,..., each NAME once")
        values[name] = listed.split(",")
        if len(set(values[name])) < len(values[name]):
            raise ParameterError(f"--grid {text}: a value is repeated")
    for point in itertools.product(*values.values()):
        settings = [f"{name}={value}" for name, value in zip(values, point, strict=True)]
        yield " ".join(settings), base.parse(settings)


def shard(text: str | None, count: int) -> slice:
    """Part ``i/n`` of a list of jobs, with i counted from 0; the whole list without a text.

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
        "Train an ensemble at every point of a grid; finished runs are not trained again.",
    )
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help="swept parameter (repeatable)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="hand the jobs to a dask scheduler, e.g. tcp://host:8786",
    )
    where.add_argument(
        "--shard", metavar="i/n", help="do only part i = 0..n-1 of the jobs, for job arrays"
    )
    args = parser.parse_args(argv)
    _, system = systems.find(args.model)
    points = [
        (label, command.reaching(args, system, p))
        for label, p in grid(command.base(args, system), args.grid)
    ]
    seeds = cli.seeds(args.seeds, "1")
    store = (args.out or storage.default_store()).resolve()
    store.mkdir(parents=True, exist_ok=True)  # write errors are found before anything is trained
    # Runs are assigned to shards before finished ones are removed, so that a shard does not depend
    # on when it starts.
    tasks = [(label, p, seed) for label, p in points for seed in seeds]
    mine = tasks[shard(args.shard, len(tasks))]
    todo = [
        dataclasses.replace(job, name=f"{label} {job.name}".strip())
        for label, p in points
        for job in system.plan(
            p,
            [s for name, _, s in mine if name == label],
            store=store,
            device=args.device,
            dtype=args.dtype,
        )
    ]
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
