"""What all commands share: flags, printing, and one clear line when the input is wrong."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import gc
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from theory import __version__, registry, scope
from theory.parameters import BaseParameters, ParameterError, nearest

MOST_SEEDS = 10**6
LONGEST_ECHO = 80  # characters of a typed word that an error repeats
_FLAGS: dict[str, dict[str, Any]] = {
    "json": {"action": "store_true", "help": "one JSON object on stdout instead of a table"},
    "wide": {"action": "store_true", "help": "every column, however wide the table"},
    "out": {"type": Path, "metavar": "PATH", "help": "write the result here"},
    "plot": {
        "nargs": "?",
        "const": "",
        "metavar": "FILE",
        "help": "draw the figure: into FILE, or without one into a window (a file if there is no display)",
    },
    "latex": {
        "nargs": "?",
        "const": "-",
        "metavar": "FILE",
        "help": "the equations as LaTeX, to FILE or stdout",
    },
    "set": {
        "action": "append",
        "default": [],
        "metavar": "NAME=VALUE",
        "help": "set a parameter (repeatable)",
    },
    "preset": {
        "default": None,
        "metavar": "NAME",
        "help": "named parameters to start from, e.g. table_2",
    },
    "seeds": {
        "type": str,
        "default": None,
        "metavar": "SEEDS",
        "help": "8 (0..7), 0:20 (half-open) or 3,5",
    },
    "alpha": {
        "type": float,
        "default": None,
        "metavar": "X",
        "help": "run length in the model's time, or sample complexity n/d",
    },
    "device": {"default": None, "metavar": "NAME", "help": "torch device (cpu, cuda, cuda:1, ...)"},
    "quiet": {"action": "store_true", "help": "no progress on stderr"},
    "beyond": {
        "action": "store_true",
        "help": "answer also for students that the theory does not describe, and say so",
    },
}


class Parser(argparse.ArgumentParser):
    """Argument parser whose complaints are one line, like all others."""

    unset: frozenset[str] = frozenset()  # parameters that this command varies itself

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Refuse unknown flags first: argparse would take what follows one for a MODEL."""
        words = sys.argv[1:] if args is None else args
        for word in words:
            flag = word.partition("=")[0]
            if (
                flag.startswith("--")
                and len(flag) > 2
                and not any(f.startswith(flag) for f in self._option_string_actions)
            ):
                raise ParameterError(
                    f"unknown flag {flag}{self._advice(flag, words)} (see {self.prog} --help)"
                )
        found = super().parse_args(args, namespace)
        if getattr(found, "beyond", False):
            warnings.simplefilter("ignore", scope.BeyondScope)  # the notes of the result say it
            scope.insist()
        return found

    def _advice(self, flag: str, words: Sequence[str]) -> str:
        """What will do instead: the parameter of that name, or the nearest flag."""
        name = flag[2:]
        if "--set" in self._option_string_actions and name not in self.unset:
            models = [registry.find(w) for w in words if w.partition(".")[0] in registry.MODELS]
            models = models or [
                registry.find(self.get_default("model") or next(iter(registry.MODELS)))
            ]
            for model in [m for first in models for m in (first, *first.systems)]:
                kind = getattr(model.wing("theory"), "Parameters", None)
                if kind is not None and name in {f.name for f in dataclasses.fields(kind)}:
                    return f"; parameters are set by --set {name}=VALUE"
        flags = [f for f in self._option_string_actions if f not in ("-h", "--help")]
        near = difflib.get_close_matches(flag, flags, n=1)
        return f"; did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage."""
        raise ParameterError(f"{message} (see {self.prog} --help)")


def _model(name: str) -> registry.Model:
    try:
        return registry.find(name)
    except ParameterError as error:  # argparse would replace the message of a ValueError
        raise argparse.ArgumentTypeError(str(error)) from None


def parser(prog: str, description: str, *flags: str, model: bool | str = True) -> Parser:
    """Make a command's parser from the shared flags it understands.

    ``model`` says whether there is a MODEL and which is the default (True: the first);
    ``"all"`` leaves it open.
    """
    made = Parser(prog=f"python -m {prog}", description=description)
    made.add_argument("--version", action="version", version=f"solvable-transformers {__version__}")
    if model:
        default = {"all": None, True: next(iter(registry.MODELS))}.get(model, model)
        made.add_argument(
            "model",
            nargs="?",
            type=_model,
            default=default,
            metavar="MODEL",
            help="one of " + ", ".join(registry.MODELS),
        )
    for flag in flags:
        made.add_argument(f"--{flag}", **_FLAGS[flag])
    return made


def parameters(args: argparse.Namespace, base: BaseParameters | None = None) -> Any:
    """Parameters from ``--preset`` and ``--set`` (``base`` where no preset is named)."""
    kind = args.model.wing("theory").Parameters
    if getattr(args, "preset", None) is not None:
        base = choose("--preset", args.preset, kind.presets())()
    return (base or kind()).parse(args.set)


def seeds(text: str | None, default: str) -> list[int]:
    """Read ``8`` (0..7), ``0:20`` (half-open) or ``3,5``."""
    text = default if text is None else text
    found: Sequence[int] = []
    if re.search(r"\d{19}", text):
        raise ParameterError(f"--seeds {text}: must be below 10^18")
    with contextlib.suppress(ValueError):
        if ":" in text:
            start, stop = text.split(":")
            found = range(int(start), int(stop))
        elif "," in text:
            found = [int(s) for s in text.split(",") if s]
        else:
            found = range(int(text))
    if len(found) > MOST_SEEDS:
        raise ParameterError(f"--seeds {text}: must be at most {MOST_SEEDS} seeds")
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ParameterError(
            f"--seeds {text}: must be 8 (0..7), 0:20 (half-open) or 3,5, without repeats"
        )
    return list(found)


def positive(field: str, value: float | None) -> float | None:
    """Pass a positive finite number, or None, through.

    Raises
    ------
    ParameterError
        For anything else.
    """
    if value is not None and not 0 < value < math.inf:
        raise ParameterError(f"{field} {value:g}: must be positive and finite")
    return value


def offering(command: str) -> list[str]:
    """Models that answer to a verify command, in the order of the registry."""
    return [m.name for m in registry.MODELS.values() if command in m.checks]


def offers(model: registry.Model, command: str) -> None:
    """Refuse a verify command that has no meaning for a model, naming those for which it has.

    Raises
    ------
    ParameterError
        If the model does not list the command among its checks.
    """
    if command not in model.checks:
        there = ", ".join(f"verify.{c}" for c in model.checks)
        raise ParameterError(
            f"verify.{command}: not for {model.name}, which has {there}, "
            f"but for {', '.join(offering(command))}"
        )


def having(model: registry.Model, wing: str, module: str) -> Any:
    """A module of a model, where not every model has one.

    Raises
    ------
    ParameterError
        If this one has none, naming those that do.
    """
    with contextlib.suppress(ParameterError):
        return model.wing(wing, module)
    others = []
    for other in registry.MODELS.values():
        with contextlib.suppress(ParameterError):
            other.wing(wing, module)
            others.append(other.name)
    raise ParameterError(f"{wing}.{module}: not for {model.name}, but for {', '.join(others)}")


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


def check_plot(target: str | None) -> None:
    """Refuse a ``--plot`` target before any work is done.

    Raises
    ------
    ParameterError
        If it is the name of a model (``--plot MODEL`` is a slip for ``MODEL --plot``) or ends in no
        known picture format, or nothing can be drawn.
    """
    if target in registry.MODELS:
        raise ParameterError(f"--plot {target}: is a model, not a file; write '{target} --plot'")
    if target is not None:
        from theory import plotting  # noqa: F401, says what is wrong with MPLBACKEND
    if target:
        from matplotlib.backend_bases import FigureCanvasBase

        endings = sorted(FigureCanvasBase.get_supported_filetypes())
        if Path(target).suffix.lstrip(".").lower() not in endings:
            raise ParameterError(f"--plot {target}: must end in one of {', '.join(endings)}")


def choose(field: str, name: str, table: Mapping[str, Any]) -> Any:
    """Look up ``name`` in ``table``, naming the nearest entry when it is not there."""
    if name not in table:
        message = f"{field} {name}: must be one of {', '.join(table)}; {nearest(name, table, 0.4)}"
        raise ParameterError(message.rstrip(" ;"))
    return table[name]


def _shortened(message: str) -> str:
    """Message without the whole of what was typed, where that is long and no path."""
    typed = {
        part
        for word in sys.argv[1:]
        for part in (word, *word.split("=", 1)[1:], *word.split("=", 2)[2:])
    }
    for part in sorted((p for p in typed if len(p) > LONGEST_ECHO), key=len, reverse=True):
        if not os.path.exists(part):
            message = message.replace(part, f"{part[:LONGEST_ECHO]}...")
    return message


class Terminated(KeyboardInterrupt):
    """SIGTERM, to be dealt with like an interrupt: what can be saved is saved."""


def heed_termination() -> None:
    """Let SIGTERM interrupt the work of this process, as a batch system sends it before it
    kills.
    """

    def terminate(*_: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut short the saving
        raise Terminated

    with contextlib.suppress(ValueError):  # not in the main thread
        if (
            signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):  # who ignores it, or has plans of his own, keeps them
            signal.signal(signal.SIGTERM, terminate)


def _streams() -> None:
    """Make the surroundings fit to print in: what an encoding lacks is escaped, a warning is one
    line, nothing is lost where there is no stdout.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, as long as the process
    if sys.stdout is None:
        print("error: stdout is closed; to do without, redirect it: > /dev/null", file=sys.stderr)
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            with contextlib.suppress(OSError):  # it looks where it is, which a pipe may not say
                stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, *_, **__: (
        f"warning: {' '.join(str(message).split())}\n"
    )


def _forget_stdout() -> None:
    """Leave nothing to flush at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(main: Callable[[], int]) -> NoReturn:
    """Run a command: wrong input, a full disk and too little memory end in one line on stderr and
    exit code 2.
    """
    # A process that ends soon: what is imported stays, and SymPy's small objects are rarely cyclic
    # garbage.
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
        print(f"error: {_shortened(str(error))}", file=sys.stderr)
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
    ) as error:  # torch has no error of its own for memory it cannot get
        said = str(error).partition("\n")[0]
        if not isinstance(error, MemoryError) and "memory" not in said:
            raise
        print(f"error: not enough memory: {said or 'no more to be had'}", file=sys.stderr)
        sys.exit(2)
