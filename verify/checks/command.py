"""The main function of all ``verify`` commands, and the request that its arguments
make.
"""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import partial

from simulate.store.storage import default_store
from theory.call.refusal import ParameterError
from theory.models import command_line, registry
from theory.runtime import cli, progress
from verify.checks import report_store
from verify.checks.report import Request, collect


def request(args: argparse.Namespace) -> Request:
    """Request from parsed command-line arguments."""
    flags = vars(args)
    common = ("preset", "seeds", "runs", "device")
    return Request(
        args.model,
        assignments=tuple(flags.get("set") or ()),
        until=cli.length(flags),
        progress=not flags.get("quiet", False),
        renew=flags.get("train", False),
        full=flags.get("full", True),
        length_flag="--until" if flags.get("alpha") is None else "--alpha",
        **{name: flags.get(name) for name in common},
    )


def main(
    command: str,
    description: str,
    flags: Sequence[str],
    argv: list[str] | None = None,
    *,
    unset: Iterable[str] = (),
) -> int:
    """Main function of a ``verify`` command: parse, collect, print, draw. The default
    model is the first one that implements it.

    Parameters
    ----------
    command : str
        Name of the command and of the modules that implement it.
    flags : sequence of str
        Shared flags of the command.
    unset : iterable of str
        Parameters that the command itself varies.
    """
    parser = command_line.parser(
        f"verify.{command}",
        description,
        "json",
        "wide",
        "anew",
        *flags,
        model=registry.offering(command)[0],
    )
    parser.unset = frozenset(unset)
    args = parser.parse_args(argv)
    registry.require_command(args.model, command)
    if "plot" in flags:
        command_line.check_plot(args.plot)
    if getattr(args, "device", None) is not None:
        from simulate.training import device

        device.find(args.device)
    drawn = getattr(args, "plot", None) is not None
    with progress.bar(
        f"verify.{command} {args.model.name}", show=request(args).progress
    ):
        make = partial(collect, request(args), command)
        # Not where code may have been changed in memory, nor what the key of a result
        # leaves out.
        if argv is None and not getattr(args, "beyond", False):
            with report_store.arrays(default_store()):
                report, origin = report_store.answer(
                    request(args), command, make, args.anew or drawn
                )
        else:
            report, origin = make(), ""
    if origin:
        print(f"{origin}; --anew runs it again", file=sys.stderr)
    report.printed(args)
    if drawn and report.draw is not None:
        from theory.runtime import plotting

        plotting.deliver(
            report.draw(),
            args.plot,
            f"{command}_{args.model.name}.png",
            stream=sys.stderr if args.json else None,
        )
    elif drawn:
        print("no figure of this form of the command (see --full)", file=sys.stderr)
    return report.exit_code


def mapped(flag: str, text: str) -> dict[str, str]:
    """``NAME=WORD,NAME="WORD, WORD"`` as a mapping.

    Raises
    ------
    ParameterError
        If a part has no ``=``, or a name comes twice.
    """
    parts = shlex.shlex(text, posix=True)
    parts.whitespace, parts.whitespace_split, parts.quotes = ",", True, '"'
    parts.escape = parts.commenters = ""
    with contextlib.suppress(ValueError):  # a quotation without an end
        pairs = [part.partition("=") for part in parts]
        words = {name.strip(): word for name, sign, word in pairs if sign}
        if len(words) == len(pairs):
            return words
    raise ParameterError(
        f'{flag} {text}: must be NAME=WORD,NAME="WORD, WORD", each name once'
    )
