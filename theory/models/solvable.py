"""One command for the shell: ``solvable`` lists verbs and models, and ``solvable onset
MODEL`` is ``python -m theory.onset MODEL`` in any folder.
"""

import argparse
import functools
import os
import re
import runpy
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from theory import __version__
from theory.call.refusal import ParameterError, nearest
from theory.models import registry
from theory.runtime import cli
from theory.runtime.cli import COMPLETION

UNLISTED = re.compile(r"verify|.*\.demo")
USAGE = """\
solvable VERB [MODEL[.SYSTEM]] [--set NAME=VALUE] ...  (or python -m VERB ...)
{verbs}
also: {others}
{models}
Flags: solvable VERB -h. Completion by <Tab>: eval "$(solvable --completion)\""""


@functools.cache
def verbs() -> dict[str, str]:
    """What each command does, by its name after ``python -m``: the first words of its
    module, which is not imported.
    """
    described = {}
    for wing in ("theory", "simulate", "verify", "papers"):
        place = Path(__file__).parents[2] / wing
        for file in sorted([*place.glob("*.py"), *place.glob("*/__main__.py")]):
            source = file.read_text(encoding="utf-8")
            if first := re.match(r'"""([^"]*?):\s+``python -m\s+([\w.]+)', source):
                described[first[2]] = " ".join(first[1].split())
    return described


def resolve(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Verb and remaining words: ``theory.onset``, ``theory onset`` and ``onset`` are
    the same.

    Raises
    ------
    ParameterError
        If there is no such verb, or several.
    """
    count = 2 if ".".join(words[:2]) in verbs() else 1
    name = ".".join(words[:count])
    called = [v for v in verbs() if name in (v, v.rpartition(".")[2])]
    if len(called) == 1:
        return called[0], words[count:]
    advice = " or ".join(called) or nearest(name, re.split("[ .]", " ".join(verbs())))
    usual = {
        "train": "simulate",
        "models": "",
        "list": "",
        "plot": "onset MODEL --plot",
    }
    if name in usual:
        advice = f"type solvable {usual[name]}".strip()
    if name in registry.TABLE:
        advice = f"it is a model, type for instance: solvable onset {name}"
    raise ParameterError(f"{name}: must be a verb; {advice or 'all of them: solvable'}")


def by_model(names: Iterable[str]) -> str:
    """Table of names ``MODEL.SYSTEM``, a row for each model."""
    rows = {"MODEL": "SYSTEM"}
    for name in names:
        model, _, system = name.partition(".")
        rows[model] = f"{rows.get(model, '')} {system}".strip()
    return "\n".join(
        textwrap.fill(f"{model:21}{systems}", 80, subsequent_indent=" " * 21)
        for model, systems in rows.items()
    )


def listing(wing: str) -> str:
    """Verbs, of one wing or all, and models."""
    rows, others = [], []
    for verb, what in verbs().items():
        if not verb.startswith(wing):
            continue
        if not UNLISTED.fullmatch(verb):
            rows.append(f"{verb:21}{what}")
        elif "." in verb:
            others.append(verb)
    return USAGE.format(
        verbs="\n".join(rows), others=" ".join(others), models=by_model(registry.TABLE)
    )


def run(verb: str, words: Sequence[str]) -> None:
    """Run a command in this process."""
    sys.argv = [verb, *words]
    runpy.run_module(verb, run_name="__main__", alter_sys=True)


def main(argv: Sequence[str] | None = None, wing: str = "") -> int:
    """Command line of ``solvable``, or of a wing whose commands it runs."""
    words = sys.argv[1:] if argv is None else argv
    if COMPLETION in os.environ:
        complete()
    if not words or words[0] in ("-h", "--help"):
        print(listing(wing))
    elif words[0] == "--version":
        print(f"solvable-transformers {__version__}")
    elif words[0] == "--completion":
        import argcomplete

        print(argcomplete.shellcode(["solvable"], True, [*words, "bash"][1]))
    else:
        run(*resolve([f"{wing}.{words[0]}".strip("."), *words[1:]]))
    return 0


def complete() -> None:
    """Complete a word for the shell: verbs and models at once, flags by the command's
    parser.
    """
    import argcomplete

    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    words = [*line.split()[1:], *[""] * line.endswith(" ")]
    parser = argparse.ArgumentParser()
    choices = [*verbs(), *re.split("[ .]", " ".join(verbs()))]
    if len(words) > 1:
        verb, others = resolve(words)
        os.environ[COMPLETION] = str(1 + len(words) - len(others))
        if len(others) > 1 or verb == "papers" or others[0].startswith("-"):
            run(verb, others)
        below = [
            v.removeprefix(f"{verb}.") for v in verbs() if v.startswith(f"{verb}.")
        ]
        choices = [*registry.TABLE, *below]
    parser.add_argument("word", choices=choices)
    argcomplete.autocomplete(parser)


def solvable() -> None:
    """Entry point of ``solvable``."""
    cli.run(main)
