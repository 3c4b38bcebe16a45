"""Order parameters of a module in a file: ``python -m simulate.discover
FILE.py[:NAME]``.
"""

from __future__ import annotations

from pathlib import Path

import torch

from simulate.discover.found import discover
from simulate.discover.sizes import called, parsed, scaling
from theory.call.refusal import nearest
from theory.models import command_line
from theory.models.stated import run_file
from theory.runtime import cli, output
from theory.statement.words.tree import require


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    flags = ("json", "out", "set", "until", "quiet")
    about = "Order parameters of your own PyTorch module, from its gradients alone."
    parser = command_line.parser("simulate.discover", about, *flags, model=False)
    add = parser.add_argument
    about = "function that returns (module, inputs); make without NAME"
    add("file", metavar="FILE.py[:NAME]", help=about)
    add(
        "--start",
        type=float,
        metavar="X",
        help="all weights start at X, not as in the file",
    )
    add("--sample", action="store_true", help="the inputs are a sample of more")
    add("--onset", action="store_true", help="also when the loss falls")
    add("--sizes", metavar="N=3,4,5,6,7", help="how all depends on a size")
    args = parser.parse_args(argv)
    path, _, name = args.file.partition(".py")
    path, name = f"{path}.py", name.removeprefix(":") or "make"
    require(Path(path).is_file(), f"file: no file {path}; give FILE.py[:NAME]")
    functions = {k: v for k, v in run_file(path).items() if callable(v)}
    require(
        name in functions,
        f"{path}:{name}: there is no such function; {nearest(name, functions)}write def"
        f" {name}(N=4) that returns (module, inputs)",
    )
    make = functions[name]
    require(
        not isinstance(make, torch.nn.Module),
        f"{path}:{name}: is a module; write def make(): return {name}, inputs",
    )
    sizes = parsed(make, args.set)
    options = {"start": args.start, "sample": args.sample or None}
    if args.sizes:
        key, _, values = args.sizes.partition("=")
        several = values.replace(",", "").isdigit()
        require(several, f"--sizes {args.sizes}: must be NAME=3,4,5,6,7")
        counts = scaling(
            make, key, [int(v) for v in values.split(",") if v], **sizes, **options
        )
        result, text = counts.to_dict(), repr(counts)
    else:
        found = discover(*called(make, sizes), **options)
        result, text = found.to_dict(), repr(found)
        if args.onset or args.until:
            onset = found.onset(cli.positive("--until", args.until))
            result["onset"] = onset.numbers
            text = "\n".join([text, "", onset.table(), *onset.notes])
    output.write_text(args.out, output.to_json(result) if args.json else text)
    return 0


if __name__ == "__main__":
    cli.run(main)
