"""Shared by all commands that take a model: their parser, and the parameters that are
asked for.
"""

import argparse
import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from theory import __version__
from theory.call import scope
from theory.call.parameters import BaseParameters
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.models.model import Model
from theory.runtime import cli
from theory.runtime.cli import FLAGS, choose


class Parser(cli.Parser):
    """Argument parser of a command that may take a model."""

    unset: frozenset[str] = frozenset()  # parameters that the command itself varies

    def parse_args(
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:  # type: ignore[override]
        """Let ``--beyond`` hold for whatever is computed afterwards."""
        parsed = super().parse_args(args, namespace)
        if getattr(parsed, "beyond", False):
            # the notes of the result say it
            warnings.simplefilter("ignore", scope.BeyondScope)
            scope.insist()
        return parsed

    def _complete(self) -> None:
        """Complete a word for the shell;
        presets and parameters are those of the model.
        """

        def names(action: argparse.Action, parsed_args: Any, **_: Any) -> list[str]:
            model = getattr(parsed_args, "model", None) or next(iter(registry.MODELS))
            name = getattr(model, "name", model)
            known = registry.TABLE.get(name) or registry.find(name.partition(".")[0])
            kind = known.wing("theory").Parameters
            if action.dest == "preset":
                return [*kind.presets()]
            return [f"{f.name}=" for f in dataclasses.fields(kind) if f.init]

        for action in self._actions:
            if action.dest in ("preset", "set"):
                action.completer = names  # type: ignore[attr-defined]
        super()._complete()

    def _advice(self, flag: str, words: Sequence[str]) -> str:
        """Suggest a replacement: ``--set`` for a parameter of that name, or the nearest
        flag.
        """
        name = flag[2:]
        if name in ("set", "preset"):
            return (
                "; this command takes no numbers, solvable onset does: solvable onset"
                f" {flag} ..."
            )
        settable = "--set" in self._option_string_actions and name not in self.unset
        if settable and self._is_parameter(name, words):
            return f"; parameters are set by --set {name}=VALUE"
        return super()._advice(flag, words)

    def _is_parameter(self, name: str, words: Sequence[str]) -> bool:
        """Whether a model among the words, or one of its systems, has a parameter of
        this name; without one, whether the usual model has.
        """
        asked = [
            registry.find(word)
            for word in words
            if word.partition(".")[0] in registry.MODELS
        ]
        usual = self.get_default("model") or next(iter(registry.MODELS))
        for family in asked or [registry.find(usual)]:
            for model in (family, *family.systems):
                kind = getattr(model.wing("theory"), "Parameters", None)
                fields = () if kind is None else dataclasses.fields(kind)
                if name in {field.name for field in fields}:
                    return True
        return False


def _model(name: str) -> Model:
    try:
        return registry.find(name)
    except (
        ParameterError
    ) as error:  # argparse would replace the message of a ValueError
        raise argparse.ArgumentTypeError(str(error)) from None


def parser(
    prog: str, description: str, *flags: str, model: bool | str = True
) -> Parser:
    """Make a command's parser from the shared flags it understands.

    ``model`` says whether the command takes a MODEL and which one is the default (True:
    the first; ``"all"``: no default, all models).
    """
    made = Parser(prog=f"python -m {prog}", description=description)
    made.add_argument(
        "--version", action="version", version=f"solvable-transformers {__version__}"
    )
    if model:
        default = {"all": None, True: next(iter(registry.MODELS))}.get(model, model)
        known = f"one of {', '.join(registry.MODELS)}, or a file: FILE.py"
        made.add_argument(
            "model",
            nargs="?",
            type=_model,
            default=default,
            metavar="MODEL",
            help=known,
        )
    for flag in flags:
        made.add_argument(f"--{flag}", **FLAGS[flag])
    return made


def parameters(args: argparse.Namespace, base: BaseParameters | None = None) -> Any:
    """Parameters of a model from ``--preset`` and ``--set``, see `preset`."""
    return preset(args.model.wing("theory").Parameters, args.preset, base).parse(
        args.set
    )


def preset(kind: Any, name: str | None, base: BaseParameters | None = None) -> Any:
    """Parameters of a kind by the name of a preset; without one, ``base`` or the
    default.
    """
    if name is not None:
        return choose("--preset", name, getattr(kind, "presets", dict)())()
    return base or kind()


def check_plot(target: str | None) -> None:
    """Check the ``--plot`` target before any work is done.

    Raises
    ------
    ParameterError
        If the target is the name of a model (``--plot MODEL`` instead of ``MODEL
        --plot``), has no known picture format, or the result has no figure.
    """
    if target in registry.MODELS:
        raise ParameterError(
            f"--plot {target}: is a model, not a file; write '{target} --plot'"
        )
    if target is not None:
        from theory.runtime import plotting  # noqa: F401, fails here if MPLBACKEND is invalid
    if target:
        from matplotlib.backend_bases import FigureCanvasBase

        endings = sorted(FigureCanvasBase.get_supported_filetypes())
        if Path(target).suffix.lstrip(".").lower() not in endings:
            raise ParameterError(
                f"--plot {target}: must end in one of {', '.join(endings)}"
            )
