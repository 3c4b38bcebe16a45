"""Directives for what things cost: stored benchmarks, seconds of checks, lines of systems."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path

from generated import ROOT, WINGS, code, direct, table, text
from sphinx.application import Sphinx

from papers import evidence
from theory import registry

EXAMPLES = {  # folders of systems without a statement; their students and checks
    "committee": ("committee/committee", "simulate/*.py", "verify/*.py"),
    "linear_attention.proportional": ("linear_attention/linear_attention/proportional", "fits.py", "laws.py"),
}  # fmt: skip
PERFORMANCE = Path(__file__).parents[1] / "performance.json"


def performance() -> str:
    """The stored benchmarks: where and when they were taken, then one table per command."""
    if not PERFORMANCE.is_file():
        return (
            "None is stored with this version: `python docs/_extensions/measure.py` takes them.\n"
        )
    stored = json.loads(PERFORMANCE.read_text())
    out = [
        "## Benchmarks\n",
        f"Measured {stored['date']} at commit `{stored['commit']}` on {text(stored['machine'])}, "
        f"by `{stored['command']}`.\n",
    ]
    for made in stored["tables"]:
        out += [f"### `{made['command']}`\n", text(made["about"]) + "\n"]
        out.append(table(made["header"], [[text(c) for c in row] for row in made["rows"]]))
        out += [f"{text(note)}\n" for note in made["notes"]]
    return "\n".join(out)


def costs() -> str:
    """What each stored ``verify`` command took, with the commit it was run at."""
    rows = []
    for model in registry.MODELS.values():
        for command, record in evidence.load(model).items():
            said = code(
                f"python -m verify.{command} {model.name}"
                if command != evidence.TESTS
                else f"python -m papers {model.paper} --claims --run {command}"
            )
            rows.append([said, len(record["checks"]), record["seconds"], f"`{record['commit']}`"])
    return table(("command", "checks", "seconds", "commit"), rows)


def lines(files: Iterable[Path]) -> int:
    """How many lines files have."""
    return sum(len(file.read_text().splitlines()) for file in files)


def imported(files: Iterable[Path]) -> set[Path]:
    """Files of ``simulate`` that others import, packages left out."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simulate"):
                room = ROOT.joinpath(*str(node.module).split("."))
                found |= {room.with_suffix(".py"), *(room / f"{x.name}.py" for x in node.names)}
    return {file for file in found if file.is_file()}


def sizes() -> str:
    """Lines that each stated system took: its statement, its theory in all, students of its own
    (that no other checks use), checks. Then the systems of the examples.
    """
    own = [m for m in registry.TABLE.values() if m.stated and not m.package]
    folders = {m.name: [ROOT.joinpath(w, *m.name.split(".")) for w in WINGS[:3]] for m in own}
    checks = {name: set(places[2].rglob("*.py")) for name, places in folders.items()}
    shared = imported({*(ROOT / "verify").rglob("*.py")} - set().union(*checks.values()))
    rows = []
    for name, (theory, students, _) in folders.items():
        of_students = {*students.rglob("*.py"), *imported(checks[name])} - shared
        parts = [[theory / "statement.py"], theory.rglob("*.py"), of_students, checks[name]]
        counted = list(map(lines, parts))
        rows.append([f"`{name}`", *counted, sum(counted[1:])])
    for name, (folder, trained, laws) in EXAMPLES.items():
        place = ROOT / "examples" / folder
        counted = [lines(place.rglob("*.py")), lines(place.glob(trained)), lines(place.glob(laws))]
        rows.append([f"`{name}`", "", counted[0] - sum(counted[1:]), *counted[1:], counted[0]])
    return table(("system", "statement", "theory", "own students", "checks", "in all"), rows)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    direct(app, performance, costs, sizes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
