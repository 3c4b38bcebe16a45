"""Shared by all commands: flags, printing, and one-line errors for invalid input."""

import argparse
import contextlib
import difflib
import gc
import math
import os
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from theory.call.refusal import NEAR, ParameterError, nearest
from theory.runtime import output

# set while the shell completes a word: where a command begins, from 1
COMPLETION = "_ARGCOMPLETE"
MOST_SEEDS = 10**6
LONGEST_ECHO = 80  # characters of a typed word that an error repeats
PLOT = (
    "draw the figure: into FILE, or without one into a window (a file if there is no"
    " display)"
)
FLAGS: dict[str, dict[str, Any]] = {
    "json": dict(
        action="store_true", help="one JSON object on stdout instead of a table"
    ),
    "wide": dict(action="store_true", help="every column, however wide the table"),
    "out": dict(
        type=lambda text: Path(output.writable(text, file=False)),
        metavar="PATH",
        help="write the result here",
    ),
    "plot": dict(nargs="?", const="", type=output.writable, metavar="FILE", help=PLOT),
    "latex": dict(
        nargs="?",
        const="-",
        type=output.writable,
        metavar="FILE",
        help="the equations as LaTeX, to FILE or stdout",
    ),
    "set": dict(
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set parameters: N=8 L=4",
    ),
    "preset": dict(metavar="NAME", help="named parameters to start from, e.g. table_2"),
    "seeds": dict(metavar="SEEDS", help="8 (0..7), 0:20 (half-open) or 3,5"),
    "alpha": dict(
        type=float,
        metavar="X",
        help="run length in the model's time, or sample complexity n/d",
    ),
    "until": dict(
        type=float, metavar="X", help="run length in the model's time (also --alpha)"
    ),
    "device": dict(metavar="NAME", help="torch device (cpu, cuda, cuda:1, ...)"),
    "quiet": dict(action="store_true", help="no progress on stderr"),
    "anew": dict(action="store_true", help="run it even if its result is stored"),
    "full": dict(
        action="store_true", help="also what takes minutes to hours, as ledgers cite it"
    ),
    "train": dict(
        action="store_true",
        help="train the students again that come with the code (hours on a CPU)",
    ),
    "runs": dict(
        type=Path,
        metavar="PATH",
        help=(
            "ensemble to use: a netCDF file or a folder of runs (default: the one that"
            " comes with the code, or the demo's)"
        ),
    ),
    "columns": dict(
        metavar="NAME=COLUMN,...",
        help=(
            "--runs is a CSV file: its columns by name in the theory, the time first"
            " (also COLUMN*2, COLUMN/2048; seed=COLUMN)"
        ),
    ),
    "rows": dict(
        metavar="COLUMN=VALUE,...", help="rows of the CSV file to use (default: all)"
    ),
    "fluctuations": dict(
        action="store_true",
        help=(
            "also what steps, batches and random weights do to times, of models that"
            " are stated"
        ),
    ),
    "beyond": dict(
        action="store_true",
        help="answer also for students that the theory does not describe, and say so",
    ),
}


def _check_place(flag: str, target: Path | str | None) -> None:
    """Refuse to write where there is no folder, before any work. Folders are made below
    the working directory only, so that a misspelled path is an error.
    """
    place = Path(target).parent if target else Path()
    if not place.is_dir() and not Path(os.path.realpath(place)).is_relative_to(
        Path.cwd()
    ):
        advice = f"mkdir -p {shlex.quote(str(place))}"
        raise ParameterError(
            f"--{flag} {target}: there is no folder {place}; make it: {advice}"
        )


class Once(argparse._StoreAction):
    """An option that takes a value, which is given once."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        """Store the value, or refuse a second one."""
        given: set[str] = vars(namespace).setdefault("_given", set())
        if self.option_strings and self.dest in given:
            parser.error(f"{option_string}: is given twice; give it once")
        given.add(self.dest)
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line,
    as the rest of the toolkit does.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for name in (None, "store"):
            self.register("action", name, Once)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Reject unknown flags first: argparse would take the word after one for a
        MODEL.
        """
        if COMPLETION in os.environ:
            self._complete()
        words = _assignments(sys.argv[1:] if args is None else args)
        for word in words:
            flag = word.partition("=")[0]
            known = flag in self._option_string_actions  # --seed 2 is not --seeds 2
            if flag.startswith("--") and len(flag) > 2 and not known:
                self.error(f"unknown flag {flag}{self._advice(flag, words)}")
        parsed = super().parse_args(words, namespace)
        vars(parsed).pop("_given", None)
        for flag in ("out", "plot", "latex"):
            _check_place(flag, getattr(parsed, flag, None))
        return parsed

    def _complete(self) -> None:
        """Complete a word for the shell."""
        import argcomplete

        argcomplete.safe_actions.add(Once)  # storing a value does no work
        argcomplete.autocomplete(self)

    def _advice(self, flag: str, words: Sequence[str]) -> str:
        """Suggest the nearest flag."""
        name = flag[2:]
        flags = [
            f[2:] for f in self._option_string_actions if f not in ("-h", "--help")
        ]
        near = difflib.get_close_matches(
            name, flags, n=1, cutoff=NEAR
        )  # dashes are alike
        return f"; did you mean --{near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage."""
        raise ParameterError(f"{message} (see {self.prog} --help)")


def _assignments(words: Sequence[str]) -> list[str]:
    """Words of a command line with every parameter under a flag of its own: ``--set N=4
    M=3`` and ``--set N=4,M=3`` are ``--set N=4 --set M=3``.
    """
    spelled: list[str] = []
    for word in words:
        if spelled[-2:-1] == ["--set"] and re.match(r"[A-Za-z_]\w*=", word):
            spelled.append("--set")
        several = spelled[-1:] == ["--set"]
        first, *others = re.split(r",\s*(?=[A-Za-z_]\w*=)", word) if several else [word]
        spelled.append(first)
        for other in others:
            spelled += ["--set", other]
    return spelled


def seeds(text: str | None, default: str) -> list[int]:
    """Read ``8`` (0..7), ``0:20`` (half-open) or ``3,5``."""
    text = default if text is None else text
    numbers: Sequence[int] = []
    if re.search(r"\d{19}", text):
        raise ParameterError(f"--seeds {text}: must be below 10^18")
    with contextlib.suppress(ValueError):
        if ":" in text:
            start, stop = text.split(":")
            numbers = range(int(start), int(stop))
        elif "," in text:
            numbers = [int(s) for s in text.split(",") if s]
        else:
            numbers = range(int(text))
    if len(numbers) > MOST_SEEDS:
        raise ParameterError(f"--seeds {text}: must be at most {MOST_SEEDS} seeds")
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise ParameterError(
            f"--seeds {text}: must be 8 (0..7), 0:20 (half-open) or 3,5, without"
            " repeats"
        )
    return list(numbers)


def positive(field: str, value: float | None) -> float | None:
    """Return ``value`` unchanged if it is None or a positive finite number.

    Raises
    ------
    ParameterError
        For anything else.
    """
    if value is not None and not 0 < value < math.inf:
        raise ParameterError(f"{field} {value:g}: must be positive and finite")
    return value


def length(given: Mapping[str, Any]) -> float | None:
    """Run length in the model's time, from ``--until`` or ``--alpha``; both are an
    error.
    """
    lengths = [
        positive(f"--{x}", given[x])
        for x in ("until", "alpha")
        if given.get(x) is not None
    ]
    if len(lengths) > 1:
        raise ParameterError("--alpha: says the same as --until; give one of them")
    return lengths[0] if lengths else None


def count(text: str) -> int:
    """Read a positive whole number (an argparse type).

    Raises
    ------
    argparse.ArgumentTypeError
        For anything else.
    """
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number >= 1")
    return int(text)


def choose(field: str, name: str, table: Mapping[str, Any]) -> Any:
    """Look up ``name`` in ``table``; an unknown name raises an error that suggests the
    nearest one.
    """
    if name not in table:
        message = (
            f"{field} {name}: must be one of {', '.join(table)}; {nearest(name, table)}"
        )
        raise ParameterError(message.rstrip(" ;"))
    return table[name]


def _shortened(message: str) -> str:
    """Error message in which long user input is shortened, unless it is a path."""
    typed: set[str] = set()
    for word in sys.argv[1:]:
        typed.update((word, *word.split("=", 1)[1:], *word.split("=", 2)[2:]))
    long = [part for part in typed if len(part) > LONGEST_ECHO]
    for part in sorted(long, key=len, reverse=True):
        if not os.path.exists(part):
            message = message.replace(part, f"{part[:LONGEST_ECHO]}...")
    return message


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM and handled like an interrupt,
    so that a checkpoint is written.
    """


def heed_termination() -> None:
    """Turn SIGTERM, which batch systems send before killing a job, into a `Terminated`
    exception.
    """

    def terminate(*_: Any) -> NoReturn:
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # ignored while a checkpoint is written
        raise Terminated

    with contextlib.suppress(ValueError):  # not in the main thread
        # keep a handler that the caller has installed
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)


def _streams() -> None:
    """Prepare the output streams: escape characters that the encoding lacks, print
    warnings on one line, and refuse a missing stdout.
    """
    if sys.stdout is None:
        print(
            "error: stdout is closed; to do without, redirect it: > /dev/null",
            file=sys.stderr,
        )
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(
            stream, "reconfigure"
        ):
            with contextlib.suppress(
                OSError
            ):  # it looks where it is, which a pipe may not say
                stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, *_, **__: (
        f"warning: {' '.join(str(message).split())}\n"
    )


def _forget_stdout() -> None:
    """Redirect stdout so that nothing is flushed at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def for_the_shell(message: str) -> str:
    """A message whose proposal, a call in Python, is spelled in flags of a command."""
    message = re.sub(
        r"; try [\w.]+\.[A-Z]\w*\.(\w+)\(\)$", r"; try --preset \1", message
    )
    head, sign, changes = message.partition("; try p.replace(")
    flags = changes.removesuffix(")").replace("'", "").replace(", ", " --set ")
    return f"{head}; try --set {flags}" if sign else message


def run(main: Callable[[], int]) -> NoReturn:
    """Run a command. Invalid input, a full disk or insufficient memory give one line on
    stderr and exit code 2.
    """
    # The process is short-lived, imported modules stay, and SymPy's small objects are
    # rarely in reference cycles: garbage collection would only cost time.
    gc.freeze()
    gc.set_threshold(100_000)
    heed_termination()
    _streams()
    try:
        code = main()
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # a reader such as `head` closed the pipe early
        _forget_stdout()
        sys.exit(141)
    except (ParameterError, OSError) as error:
        try:
            sys.stdout.flush()
        except OSError:  # a full disk
            _forget_stdout()
        print(f"error: {_shortened(for_the_shell(str(error)))}", file=sys.stderr)
        sys.exit(2)
    except Terminated:
        print("terminated", file=sys.stderr)
        sys.exit(143)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except (
        MemoryError,
        RuntimeError,
        ValueError,
    ) as error:  # torch raises a plain RuntimeError
        said = str(error).partition("\n")[0]
        digits = "limit (4300 digits)" in said
        if not (isinstance(error, MemoryError) or "memory" in said or digits):
            raise
        lack = (
            "a number has more than 4300 digits"
            if digits
            else f"not enough memory: {said or 'no more to be had'}"
        )
        print(f"error: {lack}", file=sys.stderr)
        sys.exit(2)
