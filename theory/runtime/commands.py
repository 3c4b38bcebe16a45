"""The shell's one door: ``solvable`` lists verbs and models, ``solvable VERB`` is ``python -m VERB``
from any folder.
"""

import argparse
import difflib
import functools
import os
import re
import runpy
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

PLACE = Path(__file__).parents[2]
WINGS = ("theory", "simulate", "verify", "papers")
DEVELOPERS = ("benchmark", "demo", "device", "start")  # listed by name only
COMPLETION = "_ARGCOMPLETE"  # set while the shell completes a word: where our words begin, from 1
USAGE = """\
solvable VERB [MODEL[.SYSTEM]] [--set NAME=VALUE] ...  (or python -m VERB ...)
{verbs}
Also: {others}

{models}
Flags: solvable VERB --help. Completion by <Tab>: eval "$(solvable --completion)\""""


@functools.cache
def verbs() -> dict[str, str]:
    """What each command does, by the name after ``python -m``: the first words of its module, which
    is not imported.
    """
    described = {}
    for wing in WINGS:
        files = [*(PLACE / wing).glob("*.py"), *(PLACE / wing).glob("*/__main__.py")]
        for file in sorted(files):
            source = file.read_text(encoding="utf-8")
            what = re.match(r'"""([^"]*?):\s+``python -m', source)
            if what and '\nif __name__ == "__main__":' in source:
                name = ".".join(file.relative_to(PLACE).with_suffix("").parts)
                described[name.removesuffix(".__main__")] = " ".join(what[1].split())
    return described


def resolve(words: Sequence[str]) -> tuple[str, list[str]]:
    """Verb and remaining words: ``theory.onset``, ``onset`` and ``theory onset`` are the same.

    Raises
    ------
    ParameterError
        If there is no such verb, or several.
    """
    first, *others = words
    if others and f"{first}.{others[0]}" in verbs():
        return f"{first}.{others[0]}", others[1:]
    names = [v for v in verbs() if first in (v, v.rpartition(".")[2])]
    if len(names) == 1 or first in names:
        return names[0], others
    from theory import registry
    from theory.parameters import ParameterError

    if names:
        raise ParameterError(f"{first}: say which, {' or '.join(names)}")
    if first in registry.TABLE:
        raise ParameterError(f"{first}: is a model; the verb comes first: solvable theory {first}")
    short = {v.rpartition(".")[2]: v for v in verbs()} | {v: v for v in verbs()}
    name = ".".join(words[: 2 if first in WINGS else 1])
    near = difflib.get_close_matches(name, short, n=1)
    advice = f"did you mean {near[0]}?" if near else "all of them: solvable"
    raise ParameterError(f"{name}: there is no such verb; {advice}")


def in_rows(table: Mapping[str, Iterable[str]]) -> str:
    """Models with their systems, one row each."""
    wide = max(map(len, table)) + 2
    return "\n".join(
        textwrap.fill(f"{name:{wide}}{' '.join(systems)}", 80, subsequent_indent=" " * wide)
        for name, systems in table.items()
    )


def listing(wing: str = "") -> str:
    """Verbs (of one wing) and models with systems."""
    from theory import registry

    of_wing = {v: what for v, what in verbs().items() if v.startswith(wing)}
    others = [v for v in of_wing if v.rpartition(".")[2] in DEVELOPERS]
    systems = {
        m: [n.removeprefix(f"{m}.") for n in registry.TABLE if n.startswith(f"{m}.")]
        for m in registry.MODELS
    }
    return USAGE.format(
        verbs="\n".join(f"{v:21}{what}" for v, what in of_wing.items() if v not in others),
        others=" ".join(others),
        models=in_rows({"MODEL": ["SYSTEM"], **systems}),
    )


def door(words: Sequence[str]) -> int:
    """Run ``solvable`` with these words."""
    if COMPLETION in os.environ:
        _complete()
    if not words or list(words) in (["--help"], ["-h"], ["verify"], ["verify", "--help"]):
        print(listing(*[w for w in words if w in WINGS]))
        return 0
    if words[0] == "--version":
        from theory import __version__

        print(f"solvable-transformers {__version__}")
        return 0
    if words[0] == "--completion":
        import argcomplete

        print(argcomplete.shellcode(["solvable"], shell=[*words, "bash"][1]))
        return 0
    _run(*resolve(words))
    return 0


def _run(verb: str, words: Sequence[str]) -> None:
    sys.argv = [verb, *words]
    runpy.run_module(verb, run_name="__main__", alter_sys=True)


def _complete() -> None:
    """Complete a word for the shell. Verbs and models need no import of the command; flags and what
    follows them come from its own parser.
    """
    import argcomplete

    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    _, *words = line.split() + [""] * line.endswith(" ")
    parser = argparse.ArgumentParser(add_help=False)
    if len(words) > 1:
        verb, typed = resolve(words)
        if len(typed) > 1 or verb == "papers" or typed[0].startswith("-"):
            os.environ[COMPLETION] = str(1 + len(words) - len(typed))
            _run(verb, [])
        from theory import registry

        for _ in words[len(typed) :]:
            parser.add_argument("verb", nargs=1)
        parser.add_argument("model", choices=[*registry.TABLE])
    else:
        names = {v.rpartition(".")[2] for v in verbs()} - set(DEVELOPERS)
        parser.add_argument("verb", choices=sorted(names | {*verbs()}))
    argcomplete.autocomplete(parser)


def main() -> NoReturn:
    """Entry point of ``solvable``."""
    from theory.runtime import cli

    cli.run(lambda: door(sys.argv[1:]))
