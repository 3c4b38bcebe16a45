"""What users call: every command with its arguments, and the pages of the API."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path
from typing import Any

from cells import code, table, text

from theory.runtime import cli

ROOT = Path(__file__).parents[2]
WINGS = ("theory", "simulate", "verify", "papers")
# What users call, in the order in which the pages of the API open with it.
FIRST = (
    *("Parameters", "predict", "train", "emergence_times", "thresholds"),
    *("flow", "onset", "equations"),
)
# The same of wings, whose packages export little.
CALLED = {
    "theory": (
        "theory.equations.equation.Equation",
        "theory.dynamics.flow.Flow",
        "theory.models.registry.find",
    ),
    "simulate": ("simulate.store.runs.open", "simulate.store.runs.ensemble"),
    "verify": (
        *(
            "verify.trajectories.compare",
            "verify.compare.times.emergence_times",
            "verify.compare.times.exponents",
        ),
        *("verify.checks.check.Check", "verify.checks.check_table.table"),
    ),
}


class _Asked(Exception):
    """Carries a parser out of the command that made it."""


def modules() -> list[str]:
    """Every module that is a command, without those that only run others."""
    names = []
    for wing in WINGS:
        for path in sorted((ROOT / wing).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
                ".__main__"
            )
            repeats = name.startswith("simulate.") and path.name == "__main__.py"
            source = path.read_text()
            if 'if __name__ == "__main__":\n    cli.run(' in source and not (
                repeats or "solvable.main" in source
            ):
                names.append(name)
    return sorted(names, key=lambda name: (WINGS.index(name.partition(".")[0]), name))


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser of a command, as its ``main`` makes it."""
    made = importlib.import_module(module)
    if not hasattr(made, "main"):
        made = importlib.import_module(f"{module}.__main__")

    def ask(self: argparse.ArgumentParser, *_: Any) -> None:
        raise _Asked(self)

    kept, cli.Parser.parse_args = cli.Parser.parse_args, ask  # type: ignore[assignment, method-assign]
    try:
        made.main(["--help"])
    except _Asked as asked:
        return asked.args[0]
    finally:
        cli.Parser.parse_args = kept  # type: ignore[method-assign]
    raise RuntimeError(f"{module}: parsed nothing")


def commands() -> str:
    """Every command with its arguments."""
    out = []
    for module in modules():
        parser = parser_of(module)
        out.append(
            f"({module}-command)=\n##"
            f" `{parser.prog}`\n\n{text(parser.description or '')}\n"
        )
        rows = []
        for action in parser._actions:
            if action.help == argparse.SUPPRESS or action.dest == "help":
                continue
            value = str(action.metavar or "|".join(action.choices or ()))
            takes = not isinstance(action, argparse._StoreTrueAction)
            flag = " ".join(
                filter(None, (", ".join(action.option_strings), value * takes))
            )
            rows.append([code(flag), text((action.help or "").replace("%%", "%"))])
        out.append(
            table(("argument", "what it is"), rows) if rows else "No arguments.\n"
        )
    return "\n".join(out)


def _listed(wing: str) -> dict[str, list[str]]:
    """Modules of a wing by package: the wing's own, then those of each model."""
    groups: dict[str, list[str]] = {}
    for path in sorted((ROOT / wing).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__main__" or any(
            p.startswith("_") and p != "__init__" for p in parts
        ):
            continue
        name = ".".join(parts).removesuffix(".__init__")
        group = ".".join(name.split(".")[:2])
        if not (ROOT / Path(*group.split("."))).is_dir():
            group = wing
        groups.setdefault(group, []).append(name)
    return groups


def offered(group: str) -> dict[str, Any]:
    """What users import from a group, by name: what its package exports, for a wing
    `CALLED`.
    """
    module = importlib.import_module(group)
    names = sorted(set(getattr(module, "__all__", ())) - {"__version__"}, key=_rank)
    calls = {name: getattr(module, name) for name in names}
    for path in CALLED.get(group, ()):
        place, _, name = path.rpartition(".")
        calls[path.removeprefix(f"{group}.")] = getattr(
            importlib.import_module(place), name
        )
    return {name: value for name, value in calls.items() if callable(value)}


def _rank(name: str) -> tuple[int, str]:
    return FIRST.index(name) if name in FIRST else len(FIRST), name


def called(group: str) -> str:
    """Table of what users import from a group, each with the first sentence of its
    docstring.
    """
    rows = []
    for name, value in offered(group).items():
        said = re.split(r"\.\s+(?=[A-Z])|\n\n", value.__doc__ or "")[0].rstrip(".")
        place = f"{value.__module__}.{getattr(value, '__qualname__', name)}"
        link = code(name) if "<locals>" in place else f"{{py:obj}}`{name} <{place}>`"
        rows.append([link, text(said.replace("``", "`"))])
    return (
        f"## What it is imported for\n\n{table(('call', 'what it is'), rows)}"
        if rows
        else ""
    )


def api(group: str) -> str:
    """What users import from a group; then ``automodule`` of all modules, those that
    define it first.
    """
    wing = group.partition(".")[0]
    made = {value.__module__ for value in offered(group).values()}
    out = [called(group)]
    for name in sorted(_listed(wing)[group], key=lambda n: (n != group, n not in made)):
        out.append(
            f"## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n"
            "   :ignore-module-all:\n   :show-inheritance:\n```\n"
        )
    return "\n".join(out)
