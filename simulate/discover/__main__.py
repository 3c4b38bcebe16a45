"""Order parameters of a module in a file: ``python -m simulate.discover FILE.py[:NAME]``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from simulate.discover import discover, scaling
from theory.parameters import ParameterError, error_summary, nearest
from theory.runtime import cli, output
from theory.statement.model import run_file


def made_by(name: str) -> Callable[..., Any]:
    """The function ``NAME`` of ``FILE.py:NAME``, ``make`` without one.

    Raises
    ------
    ParameterError
        In one line, if there is no such file or function.
    """
    path, _, chosen = name.partition(".py")
    path, chosen = f"{path}.py", chosen.removeprefix(":") or "make"
    if not Path(path).is_file():
        raise ParameterError(f"file: no file {path}; give FILE.py[:NAME]")
    functions = {k: v for k, v in run_file(path).items() if callable(v)}
    if chosen not in functions:
        hint = nearest(chosen, functions)
        raise ParameterError(
            f"{path}:{chosen}: there is no such function; {hint}write def {chosen}(N=4) that "
            "returns (module, inputs)"
        )
    return functions[chosen]


def called(make: Callable[..., Any], name: str, sizes: dict[str, Any]) -> tuple[Any, Any]:
    """Module and inputs of these sizes."""
    known = inspect.signature(make).parameters
    for key in sizes:
        if key not in known:
            hint = nearest(key, known)
            raise ParameterError(f"--set {key}: no size of {name}; {hint}it has {', '.join(known)}")
    unset = [k for k, p in known.items() if p.default is p.empty and k not in sizes]
    unset = [k for k in unset if known[k].kind in (0, 1, 3)]
    if unset:
        raise ParameterError(f"{name}: {unset[0]} has no default; add --set {unset[0]}=4")
    try:
        made = make(**sizes)
    except ParameterError:
        raise
    except Exception as error:  # a stranger's function may raise anything
        raise ParameterError(f"{name}: {error_summary(error)}") from error
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        got = f"a tuple of {len(made)}" if isinstance(made, tuple) else f"a {type(made).__name__}"
        raise ParameterError(f"{name}: must return (module, inputs), returned {got}")
    return made


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser(
        "simulate.discover",
        "Order parameters of your own PyTorch module, from its gradients alone.",
        "json",
        "out",
        "set",
        "until",
        model=False,
    )
    parser.add_argument(
        "file",
        metavar="FILE.py[:NAME]",
        help="function that returns (module, inputs); make without NAME",
    )
    parser.add_argument(
        "--start",
        type=float,
        metavar="X",
        help="all weights start at X (default: as in the module)",
    )
    parser.add_argument("--sample", action="store_true", help="the inputs are a sample of more")
    parser.add_argument("--onset", action="store_true", help="also when the loss falls")
    parser.add_argument("--sizes", metavar="N=3,4,5,6", help="how all depends on a size")
    args = parser.parse_args(argv)
    sizes = {}
    for text in args.set:
        key, _, value = text.partition("=")
        try:
            sizes[key] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            raise ParameterError(f"--set {text}: must be NAME=NUMBER") from None
    make = made_by(args.file)
    options: dict[str, Any] = {"start": args.start, "sample": args.sample or None}
    result: dict[str, Any]
    if args.sizes:
        key, _, values = args.sizes.partition("=")
        if not values.replace(",", "").isdigit():
            raise ParameterError(f"--sizes {args.sizes}: must be NAME=3,4,5,6")
        at = [int(v) for v in values.split(",") if v]
        counts = scaling(make, key, at, **sizes, **options)
        result, text = counts.to_dict(), repr(counts)
    else:
        found = discover(*called(make, args.file, sizes), **options)
        result, text = found.to_dict(), repr(found)
        if args.onset or args.until:
            result["onset"] = found.onset(cli.positive("--until", args.until))
            text += "\n\n" + "\n".join(f"{k}: {v}" for k, v in result["onset"].items())
    text = output.to_json(result) if args.json else text
    output.write_text(args.out, text)
    return 0


if __name__ == "__main__":
    cli.run(main)
