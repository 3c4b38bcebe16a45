"""Directives whose content the toolkit itself writes: equations, ledgers, evidence,
commands, API.

Each makes MyST Markdown from the registry, the stored evidence, the ledgers or the
parsers, so that no page types what the code knows.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import figures
import interface
import pages
from cells import anchor, below, code, filtered, linked, mark, table, text
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from papers import claims, evidence
from theory.equations.equation import STATUSES
from theory.models import registry
from verify.checks.verdict import VERDICTS

ROOT = Path(__file__).parents[2]
WINGS = ("theory", "simulate", "verify", "papers")
EXAMPLES = {  # folders of systems without a statement; their students and checks
}
PERFORMANCE = Path(__file__).parents[1] / "performance.json"


# ---- What is derived


def statuses(model: str) -> str:
    """How many equations a model has in each section, by status."""
    rows, total = [], Counter[str]()
    for name, equations in registry.find(model).wing("theory").sections().items():
        counts = Counter(e.status for e in equations)
        total += counts
        rows.append([text(name), *(counts[s] or "" for s in STATUSES)])
    rows.append(["**all**", *(f"**{total[s]}**" if total[s] else "" for s in STATUSES)])
    return table(("section", *STATUSES), rows)


def equations(model: str) -> str:
    """Every equation of a model: name, reference, status, assumptions, formula."""
    out, met = [], set()
    for name, listed in registry.find(model).wing("theory").sections().items():
        out.append(f"## {text(name)}\n")
        for e in listed:
            assumed = (
                f" Assumes: {text('; '.join(e.assumptions))}." if e.assumptions else ""
            )
            head = f"{code(e.name)}: {text(e.reference)}; *{e.status}*.{assumed}"
            target = anchor("equation", model, e.name)
            place = (
                "" if target in met else f"({target})=\n"
            )  # two names may differ in case
            met.add(target)
            out.append(f"{place}{head}\n\n$$\n{e.latex()}\n$$\n")
    return "\n".join(out)


# ---- What is verified


def number(value: Any) -> str:
    """A number of a check, or nothing."""
    return "" if value is None else f"{value:.6g}"


def verified(model: str, commands: Sequence[str] = ()) -> str:
    """Stored evidence of a model, one table per ``verify`` command (all, or some), one
    row per kind of check.
    """
    system, out = registry.find(model), []
    stored = evidence.load(system)
    for command in commands or system.checks:
        said = f"`python -m verify.{command} {system.name}`"
        record = stored.get(command)
        if record is None:
            out.append(
                f"**{said}**: no result is stored with this version; `python -m papers"
                f" {system.paper} --claims --run {command}` stores one.\n"
            )
            continue
        counts = Counter(row["verdict"] for row in record["checks"])
        summary = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])
        out.append(
            f"**{said}**: {summary} ({record['seconds']} s, commit"
            f" `{record['commit']}`).\n"
        )
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in record["checks"]:
            groups.setdefault(row["id"], []).append(row)
        rows = []
        for same in groups.values():
            worst = max(same, key=lambda row: VERDICTS.index(row["verdict"]))
            error = worst["standard_error"]
            detectable = worst["detectable"]
            tested = sorted(
                {n for row in same for n in re.split(r",\s*", row["equation"])}
            )
            name = text(
                worst["name"].partition(",")[0] if len(same) > 1 else worst["name"]
            )
            if (
                not commands
            ):  # the page of the model has all its checks, and is where links lead
                name = (
                    f"[{name}]{{#{anchor('check', system.name, command, worst['id'])}}}"
                )
            rows.append(
                [
                    name + below(text(worst.get("why", "")), linked(system, tested)),
                    len(same),
                    number(worst["predicted"]),
                    number(worst["measured"]) + (f" ± {error:.1e}" if error else ""),
                    mark(worst["verdict"]),
                    (
                        ""
                        if worst["verdict"] == "exact" or detectable is None
                        else f"{detectable:.1%}"
                        if detectable < 10
                        else "nothing"
                    ),
                ]
            )
        header = (
            "check",
            "rows",
            "predicted",
            "measured",
            "verdict (worst)",
            "detectable",
        )
        out.append(filtered(table(header, rows)))
    return "\n".join(out)


def _ledger(paper: str) -> tuple[registry.Model, list[claims.Claim], claims.Found]:
    model = next(m for m in registry.MODELS.values() if m.paper == paper)
    return model, claims.load(claims.place(model)), evidence.found(evidence.load(model))


def coverage(paper: str) -> str:
    """How many claims of a paper have each verdict, as computed from the stored
    evidence.
    """
    _, ledger, results = _ledger(paper)
    counts = claims.coverage(ledger, results)
    shown = [v for v in counts if counts[v]]
    return (
        f"{len(ledger)} claims: "
        + " &ensp;".join(f"{mark(v)} {counts[v]}" for v in shown)
        + "\n"
    )


def ledger(paper: str, kinds: Sequence[str] = (), words: Sequence[str] = ()) -> str:
    """Claims of a paper with computed verdicts: all, of some kinds, or those that name
    a word.
    """
    model, listed, results = _ledger(paper)
    rows = []
    for c in listed:
        if (kinds and c.kind not in kinds) or (
            words and not any(w in f"{c.id} {c.says} {c.note}" for w in words)
        ):
            continue
        checks = [a for a in c.evidence("check") if a in results.verdicts]
        links = [f"[{code(a)}](#{anchor('check', model.name, a)})" for a in checks]
        on = " · ".join(
            filter(None, (linked(model, c.evidence("equation")), ", ".join(links)))
        )
        said = text(c.says) + below(text(c.note), on)
        rows.append([text(c.id), said, mark(claims.computed(c, results))])
    return filtered(table(("where", "what it says", "verdict"), rows), "ledger")


# ---- Performance


def performance() -> str:
    """The stored benchmarks: where and when they were taken, then one table per
    command.
    """
    if not PERFORMANCE.is_file():
        return (
            "None is stored with this version: `python docs/_extensions/measure.py`"
            " takes them.\n"
        )
    stored = json.loads(PERFORMANCE.read_text())
    out = [
        "## Benchmarks\n",
        (
            f"Measured {stored['date']} at commit `{stored['commit']}` on"
            f" {text(stored['machine'])}, by `{stored['command']}`.\n"
        ),
    ]
    for made in stored["tables"]:
        out += [f"### `{made['command']}`\n", text(made["about"]) + "\n"]
        out.append(
            table(made["header"], [[text(c) for c in row] for row in made["rows"]])
        )
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
            rows.append(
                [
                    said,
                    len(record["checks"]),
                    record["seconds"],
                    f"`{record['commit']}`",
                ]
            )
    return table(("command", "checks", "seconds", "commit"), rows)


def lines(files: Iterable[Path]) -> int:
    """How many lines files have."""
    return sum(len(file.read_text().splitlines()) for file in files)


def python(place: Path) -> set[Path]:
    """Files of a chapter: a folder or a module."""
    return {*place.rglob("*.py"), *place.parent.glob(f"{place.name}.py")}


def stating(files: Iterable[Path]) -> int:
    """Lines of what stands before the derivation: all up to the name `stated`, without
    imports.
    """
    for file in files:
        body = ast.parse(file.read_text()).body

        ends = [
            k
            for k, x in enumerate(body)
            if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "stated"
        ]
        if ends:
            parts = [
                x
                for x in body[: ends[0] + 1]
                if not isinstance(x, ast.Import | ast.ImportFrom)
            ]
            return sum(1 + (x.end_lineno or 0) - x.lineno for x in parts)
    return 0


def imported(files: Iterable[Path]) -> set[Path]:
    """Files of ``simulate`` that others import, packages left out."""
    paths = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "simulate"
            ):
                room = ROOT.joinpath(*str(node.module).split("."))
                paths |= {
                    room.with_suffix(".py"),
                    *(room / f"{x.name}.py" for x in node.names),
                }
    return {file for file in paths if file.is_file()}


def sizes() -> str:
    """Lines that each stated system took: its statement, its theory in all, students of
    its own (that no other checks use), checks. Then the systems of the examples.
    """
    models = [m for m in registry.TABLE.values() if m.stated and not m.package]
    folders = {
        m.name: [ROOT.joinpath(w, *m.name.split(".")) for w in WINGS[:3]]
        for m in models
    }
    checks = {name: python(places[2]) for name, places in folders.items()}
    shared = imported(
        {*(ROOT / "verify").rglob("*.py")} - set().union(*checks.values())
    )
    rows = []
    for name, (theory, students, _) in folders.items():
        of_students = {*python(students), *imported(checks[name])} - shared
        parts = [python(theory), of_students, checks[name]]
        counted = [stating(parts[0]), *map(lines, parts)]
        rows.append([f"`{name}`", *counted, sum(counted[1:])])
    for name, (folder, trained, laws) in EXAMPLES.items():
        place = ROOT / "examples" / folder
        counted = [
            lines(place.rglob("*.py")),
            lines(place.glob(trained)),
            lines(place.glob(laws)),
        ]
        rows.append(
            [f"`{name}`", "", counted[0] - sum(counted[1:]), *counted[1:], counted[0]]
        )
    return table(
        ("system", "statement", "theory", "own students", "checks", "in all"), rows
    )


class Generated(SphinxDirective):
    """A directive that parses the Markdown its maker returns."""

    optional_arguments = 8
    option_spec = dict.fromkeys(("kinds", "words", "commands"), directives.unchanged)
    make: Any

    def run(self) -> list[Any]:
        """Make the Markdown and parse it in place."""
        if type(self).make in (figures.gallery, figures.picture, figures.thumbnails):
            self.env.note_reread()  # there may be more figures than last time
        options = {name: words.split() for name, words in self.options.items()}
        made = type(self).make(*self.arguments, **options)
        return self.parse_text_to_nodes(made, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register one directive per maker."""
    makers = (
        statuses,
        equations,
        verified,
        coverage,
        ledger,
        interface.commands,
        interface.api,
        performance,
        costs,
        sizes,
    )
    drawn = (figures.gallery, figures.picture, figures.thumbnails)
    for maker in (*makers, pages.explorers, *drawn):
        kind = type(maker.__name__, (Generated,), {"make": staticmethod(maker)})
        app.add_directive(maker.__name__, kind)
    # What directives are made of is no file that Sphinx watches: all pages follow this
    # hash.
    app.add_config_value("sources_hash", "", "env")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
