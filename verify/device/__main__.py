"""Run all checks and benchmarks on a device: ``python -m verify.device --device cuda --out DIR``;
see ``--dry-run``.

Runs from a checkout without installation; requires the packages of pyproject.toml.
"""

import re
import sys
import tempfile
import tomllib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from theory.parameters import ParameterError
from theory.runtime import cli

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def missing() -> list[str]:
    """Missing required packages. Checked first, because a checkout without installation would
    otherwise fail in the middle of a stage.
    """
    listed = (
        tomllib.loads(PROJECT.read_text())["project"]["dependencies"] if PROJECT.exists() else []
    )
    wanted = [re.split(r"[^\w-]", text)[0] for text in listed]
    return [name for name in wanted if find_spec(name) is None]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    about = "Gradients, ensembles and speed of the students on a device, in stages: "
    parser = cli.parser(
        "verify.device",
        f"{about}repeat the command to continue.",
        "out",
        "device",
        "quiet",
        model=False,
    )
    add = parser.add_argument
    add("--dry-run", action="store_true", help="every stage at tiny sizes")
    add("--stages", metavar="A,B", help="run these stages only")
    limit = "time limit of this call, in seconds (default 1800)"
    add("--seconds", type=float, default=1800.0, metavar="S", help=limit)
    where = "where unfinished runs are kept (default: as for training)"
    add("--store", type=Path, metavar="DIR", help=where)
    args = parser.parse_args(argv)
    cli.positive("--seconds", args.seconds)
    if absent := missing():
        raise ParameterError(f"packages: not here: {', '.join(absent)}")
    from simulate import device as devices
    from simulate import storage
    from verify.device import stages

    names = args.stages.split(",") if args.stages else list(stages.STAGES)
    for name in names:
        cli.choose("--stages", name, stages.STAGES)
    device = devices.find("cpu" if args.dry_run and args.device is None else args.device)
    if device.type == "cuda":
        devices.torch.cuda.set_device(device)
    out = args.out or Path("output") / ("device-dry-run" if args.dry_run else "device")
    out.mkdir(parents=True, exist_ok=True)
    if args.dry_run and args.out is None:
        (out / "report.json").unlink(missing_ok=True)  # a dry run starts from scratch

    say = (lambda line: None) if args.quiet else partial(print, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as scratch:  # a dry run does not write to the store
        store = Path(scratch) if args.dry_run else args.store or storage.default_store()
        report = stages.run(names, device, out, store, args.seconds, args.dry_run, say)
    print(stages.text(report))
    return 0 if stages.succeeded(report, names) else 1


if __name__ == "__main__":
    cli.run(main)
