"""Train an ensemble: ``python -m simulate MODEL[.SYSTEM] --preset demo --seeds 4 --out
PATH``.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from simulate import systems
from simulate.store import runs, storage
from simulate.training.plan import PRECISIONS, System
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.models import command_line, registry, solvable
from theory.runtime import cli, output


def parser(prog: str, description: str, *more: str) -> argparse.ArgumentParser:
    """Argument parser of a training command."""
    made = command_line.parser(
        prog,
        description,
        "json",
        "wide",
        "out",
        "set",
        "preset",
        "seeds",
        "alpha",
        "until",
        "device",
        "quiet",
        *more,
        model=False,
    )
    made.add_argument(
        "model",
        nargs="?",
        default="state_tracking",
        metavar="MODEL[.SYSTEM]",
        help="one of " + ", ".join(registry.MODELS),
    )
    made.add_argument(
        "--dtype",
        choices=PRECISIONS,
        help="precision of the students (default: float32, k_hop float64)",
    )
    made.add_argument(
        "--workers",
        type=cli.count,
        metavar="N",
        help="seeds trained at once (default: one per core)",
    )
    return made


def base(args: argparse.Namespace, system: System) -> BaseParameters:
    """Parameters from ``--preset`` and ``--set``; ``--alpha`` where that is a
    parameter.
    """
    kind: Any = system.parameters
    p = command_line.preset(kind, args.preset)
    alpha = cli.positive("--alpha", args.alpha)
    if alpha is not None and any(f.name == "alpha" for f in dataclasses.fields(kind)):
        p = p.replace(alpha=alpha)
    return p.parse(args.set)


def reaching(
    args: argparse.Namespace, system: System, p: BaseParameters
) -> BaseParameters:
    """Parameters with the run length given by ``--until`` or ``--alpha``.

    Raises
    ------
    ParameterError
        If the system has no time, a required swept parameter is not set, or the length
        is given twice.
    """
    if "alpha" not in p.__dataclass_fields__:
        cli.length(vars(args))
    until, flag = (
        (args.alpha, "--alpha") if args.until is None else (args.until, "--until")
    )
    if system.sweep_parameter and getattr(p, system.sweep_parameter) is None:
        raise ParameterError(
            f"--{system.sweep_parameter}: must be given;"
            f" {p.__dataclass_fields__[system.sweep_parameter].metadata['doc']}"
        )
    if until is None or (flag == "--alpha" and system.sweep_parameter == "alpha"):
        return system.until(p)
    if not hasattr(p, "run_to"):
        raise ParameterError(
            f"{flag} {until:g}: {system.name} has no time but its {system.counter}s;"
            f" set them by --set {system.counter}s=N"
        )
    if (length := getattr(p, "LENGTH", "steps")) in chosen(args):
        raise ParameterError(
            f"{flag} {until:g}: --set {length} says it, too; give one of them"
        )
    return system.until(p, cli.positive(flag, until))


def chosen(args: argparse.Namespace) -> dict[str, str]:
    """Fields that are set by flags, and the flags."""
    named = {text.partition("=")[0].strip(): "--set" for text in args.set}
    return named | ({} if args.alpha is None else {"alpha": "--alpha"})


def digits(value: float) -> str:
    """Format a number for a table: four decimal places, or four significant digits if
    it is too small.
    """
    return f"{value:.4f}" if value == 0 or not abs(value) < 1e-3 else f"{value:.4g}"


def main(argv: list[str] | None = None, model: str | None = None) -> int:
    """Command line, in general or for one model."""
    asked = parser(
        "simulate", "Train one student per seed; finished seeds are not trained again."
    )
    asked.add_argument(
        "system",
        nargs="?",
        metavar="SYSTEM",
        help="one of the model's systems, if not named with it",
    )
    asked.add_argument(
        "--system", dest="named", metavar="SYSTEM", help=argparse.SUPPRESS
    )
    asked.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="trigger_task: bigrams of this text, by characters; sets N",
    )
    asked.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="state_tracking: word problem (CSV with input, target); sets N, L and d_g",
    )
    words = sys.argv[1:] if argv is None else argv
    if not (words or model):
        print(solvable.by_model([*systems.every()]))
        print(
            "\nTrain: python -m simulate MODEL[.SYSTEM] --preset demo --seeds 4 --out"
            " PATH"
        )
        return 0
    args = asked.parse_args([model, *words] if model else words)
    short, system = systems.find(
        ".".join(filter(None, (args.model, args.system or args.named)))
    )
    p: Any = base(args, system)
    name = system.name
    if args.text:
        if system.text is None:
            raise ParameterError(f"--text {args.text}: only for trigger_task")
        p, system = system.text(p, output.read_text("--text", args.text))
    options: dict[str, Any] = {}
    if args.data:
        if system.data is None:
            raise ParameterError(f"--data {args.data}: only for state_tracking")
        text = output.read_text("--data", args.data)
        p, options = system.data(p, text, f"--data {args.data}")
    p = reaching(args, system, p)
    seeds = cli.seeds(args.seeds, "1")
    store, single = storage.destination(args.out)
    result = system.train(
        p,
        seeds,
        store=store,
        device=args.device,
        dtype=args.dtype,
        workers=args.workers,
        progress=not args.quiet,
        **options,
    )
    if single:
        runs.write(result, single)
    last = result.isel(
        {d: -1 for d in result.dims if d in (system.time, system.sweep_parameter)}
    )
    where = str(single or store)
    shown = system.displayed or [
        n
        for n, v in last.data_vars.items()
        if v.dims == ("seed",) and not np.isnan(v).all()
    ]
    reached = {
        name: float(last[name])
        for name in (system.counter, system.time, system.sweep_parameter)
        if name in last.coords
    }
    if args.json:
        final = {n: last[n].values for n in shown}
        as_dict = {
            "model": name,
            "system": short,
            "out": where,
            "seeds": seeds,
            **reached,
            "steps": system.length(p),
            "final": final,
            "parameters": p.stored(training_only=True),
        }
        print(output.to_json(as_dict))
        return 0
    when = ", ".join(
        f"{name} {v:.0f}" if name == system.counter else f"{name} = {v:.4g}"
        for name, v in reached.items()
    )
    print(f"students at {when}, stored in {where}")
    rows = []
    for seed in seeds:
        values = last.sel(seed=seed)
        rows.append([str(seed), *(digits(float(values[n])) for n in shown)])
    print(output.table(("seed", *shown), rows, wide=args.wide))
    return 0


if __name__ == "__main__":
    cli.run(main)
